#include "runtime/queue.h"

#include "base/check.h"
#include "base/env.h"
#include "runtime/devices.h"

#include <heddle/error.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>

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
    }
  }
  core_->changed.notify_all();
}

void Worker::wait() const {
  check_lost();
  std::unique_lock lock(core_->mutex);
  if (thread_ && thread_->get_id() == std::this_thread::get_id()) return;  // a completion handler
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
    job();
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
  double seconds = 0;
  if (auto text = base::env("HEDDLE_WAIT_LIMIT"))
    std::from_chars(text->data(), text->data() + text->size(), seconds);
  constexpr double kYear = 3600.0 * 24 * 365;
  if (!(seconds > 0)) return {};
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, kYear) * 1000));
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
            if (!state->lost()) state->worker.wait();
          }};
}

Queue::State::~State() {
  try {
    stream->synchronize();
  } catch (...) {  // nobody is left to tell
  }
}

void Queue::State::keep(std::exception_ptr error) {
  std::lock_guard lock(error_mutex_);
  if (!error_) error_ = std::move(error);
}

void Queue::State::start(runtime::Job& job, std::exception_ptr& error) {
  try {
    for (const auto& [event, value] : job.wait_for) event.state()->wait_value(value);
    std::lock_guard lock(use_);
    if (job.start) job.start(*stream);
  } catch (...) {
    error = std::current_exception();
  }
}

void Queue::State::finish(runtime::Job& job, std::exception_ptr error) {
  try {
    stream->synchronize();
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  for (const auto& [event, value] : job.signal) event.state()->signal(value, error);
  try {
    if (job.finish) job.finish(error);
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  if (error) keep(error);
}

void Queue::State::submit(std::vector<runtime::Job> jobs) {
  for (runtime::Job& job : jobs) submit(std::move(job));
}

// Behind work that is not done: a few, so that what is in flight stays bounded.
bool Queue::State::may_start(const runtime::Job& job) const {
  constexpr int64_t kJobs = 32, kBytes = int64_t{256} << 20;
  int64_t pending = worker.pending();
  if (pending == 0) return true;
  return job.ahead_bytes && unstarted_.load() == 0 && awaited_.load() == 0 && pending < kJobs &&
         ahead_bytes_.load() + *job.ahead_bytes <= kBytes;
}

// Devices with streams of their own get the work at once where nothing has to be waited for; it is
// finished elsewhere.
void Queue::State::submit(runtime::Job given) {
  auto job = std::make_shared<runtime::Job>(std::move(given));
  bool ready = !stream_is_host() && (wrapped || may_start(*job));
  for (const auto& [event, value] : job->wait_for)
    ready &= wrapped || event.state()->reached(value);
  if (ready) {
    auto error = std::make_shared<std::exception_ptr>();
    int64_t bytes = job->ahead_bytes.value_or(0);
    int64_t awaited = job->awaited || !job->signal.empty() ? 1 : 0;
    ahead_bytes_ += bytes;
    awaited_ += awaited;
    start(*job, *error);
    worker.submit([self = shared_from_this(), job, error, bytes, awaited] {
      self->finish(*job, *error);
      self->ahead_bytes_ -= bytes;
      self->awaited_ -= awaited;
    });
    return;
  }
  ++unstarted_;
  worker.submit([self = shared_from_this(), job] {
    std::exception_ptr error;
    self->start(*job, error);
    // What is told of its end, or takes much of the device, holds those behind it back until then.
    bool alone = !job->ahead_bytes || job->awaited || !job->signal.empty();
    if (!alone) --self->unstarted_;
    self->finish(*job, error);
    if (alone) --self->unstarted_;
  });
}

bool Queue::State::stream_is_host() const { return context.device()->host_memory(); }

void Queue::State::run_now(const std::function<void(target::Stream&)>& f) {
  worker.wait();
  std::lock_guard lock(use_);
  f(*stream);
}

void Queue::State::wait() {
  worker.wait();
  std::exception_ptr error;
  {
    std::lock_guard lock(error_mutex_);
    std::swap(error, error_);
  }
  if (error) std::rethrow_exception(error);
  std::lock_guard lock(use_);
  stream->synchronize();
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

void CommandBuffer::wait() { state_->queue->wait(); }

}  // namespace heddle
