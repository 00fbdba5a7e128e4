// Where a slice lies in its source, one axis at a time.
#pragma once

#include "ops/support.h"

namespace heddle::ops {

// result[i] = source[start + i * stride] for i in [0, extent).
struct SliceAxis {
  Expr start, extent;
  int64_t stride = 1;
};
// NumPy's rules for one axis of extent n: negative numbers count from the end, then both ends are
// clamped. A symbolic start or stop is taken to count from the start.
SliceAxis slice_axis(const Expr& start, const Expr& stop, int64_t stride, const Expr& n);
// Of an op with attributes starts, stops and strides (each empty or one number an axis) on a tensor
// of `shape`.
std::vector<SliceAxis> slice_axes(const ir::Attrs& attrs, const Shape& shape);
void check_slice(const InferContext& c, const Shape& shape);
Shape slice_shape(const std::vector<SliceAxis>& axes);

}  // namespace heddle::ops
