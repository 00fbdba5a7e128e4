// What lies outside of a tensor: the seven boundary modes, shared by pad and stencil.
#pragma once

#include "ops/support.h"

#include <heddle/ops/shape.h>

namespace heddle::ops {

std::string_view name(PaddingMode mode);
std::optional<PaddingMode> parse_padding_mode(std::string_view text);
PaddingMode padding_mode(const ir::Attrs& attrs, std::string_view attr);  // after inference
AttrDomain boundary_domain();                                             // the names of the modes
void check_padding_mode(const InferContext& c, std::string_view attr);
constexpr bool fills(PaddingMode mode) {
  return mode == PaddingMode::constant || mode == PaddingMode::zero;
}

// Where position i of an axis of extent n reads. Positions outside wrap, reflect or stay at the
// edge as often as needed, as NumPy's pad does.
struct BoundaryIndex {
  Expr index;  // inside [0, n) where the mask holds
  ir::NodeId inside =
      ir::kNoNode;  // false: the fill value (constant and zero), or nothing to read (n is 0)
  ir::NodeId negated = ir::kNoNode;  // anti_periodic: true an odd number of periods away
};
BoundaryIndex boundary_index(ir::BodyBuilder& b, PaddingMode mode, const Expr& i, const Expr& n);
// The index alone, for every mode but constant and zero.
Expr wrapped_index(PaddingMode mode, const Expr& i, const Expr& n);

// Element of an operand at positions that may lie outside along the axes from `first` on
// (positions[k] belongs to axis first + k); `outer` are the coordinates of the axes before.
ir::Val boundary_read(ElementContext& c, int operand, PaddingMode mode, double fill_value,
                      const std::vector<Expr>& outer, const std::vector<Expr>& positions);

// The judge's own: index, and the sign; nothing where the fill value stands.
struct JudgeBoundary {
  int64_t index = 0;
  bool negated = false;
};
std::optional<JudgeBoundary> judge_boundary(PaddingMode mode, int64_t i, int64_t n);
// x at `positions` (all axes); `fill_value` where a position of a filling mode lies outside.
JudgeScalar judge_boundary_read(const HostTensor& x, PaddingMode mode, double fill_value,
                                const std::vector<int64_t>& positions);

// Gradient of padding by `before` (and enough after) with respect to the padded tensor of extents
// `to`, from the upstream gradient of the padded one.
Tensor pad_transpose(const Tensor& upstream, const Shape& to, const std::vector<Expr>& before,
                     PaddingMode mode);

}  // namespace heddle::ops
