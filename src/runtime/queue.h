// Queues and events: work in order on one device, given by any thread.
#pragma once

#include "runtime/pending.h"
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
  void check_lost() const;
  bool is_this_thread() const { return thread_id_.load() == std::this_thread::get_id(); }
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
  std::shared_ptr<Core> core_ = std::make_shared<Core>();
  std::unique_ptr<std::thread> thread_;  // null: not begun
  std::atomic<pid_t> process_{0};        // that has the thread; 0: none yet
  std::atomic<std::thread::id> thread_id_{};
};

// A run that another one comes after, because it writes what that one reads or writes.
struct Predecessor {
  CompletionRef run;
  bool read = false;  // its failure is that of the reader
};

// One run as a queue sees it. `start` gives the work to the stream; `finish` is called once when it
// is done or failed, and keeps alive what the work uses.
struct Job {
  std::function<void(target::Stream&)> start;
  std::function<void(std::exception_ptr)> finish;
  std::vector<std::pair<Event, uint64_t>> wait_for, signal;
  // Called when the queue takes the job: marks what it writes with its completion, and gives the
  // runs of any queue that it comes after.
  std::function<std::vector<Predecessor>(const CompletionRef&)> begin;
  CompletionRef completion;
  std::vector<Predecessor> after;
  // Bytes that it takes of the device besides those of work on this stream that is not done; null:
  // 0.
  std::function<int64_t(const target::Stream&)> ahead_bytes;
  bool alone = false;      // starts when all before it is finished
  bool awaited = false;    // `finish` is to follow the end of the work at once
  int64_t held_bytes = 0;  // of what it keeps alive
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

struct Queue::State : std::enable_shared_from_this<Queue::State>, runtime::CompletionSource {
  State(runtime::DeviceContext& device_context, std::unique_ptr<target::Stream> own,
        bool is_wrapped = false)
      : context(device_context), stream(std::move(own)), wrapped(is_wrapped) {}
  ~State() override;
  // What a Queue holds: jobs keep the state itself, and the last Queue to go waits for them.
  static std::shared_ptr<State> make(runtime::DeviceContext& context,
                                     std::unique_ptr<target::Stream> stream,
                                     bool is_wrapped = false);

  // In order after everything given before. Returns at once.
  void submit(std::vector<runtime::Job> jobs);
  void submit(runtime::Job job);
  // Waits for everything given before, then calls f on this thread.
  void run_now(const std::function<void(target::Stream&)>& f);
  void wait();           // rethrows the first error since the last wait
  void wait_for_jobs();  // their errors stay for wait()
  // For what reads the results of one job.
  void wait_for(const runtime::Completion& job) override;
  // Waits for what the stream has and lets go of what that used.
  void finish_given();
  // Jobs that are not finished.
  int64_t pending() const { return worker.pending() + in_flight_.load(std::memory_order_acquire); }
  bool lost() const { return worker.lost(); }

  runtime::DeviceContext& context;
  std::unique_ptr<target::Stream> stream;
  bool wrapped;  // a caller's stream: work is given to it before submit() returns

 private:
  // A job that the stream has and that is not finished.
  struct Flight {
    runtime::Job job;
    std::exception_ptr error;  // of its start
    int64_t ticket = 0, bytes = 0;
  };
  struct Given {
    int64_t ticket = 0;
    bool sweep = false;  // much is in flight: the worker's thread is to let go of what is done
  };

  bool may_start(const runtime::Job& job) const;
  bool room_for(const runtime::Job& job) const;
  std::exception_ptr start(runtime::Job& job);
  void wait_for_predecessor(const runtime::Predecessor& before);
  Given give(runtime::Job job);
  void give_in_turn(runtime::Job job);
  std::exception_ptr wait_for_work(target::Mark* mark) const;
  int64_t last_ticket();
  void settle(int64_t ticket, const std::exception_ptr& error);
  void settle_awaited(int64_t ticket, const std::exception_ptr& error);
  void finish(Flight& flight, const std::exception_ptr& error);
  void sweep();
  bool much_in_flight() const;
  void keep(const std::exception_ptr& error);

  std::mutex submitting_;  // jobs come one after another
  std::mutex use_;         // one thread at a time gives work to the stream
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::atomic<int64_t> unstarted_{0};  // jobs that the worker's thread will start
  // In order. The worker's thread finishes those that are awaited; whoever waits, or a sweep,
  // finishes the others.
  std::mutex flights_mutex_;
  std::deque<Flight> flights_;
  int64_t tickets_ = 0, held_bytes_ = 0;
  bool sweeping_ = false;
  std::atomic<int64_t> in_flight_{0}, ahead_bytes_{0};
  std::mutex settling_;    // while jobs that nobody awaits are finished
  runtime::Worker worker;  // last: ends first
};

struct CommandBuffer::State {
  std::shared_ptr<Queue::State> queue;
  std::mutex mutex;
  std::vector<runtime::Job> jobs;
  bool committed = false;
};

}  // namespace heddle
