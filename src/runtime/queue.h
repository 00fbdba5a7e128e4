// Queues and events: work in order on one device, given by any thread.
#pragma once

#include "target/target.h"

#include <heddle/device.h>
#include <heddle/graph.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace heddle {

namespace runtime {
class DeviceContext;

// Runs jobs one after another on its own thread, which starts with the first job. Threads do not
// survive a fork: in the child, a worker that had begun refuses jobs and waits with DeviceError.
class Worker {
 public:
  ~Worker();  // waits for the jobs; called from a job it leaves them to the thread
  void submit(std::function<void()> job);
  void wait() const;  // until every job so far is done
  bool lost() const;  // its thread stayed in the process that this one was forked from
  int64_t pending() const { return core_->pending.load(std::memory_order_acquire); }

 private:
  struct Core {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    std::atomic<int64_t> pending{0};
    bool stop = false;
    // In the child of a fork: itself and the parent's thread, which nothing there may end.
    std::shared_ptr<Core> kept;
    std::unique_ptr<std::thread> parent_thread;
  };
  static void loop(const std::shared_ptr<Core>& core);
  void check_lost() const;
  std::shared_ptr<Core> core_ = std::make_shared<Core>();
  std::unique_ptr<std::thread> thread_;  // null: not begun
  std::atomic<pid_t> process_{0};        // that has the thread; 0: none yet
};

// One run as a queue sees it. `start` gives the work to the stream; `finish` is called once when it
// is done or failed, and keeps alive what the work uses.
struct Job {
  std::function<void(target::Stream&)> start;
  std::function<void(std::exception_ptr)> finish;
  std::vector<std::pair<Event, uint64_t>> wait_for, signal;
  // What it takes of the device, where it can start behind work that is not done.
  std::optional<int64_t> ahead_bytes;
  bool awaited = false;  // somebody is told of its end: nothing that may delay it starts before
};

}  // namespace runtime

struct Event::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  uint64_t value = 0;
  mutable std::exception_ptr error;  // of work that should have signalled; taken by the first wait

  void signal(uint64_t to, std::exception_ptr failure);
  // Without taking the error. DeviceError after HEDDLE_WAIT_LIMIT seconds.
  void wait_value(uint64_t at_least) const;
  bool reached(uint64_t at_least) const;
};

struct Queue::State : std::enable_shared_from_this<Queue::State> {
  State(runtime::DeviceContext& device_context, std::unique_ptr<target::Stream> own,
        bool is_wrapped = false)
      : context(device_context), stream(std::move(own)), wrapped(is_wrapped) {}
  ~State();
  // What a Queue holds: jobs keep the state itself, and the last Queue to go waits for them.
  static std::shared_ptr<State> make(runtime::DeviceContext& context,
                                     std::unique_ptr<target::Stream> stream,
                                     bool is_wrapped = false);

  // In order after everything given before. Returns at once.
  void submit(std::vector<runtime::Job> jobs);
  void submit(runtime::Job job);
  // Waits for everything given before, then calls f on this thread.
  void run_now(const std::function<void(target::Stream&)>& f);
  void wait();                                   // rethrows the first error since the last wait
  void wait_for_jobs() const { worker.wait(); }  // their errors stay for wait()
  int64_t pending() const { return worker.pending(); }
  bool lost() const { return worker.lost(); }

  runtime::DeviceContext& context;
  std::unique_ptr<target::Stream> stream;
  bool wrapped;  // a caller's stream: work is given to it before submit() returns

 private:
  bool stream_is_host() const;
  void start(runtime::Job& job, std::exception_ptr& error);
  void finish(runtime::Job& job, std::exception_ptr error);
  bool may_start(const runtime::Job& job) const;
  void keep(std::exception_ptr error);

  std::mutex use_;  // one thread at a time gives work to the stream
  std::mutex error_mutex_;
  std::exception_ptr error_;
  // Jobs that only the worker's thread will start; bytes of those that have started and are not
  // done; how many of them somebody is told of.
  std::atomic<int64_t> unstarted_{0}, ahead_bytes_{0}, awaited_{0};
  runtime::Worker worker;  // last: ends first
};

struct CommandBuffer::State {
  std::shared_ptr<Queue::State> queue;
  std::mutex mutex;
  std::vector<runtime::Job> jobs;
  bool committed = false;
};

}  // namespace heddle
