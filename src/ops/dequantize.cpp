// dequantize.
#include "base/check.h"
#include "ops/cast.h"
#include "ops/elementwise.h"

#include <heddle/error.h>
#include <heddle/ops/elementwise.h>
#include <heddle/ops/reduce.h>
#include <heddle/ops/shape.h>

namespace heddle {
namespace ops {
namespace {

using base::cat;
using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

int axis_of(const ir::Attrs& attrs, int rank) {
  int64_t axis = attrs.get<int64_t>("axis");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}
int64_t block_of(const ir::Attrs& attrs) { return attrs.get<int64_t>("block"); }

// How a parameter (scale, zero point) lies along q: one value; a vector along the axis; or q's
// shape with blocks of the axis.
enum class Spread : uint8_t { scalar, vector, full };
Spread spread_of(size_t rank) {
  if (rank == 0) return Spread::scalar;
  return rank == 1 ? Spread::vector : Spread::full;
}

// Extent of the parameters along the axis.
Expr parameter_extent(const Expr& extent, int64_t block) {
  return block > 0 ? extent / Expr(block) : extent;
}

void check_parameter(const InferContext& ctx, size_t i, const std::string& what) {
  const Shape &q = ctx.shape(0), &p = ctx.shape(i);
  int axis = axis_of(ctx.attrs, static_cast<int>(q.size()));
  int64_t block = block_of(ctx.attrs);
  if (p.empty()) return;
  Shape along = {parameter_extent(q[static_cast<size_t>(axis)], block)}, full = q;
  full[static_cast<size_t>(axis)] = along[0];
  if (p == along || (block > 0 && p == full)) return;
  std::string expected = "a scalar or " + to_string(along);
  if (block > 0 && along != full) expected += " or " + to_string(full);
  ctx.fail(cat("argument ", what, " ", to_string(ctx.type(i)), " does not fit q ",
               to_string(ctx.type(0)), " with axis ", axis, " and block ", block, ": expected ",
               expected));
}

std::vector<ir::InferredResult> infer_dequantize(const InferContext& ctx) {
  int rank = ctx.type(0).rank();
  int64_t axis = ctx.attrs.get<int64_t>("axis"), block = block_of(ctx.attrs);
  bool has_axis = axis >= -rank && axis < rank;
  bool scalars = ctx.shape(1).empty() && (ctx.operands.size() < 3 || ctx.shape(2).empty());
  if (block < 0) ctx.fail(cat("attribute 'block' expects 0 or more, given ", block));
  if (!has_axis && !scalars)
    ctx.fail(cat("axis ", axis, " is not one of q ", to_string(ctx.type(0))));
  if (block > 0 && !scalars) {
    Expr extent = ctx.shape(0)[static_cast<size_t>(axis_of(ctx.attrs, rank))];
    if (!(extent % Expr(block)).is(0))
      ctx.fail(cat("q has the extent ", extent.to_string(), " along axis ", axis,
                   ", expected a multiple of the block ", block));
  }
  if (!scalars) {
    check_parameter(ctx, 1, "scale");
    if (ctx.operands.size() > 2) check_parameter(ctx, 2, "zero_point");
  }
  return {{type(ctx.dtype(1), ctx.shape(0)), std::nullopt}};
}

// Coordinates of a parameter for those of q; T: Expr or int64_t.
template <class T>
std::vector<T> parameter_coords(const std::vector<T>& coords, size_t rank, const ir::Attrs& attrs) {
  if (spread_of(rank) == Spread::scalar) return {};
  auto axis = static_cast<size_t>(axis_of(attrs, static_cast<int>(coords.size())));
  T along = block_of(attrs) > 0 ? coords[axis] / T(block_of(attrs)) : coords[axis];
  if (spread_of(rank) == Spread::vector) return {along};
  std::vector<T> result = coords;
  result[axis] = along;
  return result;
}

double value_at(const HostTensor& t, size_t k) {
  if (!t.f.empty()) return t.f[k];
  return t.dtype == u64 ? static_cast<double>(static_cast<uint64_t>(t.i[k]))
                        : static_cast<double>(t.i[k]);
}

std::vector<HostTensor> judge_dequantize(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  auto parameter = [&](size_t i, const std::vector<int64_t>& at) {
    const HostTensor& p = *ctx.in[i];
    auto coords = parameter_coords(at, p.shape.size(), ctx.attrs),
         strides = row_major_strides(p.shape);
    int64_t flat = 0;
    for (size_t k = 0; k < coords.size(); ++k) flat += coords[k] * strides[k];
    return value_at(p, static_cast<size_t>(flat));
  };
  for_each_index(out.shape, [&](const std::vector<int64_t>& at, int64_t flat) {
    auto k = static_cast<size_t>(flat);
    double q = value_at(*ctx.in[0], k);
    if (ctx.in.size() > 2) q -= parameter(2, at);
    out.f[k] = q * parameter(1, at);
  });
  return {out};
}

Val dequantized_element(ElementContext& c) {
  DType wide = compute_type(c.dtype(1));
  auto parameter = [&](int i) {
    auto coords = parameter_coords(c.coords, c.shape(i).size(), c.op.attrs);
    return cast_scalar(c.b, c.at(i, coords, ir::kNoNode, {}), c.dtype(i), wide).re;
  };
  NodeId q = cast_scalar(c.b, c.at(0, c.coords, ir::kNoNode, {}), c.dtype(0), wide).re;
  if (c.op.operands.size() > 2) q = c.b.binary(ScalarOp::sub, q, parameter(2));
  return {c.b.binary(ScalarOp::mul, q, parameter(1))};
}

// ---- gradients of scale and zero point

Tensor ones_like(const Tensor& x) { return broadcast_like(constant_like(x, 1), x); }

// Sums x, of q's shape, down to a parameter's shape.
Tensor sum_blocks(const Tensor& x, const Tensor& parameter, const ir::Attrs& attrs) {
  int rank = x.rank(), axis = axis_of(attrs, rank);
  int64_t block = block_of(attrs);
  Spread spread = spread_of(static_cast<size_t>(parameter.rank()));
  if (spread == Spread::scalar) return sum(x);
  // [.., blocks, block, ..] where there are blocks.
  Tensor split = x;
  std::vector<int> folded;
  if (block > 0) {
    Shape shape = x.shape();
    auto at = static_cast<size_t>(axis);
    shape[at] = parameter_extent(shape[at], block);
    shape.insert(shape.begin() + axis + 1, Expr(block));
    split = reshape(x, shape);
    folded.push_back(axis + 1);
  }
  for (int k = 0; spread == Spread::vector && k < split.rank(); ++k)
    if (k != axis && (block == 0 || k != axis + 1)) folded.push_back(k);
  return folded.empty() ? split : sum(split, {.axes = folded});
}

Tensors dequantize_gradient(const GradientContext& g) {
  const Tensor &q = g.in[0], &scale = g.in[1], &up = g.upstream[0];
  if (!q.type().known() || !scale.type().known())
    throw GraphError(
        "dequantize: the gradient needs the types of q and scale, which are still open");
  const ir::Attrs& attrs = g.op.attrs;
  Tensors result(g.in.size());
  if (g.wanted[1]) {
    Tensors operands = g.in;
    operands[1] = ones_like(scale);
    result[1] = sum_blocks(up * ops::apply("dequantize", operands, attrs), scale, attrs);
  }
  bool has_zero_point = g.in.size() > 2 && is_real_float(g.in[2].dtype());
  if (has_zero_point && g.wanted[2]) {
    Tensor spread = ops::apply("dequantize", {ones_like(cast(q, i8)), scale}, attrs);
    result[2] = cast(sum_blocks(negate(up * spread), g.in[2], attrs), g.in[2].dtype());
  }
  if (is_real_float(q.dtype()) && g.wanted[0])
    result[0] =
        cast(up * ops::apply("dequantize", {ones_like(cast(q, i8)), scale}, attrs), q.dtype());
  return result;
}

const Register dequantize_entry({
    .name = "dequantize",
    .kind = Kind::index,
    .doc = "(q - zero_point) * scale in scale's dtype. scale and zero_point: a scalar, a vector "
           "along `axis`, or with `block` "
           "one value for each block of elements along it (a vector, or q's shape with that axis "
           "divided).",
    .operands = {{"q", kReal | kBool | kStorage},
                 {"scale", kRealFloat},
                 {"zero_point", kReal | kStorage, true}},
    .attrs = {{.name = "axis",
               .doc = "axis of the parameters, may be negative",
               .fallback = int64_t{-1},
               .domain = {.kind = AttrDomain::Kind::axis}},
              {.name = "block",
               .doc = "elements that share a parameter; 0: none do",
               .fallback = int64_t{0},
               .domain = {.low = 0, .high = 4}}},
    .infer = infer_dequantize,
    .judge = judge_dequantize,
    .gradient = dequantize_gradient,
    .element = dequantized_element,
    .samples = {{.shapes = {{3, 4}, {}}},
                {.shapes = {{3, 4}, {3}, {3}}, .attrs = {{"axis", int64_t{0}}}},
                {.shapes = {{3, 8}, {3, 2}, {3, 2}}, .attrs = {{"block", int64_t{4}}}},
                {.shapes = {{8, 3}, {2}, {}},
                 .attrs = {{"axis", int64_t{0}}, {"block", int64_t{4}}}}},
});

}  // namespace
}  // namespace ops

Tensor dequantize(const Tensor& q, const Tensor& scale, const Tensor& zero_point,
                  const DequantizeOptions& options) {
  Tensors operands = {q, scale};
  if (zero_point.valid()) operands.push_back(zero_point);
  ops::check_valid("dequantize", operands);
  int64_t axis = options.axis;
  if (q.rank() > 0 && axis < 0 && axis >= -q.rank()) axis += q.rank();
  return ops::apply("dequantize", operands, {{"axis", axis}, {"block", options.block}});
}

}  // namespace heddle
