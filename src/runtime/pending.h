// Who still writes an array's memory: what reads of it on the host wait for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace heddle::runtime {

// What waits for one job of a queue (runtime/queue.h) on behalf of a reader.
class Completion;
class CompletionSource {
 public:
  virtual ~CompletionSource() = default;
  // Returns when the work of the job is done. DeviceError where it can never be.
  virtual void wait_for(const Completion& job) = 0;
};

// The end of one asynchronous run.
class Completion {
 public:
  explicit Completion(std::weak_ptr<CompletionSource> source) : source_(std::move(source)) {}

  bool done() const { return state_.load(std::memory_order_acquire) == State::done; }
  // Until what the run writes may be read; throws the run's error, each time.
  void wait() const;
  // Known so far: of the start, or of the whole run once it is done.
  std::exception_ptr error() const;
  bool belongs_to(const CompletionSource* source) const { return source_.lock().get() == source; }

  // For the queue. Started: the stream has the work, as number `ticket`.
  void start(int64_t ticket, std::exception_ptr error);
  void finish(std::exception_ptr error);
  void wait_until_started() const;
  void wait_until_done() const;
  bool started() const { return state_.load(std::memory_order_acquire) != State::waiting; }
  int64_t ticket() const { return ticket_; }  // once started

 private:
  enum class State : uint8_t { waiting, started, done };
  void advance(State to, const std::exception_ptr& error);

  std::weak_ptr<CompletionSource> source_;
  std::atomic<State> state_{State::waiting};
  int64_t ticket_ = 0;
  std::exception_ptr error_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};
using CompletionRef = std::shared_ptr<Completion>;

// Bytes of memory, of any device.
struct ByteRange {
  const std::byte *begin = nullptr, *end = nullptr;
  bool meets(const ByteRange& o) const { return begin < o.end && o.begin < end; }
  bool covers(const ByteRange& o) const { return begin <= o.begin && o.end <= end; }
};

// The asynchronous runs that write parts of a storage and are not done, or have failed.
class PendingWrites {
 public:
  // False: every read may go on. Costs one load.
  bool any() const { return any_.load(std::memory_order_acquire); }
  void add(const ByteRange& range, CompletionRef run);
  // Those that write into the range, in the order in which they were given.
  std::vector<CompletionRef> of(const ByteRange& range) const;
  // Waits for all that write into the range; throws the error of the last one that failed and was
  // not written over.
  void wait(const ByteRange& range);
  // The range was written by other means, which waited for those before.
  void overwritten(const ByteRange& range);

 private:
  struct Entry {
    ByteRange range;
    CompletionRef run;
  };
  void drop_finished(const ByteRange& rewritten);  // under the lock

  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace heddle::runtime
