// Runs generated kernels on this machine's CPU. Slow and exact, for tests of the emitter without a
// GPU.
#pragma once

#include "backend/cuda/kernel_source.h"
#include "backend_cuda/simulated_code.h"
#include "target/target.h"

#include <memory>
#include <string>
#include <vector>

namespace heddle::test {

target::DeviceDescription described_gpu();

class SimulatedKernel {
 public:
  SimulatedKernel(const ir::Kernel& kernel, const target::EmitOptions& options,
                  const cuda::Variant& variant,
                  const target::DeviceDescription& device = described_gpu());
  bool runs(
      const target::KernelArgs& args) const;  // the variant's conditions on sizes and addresses
  void run(const target::KernelArgs& args);
  const cuda::KernelSource& source() const { return source_; }
  const unsigned* fault() const { return fault_; }

 private:
  cuda::KernelSource source_;
  SimulatedCode code_;
  unsigned fault_[8] = {};
  // As on a device, zero at first and never reset between runs.
  alignas(16) unsigned control_[16] = {};
  std::vector<double> parts_;
};

}  // namespace heddle::test
