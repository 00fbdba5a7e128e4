#include "runtime/host_device.h"

#include "base/check.h"
#include "runtime/host_stream.h"

namespace heddle::runtime {

HostDevice::HostDevice(HostDeviceParts parts) : parts_(std::move(parts)), allocator_(parts_.name) {}

void* HostDevice::allocate(int64_t bytes, target::Stream* /*stream*/) {
  return allocator_.allocate(bytes);
}

// Work on host streams is done when the call that gave it returns, so memory is free at once.
void HostDevice::release(void* pointer, int64_t bytes, target::Stream* /*stream*/) noexcept {
  allocator_.release(pointer, bytes);
}

std::unique_ptr<target::Stream> HostDevice::create_stream() {
  return std::make_unique<HostStream>(parts_.recording);
}

std::unique_ptr<target::Stream> HostDevice::wrap_stream(void* /*native*/) {
  throw UnsupportedError(base::cat(parts_.name, ": a host device has no native streams to wrap"));
}

target::Emitter& HostDevice::emitter() {
  if (!parts_.emitter)
    throw UnsupportedError(base::cat(parts_.name, ": this device compiles no kernels"));
  return *parts_.emitter;
}

}  // namespace heddle::runtime
