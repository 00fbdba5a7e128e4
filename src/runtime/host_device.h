// A device whose memory is the host's: the CPU backend, the interpreter, the judge.
//
//   auto cpu = std::make_shared<runtime::HostDevice>(runtime::HostDeviceParts{.name = "cpu",
//   .description = ...,
//                                                    .summary = ..., .emitter = ..., .claims =
//                                                    ...});
#pragma once

#include "runtime/host_allocator.h"
#include "target/host_kernel.h"
#include "target/target.h"

#include <memory>
#include <string>
#include <vector>

namespace heddle::runtime {

struct HostDeviceParts {
  std::string name;
  target::DeviceDescription description;
  std::string summary;
  std::unique_ptr<target::Emitter> emitter;  // its kernels are target::HostKernels
  std::vector<target::Claim> claims;         // their calls are target::HostLibraryCalls
  bool recording = false;  // streams record command lists: control flow and recordings as on a GPU
                           // (tests of the plan)
};

class HostDevice : public target::Device {
 public:
  explicit HostDevice(HostDeviceParts parts);

  std::string name() const override { return parts_.name; }
  const target::DeviceDescription& description() const override { return parts_.description; }
  std::string summary() const override { return parts_.summary; }
  bool host_memory() const override { return true; }
  void* allocate(int64_t bytes, target::Stream* stream) override;
  void release(void* pointer, int64_t bytes, target::Stream* stream) noexcept override;
  MemoryStats memory() const override { return allocator_.stats(); }
  void set_memory_limit(int64_t bytes) override { allocator_.set_limit(bytes); }
  void trim() override { allocator_.trim(); }
  std::unique_ptr<target::Stream> create_stream() override;
  std::unique_ptr<target::Stream> wrap_stream(void* native) override;  // UnsupportedError
  target::Emitter& emitter() override;
  std::span<const target::Claim> claims() const override { return parts_.claims; }

 private:
  HostDeviceParts parts_;
  HostAllocator allocator_;
};

}  // namespace heddle::runtime
