// Streams, events, copies.
#include "simulated_gpu/device.h"

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstring>
#include <set>

namespace heddle::simulated {

namespace {

struct Streams {
  std::mutex mutex;
  std::set<Stream*> all;
};
Streams& streams() {
  static auto* s = new Streams;
  return *s;
}

using EventHandle = std::shared_ptr<Event>;
EventHandle& event_of(CUevent event) { return *reinterpret_cast<EventHandle*>(event); }

}  // namespace

void Event::reach(uint64_t ticket) {
  {
    std::lock_guard lock(mutex);
    reached = std::max(reached, ticket);
  }
  changed.notify_all();
}
void Event::wait(uint64_t ticket) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return reached >= ticket; });
}

Stream::Stream() : thread_([this] { loop(); }) {
  std::lock_guard lock(streams().mutex);
  streams().all.insert(this);
}
Stream::~Stream() {
  {
    std::lock_guard lock(streams().mutex);
    streams().all.erase(this);
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Stream::give(Work work) {
  if (graph_ != nullptr) return add_captured(*graph_, &tail_, std::move(work));
  {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Stream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}

void Stream::capture(Graph* graph, CUgraphNode tail) {
  graph_ = graph;
  tail_ = tail;
}

void Stream::loop() {
  std::fesetenv(FE_DFL_ENV);  // not that of the thread that made the stream
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    Work work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    work = {};
    lock.lock();
    busy_ = false;
    if (work_.empty()) changed_.notify_all();
  }
}

Stream& stream_of(CUstream stream) {
  // The default stream of the driver: one for the process.
  static auto* legacy = new Stream;
  return stream == nullptr ? *legacy : *reinterpret_cast<Stream*>(stream);
}

void synchronize_all() {
  std::lock_guard lock(streams().mutex);
  for (Stream* s : streams().all) s->synchronize();
}

namespace {

CUresult copy(CUstream stream, void* to, const void* from, size_t bytes) {
  if (CUresult code = state()) return code;
  stream_of(stream).give([=] {
    perform([=] {
      if (!is_pinned(to)) check_memory(to, bytes, "copy to");
      if (!is_pinned(from)) check_memory(from, bytes, "copy from");
      std::memmove(to, from, bytes);
    });
  });
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace heddle::simulated

using namespace heddle::simulated;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  *stream = reinterpret_cast<CUstream>(new Stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  delete &stream_of(stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  stream_of(stream).synchronize();
  return state();
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  if (CUresult code = state()) return code;
  std::shared_ptr<Event> e = event_of(event);
  uint64_t ticket = 0;
  {
    std::lock_guard lock(e->mutex);
    ticket = e->recorded;
  }
  stream_of(stream).give([e, ticket] { e->wait(ticket); });
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  if (CUresult code = state()) return code;
  stream_of(stream).give([=] {
    std::atomic_ref<uint32_t> word(*reinterpret_cast<uint32_t*>(address));
    while (static_cast<int32_t>(word.load(std::memory_order_acquire) - value) < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  });
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  *status = stream_of(stream).captured() != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                    : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new EventHandle(std::make_shared<Event>()));
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  delete &event_of(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (CUresult code = state()) return code;
  std::shared_ptr<Event> e = event_of(event);
  uint64_t ticket = 0;
  {
    std::lock_guard lock(e->mutex);
    ticket = ++e->recorded;
  }
  stream_of(stream).give([e, ticket] { e->reach(ticket); });
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  std::shared_ptr<Event> e = event_of(event);
  uint64_t ticket = 0;
  {
    std::lock_guard lock(e->mutex);
    ticket = e->recorded;
  }
  e->wait(ticket);
  return state();
}
CUresult cuEventQuery(CUevent event) {
  std::shared_ptr<Event> e = event_of(event);
  std::lock_guard lock(e->mutex);
  return e->reached >= e->recorded ? state() : CUDA_ERROR_NOT_READY;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (is_pinned(from)) return copy(stream, reinterpret_cast<void*>(to), from, bytes);
  // Other memory of the host is free once the call returns.
  auto data = std::make_shared<std::vector<char>>(static_cast<const char*>(from),
                                                  static_cast<const char*>(from) + bytes);
  if (CUresult code = state()) return code;
  stream_of(stream).give([=] {
    perform([=] {
      check_memory(reinterpret_cast<void*>(to), bytes, "copy to");
      std::memcpy(reinterpret_cast<void*>(to), data->data(), bytes);
    });
  });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (is_pinned(to)) return copy(stream, to, reinterpret_cast<void*>(from), bytes);
  stream_of(stream).synchronize();
  perform([&] {
    check_memory(reinterpret_cast<void*>(from), bytes, "copy from");
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  });
  return state();
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(stream, reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  if (CUresult code = state()) return code;
  stream_of(stream).give([=] {
    perform([=] {
      check_memory(reinterpret_cast<void*>(to), bytes, "fill");
      std::memset(reinterpret_cast<void*>(to), byte, bytes);
    });
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
