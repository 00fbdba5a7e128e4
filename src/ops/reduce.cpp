// sum reduce_max reduce_min argmax argmin mean variance root_mean_square, element_count.
#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/opdef.h"

#include <heddle/error.h>
#include <heddle/ops/elementwise.h>
#include <heddle/ops/reduce.h>
#include <heddle/ops/shape.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle {
namespace ops {
namespace {

using base::cat;
using ir::Val;
using Axes = std::vector<int64_t>;

// ----------------------------------------------------------------------------------------------
// axes

// Which axes of a tensor of rank `rank` an op folds; nullopt: an axis is out of range or given
// twice.
std::optional<std::vector<bool>> folded_axes(const Axes& axes, int rank) {
  std::vector<bool> folded(static_cast<size_t>(rank), axes.empty());
  for (int64_t axis : axes) {
    int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || folded[static_cast<size_t>(at)]) return std::nullopt;
    folded[static_cast<size_t>(at)] = true;
  }
  return folded;
}

std::string text(const Axes& axes) {
  std::string out = "[";
  for (size_t k = 0; k < axes.size(); ++k) out += cat(k == 0 ? "" : ",", axes[k]);
  return out + "]";
}

Axes axes_of(const ir::Attrs& attrs) {
  if (const ir::Attr* axis = attrs.find("axis")) return {std::get<int64_t>(*axis)};
  return attrs.get<Axes>("axes");
}
bool keeps(const ir::Attrs& attrs) { return attrs.get_or("keep_axes", false); }

std::vector<bool> checked_axes(const InferContext& ctx) {
  Axes axes = axes_of(ctx.attrs);
  auto folded = folded_axes(axes, ctx.type(0).rank());
  if (!folded) {
    ctx.fail(cat("axes ", text(axes), " are not distinct axes of x ", to_string(ctx.type(0)),
                 " of rank ", ctx.type(0).rank()));
  }
  return *folded;
}

Shape reduced_shape(const Shape& shape, const std::vector<bool>& folded, bool keep) {
  Shape out;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (!folded[k]) out.push_back(shape[k]);
    if (folded[k] && keep) out.push_back(Expr(1));
  }
  return out;
}

Infer infer_reduction(bool needs_elements) {
  return [needs_elements](const InferContext& ctx) -> std::vector<ir::InferredResult> {
    auto folded = checked_axes(ctx);
    const Shape& shape = ctx.shape(0);
    Shape out = reduced_shape(shape, folded, keeps(ctx.attrs));
    // A result without elements needs none of x.
    Expr least = min(element_count(out), Expr(1));
    for (size_t k = 0; needs_elements && k < shape.size(); ++k) {
      if (folded[k])
        ctx.require_at_least(shape[k], least,
                             cat("axis ", k, " of x ", to_string(ctx.type(0)),
                                 " is empty: expected at least one element to choose from"));
    }
    return {{type(ctx.dtype(0), std::move(out)), std::nullopt}};
  };
}

// ----------------------------------------------------------------------------------------------
// the judge

// Calls f(result index, index in x, position along the folded axes in row-major order) for each
// element of x.
template <class F>
void fold_each(const JudgeContext& ctx, F f) {
  const HostTensor& x = *ctx.in[0];
  auto folded = *folded_axes(axes_of(ctx.attrs), static_cast<int>(x.shape.size()));
  for_each_index(x.shape, [&](const std::vector<int64_t>& at, int64_t flat) {
    int64_t result = 0, position = 0;
    for (size_t k = 0; k < at.size(); ++k) {
      int64_t& index = folded[k] ? position : result;
      index = index * x.shape[k] + at[k];
    }
    f(static_cast<size_t>(result), static_cast<size_t>(flat), position);
  });
}

std::vector<HostTensor> judge_sum(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  const HostTensor& x = *ctx.in[0];
  // Extended precision: the judge's own rounding is far below that of the types it judges.
  std::vector<long double> re(static_cast<size_t>(out.size())), im(re);
  fold_each(ctx, [&](size_t r, size_t k, int64_t) {
    if (!x.f.empty()) re[r] += x.f[k];
    if (!x.c.empty()) re[r] += x.c[k].real(), im[r] += x.c[k].imag();
    if (!x.i.empty())
      out.i[r] =
          static_cast<int64_t>(static_cast<uint64_t>(out.i[r]) + static_cast<uint64_t>(x.i[k]));
  });
  for (size_t r = 0; r < out.f.size(); ++r) out.f[r] = static_cast<double>(re[r]);
  for (size_t r = 0; r < out.c.size(); ++r)
    out.c[r] = {static_cast<double>(re[r]), static_cast<double>(im[r])};
  return {out};
}

// Does x[k] beat x[best]? NaN beats all but an earlier NaN. `zeros`: -0 < +0, else they are equal.
bool beats(const HostTensor& x, size_t k, size_t best, bool is_maximum, bool zeros) {
  if (!x.i.empty()) {
    return is_maximum ? integer_less(x.i[best], x.i[k], x.dtype)
                      : integer_less(x.i[k], x.i[best], x.dtype);
  }
  double a = x.f[k], b = x.f[best];
  if (std::isnan(b)) return false;
  if (std::isnan(a)) return true;
  if (zeros && a == 0 && b == 0)
    return std::signbit(a) != std::signbit(b) && std::signbit(b) == is_maximum;
  return is_maximum ? a > b : a < b;
}

// For each result: the winner's index in x and its position; no winner where nothing is folded.
struct Winners {
  std::vector<int64_t> index, position;
};
Winners find_winners(const JudgeContext& ctx, size_t count, bool is_maximum, bool zeros) {
  Winners w{std::vector<int64_t>(count, -1), std::vector<int64_t>(count, 0)};
  fold_each(ctx, [&](size_t r, size_t k, int64_t position) {
    if (w.index[r] >= 0 &&
        !beats(*ctx.in[0], k, static_cast<size_t>(w.index[r]), is_maximum, zeros))
      return;
    w.index[r] = static_cast<int64_t>(k);
    w.position[r] = position;
  });
  return w;
}

Judge judge_extreme(bool is_maximum) {
  return [is_maximum](const JudgeContext& ctx) -> std::vector<HostTensor> {
    HostTensor out = judge_result(ctx);
    const HostTensor& x = *ctx.in[0];
    Winners w = find_winners(ctx, static_cast<size_t>(out.size()), is_maximum, true);
    for (size_t r = 0; r < w.index.size(); ++r) {
      if (w.index[r] < 0)
        continue;  // an empty axis whose extent was not known: nothing is promised
      auto k = static_cast<size_t>(w.index[r]);
      if (!x.f.empty()) out.f[r] = x.f[k];
      if (!x.i.empty()) out.i[r] = x.i[k];
    }
    return {out};
  };
}

Judge judge_arg(bool is_maximum) {
  return [is_maximum](const JudgeContext& ctx) -> std::vector<HostTensor> {
    HostTensor out = judge_result(ctx);
    Winners w = find_winners(ctx, static_cast<size_t>(out.size()), is_maximum, false);
    out.i = w.position;
    return {out};
  };
}

// ----------------------------------------------------------------------------------------------
// lowering

std::vector<bool> folded_of(const ir::Graph& graph, const ir::Op& op) {
  return *folded_axes(axes_of(op.attrs), graph.value(op.operands[0]).type.rank());
}

Shape inner_extents(const ir::Graph& graph, const ir::Op& op) {
  auto folded = folded_of(graph, op);
  const Shape& shape = *graph.value(op.operands[0]).type.shape;
  Shape inner;
  for (size_t k = 0; k < shape.size(); ++k)
    if (folded[k]) inner.push_back(shape[k]);
  return inner;
}

Val folded_element(ElementContext& c, const std::vector<Expr>& inner) {
  auto folded = folded_of(c.graph, c.op);
  bool keep = keeps(c.op.attrs);
  std::vector<Expr> coords;
  size_t next_inner = 0, next_result = 0;
  for (bool is_folded : folded) {
    coords.push_back(is_folded ? inner[next_inner++] : c.coords[next_result]);
    if (!is_folded || keep) ++next_result;
  }
  return c.at(0, coords, ir::kNoNode, {});
}

ReduceRule reduce_rule(ir::ReduceOp op) {
  return {.op = op, .choose = {}, .inner = inner_extents, .value = folded_element};
}

// ----------------------------------------------------------------------------------------------
// gradients

// The reduced tensor `y` against x: folded axes come back, with extent 1 or broadcast.
Tensor with_folded_axes(const Tensor& y, const ir::Attrs& attrs) {
  Axes axes = axes_of(attrs);
  if (keeps(attrs) || axes.empty()) return y;  // all axes folded: a scalar broadcasts as it is
  return expand_dims(y, std::vector<int>(axes.begin(), axes.end()));
}

Tensors sum_gradient(const GradientContext& g) {
  return {broadcast_like(with_folded_axes(g.upstream[0], g.op.attrs), g.in[0])};
}

ReduceOptions kept(const ir::Attrs& attrs) {
  Axes axes = axes_of(attrs);
  return {.axes = std::vector<int>(axes.begin(), axes.end()), .keep_axes = true};
}

// Equal shares among equals, as PyTorch's amax.
Tensors extreme_gradient(const GradientContext& g) {
  const Tensor &x = g.in[0], &up = g.upstream[0];
  Tensor chosen = equal(x, with_folded_axes(g.out[0], g.op.attrs));
  Tensor mask = up.dtype() == DType::unknown ? ops::apply("cast_like", {chosen, up})
                                             : cast(chosen, up.dtype());
  Tensor count = sum(mask, kept(g.op.attrs));
  return {mask * (with_folded_axes(up, g.op.attrs) / count)};
}

// ----------------------------------------------------------------------------------------------
// entries

const AttrSpec kAxes = {.name = "axes",
                        .doc = "axes to fold, may be negative; none: all",
                        .fallback = Axes{},
                        .domain = {.kind = AttrDomain::Kind::axes}};
const AttrSpec kKeep = {
    .name = "keep_axes", .doc = "folded axes stay with extent 1", .fallback = false};
const AttrSpec kAxis = {.name = "axis",
                        .doc = "axis to fold, may be negative",
                        .fallback = int64_t{-1},
                        .domain = {.kind = AttrDomain::Kind::axis}};

const std::vector<Sample> kSamples = {
    {.shapes = {{3, 4, 5}}, .attrs = {{"axes", Axes{-1}}}},
    {.shapes = {{3, 4, 5}}, .attrs = {{"axes", Axes{0, 2}}, {"keep_axes", true}}},
    {.shapes = {{3, 4}}},
    {.shapes = {{}}},
};
const std::vector<Sample> kArgSamples = {
    {.shapes = {{3, 4, 5}}, .attrs = {{"axis", int64_t{1}}}},
    {.shapes = {{3, 4}},
     .attrs = {{"axis", int64_t{-1}}, {"keep_axes", true}, {"index_dtype", i32}}},
};

const Register sum_entry({
    .name = "sum",
    .kind = Kind::reduction,
    .doc = "The sum over axes. Half types are summed in f32, integers wrap in their own dtype; the "
           "sum of nothing is 0.",
    .operands = {{"x", kNumber}},
    .attrs = {kAxes, kKeep},
    .infer = infer_reduction(false),
    .judge = judge_sum,
    .gradient = sum_gradient,
    .reduce = reduce_rule(ir::ReduceOp::sum),
    .samples = kSamples,
});

OpDef extreme(std::string name, std::string doc, bool is_maximum) {
  return {
      .name = std::move(name),
      .kind = Kind::reduction,
      .doc = std::move(doc),
      .operands = {{"x", kReal}},
      .attrs = {kAxes, kKeep},
      .infer = infer_reduction(true),
      .judge = judge_extreme(is_maximum),
      .gradient = extreme_gradient,
      .reduce = reduce_rule(is_maximum ? ir::ReduceOp::max : ir::ReduceOp::min),
      .samples = kSamples,
  };
}
const Register reduce_max_entry(extreme(
    "reduce_max", "The largest element over axes; NaN wins. An empty axis is an error.", true));
const Register reduce_min_entry(extreme(
    "reduce_min", "The smallest element over axes; NaN wins. An empty axis is an error.", false));

std::vector<ir::InferredResult> infer_arg(const InferContext& ctx) {
  if (ctx.type(0).rank() == 0) ctx.fail("x is a scalar, expected an axis to search");
  auto results = infer_reduction(true)(ctx);
  DType index = ctx.attrs.get<DType>("index_dtype");
  if (!is_integer(index))
    ctx.fail(cat("attribute 'index_dtype' expects an integer dtype, given ", name(index)));
  auto folded = checked_axes(ctx);
  int bits = bit_width(index) - (is_signed_integer(index) ? 1 : 0);
  for (size_t k = 0; k < folded.size(); ++k) {
    int64_t extent = folded[k] ? ctx.shape(0)[k].constant_or(0) : 0;
    if (bits < 62 && extent > int64_t{1} << bits)
      ctx.fail(cat("axis ", k, " of x ", to_string(ctx.type(0)), " has indices beyond index_dtype ",
                   name(index)));
  }
  results[0].type.dtype = index;
  return results;
}

OpDef arg(std::string name, std::string doc, bool is_maximum) {
  return {
      .name = std::move(name),
      .kind = Kind::reduction,
      .doc = std::move(doc),
      .operands = {{"x", kReal}},
      .attrs = {kAxis,
                kKeep,
                {.name = "index_dtype",
                 .doc = "integer dtype of the result",
                 .fallback = i64,
                 .domain = {.kind = AttrDomain::Kind::dtype, .dtypes = kInteger}}},
      .infer = infer_arg,
      .judge = judge_arg(is_maximum),
      .no_gradient = true,
      .reduce = reduce_rule(is_maximum ? ir::ReduceOp::argmax : ir::ReduceOp::argmin),
      .samples = kArgSamples,
  };
}
const Register argmax_entry(arg(
    "argmax",
    "Index of the largest element along an axis; the first of equals, the first NaN wins.", true));
const Register argmin_entry(
    arg("argmin",
        "Index of the smallest element along an axis; the first of equals, the first NaN wins.",
        false));

// ---- element_count: how many elements are folded, for means of extents that are not known yet

Expr folded_count(const Shape& shape, const std::vector<bool>& folded) {
  Expr count(1);
  for (size_t k = 0; k < shape.size(); ++k)
    if (folded[k]) count = count * shape[k];
  return count;
}

const Register element_count_entry({
    .name = "element_count",
    .kind = Kind::view,
    .doc = "The product of x's extents over axes, a scalar; x itself is not read.",
    .operands = {{"x", kAnyStored}},
    .attrs = {kAxes,
              {.name = "dtype",
               .doc = "i32, i64, f32 or f64",
               .fallback = i64,
               .domain = {.kind = AttrDomain::Kind::dtype, .dtypes = kReal}}},
    .infer = [](const InferContext& ctx) -> std::vector<ir::InferredResult> {
      DType to = ctx.attrs.get<DType>("dtype");
      if (to != i32 && to != i64 && to != f32 && to != f64)
        ctx.fail(cat("attribute 'dtype' expects i32, i64, f32 or f64, given ", name(to)));
      ir::InferredResult result{type(to, {}), std::nullopt};
      Expr count = folded_count(ctx.shape(0), checked_axes(ctx));
      if (is_integer(to)) result.elements = std::vector<Expr>{count};
      return {result};
    },
    .judge = [](const JudgeContext& ctx) -> std::vector<HostTensor> {
      HostTensor out = judge_result(ctx);
      const auto& shape = ctx.in[0]->shape;
      auto folded = *folded_axes(axes_of(ctx.attrs), static_cast<int>(shape.size()));
      int64_t count = 1;
      for (size_t k = 0; k < shape.size(); ++k) count *= folded[k] ? shape[k] : 1;
      for (double& v : out.f) v = static_cast<double>(count);
      for (int64_t& v : out.i) v = count;
      return {out};
    },
    .no_gradient = true,
    .element =
        [](ElementContext& c) {
          Expr count = folded_count(c.shape(0), folded_of(c.graph, c.op));
          return Val{c.b.cast(c.b.index(count), c.op.attrs.get<DType>("dtype"))};
        },
    .samples = {{.shapes = {{3, 4}}, .attrs = {{"axes", Axes{1}}}}},
});

// The number of elements that are folded, in the real type `dtype`.
Tensor folded_elements(const Tensor& x, const Axes& axes, DType dtype) {
  if (x.rank() >= 0) {
    if (auto folded = folded_axes(axes, x.rank())) {
      Expr count = folded_count(x.shape(), *folded);
      if (count.is_constant()) {
        HostTensor scalar(dtype, {});
        scalar.f[0] = static_cast<double>(*count.constant());
        round_to_dtype(scalar);
        return x.graph()->tensor(add_constant(*x.graph(), to_literal(scalar)));
      }
    }
  }
  return ops::apply("element_count", {x}, {{"axes", axes}, {"dtype", dtype}});
}

// ---- mean and variance

// Half types are computed in f32, from the sum to the quotient.
DType wide(DType dtype) { return dtype == DType::unknown ? dtype : compute_type(dtype); }

Tensor wide_mean(const Tensor& x, const ReduceOptions& options) {
  Axes axes(options.axes.begin(), options.axes.end());
  Tensor total = sum(x, options);
  Tensor count = folded_elements(x, axes, real_part(x.dtype()));
  return total / count;
}

ReduceOptions options_of(const ir::Attrs& attrs) {
  ReduceOptions options = kept(attrs);
  options.keep_axes = keeps(attrs);
  return options;
}

int64_t folded_size(const JudgeContext& ctx) {
  const auto& shape = ctx.in[0]->shape;
  auto folded = *folded_axes(axes_of(ctx.attrs), static_cast<int>(shape.size()));
  int64_t count = 1;
  for (size_t k = 0; k < shape.size(); ++k) count *= folded[k] ? shape[k] : 1;
  return count;
}

HostTensor plain_mean(const JudgeContext& ctx) {
  HostTensor out = judge_sum(ctx)[0];
  auto count = static_cast<double>(folded_size(ctx));
  for (double& v : out.f) v /= count;
  for (Complex& v : out.c) v = {v.real() / count, v.imag() / count};
  return out;
}

Tensors mean_gradient(const GradientContext& g) {
  const Tensor &x = g.in[0], &up = g.upstream[0];
  DType w = wide(x.dtype());
  if (w == DType::unknown)
    throw GraphError(
        "mean: the gradient needs the dtype of x, which is still open: give the placeholder a "
        "dtype");
  Tensor share = cast(up, w) / folded_elements(x, axes_of(g.op.attrs), real_part(w));
  return {broadcast_like(with_folded_axes(cast(share, x.dtype()), g.op.attrs), x)};
}

const Register mean_entry({
    .name = "mean",
    .kind = Kind::composite,
    .doc =
        "The mean over axes; half types are summed and divided in f32. The mean of nothing is NaN.",
    .operands = {{"x", kFloating}},
    .attrs = {kAxes, kKeep},
    .infer = infer_reduction(false),
    .judge = [](const JudgeContext& ctx) -> std::vector<HostTensor> { return {plain_mean(ctx)}; },
    .gradient = mean_gradient,
    .decompose = [](const ir::Graph&, const ir::Op& op, const Tensors& operands) -> Tensors {
      const Tensor& x = operands[0];
      return {cast(wide_mean(cast(x, wide(x.dtype())), options_of(op.attrs)), x.dtype())};
    },
    .samples = kSamples,
});

std::vector<HostTensor> judge_variance(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  const HostTensor& x = *ctx.in[0];
  JudgeContext of_mean = ctx;
  of_mean.result_types[0].dtype = x.dtype;
  HostTensor center = plain_mean(of_mean);
  std::vector<long double> squares(static_cast<size_t>(out.size()));
  fold_each(ctx, [&](size_t r, size_t k, int64_t) {
    if (!x.f.empty()) squares[r] += std::pow(static_cast<long double>(x.f[k]) - center.f[r], 2);
    if (!x.c.empty()) squares[r] += std::norm(x.c[k] - center.c[r]);
  });
  auto count = static_cast<long double>(folded_size(ctx));
  for (size_t r = 0; r < squares.size(); ++r) out.f[r] = static_cast<double>(squares[r] / count);
  return {out};
}

// x in its computing type, less its mean.
Tensor centered(const Tensor& x, const ir::Attrs& attrs) {
  Tensor w = cast(x, wide(x.dtype()));
  return w - wide_mean(w, kept(attrs));
}

Tensor squared(const Tensor& x) {
  return is_complex(x.dtype()) ? square(real(x)) + square(imaginary(x)) : square(x);
}

// The mean of |x|^2, x in its computing type, whose values came from `stored`. A mean that fits
// into f32 may have squares that do not, or a sum of them, so these are kept in f64, and so is
// the result. The squares of f16 are far from the largest f32; for f64 there is no wider type.
Tensor mean_square(const Tensor& x, DType stored, const ReduceOptions& options) {
  if (real_part(x.dtype()) == f64 || real_part(stored) == f16)
    return wide_mean(squared(x), options);
  DType square_type = is_complex(x.dtype()) ? c128 : f64;
  return wide_mean(squared(cast(x, square_type)), options);
}

// 2 (x - mean) / n: the mean's own part sums to nothing.
Tensors variance_gradient(const GradientContext& g) {
  const Tensor &x = g.in[0], &up = g.upstream[0];
  DType w = wide(x.dtype());
  if (w == DType::unknown)
    throw GraphError(
        "variance: the gradient needs the dtype of x, which is still open: give the placeholder a "
        "dtype");
  Tensor count = folded_elements(x, axes_of(g.op.attrs), real_part(w));
  Tensor share = with_folded_axes(cast(up, real_part(w)) * 2.0 / count, g.op.attrs);
  return {cast(centered(x, g.op.attrs) * share, x.dtype())};
}

const Register variance_entry({
    .name = "variance",
    .kind = Kind::composite,
    .doc = "The mean of |x - mean|^2 over axes (population variance, two passes); real. The "
           "variance of nothing is NaN. Squares of f32 and bf16 are added in f64, so that a result "
           "that fits does not overflow on the way.",
    .operands = {{"x", kFloating}},
    .attrs = {kAxes, kKeep},
    .infer =
        [](const InferContext& ctx) {
          auto results = infer_reduction(false)(ctx);
          results[0].type.dtype = real_part(ctx.dtype(0));
          return results;
        },
    .judge = judge_variance,
    .gradient = variance_gradient,
    .decompose = [](const ir::Graph&, const ir::Op& op, const Tensors& operands) -> Tensors {
      DType stored = operands[0].dtype();
      Tensor d = centered(operands[0], op.attrs);
      return {cast(mean_square(d, stored, options_of(op.attrs)), real_part(stored))};
    },
    .samples = kSamples,
});

// ---- root of the mean square

// sqrt(mean of x^2 + epsilon), x in its computing type. Beside an epsilon squares are scaled by
// 2^-2s, s = 32 for f32 (256 for f64): what then underflows is less than a quarter of the last
// place of epsilon, the bits stay as they are, and sums of squares of 1e28 fit. More would make
// subnormal numbers of common squares, which processors are slow with. Without an epsilon, or
// beside a tiny one, squares are kept in a wider type.
Tensor root_mean_square(const Tensor& x, DType stored, double epsilon,
                        const ReduceOptions& options) {
  bool wide_range = x.dtype() == f64;
  int shift = wide_range ? 512 : 64;  // 2 s
  if (epsilon < std::ldexp(1.0, shift - (wide_range ? 1020 : 124)))
    return cast(sqrt(mean_square(x, stored, options) + epsilon), x.dtype());
  Tensor scaled = wide_mean(x * std::ldexp(1.0, -shift) * x, options);
  return sqrt(scaled + std::ldexp(epsilon, -shift)) * std::ldexp(1.0, shift / 2);
}

std::vector<HostTensor> judge_root_mean_square(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  std::vector<long double> squares(out.f.size());
  fold_each(ctx, [&](size_t r, size_t k, int64_t) {
    squares[r] += std::pow(static_cast<long double>(ctx.in[0]->f[k]), 2);
  });
  auto count = static_cast<long double>(folded_size(ctx));
  auto epsilon = static_cast<long double>(ctx.attrs.get<double>("epsilon"));
  for (size_t r = 0; r < squares.size(); ++r)
    out.f[r] = static_cast<double>(std::sqrt(squares[r] / count + epsilon));
  return {out};
}

// x / y / n; x / y is of order 1 where up / y may be too small a number.
Tensors root_mean_square_gradient(const GradientContext& g) {
  DType stored = g.in[0].dtype(), w = wide(stored);
  if (w == DType::unknown)
    throw GraphError(
        "root_mean_square: the gradient needs the dtype of x, which is still open: give the "
        "placeholder a dtype");
  Tensor x = cast(g.in[0], w), y = cast(g.out[0], w), up = cast(g.upstream[0], w);
  Tensor count = folded_elements(x, axes_of(g.op.attrs), w);
  Tensor share = with_folded_axes(up / count, g.op.attrs);
  return {cast(x / with_folded_axes(y, g.op.attrs) * share, stored)};
}

const Register root_mean_square_entry({
    .name = "root_mean_square",
    .kind = Kind::composite,
    .doc = "sqrt(mean of x^2 over axes + epsilon), also where the squares are too large for the "
           "dtype; half types are computed in f32. layer_norm divides by it.",
    .operands = {{"x", kRealFloat}},
    .attrs = {kAxes,
              kKeep,
              {.name = "epsilon",
               .doc = "added to the mean",
               .fallback = 0.0,
               .domain = {.low = 0, .high = 1}}},
    .infer =
        [](const InferContext& ctx) {
          if (double e = ctx.attrs.get<double>("epsilon"); !(e >= 0))
            ctx.fail(cat("attribute 'epsilon' is ", e, ", expected at least 0"));
          return infer_reduction(false)(ctx);
        },
    .judge = judge_root_mean_square,
    .gradient = root_mean_square_gradient,
    .decompose = [](const ir::Graph&, const ir::Op& op, const Tensors& operands) -> Tensors {
      DType stored = operands[0].dtype();
      return {cast(root_mean_square(cast(operands[0], wide(stored)), stored,
                                    op.attrs.get<double>("epsilon"), options_of(op.attrs)),
                   stored)};
    },
    .samples = {{.shapes = {{3, 4, 5}}, .attrs = {{"axes", Axes{-1}}}},
                {.shapes = {{3, 4, 5}},
                 .attrs = {{"axes", Axes{0, 2}}, {"keep_axes", true}, {"epsilon", 1e-5}}},
                {.shapes = {{3, 4}}, .attrs = {{"epsilon", 0.5}}},
                {.shapes = {{}}}},
});

// ----------------------------------------------------------------------------------------------
// building

// Axes counted from 0 and sorted where the rank is known; bad ones are left for inference to
// report.
Axes normal_axes(const Tensor& x, const std::vector<int>& axes) {
  Axes list(axes.begin(), axes.end());
  if (x.rank() < 0) return list;
  auto folded = folded_axes(list, x.rank());
  if (!folded) return list;
  list.clear();
  for (size_t k = 0; k < folded->size(); ++k)
    if ((*folded)[k]) list.push_back(static_cast<int64_t>(k));
  return list;
}

Tensor reduce(std::string_view op, const Tensor& x, const ReduceOptions& options) {
  check_valid(op, {x});
  return ops::apply(op, {x},
                    {{"axes", normal_axes(x, options.axes)}, {"keep_axes", options.keep_axes}});
}

// Booleans are compared as u8.
Tensor reduce_extreme(std::string_view op, const Tensor& x, const ReduceOptions& options) {
  check_valid(op, {x});
  if (x.dtype() != bool_) return reduce(op, x, options);
  return cast(reduce(op, cast(x, u8), options), bool_);
}

Tensor search(std::string_view op, const Tensor& x, const ArgOptions& options) {
  check_valid(op, {x});
  int64_t axis = options.axis;
  if (x.rank() > 0 && axis < 0 && axis >= -x.rank()) axis += x.rank();
  return ops::apply(
      op, {x.dtype() == bool_ ? cast(x, u8) : x},
      {{"axis", axis}, {"keep_axes", options.keep_axes}, {"index_dtype", options.index_dtype}});
}

}  // namespace
}  // namespace ops

Tensor sum(const Tensor& x, const ReduceOptions& options) {
  ops::check_valid("sum", {x});
  return ops::reduce("sum", x.dtype() == bool_ ? cast(x, i64) : x, options);
}
Tensor count_nonzero(const Tensor& x, const ReduceOptions& options) {
  ops::check_valid("count_nonzero", {x});
  return sum(x.dtype() == bool_ ? x : not_equal(x, constant_like(x, 0)), options);
}
Tensor reduce_max(const Tensor& x, const ReduceOptions& options) {
  return ops::reduce_extreme("reduce_max", x, options);
}
Tensor reduce_min(const Tensor& x, const ReduceOptions& options) {
  return ops::reduce_extreme("reduce_min", x, options);
}
Tensor mean(const Tensor& x, const ReduceOptions& options) {
  return ops::reduce("mean", ops::as_floating("mean", x), options);
}
Tensor variance(const Tensor& x, const ReduceOptions& options) {
  return ops::reduce("variance", ops::as_floating("variance", x), options);
}
Tensor argmax(const Tensor& x, const ArgOptions& options) {
  return ops::search("argmax", x, options);
}
Tensor argmin(const Tensor& x, const ArgOptions& options) {
  return ops::search("argmin", x, options);
}

}  // namespace heddle
