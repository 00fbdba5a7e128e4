// The devices of this process, and what the runtime keeps for each: idle streams, constants,
// arenas, the default queue.
#pragma once

#include "plan/arena.h"
#include "runtime/constant_store.h"
#include "target/target.h"

#include <heddle/device.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace heddle::runtime {

// Lives as long as the process, like the device that it keeps.
class DeviceContext {
 public:
  explicit DeviceContext(std::shared_ptr<target::Device> device)
      : device_(std::move(device)), constants_(device_), arenas_(*device_) {}
  const std::shared_ptr<target::Device>& device() const { return device_; }
  std::unique_ptr<target::Stream> take_stream();
  void give_stream(std::unique_ptr<target::Stream> stream);
  ConstantStore& constants() { return constants_; }
  plan::ArenaPool& arenas() { return arenas_; }
  // What work on the default queue holds, once it is done; idle arenas; what the device's allocator
  // caches.
  void trim();
  const std::shared_ptr<Queue::State>& default_queue();
  // Nothing waits in the default queue (which may not exist yet).
  bool default_queue_idle() const;
  void wait_default_queue();

 private:
  std::shared_ptr<target::Device> device_;
  ConstantStore constants_;
  plan::ArenaPool arenas_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<target::Stream>> idle_;
  std::shared_ptr<Queue::State> queue_;
  std::atomic<Queue::State*> queue_made_{nullptr};  // queue_, to be read without the lock
};
DeviceContext& context_of(const std::shared_ptr<target::Device>& device);

// A stream for one use on the calling thread, from the device's pool; goes back when the lease
// ends.
class StreamLease {
 public:
  explicit StreamLease(DeviceContext& context)
      : context_(context), stream_(context.take_stream()) {}
  ~StreamLease() { context_.give_stream(std::move(stream_)); }
  StreamLease(const StreamLease&) = delete;
  StreamLease& operator=(const StreamLease&) = delete;
  target::Stream& operator*() const { return *stream_; }
  target::Stream* operator->() const { return stream_.get(); }

 private:
  DeviceContext& context_;
  std::unique_ptr<target::Stream> stream_;
};

// Where arrays without a device live: the CPU backend, or the interpreter where that is not
// installed. UnsupportedError where it cannot be used.
const std::shared_ptr<target::Device>& host_device();
// By name; UnsupportedError with the reasons where there is none.
std::shared_ptr<target::Device> find_device(std::string_view name);

}  // namespace heddle::runtime
