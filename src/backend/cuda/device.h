// One GPU of this process, over its primary context (shared with other users of the runtime, e.g.
// PyTorch).
#pragma once

#include "backend/cuda/allocator.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/emitter.h"
#include "target/target.h"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace heddle::cuda {

class CudaDevice : public target::Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  // UnsupportedError with the reason where the GPU can't be used.
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  std::string name() const override { return name_; }
  const target::DeviceDescription& description() const override { return description_; }
  std::string summary() const override { return summary_; }
  bool host_memory() const override { return false; }
  void* allocate(int64_t bytes, target::Stream* stream) override;
  void release(void* pointer, int64_t bytes, target::Stream* stream) noexcept override;
  MemoryStats memory() const override;
  void set_memory_limit(int64_t bytes) override;
  void trim() override;
  std::unique_ptr<target::Stream> create_stream() override;
  std::unique_ptr<target::Stream> wrap_stream(void* native) override;
  target::Emitter& emitter() override { return *emitter_; }
  std::span<const target::Claim> claims() const override { return claims_; }

  // Makes the device's context current on this thread; retains it at first use.
  void enter();
  CUcontext context();
  Allocator& allocator();

 private:
  int index_;
  CUdevice device_ = 0;
  std::string name_, summary_;
  target::DeviceDescription description_;
  std::unique_ptr<target::Emitter> emitter_;
  std::vector<target::Claim> claims_;
  std::once_flag retained_;
  CUcontext context_ = nullptr;
  std::unique_ptr<Allocator> allocator_;
};

// Claims of this backend on a GPU of `arch` ("sm_90"), best first.
std::vector<target::Claim> library_claims(const std::string& arch);

}  // namespace heddle::cuda
