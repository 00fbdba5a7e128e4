// Several neighbouring outer points by one thread: what they load, test and compute alike is made
// once. Windows, stencils and rows found through an index gain; the result is an ordinary nest.
#pragma once

#include "ir/kernel.h"

#include <memory>
#include <optional>

namespace heddle::cuda {

struct Expanded {
  std::shared_ptr<const ir::Nest> nest;
  int rows = 1;     // along an outer axis that is not the last
  int columns = 1;  // along the last one
};

// nullopt where nothing is gained. `threads`: how many a device holds at once; fewer are not left.
std::optional<Expanded> expand_nest(const ir::Kernel& kernel, const ir::Nest& nest,
                                    int64_t threads);

}  // namespace heddle::cuda
