// Sizes of blocks as symbols, for proofs.
#pragma once

#include "ir/kernel.h"

namespace heddle::loop {

// The kernel with a symbol in place of each block's size that is no number. Rows of open extent are
// cut into blocks of, say, max(16384, (n + 1023) / 1024) elements; that it is more than 0 is all
// that matters, and the index algebra divides by a symbol but not by a maximum.
ir::Kernel with_named_blocks(const ir::Kernel& kernel);

}  // namespace heddle::loop
