// Compiled kernels of this process, shared between executables by structure.
#pragma once

#include "ir/kernel.h"
#include "target/target.h"

#include <memory>

namespace heddle::plan {

// Compiles unless an equal kernel for the same emitter and options is alive. Thread-safe.
std::shared_ptr<const target::CompiledKernel> compile_cached(target::Emitter& emitter,
                                                             const ir::Kernel& kernel,
                                                             const target::EmitOptions& options);

}  // namespace heddle::plan
