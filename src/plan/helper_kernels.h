// The few kernels that plans need besides those of operations: counters and rows of loops, packing
// of strided feeds.
#pragma once

#include "ir/kernel.h"

#include <heddle/type.h>

#include <vector>

namespace heddle::plan {

// Memory as `count` words of 1, 2, 4 or 8 bytes.
struct Words {
  int bytes = 1;
  Expr count;
};

// *counter += 1
ir::Kernel increment_kernel();
// *predicate = *counter < count
ir::Kernel less_kernel(const Expr& count);
// *predicate = *counter < *count
ir::Kernel less_value_kernel();
// *predicate = *predicate && *counter < count
ir::Kernel and_less_kernel(const Expr& count);
// out = xs[*counter], rows of `words` words of `word_bytes` bytes. Buffers: xs, counter, out.
ir::Kernel load_row_kernel(int word_bytes, const Expr& words, const Expr& count);
// stacked[*counter] = row. Buffers: row, counter, stacked.
ir::Kernel store_row_kernel(int word_bytes, const Expr& words, const Expr& count);
// to = from for each value; no two overlap. Buffers: from, to of each.
ir::Kernel copy_kernel(const std::vector<Words>& values);
// out = packed elements of a strided view, or (scatter) the view's elements = packed ones, in words
// of `word_bytes` bytes. The strided buffer is flat and starts at the lowest address that the view
// touches. Buffers: {strided, packed} or {packed, strided}; symbols: extents, strides in words,
// offset of the first element, length of the flat buffer.
ir::Kernel strided_kernel(int word_bytes, int rank, bool scatter);

}  // namespace heddle::plan
