#include "runtime/pending.h"

#include <heddle/error.h>

namespace heddle::runtime {

void Completion::advance(State to, const std::exception_ptr& error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    if (to > state_.load(std::memory_order_relaxed)) state_.store(to, std::memory_order_release);
  }
  changed_.notify_all();
}

void Completion::start(int64_t ticket, std::exception_ptr error) {
  ticket_ = ticket;
  advance(State::started, error);
}

void Completion::finish(std::exception_ptr error) { advance(State::done, error); }

void Completion::wait_until_started() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started(); });
}

void Completion::wait_until_done() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done(); });
}

std::exception_ptr Completion::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

void Completion::wait() const {
  if (!done()) {
    std::shared_ptr<CompletionSource> source = source_.lock();
    if (source) {
      source->wait_for(*this);
    } else if (!done()) {
      throw DeviceError("wait: the queue of the run ended before the run did");
    }
  }
  if (std::exception_ptr failed = error()) std::rethrow_exception(failed);
}

// What has failed stays until it is written again.
void PendingWrites::drop_finished(const ByteRange& rewritten) {
  std::erase_if(entries_, [&](const Entry& e) {
    return e.run->error() ? rewritten.covers(e.range) : e.run->done();
  });
  any_.store(!entries_.empty(), std::memory_order_release);
}

void PendingWrites::add(const ByteRange& range, CompletionRef run) {
  std::lock_guard lock(mutex_);
  drop_finished(range);
  entries_.push_back({range, std::move(run)});
  any_.store(true, std::memory_order_release);
}

std::vector<CompletionRef> PendingWrites::of(const ByteRange& range) const {
  std::lock_guard lock(mutex_);
  std::vector<CompletionRef> runs;
  for (const Entry& e : entries_) {
    if (e.range.meets(range)) runs.push_back(e.run);
  }
  return runs;
}

void PendingWrites::wait(const ByteRange& range) {
  if (!any()) return;
  std::vector<Entry> writers;
  {
    std::lock_guard lock(mutex_);
    for (const Entry& e : entries_)
      if (e.range.meets(range)) writers.push_back(e);
  }
  std::exception_ptr last;
  ByteRange failed;
  for (const Entry& e : writers) {
    try {
      e.run->wait();
      if (e.range.covers(failed)) last = nullptr;
    } catch (...) {
      last = std::current_exception();
      failed = e.range;
    }
  }
  overwritten({});
  if (last) std::rethrow_exception(last);
}

void PendingWrites::overwritten(const ByteRange& range) {
  if (!any()) return;
  std::lock_guard lock(mutex_);
  drop_finished(range);
}

}  // namespace heddle::runtime
