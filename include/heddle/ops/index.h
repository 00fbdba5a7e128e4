// Gather and scatter.
#pragma once

#include <heddle/tensor.h>

namespace heddle {

// result.shape = x.shape[:axis] + indices.shape + x.shape[axis+1:]. Negative indices count from the
// end; an index out of range reads 0. Indices: any integer dtype.
struct GatherOptions {
  int axis = 0;
};
Tensor gather(const Tensor& x, const Tensor& indices, const GatherOptions& options = {});
// Adds `updates` to `data` at `indices` (rank 1) along `axis`: updates.shape = data.shape with axis
// replaced by the number of indices. Duplicates add in the order of the indices; indices out of
// range are skipped.
struct ScatterOptions {
  int axis = 0;
};
Tensor scatter_add(const Tensor& data, const Tensor& indices, const Tensor& updates,
                   const ScatterOptions& options = {});

}  // namespace heddle
