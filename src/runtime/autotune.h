// CompileOptions::autotune: whole plans are timed with what can be chosen, and the choice is
// remembered across processes.
#pragma once

#include "runtime/executable.h"

#include <functional>

namespace heddle::runtime {

using CompileFunction =
    std::function<std::shared_ptr<Executable::Impl>(const CompileOptions& options)>;

// The fastest executable of the candidates: library calls or kernels only, one thread or by the
// work. Where nothing can be timed (open sizes, control flow, state), as without tuning. What was
// chosen and why stands in Impl::tuning.
std::shared_ptr<Executable::Impl> autotune(const CompileOptions& options,
                                           const CompileFunction& compile);

}  // namespace heddle::runtime
