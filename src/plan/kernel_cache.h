// Compiled kernels of this process, shared between executables by structure.
#pragma once

#include "ir/kernel.h"
#include "target/target.h"

#include <memory>
#include <vector>

namespace heddle::plan {

// Compiles unless an equal kernel for the same emitter and options is alive. Thread-safe.
std::shared_ptr<const target::CompiledKernel> compile_cached(target::Emitter& emitter,
                                                             const ir::Kernel& kernel,
                                                             const target::EmitOptions& options);
// The same for many: those that are not alive compile side by side, on as many threads as there are
// processors (HEDDLE_THREADS; one where options.threads is 1). Equal kernels are compiled once. The
// error of the first kernel that fails is thrown after all have ended.
std::vector<std::shared_ptr<const target::CompiledKernel>> compile_cached(
    target::Emitter& emitter, const std::vector<const ir::Kernel*>& kernels,
    const target::EmitOptions& options);

}  // namespace heddle::plan
