// Runs generated CUDA C++ on this machine's CPU: compiled by the host compiler with a prelude that
// gives each thread of a block a fiber. Slow and exact, for tests of the emitter without a GPU.
#pragma once

#include "backend/cuda/kernel_source.h"
#include "target/target.h"

#include <memory>
#include <string>
#include <vector>

namespace heddle::test {

target::DeviceDescription described_gpu();

class SimulatedKernel {
 public:
  // Compiles to a shared library in the temporary folder.
  SimulatedKernel(const ir::Kernel& kernel, const target::EmitOptions& options,
                  const cuda::Variant& variant,
                  const target::DeviceDescription& device = described_gpu());
  ~SimulatedKernel();
  bool runs(
      const target::KernelArgs& args) const;  // the variant's conditions on sizes and addresses
  void run(const target::KernelArgs& args);
  const cuda::KernelSource& source() const { return source_; }
  const unsigned* fault() const { return fault_; }

 private:
  cuda::KernelSource source_;
  void* library_ = nullptr;
  unsigned fault_[8] = {};
  // As on a device, zero at first and never reset between runs.
  alignas(16) unsigned control_[16] = {};
  std::vector<double> parts_;
};

// Is there a host compiler at run time?
bool can_simulate();

}  // namespace heddle::test
