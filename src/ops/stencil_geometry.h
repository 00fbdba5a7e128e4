// Where the windows of a stencil lie, one axis at a time.
#pragma once

#include "ops/boundary.h"

#include <heddle/ops/stencil.h>

namespace heddle::ops {

// Window i covers the input positions i * stride + j * dilation - before for j in [0, window).
struct WindowAxis {
  Expr input, window, before, output;
  int64_t stride = 1, dilation = 1;
  Expr reach() const { return (window - 1) * dilation + 1; }
  // Elements that the last window needs beyond the input; negative where it ends inside.
  Expr after() const { return (output - 1) * stride + reach() - before - input; }
};

// The axes of a stencil (attributes padding, before, after, offsets, strides, dilations) over the
// last axes of `x`.
std::vector<WindowAxis> window_axes(const ir::Attrs& attrs, const Shape& x, const Shape& weights);
// The same from explicit `before` and known outputs (stencil_transpose, stencil_weights).
std::vector<WindowAxis> window_axes(const ir::Attrs& attrs, const Shape& x, const Shape& weights,
                                    const Shape& outputs);
void check_windows(const InferContext& c, const Shape& x, const Shape& weights);
std::vector<AttrSpec> step_attrs();  // strides, dilations

std::string_view name(WindowReduction reduction);
std::string_view name(WindowPadding padding);
WindowReduction window_reduction(const ir::Attrs& attrs);

inline constexpr int64_t kMaxUnrolledTaps = 64;
// Number of window positions where it is small enough to be unrolled.
std::optional<int64_t> unrolled_taps(const Shape& weights);
// Coordinates of a flat, row-major window position.
std::vector<Expr> tap_coords(const Shape& weights, int64_t tap);
// The flat position in the window that `arg` (operand 2) selects, where the op has it.
ir::NodeId selects_tap(ElementContext& c, const std::vector<Expr>& at, ir::NodeId tap);
bool has_argument(const ir::Op& op);

// The judge's x[i * stride + j * dilation - before] through the boundary; i are coordinates of a
// result whose last axes are those of the window, j a position in the window.
struct JudgeSteps {
  std::vector<int64_t> before, stride, dilation;
};
class JudgeWindowReader {
 public:
  JudgeWindowReader(const HostTensor& x, PaddingMode mode, double fill_value,
                    const JudgeSteps& steps, const std::vector<int64_t>& outputs,
                    const std::vector<int64_t>& window);
  JudgeScalar operator()(const std::vector<int64_t>& i, const std::vector<int64_t>& j) const;

 private:
  const HostTensor& x_;
  JudgeScalar fill_;
  std::vector<int64_t> strides_;  // of x
  std::vector<int64_t> window_;
  // For each axis of the window, at i * window + j.
  std::vector<std::vector<std::optional<JudgeBoundary>>> positions_;
};

// Gradients of a stencil, in stencil_gradient.cpp.
Tensors stencil_gradient(const GradientContext& c);

}  // namespace heddle::ops
