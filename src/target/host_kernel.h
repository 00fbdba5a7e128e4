// Kernels that run in this process on host memory (LLVM code, the interpreter).
#pragma once

#include "target/target.h"

namespace heddle::target {

class HostKernel : public CompiledKernel {
 public:
  virtual void run(const KernelArgs& args, int threads) const = 0;  // threads 0: by the work
};

// Library calls on host memory.
class HostLibraryCall : public LibraryCall {
 public:
  virtual void run(std::span<void* const> buffers, std::span<const int64_t> symbols,
                   void* workspace, int threads) const = 0;
};

}  // namespace heddle::target
