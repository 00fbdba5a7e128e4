// Gradients of windows. T(x, w, u) = sum over i, j of u[i] * x[i * stride + j * dilation - before]
// * w[j] is linear in each of its three parts: stencil, stencil_transpose and stencil_weights are
// its derivatives by u, x and w, and so each one's gradients are the other two. An `argument` that
// picks one position of each window passes through all of them.
#include "base/check.h"
#include "ops/stencil_geometry.h"

#include <heddle/ops.h>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;
using ir::ScalarOp;
using Exprs = std::vector<Expr>;

// ---- stencil_transpose

const Exprs& result_shape(const ir::Attrs& attrs) { return attrs.get<Exprs>("shape"); }

void check_steps(const InferContext& c, const char* name, size_t rank) {
  const auto& v = c.attrs.get<Exprs>(name);
  if (v.size() != rank) c.fail(cat(name, " has ", v.size(), " numbers, expected ", rank));
}

std::vector<InferredResult> infer_transpose(const InferContext& c) {
  const Shape& u = c.shape(0);
  const Shape& weights = c.shape(1);
  if (c.dtype(0) != c.dtype(1))
    c.fail(cat("dtypes differ: u is ", name(c.dtype(0)), ", weights are ", name(c.dtype(1))));
  check_windows(c, u, weights);
  check_steps(c, "before", weights.size());
  check_steps(c, "shape", weights.size());
  Shape out(u.begin(), u.end() - static_cast<std::ptrdiff_t>(weights.size()));
  for (const Expr& n : result_shape(c.attrs)) {
    if (n.upper() < 0) c.fail("shape has a negative extent");
    out.push_back(n);
  }
  if (c.operands.size() > 2)
    require_shape(c, c.shape(2), u,
                  cat("argument is ", to_string(c.type(2)), ", expected ", to_string(u)));
  return {{{c.dtype(0), std::move(out)}, std::nullopt}};
}

JudgeSteps judge_steps(const JudgeContext& c, size_t rank) {
  JudgeSteps w;
  for (const Expr& e : c.attrs.get<Exprs>("before")) w.before.push_back(c.number(e));
  w.stride = c.attrs.get<std::vector<int64_t>>("strides");
  w.dilation = c.attrs.get<std::vector<int64_t>>("dilations");
  if (w.stride.empty()) w.stride.assign(rank, 1);
  if (w.dilation.empty()) w.dilation.assign(rank, 1);
  return w;
}

bool inside(const std::vector<int64_t>& at, const std::vector<int64_t>& shape) {
  for (size_t k = 0; k < at.size(); ++k)
    if (at[k] < 0 || at[k] >= shape[k]) return false;
  return true;
}

bool skipped(const JudgeContext& c, int64_t flat, int64_t tap) {
  return c.in.size() > 2 && c.in[2]->i[static_cast<size_t>(flat)] != tap;
}

std::vector<HostTensor> judge_transpose(const JudgeContext& c) {
  const HostTensor& u = *c.in[0];
  const HostTensor& w = *c.in[1];
  HostTensor out(u.dtype, concrete_shape(c.result_types[0]));
  JudgeSteps steps = judge_steps(c, w.shape.size());
  size_t lead = u.shape.size() - w.shape.size();
  std::vector<int64_t> at;
  for_each_index(u.shape, [&](const std::vector<int64_t>& i, int64_t flat) {
    for_each_index(w.shape, [&](const std::vector<int64_t>& j, int64_t tap) {
      at = i;
      for (size_t k = 0; k < j.size(); ++k)
        at[lead + k] = i[lead + k] * steps.stride[k] + j[k] * steps.dilation[k] - steps.before[k];
      if (skipped(c, flat, tap) || !inside(at, out.shape)) return;
      int64_t to = flat_index(at, out.shape);
      store(out, to, judge_add(load(out, to), judge_multiply(load(u, flat), load(w, tap))));
    });
  });
  return {out};
}

// u[i] * w[j] for the i whose window position j is at the result's coordinates, 0 where there is
// none.
ir::Val transpose_term(ElementContext& c, const Exprs& j, ir::NodeId tap) {
  const Shape& shape = *c.graph.value(c.op.results[0]).type.shape;
  std::vector<WindowAxis> axes = window_axes(c.op.attrs, shape, c.shape(1), c.shape(0));
  size_t lead = c.coords.size() - axes.size();
  Exprs at(c.coords.begin(), c.coords.begin() + static_cast<std::ptrdiff_t>(lead));
  ir::NodeId mask = ir::kNoNode;
  for (size_t k = 0; k < axes.size(); ++k) {
    Expr distance = c.coords[lead + k] + axes[k].before - j[k] * axes[k].dilation;
    Expr i = distance / axes[k].stride;
    mask = both(c.b, mask, in_range(c.b, i, 0, axes[k].output));
    if (axes[k].stride != 1) {
      ir::NodeId rest = c.b.index(distance % axes[k].stride);
      mask = both(c.b, mask, c.b.binary(ScalarOp::eq, rest, c.b.constant_int(i64, 0)));
    }
    at.push_back(i);
  }
  ir::Val zero = constant_val(c.b, c.dtype(0), 0);
  if (has_argument(c.op)) {
    ir::Val none{c.b.constant_int(scalar_type(c.dtype(2)), 0)};
    ir::NodeId chosen = c.b.cast(c.at(2, at, mask, none).re, i64);
    mask = both(c.b, mask, c.b.binary(ScalarOp::eq, chosen, tap));
  }
  // Weights may be infinite: the product counts only where there is a u.
  ir::Val term = multiply(c.b, c.at(0, at, mask, zero), c.at(1, j, ir::kNoNode, {}));
  return select(c.b, mask, term, zero);
}

ir::Val unrolled_transpose(ElementContext& c) {
  ir::Val total;
  for (int64_t tap = 0; tap < *unrolled_taps(c.shape(1)); ++tap) {
    ir::Val term = transpose_term(c, tap_coords(c.shape(1), tap), c.b.constant_int(i64, tap));
    total = tap == 0 ? term : add(c.b, total, term);
  }
  return total;
}

Expr flat_tap(const Shape& weights, const Exprs& j) {
  Expr tap = 0;
  for (size_t k = 0; k < j.size(); ++k) tap = tap * weights[k] + j[k];
  return tap;
}

ReduceRule transpose_rule() {
  ReduceRule rule;
  rule.inner = [](const ir::Graph& graph, const ir::Op& op) {
    return *graph.value(op.operands[1]).type.shape;
  };
  rule.value = [](ElementContext& c, const Exprs& inner) {
    return transpose_term(c, inner, c.b.index(flat_tap(c.shape(1), inner)));
  };
  return rule;
}

// Attributes of the three ops about the same windows.
ir::Attrs step_values(const ir::Attrs& attrs) {
  return {{"strides", attrs.get<std::vector<int64_t>>("strides")},
          {"dilations", attrs.get<std::vector<int64_t>>("dilations")}};
}

Tensors with_argument(Tensors operands, const Tensors& in) {
  if (in.size() > 2) operands.push_back(in[2]);
  return operands;
}

Exprs befores(const std::vector<WindowAxis>& axes) {
  Exprs out;
  for (const WindowAxis& a : axes) out.push_back(a.before);
  return out;
}

// The stencil over `x` with the windows of `axes`, zero outside or as `boundary` says.
Tensor stencil_at(const Tensors& operands, const ir::Attrs& steps,
                  const std::vector<WindowAxis>& axes, const std::string& boundary,
                  double constant) {
  ir::Attrs attrs = steps;
  Exprs after;
  for (const WindowAxis& a : axes) after.push_back(a.after());
  attrs.set("before", befores(axes));
  attrs.set("after", after);
  attrs.set("padding", std::string("explicit"));
  attrs.set("boundary", boundary);
  attrs.set("constant", constant);
  return apply("stencil", operands, std::move(attrs));
}

Tensor weights_at(const Tensors& operands, const ir::Attrs& steps,
                  const std::vector<WindowAxis>& axes, const std::string& boundary,
                  double constant) {
  ir::Attrs attrs = steps;
  Exprs window;
  for (const WindowAxis& a : axes) window.push_back(a.window);
  attrs.set("before", befores(axes));
  attrs.set("window", window);
  attrs.set("boundary", boundary);
  attrs.set("constant", constant);
  return apply("stencil_weights", operands, std::move(attrs));
}

// The gradient of x from u and weights, through the boundary.
Tensor transpose_at(const Tensors& operands, const ir::Attrs& steps,
                    const std::vector<WindowAxis>& axes, PaddingMode mode, const Shape& x) {
  ir::Attrs attrs = steps;
  Exprs before, shape, pads;
  for (const WindowAxis& a : axes) {
    Expr b = fills(mode) ? Expr(0) : max(a.before, Expr(0));
    Expr e = fills(mode) ? Expr(0) : max(a.after(), Expr(0));
    pads.push_back(b);
    before.push_back(a.before - b);
    shape.push_back(a.input + b + e);
  }
  attrs.set("before", before);
  attrs.set("shape", shape);
  Tensor padded = apply("stencil_transpose", operands, std::move(attrs));
  return fills(mode) ? padded : pad_transpose(padded, x, pads, mode);
}

Tensors transpose_gradient(const GradientContext& c) {
  const Shape& u = *known_type(c.in[0], "gradients of stencil_transpose", "u").shape;
  const Shape& w = *known_type(c.in[1], "gradients of stencil_transpose", "weights").shape;
  std::vector<WindowAxis> axes = window_axes(c.op.attrs, c.out[0].shape(), w, u);
  Tensors out(c.in.size());
  ir::Attrs steps = step_values(c.op.attrs);
  if (c.wanted[0])
    out[0] = stencil_at(with_argument({c.upstream[0], conjugate_if_complex(c.in[1])}, c.in), steps,
                        axes, "zero", 0);
  if (c.wanted[1])
    out[1] = weights_at(with_argument({c.upstream[0], conjugate_if_complex(c.in[0])}, c.in), steps,
                        axes, "zero", 0);
  return out;
}

std::vector<AttrSpec> transpose_attrs() {
  std::vector<AttrSpec> attrs = step_attrs();
  attrs.push_back({"before", "position of the first window from the result's corner, negated",
                   std::nullopt, attr_type<Exprs>});
  attrs.push_back({"shape", "extents of the result's last axes", std::nullopt, attr_type<Exprs>});
  return attrs;
}

const Register transpose_entry({
    .name = "stencil_transpose",
    .kind = Kind::reduction,
    .doc = "result[i * stride + j * dilation - before] += u[i] * weights[j]: the transpose of the "
           "sum stencil, zero outside.",
    .operands = {{"u", kNumber},
                 {"weights", kNumber},
                 {.name = "argument", .dtypes = kInteger, .optional = true}},
    .attrs = transpose_attrs(),
    .infer = infer_transpose,
    .judge = judge_transpose,
    .gradient = transpose_gradient,
    .element = unrolled_transpose,
    .prefer_reduce =
        [](const ir::Graph& graph, const ir::Op& op) {
          return !unrolled_taps(*graph.value(op.operands[1]).type.shape);
        },
    .reduce = transpose_rule(),
    .samples = {{.shapes = {{5, 6}, {3, 3}},
                 .attrs = {{"before", Exprs{1, 1}}, {"shape", Exprs{5, 6}}}},
                {.shapes = {{3, 4}, {2, 2}},
                 .attrs = {{"before", Exprs{1, 0}},
                           {"shape", Exprs{7, 6}},
                           {"strides", std::vector<int64_t>{2, 1}},
                           {"dilations", std::vector<int64_t>{1, 2}}}},
                {.shapes = {{9}, {70}}, .attrs = {{"before", Exprs{3}}, {"shape", Exprs{80}}}}},
});

// ---- stencil_weights

std::vector<InferredResult> infer_weights(const InferContext& c) {
  const auto& window = c.attrs.get<Exprs>("window");
  if (c.dtype(0) != c.dtype(1))
    c.fail(cat("dtypes differ: x is ", name(c.dtype(0)), ", u is ", name(c.dtype(1))));
  check_windows(c, c.shape(0), window);
  check_padding_mode(c, "boundary");
  check_steps(c, "before", window.size());
  check_fill(c, "constant", c.attrs.get<double>("constant"));
  const Shape &x = c.shape(0), &u = c.shape(1);
  std::string misfit = cat("x ", to_string(x), " and u ", to_string(u), " do not fit");
  if (x.size() != u.size()) c.fail(misfit);
  size_t lead = x.size() - window.size();
  for (size_t k = 0; k < lead; ++k) c.require_equal(x[k], u[k], misfit);
  if (c.operands.size() > 2) require_shape(c, c.shape(2), u, misfit);
  for (size_t k = lead; k < x.size(); ++k)
    if (!fills(padding_mode(c.attrs, "boundary")))
      c.require_at_least(x[k], min(u[k], Expr(1)),
                         cat("axis ", k, " of x ", to_string(x), " is empty"));
  return {{{c.dtype(0), Shape(window)}, std::nullopt}};
}

std::vector<HostTensor> judge_weights(const JudgeContext& c) {
  const HostTensor& x = *c.in[0];
  const HostTensor& u = *c.in[1];
  HostTensor out(x.dtype, concrete_shape(c.result_types[0]));
  JudgeWindowReader read(x, padding_mode(c.attrs, "boundary"), c.attrs.get<double>("constant"),
                         judge_steps(c, out.shape.size()), u.shape, out.shape);
  for_each_index(out.shape, [&](const std::vector<int64_t>& j, int64_t tap) {
    JudgeScalar total;
    for_each_index(u.shape, [&](const std::vector<int64_t>& i, int64_t flat) {
      if (skipped(c, flat, tap)) return;
      total = judge_add(total, judge_multiply(read(i, j), load(u, flat)));
    });
    store(out, tap, total);
  });
  return {out};
}

ReduceRule weights_rule() {
  ReduceRule rule;
  rule.inner = [](const ir::Graph& graph, const ir::Op& op) {
    return *graph.value(op.operands[1]).type.shape;
  };
  rule.value = [](ElementContext& c, const Exprs& inner) {
    Shape window = c.op.attrs.get<Exprs>("window");
    std::vector<WindowAxis> axes = window_axes(c.op.attrs, c.shape(0), window, c.shape(1));
    size_t lead = inner.size() - axes.size();
    Exprs outer(inner.begin(), inner.begin() + static_cast<std::ptrdiff_t>(lead));
    Exprs positions;
    for (size_t k = 0; k < axes.size(); ++k)
      positions.push_back(inner[lead + k] * axes[k].stride + c.coords[k] * axes[k].dilation -
                          axes[k].before);
    ir::Val value = boundary_read(c, 0, padding_mode(c.op.attrs, "boundary"),
                                  c.op.attrs.get<double>("constant"), outer, positions);
    ir::Val term = multiply(c.b, value, c.at(1, inner, ir::kNoNode, {}));
    ir::NodeId chosen = selects_tap(c, inner, c.b.index(flat_tap(window, c.coords)));
    return select(c.b, chosen, term, constant_val(c.b, c.dtype(0), 0));
  };
  return rule;
}

Tensors weights_gradient(const GradientContext& c) {
  const Shape& x = *known_type(c.in[0], "gradients of stencil_weights", "x").shape;
  const Shape& u = *known_type(c.in[1], "gradients of stencil_weights", "u").shape;
  std::vector<WindowAxis> axes = window_axes(c.op.attrs, x, c.out[0].shape(), u);
  ir::Attrs steps = step_values(c.op.attrs);
  Tensors out(c.in.size());
  if (c.wanted[0]) {
    Tensors operands = with_argument({conjugate_if_complex(c.in[1]), c.upstream[0]}, c.in);
    out[0] = transpose_at(operands, steps, axes, padding_mode(c.op.attrs, "boundary"), x);
  }
  if (c.wanted[1])
    out[1] =
        stencil_at(with_argument({conjugate_if_complex(c.in[0]), c.upstream[0]}, c.in), steps, axes,
                   c.op.attrs.get<std::string>("boundary"), c.op.attrs.get<double>("constant"));
  return out;
}

std::vector<AttrSpec> weights_attrs() {
  std::vector<AttrSpec> attrs = step_attrs();
  attrs.push_back({"before", "as in stencil", std::nullopt, attr_type<Exprs>});
  attrs.push_back({"window", "extents of the result", std::nullopt, attr_type<Exprs>});
  attrs.push_back({.name = "boundary",
                   .doc = "what lies outside of x: a mode of pad",
                   .fallback = std::string("zero"),
                   .domain = boundary_domain()});
  attrs.push_back({"constant", "value outside for boundary constant", 0.0});
  return attrs;
}

const Register weights_entry({
    .name = "stencil_weights",
    .kind = Kind::reduction,
    .doc = "result[j] = sum over all i of u[i] * x[i * stride + j * dilation - before]: the "
           "gradient of the sum stencil's "
           "weights.",
    .operands = {{"x", kNumber},
                 {"u", kNumber},
                 {.name = "argument", .dtypes = kInteger, .optional = true}},
    .attrs = weights_attrs(),
    .infer = infer_weights,
    .judge = judge_weights,
    .gradient = weights_gradient,
    .reduce = weights_rule(),
    .samples = {{.shapes = {{5, 6}, {5, 6}},
                 .attrs = {{"before", Exprs{1, 1}}, {"window", Exprs{3, 3}}}},
                {.shapes = {{2, 7, 6}, {2, 4, 5}},
                 .attrs = {{"before", Exprs{1, 1}},
                           {"window", Exprs{2, 2}},
                           {"strides", std::vector<int64_t>{2, 1}},
                           {"boundary", std::string("reflect")}}}},
});

// ---- the stencil's own gradient

// Products of all factors but one, for each: from the left times from the right.
Tensors products_without_each(const Tensors& factors) {
  Tensors out(factors.size());
  Tensor left;
  for (size_t k = 0; k < factors.size(); ++k) {
    out[k] = left;
    left = left.valid() ? left * factors[k] : factors[k];
  }
  Tensor right;
  for (size_t k = factors.size(); k-- > 0;) {
    if (right.valid()) out[k] = out[k].valid() ? out[k] * right : right;
    right = right.valid() ? factors[k] * right : factors[k];
  }
  return out;
}

// Product windows, from slices of the padded x.
Tensors product_gradient(const GradientContext& c, const std::vector<WindowAxis>& axes) {
  const Shape& w = c.in[1].shape();
  std::optional<int64_t> taps = element_count(w).constant();
  if (!taps)
    throw GraphError(cat("gradients of stencil: a product over the symbolic window ", to_string(w),
                         " has no gradient"));
  size_t rank = c.in[0].shape().size();
  size_t lead = rank - axes.size();
  PaddingMode mode = padding_mode(c.op.attrs, "boundary");
  Exprs before(rank, Expr(0)), after(rank, Expr(0));
  for (size_t k = 0; k < axes.size(); ++k) {
    before[lead + k] = max(axes[k].before, Expr(0));
    after[lead + k] = max(axes[k].after(), Expr(0));
  }
  Tensor padded = apply("pad", {c.in[0]},
                        {{"before", before},
                         {"after", after},
                         {"mode", c.op.attrs.get<std::string>("boundary")},
                         {"value", c.op.attrs.get<double>("constant")}});
  std::vector<ir::Attrs> places;
  Tensors values, weights, factors;
  Tensor flat = reshape(c.in[1], Shape{*taps});
  for (int64_t tap = 0; tap < *taps; ++tap) {
    Exprs starts(rank, Expr(0)), stops = padded.shape();
    std::vector<int64_t> strides(rank, 1);
    Exprs j = tap_coords(w, tap);
    for (size_t k = 0; k < axes.size(); ++k) {
      starts[lead + k] = before[lead + k] - axes[k].before + j[k] * axes[k].dilation;
      stops[lead + k] = starts[lead + k] + (axes[k].output - 1) * axes[k].stride + 1;
      strides[lead + k] = axes[k].stride;
    }
    places.push_back({{"starts", starts}, {"stops", stops}, {"strides", strides}});
    values.push_back(apply("slice", {padded}, places.back()));
    weights.push_back(
        reshape(slice(flat, {.starts = {tap}, .stops = {tap + 1}, .strides = {}}), Shape{}));
    factors.push_back(values.back() * weights.back());
  }
  Tensors others = products_without_each(factors);
  Tensor dx;
  Tensors dw;
  for (size_t tap = 0; tap < factors.size(); ++tap) {
    Tensor u =
        others[tap].valid() ? c.upstream[0] * conjugate_if_complex(others[tap]) : c.upstream[0];
    ir::Attrs place = places[tap];
    place.set("shape", padded.shape());
    Tensor part = apply("unslice", {u * conjugate_if_complex(weights[tap])}, place);
    dx = dx.valid() ? dx + part : part;
    dw.push_back(reshape(sum(u * conjugate_if_complex(values[tap])), Shape{1}));
  }
  return {pad_transpose(dx, c.in[0].shape(), before, mode), reshape(concat(dw, 0), w)};
}

}  // namespace

Tensors stencil_gradient(const GradientContext& c) {
  const Shape& x = *known_type(c.in[0], "gradients of stencil", "x").shape;
  const Shape& w = *known_type(c.in[1], "gradients of stencil", "weights").shape;
  std::vector<WindowAxis> axes = window_axes(c.op.attrs, x, w);
  WindowReduction r = window_reduction(c.op.attrs);
  Tensors out(c.in.size());
  if (r == WindowReduction::argmin || r == WindowReduction::argmax) return out;
  if (r == WindowReduction::product) {
    Tensors parts = product_gradient(c, axes);
    out[0] = parts[0];
    out[1] = parts[1];
    return out;
  }
  Tensors in = c.in;
  if (r != WindowReduction::sum) {  // the gradient goes to the first extremum of each window
    ir::Attrs attrs = c.op.attrs;
    attrs.set("reduction", std::string(r == WindowReduction::max ? "argmax" : "argmin"));
    in.resize(2);
    in.push_back(apply("stencil", {c.in[0], c.in[1]}, std::move(attrs)));
  }
  ir::Attrs steps = step_values(c.op.attrs);
  const Tensor& u = c.upstream[0];
  PaddingMode mode = padding_mode(c.op.attrs, "boundary");
  if (c.wanted[0])
    out[0] =
        transpose_at(with_argument({u, conjugate_if_complex(in[1])}, in), steps, axes, mode, x);
  if (c.wanted[1])
    out[1] =
        weights_at(with_argument({conjugate_if_complex(in[0]), u}, in), steps, axes,
                   c.op.attrs.get<std::string>("boundary"), c.op.attrs.get<double>("constant"));
  return out;
}

}  // namespace heddle::ops

namespace heddle {

Tensor stencil_transpose(const Tensor& u, const Tensor& weights,
                         const StencilTransposeOptions& options) {
  Tensors operands{u, weights};
  ops::check_valid("stencil_transpose", operands);
  ops::promote_operands("stencil_transpose", operands);
  std::vector<Expr> before = options.before;
  if (before.empty()) before.assign(options.shape.size(), Expr(0));
  return ops::apply("stencil_transpose", operands,
                    {{"shape", options.shape},
                     {"before", before},
                     {"strides", options.strides},
                     {"dilations", options.dilations}});
}

}  // namespace heddle
