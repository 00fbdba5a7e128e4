// The control function of a kernel: loops, branches and swaps, with nests inline or forked.
#pragma once

#include "backend/cpu/cpu_target.h"
#include "ir/kernel.h"

#include <functional>

namespace llvm {
class Module;
}

namespace heddle::cpu {

// Calls `use` with the module of a kernel, which lives only that long.
void emit_kernel(const ir::Kernel& kernel, const CpuTarget& target, bool check_bounds,
                 const std::function<void(llvm::Module&)>& use);

}  // namespace heddle::cpu
