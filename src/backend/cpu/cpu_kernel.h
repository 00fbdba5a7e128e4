// Compiled kernels of the CPU, and the emitter that makes and caches them.
#pragma once

#include "backend/cpu/cpu_target.h"
#include "backend/cpu/jit.h"
#include "runtime/disk_cache.h"
#include "target/host_kernel.h"

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace heddle::cpu {

class CpuKernel : public target::HostKernel {
 public:
  CpuKernel(const ir::Kernel& kernel, const CpuTarget& target, bool check_bounds,
            int64_t code_bytes, std::shared_ptr<const LoadedCode> code);
  std::string code() const override;  // assembly, generated again
  int64_t code_bytes() const override { return code_bytes_; }
  void run(const target::KernelArgs& args, int threads) const override;

 private:
  [[noreturn]] void report(const struct Failure& failure) const;
  ir::Kernel kernel_;
  CpuTarget target_;
  bool check_bounds_;
  int64_t code_bytes_;
  size_t buffers_ = 0;                      // that are passed
  std::shared_ptr<const LoadedCode> code_;  // null: compiled for another machine
};

// Compiles kernels, equal ones once: in memory (the most recent ones) and on disk.
class CpuEmitter : public target::Emitter {
 public:
  // `runnable`: this process executes the code (otherwise it is only generated).
  CpuEmitter(const CpuTarget& target, bool runnable);
  std::shared_ptr<const target::CompiledKernel> compile(
      const ir::Kernel& kernel, const target::EmitOptions& options) override;

 private:
  std::shared_ptr<const CpuKernel> build(const ir::Kernel& kernel, const std::string& key,
                                         bool check_bounds);
  struct Entry {
    std::string key;
    std::shared_ptr<const CpuKernel> kernel;
  };
  CpuTarget target_;
  bool runnable_;
  runtime::DiskCache disk_;
  std::mutex mutex_;
  std::list<Entry> recent_;  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
};

}  // namespace heddle::cpu
