// LLVM modules to object code, and object code to callable functions (ORC).
#pragma once

#include "backend/cpu/cpu_target.h"

#include <memory>
#include <string>

namespace llvm {
class Module;
}

namespace heddle::cpu {

struct RunContext;

// The signature of every kernel: buffers in the order of Kernel::buffers without the locals,
// symbols in the order of Kernel::symbols.
using KernelFunction = void (*)(RunContext* context, void* const* buffers, const int64_t* symbols);
inline constexpr const char* kKernelSymbol = "heddle_kernel";

// Optimises and generates position-independent object code; any thread, any number at a time.
std::string generate_object(llvm::Module& module, const CpuTarget& target);
// Text of the assembly, for dumps.
std::string disassemble(llvm::Module& module, const CpuTarget& target);

// Code in memory; unmapped when destroyed.
class LoadedCode {
 public:
  static std::shared_ptr<const LoadedCode> load(const std::string& object);
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;
  KernelFunction function() const { return function_; }

 private:
  LoadedCode() = default;
  struct Impl;
  std::unique_ptr<Impl> impl_;
  KernelFunction function_ = nullptr;
};

}  // namespace heddle::cpu
