// Weighted windows over one to four axes: filters, finite differences, pools.
#pragma once

#include <heddle/ops/shape.h>
#include <heddle/tensor.h>

namespace heddle {

enum class WindowReduction : uint8_t { min, max, sum, product, argmin, argmax };
enum class WindowPadding : uint8_t { explicit_pads, valid, same, same_lower, explicit_offset };

// y[i] = reduce over the window j of x[i * stride + j * dilation - before] * weights[j], on the
// last weights.rank() axes of x. The argument modes give the position inside the window (row-major,
// first of equals) as i32. Defaults as for an image filter: same padding, zero boundary.
struct StencilOptions {
  WindowReduction reduction = WindowReduction::sum;
  PaddingMode boundary = PaddingMode::zero;
  double constant = 0;  // value outside for PaddingMode::constant
  WindowPadding padding = WindowPadding::same;
  std::vector<int64_t> before = {}, after = {};  // explicit_pads
  std::vector<int64_t> offsets = {};  // explicit_offset: the first window's corner relative to the
                                      // input's corner; output extent = ceil(input extent / stride)
  std::vector<int64_t> strides = {}, dilations = {};  // empty: 1
};
Tensor stencil(const Tensor& x, const Tensor& weights, const StencilOptions& options = {});

// The transpose of the sum stencil with zero boundary: y[i * stride + j * dilation - before] +=
// u[i] * weights[j], zero elsewhere, on the last weights.rank() axes; what falls outside of y is
// dropped. A transposed convolution, an upsampling filter, the gradient of a stencil.
//
//   stencil_transpose(u, weights, {.shape = {8}, .before = {1}, .strides = {2}});   // u: [4]
struct StencilTransposeOptions {
  std::vector<Expr> shape;        // extents of the result's last axes
  std::vector<Expr> before = {};  // of the first window from the result's corner, negated; empty: 0
  std::vector<int64_t> strides = {}, dilations = {};  // empty: 1
};
Tensor stencil_transpose(const Tensor& u, const Tensor& weights,
                         const StencilTransposeOptions& options);

}  // namespace heddle
