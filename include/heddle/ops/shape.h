// Views, padding, and shapes as data.
#pragma once

#include <heddle/tensor.h>

#include <initializer_list>
#include <optional>
#include <vector>

namespace heddle {

// One extent may be -1: what remains.
Tensor reshape(const Tensor& x, Shape shape);
inline Tensor reshape(const Tensor& x, std::initializer_list<Expr> shape) {
  return reshape(x, Shape(shape));
}
// Extents from a small integer tensor whose elements are known expressions (shape_of, concat,
// arithmetic of them).
Tensor reshape(const Tensor& x, const Tensor& shape);
Tensor transpose(const Tensor& x, std::vector<int> permutation);
Tensor broadcast_to(const Tensor& x, Shape shape);
struct SliceOptions {
  std::vector<Expr>
      starts = {},
      stops = {};  // one an axis; negative numbers count from the end; clamped as in NumPy
  std::vector<int64_t> strides = {};  // empty: 1; negative walks backwards
};
Tensor slice(const Tensor& x, const SliceOptions& options);
Tensor concat(const Tensors& xs, int axis);

enum class PaddingMode : uint8_t {
  constant,
  reflect,
  symmetric,
  clamp_to_edge,
  zero,
  periodic,
  anti_periodic
};
struct PadOptions {
  std::vector<int64_t> before = {}, after = {};  // one an axis; negative crops
  PaddingMode mode = PaddingMode::constant;
  double value = 0;
};
Tensor pad(const Tensor& x, const PadOptions& options);
// Index along `axis` at each position of `shape` (iota).
Tensor coordinate(const std::shared_ptr<ir::Graph>& graph, const Shape& shape, int axis,
                  DType dtype = i32);
Tensor coordinate_like(const Tensor& x, int axis, DType dtype = i32);
Tensor shape_of(const Tensor& x, DType dtype = i64);  // vector of the extents

Tensor squeeze(const Tensor& x, std::vector<int> axes);      // reshape
Tensor expand_dims(const Tensor& x, std::vector<int> axes);  // reshape
// Sums `x` down to the type of `like` (the inverse of broadcasting); and the broadcast itself.
Tensor sum_to_like(const Tensor& x, const Tensor& like);
Tensor broadcast_like(const Tensor& x, const Tensor& like);

}  // namespace heddle
