// Composites of neural networks: whole until a backend claims them, else made of primitives.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <cmath>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;

// Half types are computed in f32 from the load to the one rounding of the result.
Tensor to_compute(const Tensor& x) {
  DType wide = compute_type(x.dtype());
  return wide == x.dtype() ? x : cast(x, wide);
}
Tensor from_compute(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : cast(x, dtype);
}

std::vector<InferredResult> infer_like_x(const InferContext& c) {
  return {{c.type(0), std::nullopt}};
}

// The judge's view of x as (outer, n, inner) around one axis.
struct Lanes {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t at(int64_t o, int64_t k, int64_t i) const { return (o * n + k) * inner + i; }
};
Lanes lanes(const std::vector<int64_t>& shape, size_t axis) {
  Lanes l;
  for (size_t k = 0; k < shape.size(); ++k)
    (k < axis ? l.outer : k == axis ? l.n : l.inner) *= shape[k];
  return l;
}
template <class F>
void for_each_lane(const Lanes& l, F f) {
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.inner; ++i) f(o, i);
}

// ---- softmax

std::vector<InferredResult> infer_softmax(const InferContext& c) {
  resolve_axis(c, c.attrs.get<int64_t>("axis"), static_cast<int>(c.shape(0).size()));
  return infer_like_x(c);
}

std::vector<HostTensor> judge_softmax(const JudgeContext& c) {
  HostTensor out = *c.in[0];
  auto axis = static_cast<size_t>(
      resolved_axis(c.attrs.get<int64_t>("axis"), static_cast<int>(out.shape.size())));
  Lanes l = lanes(out.shape, axis);
  for_each_lane(l, [&](int64_t o, int64_t i) {
    auto value = [&](int64_t k) -> double& { return out.f[static_cast<size_t>(l.at(o, k, i))]; };
    double top = -INFINITY;
    for (int64_t k = 0; k < l.n; ++k) top = std::isnan(value(k)) || value(k) > top ? value(k) : top;
    double total = 0;
    for (int64_t k = 0; k < l.n; ++k) total += std::exp(value(k) - top);
    for (int64_t k = 0; k < l.n; ++k) value(k) = std::exp(value(k) - top) / total;
  });
  return {out};
}

Tensors decompose_softmax(const ir::Graph&, const ir::Op& op, const Tensors& in) {
  Tensor x = to_compute(in[0]);
  int axis = static_cast<int>(op.attrs.get<int64_t>("axis"));
  const Expr& n = x.shape()[static_cast<size_t>(resolved_axis(axis, x.rank()))];
  if (n.is(0)) return {in[0]};
  ReduceOptions along{.axes = {axis}, .keep_axes = true};
  Tensor e = exp(x - reduce_max(x, along));
  return {from_compute(e / sum(e, along), in[0].dtype())};
}

const Register softmax_entry({
    .name = "softmax",
    .kind = Kind::composite,
    .doc = "exp(x - max) / sum of exp(x - max) along an axis.",
    .operands = {{"x", kRealFloat}},
    .attrs = {{.name = "axis",
               .doc = "along which the results add up to 1",
               .fallback = int64_t{-1},
               .domain = {.kind = AttrDomain::Kind::axis}}},
    .infer = infer_softmax,
    .judge = judge_softmax,
    .gradient = [](const GradientContext& c) -> Tensors {
      ReduceOptions along{.axes = {static_cast<int>(c.op.attrs.get<int64_t>("axis"))},
                          .keep_axes = true};
      Tensor y = to_compute(c.out[0]);
      Tensor u = to_compute(c.upstream[0]);
      return {from_compute(y * (u - sum(u * y, along)), c.out[0].dtype())};
    },
    .decompose = decompose_softmax,
    .samples = {{.shapes = {{3, 5}}},
                {.shapes = {{4, 3, 2}}, .attrs = {{"axis", int64_t{0}}}},
                {.shapes = {{1, 7, 1}}, .attrs = {{"axis", int64_t{1}}}}},
});

// ---- layer_norm

std::vector<int64_t> normalized_axes(const InferContext& c) {
  int rank = static_cast<int>(c.shape(0).size());
  std::vector<int64_t> axes;
  for (int64_t axis : c.attrs.get<std::vector<int64_t>>("axes")) {
    int64_t at = resolve_axis(c, axis, rank, "axes");
    for (int64_t seen : axes)
      if (seen == at)
        c.fail(cat("axes ", list(c.attrs.get<std::vector<int64_t>>("axes")), " name axis ", at,
                   " twice"));
    axes.push_back(at);
  }
  return axes;
}

std::vector<InferredResult> infer_layer_norm(const InferContext& c) {
  normalized_axes(c);
  for (size_t i = 1; i < c.operands.size(); ++i) {
    const char* what = i == 1 ? "gain" : "bias";
    if (c.dtype(i) != c.dtype(0))
      c.fail(cat(what, " has dtype ", name(c.dtype(i)), ", expected ", name(c.dtype(0)), " as x"));
    if (broadcast_shapes(c.shape(0), c.shape(i), c.op) != c.shape(0))
      c.fail(cat(what, " ", to_string(c.shape(i)), " does not broadcast to x ",
                 to_string(c.shape(0))));
  }
  if (!(c.attrs.get<double>("epsilon") >= 0))
    c.fail(cat("epsilon is ", c.attrs.get<double>("epsilon")));
  return infer_like_x(c);
}

std::vector<HostTensor> judge_layer_norm(const JudgeContext& c) {
  const HostTensor& x = *c.in[0];
  HostTensor out = x;
  std::vector<int64_t> statistics = x.shape;  // shape of mean and variance
  int64_t count = 1;
  const auto& axes = c.attrs.get<std::vector<int64_t>>("axes");
  for (size_t k = 0; k < x.shape.size(); ++k) {
    bool normalized = axes.empty();
    for (int64_t axis : axes)
      normalized |= resolved_axis(axis, static_cast<int>(x.shape.size())) == static_cast<int>(k);
    if (!normalized) continue;
    count *= x.shape[k];
    statistics[k] = 1;
  }
  std::vector<int64_t> lane = broadcast_indices(statistics, x.shape);
  auto lanes = static_cast<size_t>(element_count(statistics));
  // Extended, so that squares of f64 fit.
  std::vector<long double> mean(lanes, 0), variance(lanes, 0);
  auto n = static_cast<long double>(count);
  for (size_t i = 0; i < lane.size(); ++i) mean[static_cast<size_t>(lane[i])] += x.f[i] / n;
  for (size_t i = 0; i < lane.size(); ++i) {
    long double d = x.f[i] - mean[static_cast<size_t>(lane[i])];
    variance[static_cast<size_t>(lane[i])] += d * d / n;
  }
  auto epsilon = c.attrs.get<double>("epsilon");
  for (size_t i = 0; i < lane.size(); ++i) {
    auto at = static_cast<size_t>(lane[i]);
    out.f[i] = static_cast<double>((x.f[i] - mean[at]) / std::sqrt(variance[at] + epsilon));
  }
  for (size_t p = 1; p < c.in.size(); ++p) {
    std::vector<int64_t> from = broadcast_indices(c.in[p]->shape, x.shape);
    for (size_t i = 0; i < from.size(); ++i) {
      double v = c.in[p]->f[static_cast<size_t>(from[i])];
      out.f[i] = p == 1 ? out.f[i] * v : out.f[i] + v;
    }
  }
  return {out};
}

Tensors decompose_layer_norm(const ir::Graph&, const ir::Op& op, const Tensors& in) {
  Tensor x = to_compute(in[0]);
  ReduceOptions along{.axes = {}, .keep_axes = true};
  for (int64_t axis : op.attrs.get<std::vector<int64_t>>("axes"))
    along.axes.push_back(static_cast<int>(axis));
  if (x.rank() == 0) along.axes.clear();
  Tensor centered = x - mean(x, along);
  Tensor y = centered / apply("root_mean_square", {centered},
                              {{"axes", to_ints(along.axes)},
                               {"keep_axes", true},
                               {"epsilon", op.attrs.get<double>("epsilon")}});
  if (in.size() > 1) y = y * to_compute(in[1]);
  if (in.size() > 2) y = y + to_compute(in[2]);
  return {from_compute(y, in[0].dtype())};
}

const Register layer_norm_entry({
    .name = "layer_norm",
    .kind = Kind::composite,
    .doc = "(x - mean) / sqrt(variance + epsilon) * gain + bias over some axes (none given: all), "
           "with the population's "
           "variance.",
    .operands = {{"x", kRealFloat},
                 {.name = "gain", .dtypes = kRealFloat, .optional = true},
                 {.name = "bias", .dtypes = kRealFloat, .optional = true}},
    .attrs = {{.name = "axes",
               .doc = "normalised axes; empty: all",
               .fallback = std::vector<int64_t>{-1},
               .domain = {.kind = AttrDomain::Kind::axes}},
              {.name = "epsilon",
               .doc = "added to the variance",
               .fallback = 1e-5,
               .domain = {.low = 0.01, .high = 1}}},
    .infer = infer_layer_norm,
    .judge = judge_layer_norm,
    .decompose = decompose_layer_norm,
    .samples = {{.shapes = {{3, 5}}},
                {.shapes = {{3, 5}, {5}, {5}}},
                {.shapes = {{2, 5, 7}, {5, 7}}, .attrs = {{"axes", std::vector<int64_t>{1, 2}}}}},
});

// ---- local response normalisation

std::vector<InferredResult> infer_lrn(const InferContext& c) {
  resolve_axis(c, c.attrs.get<int64_t>("axis"), static_cast<int>(c.shape(0).size()));
  auto size = c.attrs.get<int64_t>("size");
  if (size < 1 || size % 2 == 0) c.fail(cat("size is ", size, ", expected an odd number"));
  return infer_like_x(c);
}

std::vector<HostTensor> judge_lrn(const JudgeContext& c) {
  const HostTensor& x = *c.in[0];
  HostTensor out = x;
  auto size = c.attrs.get<int64_t>("size");
  double scale = c.attrs.get<double>("alpha") / static_cast<double>(size);
  auto axis = static_cast<size_t>(
      resolved_axis(c.attrs.get<int64_t>("axis"), static_cast<int>(x.shape.size())));
  Lanes l = lanes(x.shape, axis);
  for_each_lane(l, [&](int64_t o, int64_t i) {
    for (int64_t k = 0; k < l.n; ++k) {
      double squares = 0;
      for (int64_t j = std::max<int64_t>(k - size / 2, 0); j <= std::min(k + size / 2, l.n - 1);
           ++j) {
        double v = x.f[static_cast<size_t>(l.at(o, j, i))];
        squares += v * v;
      }
      auto at = static_cast<size_t>(l.at(o, k, i));
      out.f[at] = x.f[at] / std::pow(c.attrs.get<double>("bias") + scale * squares,
                                     c.attrs.get<double>("beta"));
    }
  });
  return {out};
}

// The window slides along the last axis of a transposed view.
Tensors decompose_lrn(const ir::Graph&, const ir::Op& op, const Tensors& in) {
  Tensor x = to_compute(in[0]);
  int axis = resolved_axis(op.attrs.get<int64_t>("axis"), x.rank());
  std::vector<int> exchange;
  for (int k = 0; k < x.rank(); ++k)
    exchange.push_back(k == axis ? x.rank() - 1 : k == x.rank() - 1 ? axis : k);
  auto size = op.attrs.get<int64_t>("size");
  Tensor ones = broadcast_to(constant_like(x, 1), Shape{size});
  Tensor squares = transpose(stencil(transpose(x * x, exchange), ones), exchange);
  Tensor base = squares * (op.attrs.get<double>("alpha") / static_cast<double>(size)) +
                op.attrs.get<double>("bias");
  Tensor y = x / power(base, constant_like(base, op.attrs.get<double>("beta")));
  return {from_compute(y, in[0].dtype())};
}

const Register lrn_entry({
    .name = "local_response_norm",
    .kind = Kind::composite,
    .doc = "x / (bias + alpha / size * sum of squares over a window along an axis)^beta, zero "
           "outside of x.",
    .operands = {{"x", kRealFloat}},
    .attrs =
        {{.name = "size",
          .doc = "odd extent of the window",
          .fallback = int64_t{5},
          .domain = {.low = 1, .high = 7}},
         {.name = "alpha",
          .doc = "factor of the mean square",
          .fallback = 1e-4,
          .domain = {.low = 0, .high = 1}},
         {.name = "beta", .doc = "exponent", .fallback = 0.75, .domain = {.low = 0, .high = 2}},
         {.name = "bias",
          .doc = "added to the sum",
          .fallback = 1.0,
          .domain = {.low = 0.5, .high = 2}},
         {.name = "axis",
          .doc = "of the window: the channels",
          .fallback = int64_t{1},
          .domain = {.kind = AttrDomain::Kind::axis}}},
    .infer = infer_lrn,
    .judge = judge_lrn,
    .decompose = decompose_lrn,
    .samples = {{.shapes = {{2, 7, 2}}},
                {.shapes = {{3, 4}},
                 .attrs = {{"size", int64_t{3}}, {"alpha", 0.5}, {"axis", int64_t{-1}}}}},
});

// ---- gelu

std::vector<HostTensor> judge_gelu(const JudgeContext& c) {
  HostTensor out = *c.in[0];
  for (double& v : out.f) v = v * (1 + std::erf(v / std::sqrt(2.0))) / 2;
  return {out};
}

Tensors decompose_gelu(const ir::Graph&, const ir::Op&, const Tensors& in) {
  Tensor x = to_compute(in[0]);
  Tensor y = x * 0.5 * (1.0 + erf(x * std::sqrt(0.5)));
  return {from_compute(y, in[0].dtype())};
}

const Register gelu_entry({
    .name = "gelu",
    .kind = Kind::composite,
    .doc = "x * (1 + erf(x / sqrt 2)) / 2",
    .operands = {{"x", kRealFloat}},
    .infer = infer_like_x,
    .judge = judge_gelu,
    .decompose = decompose_gelu,
    .samples = {{.shapes = {{3, 5}}, .low = -4, .high = 4}},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor softmax(const Tensor& x, int axis) {
  return ops::apply("softmax", {x}, {{"axis", int64_t{axis}}});
}

Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                  const LayerNormOptions& options) {
  Tensors operands{x};
  if (gain.valid()) operands.push_back(gain);
  if (bias.valid()) {
    if (!gain.valid()) operands.push_back(constant_like(x, 1));
    operands.push_back(bias);
  }
  return ops::apply("layer_norm", operands,
                    {{"axes", ops::to_ints(options.axes)}, {"epsilon", options.epsilon}});
}

Tensor local_response_norm(const Tensor& x, const LrnOptions& options) {
  return ops::apply("local_response_norm", {x},
                    {{"size", options.size},
                     {"alpha", options.alpha},
                     {"beta", options.beta},
                     {"bias", options.bias},
                     {"axis", int64_t{options.axis}}});
}

Tensor gelu(const Tensor& x) { return ops::apply("gelu", {x}); }

}  // namespace heddle
