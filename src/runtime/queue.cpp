#include "runtime/queue.h"

#include "base/check.h"
#include "base/env.h"
#include "base/floating_point.h"
#include "runtime/devices.h"

#include <heddle/error.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace heddle {

namespace runtime {

bool Worker::lost() const {
  pid_t process = process_.load(std::memory_order_acquire);
  return process != 0 && process != getpid();
}

void Worker::check_lost() const {
  if (lost())
    throw DeviceError(
        "queue: it was made before fork(), and its thread stayed with the parent: make a new queue "
        "in the child process");
}

Worker::~Worker() {
  if (lost()) {
    // There is nothing to join or to detach, and what the jobs keep is the parent's to finish.
    core_->parent_thread = std::move(thread_);
    core_->kept = core_;
    return;
  }
  if (!thread_) return;
  {
    std::lock_guard lock(core_->mutex);
    core_->stop = true;
  }
  core_->changed.notify_all();
  if (thread_->get_id() == std::this_thread::get_id()) {
    thread_->detach();
  } else {
    thread_->join();
  }
}

void Worker::submit(std::function<void()> job) {
  check_lost();
  {
    std::lock_guard lock(core_->mutex);
    core_->jobs.push_back(std::move(job));
    core_->pending.fetch_add(1, std::memory_order_release);
    if (!thread_) {
      process_.store(getpid(), std::memory_order_release);
      thread_ = std::make_unique<std::thread>([core = core_] { loop(core); });
      thread_id_.store(thread_->get_id());
    }
  }
  core_->changed.notify_all();
}

void Worker::wait() const {
  check_lost();
  if (is_this_thread() || pending() == 0) return;  // a completion handler
  std::unique_lock lock(core_->mutex);
  core_->changed.wait(lock, [&] { return core_->pending.load() == 0; });
}

void Worker::loop(const std::shared_ptr<Core>& core) {
  std::unique_lock lock(core->mutex);
  while (true) {
    core->changed.wait(lock, [&] { return core->stop || !core->jobs.empty(); });
    if (core->jobs.empty()) return;
    std::function<void()> job = std::move(core->jobs.front());
    core->jobs.pop_front();
    lock.unlock();
    {
      // The thread's mode came from whoever made it, and completion handlers may change it.
      base::StandardFloatingPoint mode;
      job();
    }
    job = nullptr;  // what it keeps alive goes before a waiter wakes
    lock.lock();
    core->pending.fetch_sub(1, std::memory_order_release);
    core->changed.notify_all();
  }
}

}  // namespace runtime

namespace {

// 0: none.
std::chrono::milliseconds wait_limit() {
  constexpr double kYear = 3600.0 * 24 * 365;
  double seconds = base::env_number("HEDDLE_WAIT_LIMIT", 0, kYear).value_or(0);
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace

void Event::State::signal(uint64_t to, std::exception_ptr failure) {
  {
    std::lock_guard lock(mutex);
    if (to > value) value = to;
    if (failure && !error) error = std::move(failure);
  }
  changed.notify_all();
}

void Event::State::wait_value(uint64_t at_least) const {
  std::unique_lock lock(mutex);
  auto reached = [&] { return value >= at_least; };
  std::chrono::milliseconds limit = wait_limit();
  if (limit.count() == 0) return changed.wait(lock, reached);
  if (changed.wait_for(lock, limit, reached)) return;
  throw DeviceError(base::cat("wait: an event's value is ", value, " after ", limit.count(),
                              " ms (HEDDLE_WAIT_LIMIT), expected ", at_least,
                              ": nothing has signalled it"));
}

bool Event::State::reached(uint64_t at_least) const {
  std::lock_guard lock(mutex);
  return value >= at_least;
}

Event::Event() : state_(std::make_shared<State>()) {}

uint64_t Event::value() const {
  std::lock_guard lock(state_->mutex);
  return state_->value;
}

void Event::signal(uint64_t value) { state_->signal(value, nullptr); }

bool Event::wait(uint64_t value, std::chrono::milliseconds timeout) const {
  std::unique_lock lock(state_->mutex);
  auto reached = [&] { return state_->value >= value; };
  // Deadlines beyond a year overflow the clock: no deadline.
  if (timeout > std::chrono::hours(24 * 365)) {
    state_->changed.wait(lock, reached);
  } else if (!state_->changed.wait_for(lock, timeout, reached)) {
    return false;
  }
  if (state_->error) {
    std::exception_ptr error = std::move(state_->error);
    state_->error = nullptr;
    std::rethrow_exception(error);
  }
  return true;
}

std::shared_ptr<Queue::State> Queue::State::make(runtime::DeviceContext& context,
                                                 std::unique_ptr<target::Stream> stream,
                                                 bool is_wrapped) {
  auto state = std::make_shared<State>(context, std::move(stream), is_wrapped);
  State* raw = state.get();
  return {raw, [state](State*) {
            if (!state->lost()) state->wait_for_jobs();
          }};
}

Queue::State::~State() {
  try {
    stream->synchronize();
  } catch (...) {  // nobody is left to tell
  }
}

void Queue::State::keep(const std::exception_ptr& error) {
  std::lock_guard lock(error_mutex_);
  if (!error_) error_ = error;
}

void Queue::State::submit(std::vector<runtime::Job> jobs) {
  for (runtime::Job& job : jobs) submit(std::move(job));
}

// Behind work that is not done: a few, so that what is in flight stays bounded.
bool Queue::State::room_for(const runtime::Job& job) const {
  constexpr int64_t kJobs = 64, kBytes = int64_t{256} << 20;
  int64_t jobs = in_flight_.load(std::memory_order_acquire);
  if (jobs == 0) return true;
  if (job.alone || jobs >= kJobs) return false;
  return !job.ahead_bytes || ahead_bytes_.load() + job.ahead_bytes(*stream) <= kBytes;
}

// Work for devices with streams of their own, where nothing has to be waited for. A caller's stream
// gets it in any case.
bool Queue::State::may_start(const runtime::Job& job) const {
  if (context.device()->host_memory()) return false;
  if (wrapped) return true;
  if (unstarted_.load() != 0 || !room_for(job)) return false;
  return std::all_of(job.wait_for.begin(), job.wait_for.end(),
                     [](const auto& e) { return e.first.state()->reached(e.second); }) &&
         std::all_of(job.after.begin(), job.after.end(), [&](const runtime::Predecessor& p) {
           return p.run->done() || p.run->belongs_to(this);
         });
}

// What can start does so here, and costs no other thread anything unless its end is awaited.
void Queue::State::submit(runtime::Job job) {
  std::lock_guard lock(submitting_);
  if (job.begin) {
    job.completion = std::make_shared<runtime::Completion>(weak_from_this());
    job.after = job.begin(job.completion);
    job.begin = nullptr;
  }
  job.awaited |= job.alone || !job.signal.empty();
  if (may_start(job)) {
    bool awaited = job.awaited;
    Given given = give(std::move(job));
    if (awaited) {
      worker.submit([self = shared_from_this(), ticket = given.ticket,
                     mark = std::shared_ptr<target::Mark>(stream->mark())] {
        self->settle_awaited(ticket, self->wait_for_work(mark.get()));
      });
    } else if (given.sweep) {
      worker.submit([self = shared_from_this()] { self->sweep(); });
    }
    return;
  }
  ++unstarted_;
  worker.submit([self = shared_from_this(), kept = std::make_shared<runtime::Job>(std::move(job))] {
    self->give_in_turn(std::move(*kept));
  });
}

// Those of this queue have been given to the stream before.
void Queue::State::wait_for_predecessor(const runtime::Predecessor& before) {
  std::exception_ptr error = before.run->error();
  if (!error && !before.run->belongs_to(this)) {
    try {
      before.run->wait();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (error && before.read) std::rethrow_exception(error);
}

std::exception_ptr Queue::State::start(runtime::Job& job) {
  try {
    for (const auto& [event, value] : job.wait_for) event.state()->wait_value(value);
    for (const runtime::Predecessor& p : job.after) wait_for_predecessor(p);
    job.after.clear();
    std::lock_guard lock(use_);
    if (job.start) job.start(*stream);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

Queue::State::Given Queue::State::give(runtime::Job job) {
  Flight flight{std::move(job), nullptr, 0, 0};
  if (flight.job.ahead_bytes) flight.bytes = flight.job.ahead_bytes(*stream);
  flight.error = start(flight.job);
  std::lock_guard lock(flights_mutex_);
  Given given{flight.ticket = ++tickets_, false};
  held_bytes_ += flight.job.held_bytes;
  ahead_bytes_ += flight.bytes;
  in_flight_.fetch_add(1, std::memory_order_release);
  if (flight.job.completion) flight.job.completion->start(given.ticket, flight.error);
  flights_.push_back(std::move(flight));
  if (!sweeping_ && much_in_flight()) given.sweep = sweeping_ = true;
  return given;
}

// On the worker's thread.
void Queue::State::give_in_turn(runtime::Job job) {
  bool host = context.device()->host_memory(), wait = host || job.awaited;
  if (!host && !room_for(job)) settle(last_ticket(), wait_for_work(nullptr));
  Given given = give(std::move(job));
  // What is awaited holds those behind it back: its end is told of by this thread.
  if (wait) settle_awaited(given.ticket, wait_for_work(nullptr));
  --unstarted_;
  if (given.sweep) sweep();
}

// Until what was given before the mark is done; where there is none, everything.
std::exception_ptr Queue::State::wait_for_work(target::Mark* mark) const {
  try {
    if (mark != nullptr) {
      mark->wait();
    } else {
      stream->synchronize();
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

int64_t Queue::State::last_ticket() {
  std::lock_guard lock(flights_mutex_);
  return tickets_;
}

void Queue::State::finish(Flight& flight, const std::exception_ptr& error) {
  std::exception_ptr first = flight.error ? flight.error : error;
  if (flight.job.completion) flight.job.completion->finish(first);
  for (const auto& [event, value] : flight.job.signal) event.state()->signal(value, first);
  try {
    if (flight.job.finish) flight.job.finish(first);
  } catch (...) {
    if (!first) first = std::current_exception();
  }
  if (first) keep(first);
}

// Finishes jobs up to a ticket that nobody awaits. `error`: of their work.
void Queue::State::settle(int64_t ticket, const std::exception_ptr& error) {
  std::vector<Flight> done;  // goes after the lock: what they keep may be a caller's
  std::lock_guard settling(settling_);
  {
    std::lock_guard lock(flights_mutex_);
    auto first = std::stable_partition(flights_.begin(), flights_.end(), [&](const Flight& f) {
      return f.ticket > ticket || f.job.awaited;
    });
    done.assign(std::make_move_iterator(first), std::make_move_iterator(flights_.end()));
    flights_.erase(first, flights_.end());
    for (const Flight& f : done) held_bytes_ -= f.job.held_bytes;
  }
  for (Flight& f : done) {
    finish(f, error);
    ahead_bytes_ -= f.bytes;
    in_flight_.fetch_sub(1, std::memory_order_release);
  }
}

// On the worker's thread: those before it, then the one whose end is awaited.
void Queue::State::settle_awaited(int64_t ticket, const std::exception_ptr& error) {
  settle(ticket, error);
  Flight flight;
  {
    std::lock_guard lock(flights_mutex_);
    auto it = std::find_if(flights_.begin(), flights_.end(),
                           [&](const Flight& f) { return f.ticket == ticket; });
    if (it == flights_.end()) return;  // on a host nothing is awaited in particular
    held_bytes_ -= it->job.held_bytes;
    flight = std::move(*it);
    flights_.erase(it);
  }
  finish(flight, error);
  flight.job = {};  // what it keeps goes before a waiter wakes
  ahead_bytes_ -= flight.bytes;
  in_flight_.fetch_sub(1, std::memory_order_release);
}

bool Queue::State::much_in_flight() const {
  constexpr int64_t kBytes = int64_t{64} << 20;
  constexpr size_t kJobs = 32;
  return held_bytes_ > kBytes || flights_.size() >= kJobs;
}

// On the worker's thread: what is done need not be kept until somebody waits.
void Queue::State::sweep() {
  int64_t ticket = last_ticket();
  std::unique_ptr<target::Mark> mark = stream->mark();
  settle(ticket, wait_for_work(mark.get()));
  {
    std::lock_guard lock(flights_mutex_);
    sweeping_ = much_in_flight();
    if (!sweeping_) return;
  }
  worker.submit([self = shared_from_this()] { self->sweep(); });
}

void Queue::State::run_now(const std::function<void(target::Stream&)>& f) {
  wait_for_jobs();
  std::lock_guard lock(use_);
  f(*stream);
}

void Queue::State::wait_for_jobs() {
  worker.wait();
  if (in_flight_.load(std::memory_order_acquire) != 0) finish_given();
}

void Queue::State::finish_given() {
  int64_t ticket = last_ticket();
  std::exception_ptr error = wait_for_work(nullptr);
  // In a completion handler nothing is finished: its thread is the one that does so.
  if (!worker.is_this_thread()) settle(ticket, error);
  if (error) keep(error);
}

void Queue::State::wait_for(const runtime::Completion& job) {
  worker.check_lost();
  bool host = context.device()->host_memory(), here = worker.is_this_thread();
  if (here && (host || !job.started())) {
    throw GraphError(
        "wait: a completion handler reads the result of a later run of its own queue, which starts "
        "only when the handler has returned");
  }
  if (host) return job.wait_until_done();
  job.wait_until_started();
  if (job.done() || job.error()) return;
  if (std::exception_ptr error = wait_for_work(nullptr)) std::rethrow_exception(error);
  // The worker's thread finishes what is awaited, and in a completion handler it is this one.
  if (!here) settle(job.ticket(), nullptr);
}

void Queue::State::wait() {
  worker.wait();
  finish_given();
  std::exception_ptr error;
  {
    std::lock_guard lock(error_mutex_);
    std::swap(error, error_);
  }
  if (error) std::rethrow_exception(error);
}

Queue::Queue(const heddle::Device& device) {
  runtime::DeviceContext& context = runtime::context_of(device.impl());
  state_ = State::make(context, device.impl()->create_stream());
}

Queue Queue::wrap(const heddle::Device& device, void* native_stream) {
  Queue queue;
  queue.state_ = State::make(runtime::context_of(device.impl()),
                             device.impl()->wrap_stream(native_stream), true);
  return queue;
}

Device Queue::device() const { return Device(state_->context.device()); }

void Queue::wait() const { state_->wait(); }

void Queue::signal(const Event& event, uint64_t value) const {
  runtime::Job job;
  job.signal.emplace_back(event, value);
  state_->submit(std::move(job));
}

void Queue::wait_for(const Event& event, uint64_t value) const {
  runtime::Job job;
  job.wait_for.emplace_back(event, value);
  state_->submit(std::move(job));
}

CommandBuffer::CommandBuffer(const Queue& queue) : state_(std::make_shared<State>()) {
  state_->queue = queue.state();
}

void CommandBuffer::commit() {
  std::vector<runtime::Job> jobs;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->committed)
      throw GraphError("CommandBuffer::commit: the buffer was committed before");
    state_->committed = true;
    jobs = std::move(state_->jobs);
  }
  state_->queue->submit(std::move(jobs));
}

void CommandBuffer::wait() {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->committed)
      throw GraphError(
          "CommandBuffer::wait: the buffer was not committed, expected commit() before");
  }
  state_->queue->wait();
}

}  // namespace heddle
