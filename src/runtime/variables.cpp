#include "runtime/variables.h"

namespace heddle::runtime {

void Gate::enter(bool write) {
  std::unique_lock lock(mutex_);
  if (!write) {
    changed_.wait(lock, [&] { return !writing_ && writers_waiting_ == 0; });
    ++readers_;
    return;
  }
  ++writers_waiting_;
  changed_.wait(lock, [&] { return !writing_ && readers_ == 0; });
  --writers_waiting_;
  writing_ = true;
}

void Gate::leave(bool write) {
  {
    std::lock_guard lock(mutex_);
    if (write) {
      writing_ = false;
    } else {
      --readers_;
    }
  }
  changed_.notify_all();
}

std::shared_ptr<const DeviceBuffer> VariableState::get(const plan::Variable& variable,
                                                       target::Stream& stream) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<const DeviceBuffer>& buffer = buffers_[variable.id];
  if (buffer) return buffer;
  auto bytes = static_cast<int64_t>(variable.initial->bytes.size());
  auto fresh = std::make_shared<DeviceBuffer>(device_, bytes, &stream);
  if (bytes > 0) stream.copy_from_host(fresh->data(), variable.initial->bytes.data(), bytes);
  stream.synchronize();
  buffer = std::move(fresh);
  return buffer;
}

}  // namespace heddle::runtime
