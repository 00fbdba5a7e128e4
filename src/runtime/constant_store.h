// Constants on a device, packed once and shared by content between executables.
#pragma once

#include "ir/attr.h"
#include "target/target.h"

#include <map>
#include <memory>
#include <mutex>

namespace heddle::runtime {

// Device memory with an owner.
class DeviceBuffer {
 public:
  DeviceBuffer(std::shared_ptr<target::Device> device, int64_t bytes,
               target::Stream* stream = nullptr)
      : device_(std::move(device)), bytes_(bytes), data_(device_->allocate(bytes, stream)) {}
  ~DeviceBuffer() { device_->release(data_, bytes_, nullptr); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<target::Device> device_;
  int64_t bytes_;
  void* data_;
};

class ConstantStore {
 public:
  explicit ConstantStore(std::shared_ptr<target::Device> device) : device_(std::move(device)) {}
  // Uploads at first use; the memory goes when the last user does.
  std::shared_ptr<const DeviceBuffer> get(const ir::LiteralRef& literal, target::Stream& stream);
  int64_t live_bytes() const;

 private:
  struct Entry {
    ir::LiteralRef literal;
    std::weak_ptr<const DeviceBuffer> buffer;
  };
  std::shared_ptr<target::Device> device_;
  mutable std::mutex mutex_;
  std::multimap<uint64_t, Entry> entries_;  // by content hash; equality decides
};

}  // namespace heddle::runtime
