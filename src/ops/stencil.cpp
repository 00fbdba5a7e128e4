// Weighted windows: filters, finite differences, pools.
#include "base/check.h"
#include "ops/stencil_geometry.h"

#include <heddle/ops.h>

#include <array>
#include <cmath>
#include <limits>

namespace heddle::ops {

using base::cat;
using ir::InferredResult;
using ir::ScalarOp;

namespace {

constexpr std::array<std::string_view, 6> kReductions{"min",     "max",    "sum",
                                                      "product", "argmin", "argmax"};
constexpr std::array<std::string_view, 5> kPaddings{"explicit", "valid", "same", "same_lower",
                                                    "explicit_offset"};

template <size_t N>
std::optional<size_t> position(const std::array<std::string_view, N>& names,
                               std::string_view text) {
  for (size_t k = 0; k < N; ++k)
    if (names[k] == text) return k;
  return std::nullopt;
}

WindowPadding window_padding(const ir::Attrs& attrs) {
  return static_cast<WindowPadding>(position(kPaddings, attrs.get<std::string>("padding")).value());
}

int64_t step(const ir::Attrs& attrs, const char* name, size_t k) {
  const auto& v = attrs.get<std::vector<int64_t>>(name);
  return v.empty() ? 1 : v[k];
}

Expr number_at(const ir::Attrs& attrs, const char* name, size_t k) {
  const auto& v = attrs.get<std::vector<Expr>>(name);
  return v.empty() ? Expr(0) : v[k];
}

WindowAxis plain_axis(const ir::Attrs& attrs, const Shape& x, const Shape& weights, size_t k) {
  WindowAxis axis;
  axis.input = x[x.size() - weights.size() + k];
  axis.window = weights[k];
  axis.stride = step(attrs, "strides", k);
  axis.dilation = step(attrs, "dilations", k);
  return axis;
}

}  // namespace

std::string_view name(WindowReduction reduction) { return name_at(kReductions, reduction); }
std::string_view name(WindowPadding padding) { return name_at(kPaddings, padding); }

WindowReduction window_reduction(const ir::Attrs& attrs) {
  return static_cast<WindowReduction>(
      position(kReductions, attrs.get<std::string>("reduction")).value());
}

std::vector<WindowAxis> window_axes(const ir::Attrs& attrs, const Shape& x, const Shape& weights) {
  std::vector<WindowAxis> axes;
  for (size_t k = 0; k < weights.size(); ++k) {
    WindowAxis axis = plain_axis(attrs, x, weights, k);
    Expr same = (axis.input + (axis.stride - 1)) / axis.stride;
    Expr surplus = max((same - 1) * axis.stride + axis.reach() - axis.input, Expr(0));
    switch (window_padding(attrs)) {
      case WindowPadding::explicit_pads:
      case WindowPadding::valid: {
        bool valid = window_padding(attrs) == WindowPadding::valid;
        axis.before = valid ? Expr(0) : number_at(attrs, "before", k);
        Expr after = valid ? Expr(0) : number_at(attrs, "after", k);
        axis.output = (axis.input + axis.before + after - axis.reach()) / axis.stride + 1;
        break;
      }
      case WindowPadding::same:
        axis.before = surplus / 2;
        axis.output = same;
        break;
      case WindowPadding::same_lower:
        axis.before = (surplus + 1) / 2;
        axis.output = same;
        break;
      case WindowPadding::explicit_offset:
        axis.before = -number_at(attrs, "offsets", k);
        axis.output = same;
        break;
    }
    axes.push_back(axis);
  }
  return axes;
}

std::vector<WindowAxis> window_axes(const ir::Attrs& attrs, const Shape& x, const Shape& weights,
                                    const Shape& outputs) {
  std::vector<WindowAxis> axes;
  for (size_t k = 0; k < weights.size(); ++k) {
    WindowAxis axis = plain_axis(attrs, x, weights, k);
    axis.before = number_at(attrs, "before", k);
    axis.output = outputs[outputs.size() - weights.size() + k];
    axes.push_back(axis);
  }
  return axes;
}

void check_windows(const InferContext& c, const Shape& x, const Shape& weights) {
  size_t rank = weights.size();
  if (rank < 1 || rank > 4)
    c.fail(cat("weights ", to_string(weights), " have rank ", rank, ", expected 1 to 4"));
  if (rank > x.size())
    c.fail(cat("weights ", to_string(weights), " have more axes than x ", to_string(x)));
  for (size_t k = 0; k < rank; ++k)
    c.require_at_least(weights[k], 1,
                       cat("weights ", to_string(weights), " are empty along axis ", k));
  for (const char* which : {"strides", "dilations"}) {
    const auto& v = c.attrs.get<std::vector<int64_t>>(which);
    if (!v.empty() && v.size() != rank)
      c.fail(cat(which, " ", list(v), " has ", v.size(), " numbers, expected one for each of the ",
                 rank, " axes of the weights"));
    for (int64_t n : v)
      if (n < 1 || n > std::numeric_limits<int32_t>::max())
        c.fail(cat(which, " ", list(v), " has ", n, ", expected 1 to 2^31 - 1"));
  }
}

std::vector<AttrSpec> step_attrs() {
  AttrDomain steps{.kind = AttrDomain::Kind::per_axis, .operand = 1, .low = 1, .high = 3};
  return {{.name = "strides",
           .doc = "step from window to window; empty: 1",
           .fallback = std::vector<int64_t>{},
           .domain = steps},
          {.name = "dilations",
           .doc = "step inside a window; empty: 1",
           .fallback = std::vector<int64_t>{},
           .domain = steps}};
}

std::optional<int64_t> unrolled_taps(const Shape& weights) {
  std::optional<int64_t> n = element_count(weights).constant();
  return n && *n <= kMaxUnrolledTaps ? n : std::nullopt;
}

std::vector<Expr> tap_coords(const Shape& weights, int64_t tap) {
  std::vector<Expr> at(weights.size());
  for (size_t k = weights.size(); k-- > 0;) {
    int64_t n = *weights[k].constant();
    at[k] = tap % n;
    tap /= n;
  }
  return at;
}

bool has_argument(const ir::Op& op) { return op.operands.size() > 2; }

ir::NodeId selects_tap(ElementContext& c, const std::vector<Expr>& at, ir::NodeId tap) {
  if (!has_argument(c.op)) return ir::kNoNode;
  ir::NodeId chosen = c.b.cast(c.at(2, at, ir::kNoNode, {}).re, i64);
  return c.b.binary(ScalarOp::eq, chosen, tap);
}

JudgeWindowReader::JudgeWindowReader(const HostTensor& x, PaddingMode mode, double fill_value,
                                     const JudgeSteps& steps, const std::vector<int64_t>& outputs,
                                     const std::vector<int64_t>& window)
    : x_(x),
      fill_(judge_scalar(mode == PaddingMode::constant ? fill_value : 0)),
      strides_(row_major_strides(x.shape)),
      window_(window) {
  size_t lead = x.shape.size() - window.size();
  for (size_t k = 0; k < window.size(); ++k) {
    std::vector<std::optional<JudgeBoundary>> axis;
    for (int64_t i = 0; i < outputs[lead + k]; ++i)
      for (int64_t j = 0; j < window[k]; ++j)
        axis.push_back(judge_boundary(mode,
                                      i * steps.stride[k] + j * steps.dilation[k] - steps.before[k],
                                      x.shape[lead + k]));
    positions_.push_back(std::move(axis));
  }
}

JudgeScalar JudgeWindowReader::operator()(const std::vector<int64_t>& i,
                                          const std::vector<int64_t>& j) const {
  size_t lead = i.size() - j.size();
  int64_t flat = 0;
  for (size_t k = 0; k < lead; ++k) flat += i[k] * strides_[k];
  bool negated = false;
  for (size_t k = 0; k < j.size(); ++k) {
    const auto& axis = positions_[k][static_cast<size_t>(i[lead + k] * window_[k] + j[k])];
    if (!axis) return fill_;
    flat += axis->index * strides_[lead + k];
    negated = negated != axis->negated;
  }
  return negated ? judge_negate(load(x_, flat)) : load(x_, flat);
}

namespace {

bool is_argument_mode(WindowReduction r) {
  return r == WindowReduction::argmin || r == WindowReduction::argmax;
}

// ---- inference

void check_modes(const InferContext& c) {
  check_padding_mode(c, "boundary");
  if (!position(kReductions, c.attrs.get<std::string>("reduction")))
    c.fail(cat("reduction is \"", c.attrs.get<std::string>("reduction"),
               "\", expected min, max, sum, product, argmin or argmax"));
  if (!position(kPaddings, c.attrs.get<std::string>("padding")))
    c.fail(cat("padding is \"", c.attrs.get<std::string>("padding"),
               "\", expected explicit, valid, same, same_lower or explicit_offset"));
  WindowReduction r = window_reduction(c.attrs);
  if (is_complex(c.dtype(0)) && r != WindowReduction::sum && r != WindowReduction::product)
    c.fail(cat("x is ", name(c.dtype(0)), ", which reduction ", name(r), " cannot order"));
  // The parts of a complex product do not fold apart, as a long fold needs.
  if (is_complex(c.dtype(0)) && r == WindowReduction::product && !unrolled_taps(c.shape(1)))
    c.fail(cat("weights ", to_string(c.shape(1)),
               " are too many for a complex product, expected at most ", kMaxUnrolledTaps,
               " positions, with extents that are numbers"));
  if (padding_mode(c.attrs, "boundary") == PaddingMode::constant)
    check_fill(c, "constant", c.attrs.get<double>("constant"));
}

std::vector<InferredResult> infer_stencil(const InferContext& c) {
  const Shape& x = c.shape(0);
  const Shape& weights = c.shape(1);
  if (c.dtype(0) != c.dtype(1))
    c.fail(cat("dtypes differ: x is ", name(c.dtype(0)), ", weights are ", name(c.dtype(1))));
  check_windows(c, x, weights);
  check_modes(c);
  for (const char* which : {"before", "after", "offsets"}) {
    const auto& v = c.attrs.get<std::vector<Expr>>(which);
    if (!v.empty() && v.size() != weights.size())
      c.fail(cat(which, " has ", v.size(), " numbers, expected one for each of the ",
                 weights.size(), " axes of the weights"));
    for (const Expr& distance : v) check_distance(c, which, distance);
  }
  Shape out = x;
  std::vector<WindowAxis> axes = window_axes(c.attrs, x, weights);
  bool filled = fills(padding_mode(c.attrs, "boundary"));
  for (size_t k = 0; k < axes.size(); ++k) {
    size_t at = x.size() - axes.size() + k;
    const Expr& n = axes[k].output;
    c.require_at_least(n, min(axes[k].input, Expr(1)),
                       cat("the window ", axes[k].reach().to_string(), " along axis ", at,
                           " is longer than the padded x ", to_string(x)));
    out[at] = n.lower() < 0 ? max(n, Expr(0)) : n;
    if (!filled)
      c.require_at_least(axes[k].input, min(out[at], Expr(1)),
                         cat("axis ", at, " of x ", to_string(x),
                             " is empty, which only constant and zero boundaries can extend"));
  }
  DType dtype = is_argument_mode(window_reduction(c.attrs)) ? i32 : c.dtype(0);
  if (c.operands.size() > 2 && window_reduction(c.attrs) != WindowReduction::sum)
    c.fail(cat("argument goes with reduction sum only, given ", name(window_reduction(c.attrs))));
  if (c.operands.size() > 2)
    require_shape(c, c.shape(2), out,
                  cat("argument is ", to_string(c.type(2)), ", expected ", to_string(out)));
  return {{{dtype, std::move(out)}, std::nullopt}};
}

// ---- the judge

// Order of the argument and extremum modes: the first of equals; a NaN comes before every number.
bool better(const JudgeScalar& a, const JudgeScalar& b, DType dtype, bool largest) {
  if (is_real_float(dtype)) {
    if (std::isnan(b.f)) return false;
    if (std::isnan(a.f)) return true;
    return largest ? a.f > b.f : a.f < b.f;
  }
  bool less = integer_less(a.i, b.i, dtype);
  return largest ? !less && a.i != b.i : less;
}

struct Fold {
  JudgeScalar value;
  int64_t argument = 0;
};

void fold(Fold& f, const JudgeScalar& term, int64_t tap, WindowReduction r, DType dtype) {
  if (tap == 0) {
    f = {term, 0};
    return;
  }
  if (r == WindowReduction::sum) {
    f.value = judge_add(f.value, term);
  } else if (r == WindowReduction::product) {
    f.value = judge_multiply(f.value, term);
  } else {
    bool largest = r == WindowReduction::max || r == WindowReduction::argmax;
    if (better(term, f.value, dtype, largest)) f = {term, tap};
  }
}

// Wraps an integer to its dtype, so that the next step sees what a kernel would see.
JudgeScalar wrapped(const JudgeScalar& v, DType dtype, HostTensor& scratch) {
  if (!is_integer(dtype)) return v;
  store(scratch, 0, v);
  round_to_dtype(scratch);
  return load(scratch, 0);
}

std::vector<HostTensor> judge_stencil(const JudgeContext& c) {
  const HostTensor& x = *c.in[0];
  const HostTensor& w = *c.in[1];
  WindowReduction r = window_reduction(c.attrs);
  JudgeSteps steps;
  for (const WindowAxis& a :
       window_axes(c.attrs, {x.shape.begin(), x.shape.end()}, {w.shape.begin(), w.shape.end()})) {
    steps.before.push_back(c.number(a.before));
    steps.stride.push_back(a.stride);
    steps.dilation.push_back(a.dilation);
  }
  HostTensor out(c.result_types[0].dtype, concrete_shape(c.result_types[0]));
  JudgeWindowReader read(x, padding_mode(c.attrs, "boundary"), c.attrs.get<double>("constant"),
                         steps, out.shape, w.shape);
  HostTensor scratch(x.dtype, {});
  for_each_index(out.shape, [&](const std::vector<int64_t>& at, int64_t flat) {
    Fold f;
    for_each_index(w.shape, [&](const std::vector<int64_t>& j, int64_t tap) {
      JudgeScalar term = judge_multiply(read(at, j), load(w, tap));
      if (c.in.size() > 2 && c.in[2]->i[static_cast<size_t>(flat)] != tap) term = {};
      fold(f, wrapped(term, x.dtype, scratch), tap, r, x.dtype);
    });
    if (is_argument_mode(r))
      out.i[static_cast<size_t>(flat)] = f.argument;
    else
      store(out, flat, f.value);
  });
  return {out};
}

// ---- lowering

// x * weight at one window position.
ir::Val stencil_term(ElementContext& c, const std::vector<WindowAxis>& axes,
                     const std::vector<Expr>& j) {
  size_t lead = c.coords.size() - axes.size();
  std::vector<Expr> outer(c.coords.begin(), c.coords.begin() + static_cast<std::ptrdiff_t>(lead));
  std::vector<Expr> positions;
  for (size_t k = 0; k < axes.size(); ++k)
    positions.push_back(c.coords[lead + k] * axes[k].stride + j[k] * axes[k].dilation -
                        axes[k].before);
  ir::Val value = boundary_read(c, 0, padding_mode(c.op.attrs, "boundary"),
                                c.op.attrs.get<double>("constant"), outer, positions);
  return multiply(c.b, value, c.at(1, j, ir::kNoNode, {}));
}

std::vector<WindowAxis> axes_of(ElementContext& c) {
  return window_axes(c.op.attrs, c.shape(0), c.shape(1));
}

// Whether `a` comes before `b` in the argument modes.
ir::NodeId better_node(ir::BodyBuilder& b, ir::NodeId a, ir::NodeId best, DType dtype,
                       bool largest) {
  ir::NodeId wins = b.binary(largest ? ScalarOp::gt : ScalarOp::lt, a, best);
  if (!is_real_float(dtype)) return wins;
  ir::NodeId first_nan = both(b, b.unary(ScalarOp::is_nan, a),
                              b.unary(ScalarOp::logical_not, b.unary(ScalarOp::is_nan, best)));
  return b.binary(ScalarOp::bit_or, wins, first_nan);
}

ir::Val unrolled_argument(ElementContext& c, int64_t taps, bool largest) {
  std::vector<WindowAxis> axes = axes_of(c);
  ir::NodeId best = ir::kNoNode;
  ir::NodeId argument = c.b.constant_int(i32, 0);
  for (int64_t tap = 0; tap < taps; ++tap) {
    ir::NodeId term = stencil_term(c, axes, tap_coords(c.shape(1), tap)).re;
    if (tap == 0) {
      best = term;
      continue;
    }
    ir::NodeId wins = better_node(c.b, term, best, c.dtype(0), largest);
    best = c.b.select(wins, term, best);
    argument = c.b.select(wins, c.b.constant_int(i32, tap), argument);
  }
  return {argument};
}

ir::Val unrolled_stencil(ElementContext& c) {
  WindowReduction r = window_reduction(c.op.attrs);
  int64_t taps = *unrolled_taps(c.shape(1));
  if (is_argument_mode(r)) return unrolled_argument(c, taps, r == WindowReduction::argmax);
  std::vector<WindowAxis> axes = axes_of(c);
  ir::Val zero = constant_val(c.b, c.dtype(0), 0);
  ir::Val total;
  for (int64_t tap = 0; tap < taps; ++tap) {
    ir::Val term = stencil_term(c, axes, tap_coords(c.shape(1), tap));
    term = select(c.b, selects_tap(c, c.coords, c.b.constant_int(i64, tap)), term, zero);
    if (tap == 0)
      total = term;
    else if (r == WindowReduction::sum)
      total = add(c.b, total, term);
    else if (r == WindowReduction::product)
      total = multiply(c.b, total, term);
    else
      total.re =
          c.b.binary(r == WindowReduction::max ? ScalarOp::max : ScalarOp::min, total.re, term.re);
  }
  return total;
}

ReduceRule stencil_rule() {
  ReduceRule rule;
  rule.choose = [](const ir::Op& op) {
    constexpr std::array<ir::ReduceOp, 6> kOps{ir::ReduceOp::min,    ir::ReduceOp::max,
                                               ir::ReduceOp::sum,    ir::ReduceOp::product,
                                               ir::ReduceOp::argmin, ir::ReduceOp::argmax};
    return kOps[static_cast<size_t>(window_reduction(op.attrs))];
  };
  rule.inner = [](const ir::Graph& graph, const ir::Op& op) {
    return *graph.value(op.operands[1]).type.shape;
  };
  rule.value = [](ElementContext& c, const std::vector<Expr>& inner) {
    ir::Val term = stencil_term(c, axes_of(c), inner);
    if (!has_argument(c.op)) return term;
    Expr tap = 0;
    for (size_t k = 0; k < inner.size(); ++k) tap = tap * c.shape(1)[k] + inner[k];
    return select(c.b, selects_tap(c, c.coords, c.b.index(tap)), term,
                  constant_val(c.b, c.dtype(0), 0));
  };
  return rule;
}

std::vector<AttrSpec> stencil_attrs() {
  std::vector<AttrSpec> attrs = step_attrs();
  auto per_axis = [](double low, double high) {
    return AttrDomain{.kind = AttrDomain::Kind::per_axis, .operand = 1, .low = low, .high = high};
  };
  auto one_of = [](const auto& names) {
    return AttrDomain{.kind = AttrDomain::Kind::choice, .choices = {names.begin(), names.end()}};
  };
  attrs.push_back({.name = "reduction",
                   .doc = "min, max, sum, product, argmin or argmax",
                   .fallback = std::string("sum"),
                   .domain = one_of(kReductions)});
  attrs.push_back({.name = "boundary",
                   .doc = "what lies outside of x: a mode of pad",
                   .fallback = std::string("zero"),
                   .domain = boundary_domain()});
  attrs.push_back({"constant", "value outside for boundary constant", 0.0});
  attrs.push_back({.name = "padding",
                   .doc = "explicit, valid, same, same_lower or explicit_offset",
                   .fallback = std::string("same"),
                   .domain = one_of(kPaddings)});
  attrs.push_back({.name = "before",
                   .doc = "explicit pads before each axis; empty: 0",
                   .fallback = std::vector<Expr>{},
                   .domain = per_axis(-1, 3)});
  attrs.push_back({.name = "after",
                   .doc = "explicit pads after each axis; empty: 0",
                   .fallback = std::vector<Expr>{},
                   .domain = per_axis(-1, 3)});
  attrs.push_back({.name = "offsets",
                   .doc = "explicit_offset: the first window's corner from the input's; empty: 0",
                   .fallback = std::vector<Expr>{},
                   .domain = per_axis(-4, 4)});
  return attrs;
}

Sample stencil_sample(std::vector<int64_t> x, std::vector<int64_t> w, const char* reduction,
                      const char* boundary, const char* padding = "same") {
  return {.shapes = {std::move(x), std::move(w)},
          .attrs = {{"reduction", std::string(reduction)},
                    {"boundary", std::string(boundary)},
                    {"padding", std::string(padding)},
                    {"constant", 1.0}}};
}

Sample stepped_sample(std::vector<int64_t> x, std::vector<int64_t> w, const char* reduction,
                      const char* boundary, const char* padding) {
  Sample s = stencil_sample(std::move(x), std::move(w), reduction, boundary, padding);
  s.attrs.set("strides", std::vector<int64_t>{2, 1});
  s.attrs.set("dilations", std::vector<int64_t>{1, 2});
  return s;
}

const Register stencil_entry({
    .name = "stencil",
    .kind = Kind::reduction,
    .doc = "y[i] = reduction over the window j of x[i * stride + j * dilation - before] * "
           "weights[j], on the last axes of x. "
           "argmin and argmax give the position in the window (row-major, first of equals). Where "
           "`argument` is given, "
           "only that position of each window counts.",
    .operands = {{"x", kNumber},
                 {"weights", kNumber},
                 {.name = "argument", .dtypes = kInteger, .optional = true}},
    .attrs = stencil_attrs(),
    .infer = infer_stencil,
    .judge = judge_stencil,
    .gradient = stencil_gradient,
    .element = unrolled_stencil,
    .prefer_reduce =
        [](const ir::Graph& graph, const ir::Op& op) {
          return !unrolled_taps(*graph.value(op.operands[1]).type.shape);
        },
    .reduce = stencil_rule(),
    .samples = {stencil_sample({5, 7}, {3, 3}, "sum", "zero"),
                stencil_sample({4, 5}, {2, 2}, "argmax", "clamp_to_edge"),
                stencil_sample({7}, {3}, "max", "reflect"),
                stencil_sample({6}, {3}, "min", "constant"),
                stencil_sample({5}, {2}, "product", "symmetric"),
                stencil_sample({6}, {2}, "argmin", "periodic"),
                stencil_sample({6}, {3}, "sum", "anti_periodic", "same_lower"),
                stencil_sample({80}, {70}, "sum", "reflect"),
                stencil_sample({75}, {66}, "argmax", "zero"),
                stepped_sample({7, 6}, {2, 3}, "sum", "periodic", "same"),
                stepped_sample({7, 9}, {2, 3}, "max", "zero", "valid")},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor stencil(const Tensor& x, const Tensor& weights, const StencilOptions& options) {
  Tensors operands{x, weights};
  ops::check_valid("stencil", operands);
  ops::promote_operands("stencil", operands);
  return ops::apply("stencil", operands,
                    {{"reduction", std::string(ops::name(options.reduction))},
                     {"boundary", std::string(ops::name(options.boundary))},
                     {"constant", options.constant},
                     {"padding", std::string(ops::name(options.padding))},
                     {"before", ops::to_exprs(options.before)},
                     {"after", ops::to_exprs(options.after)},
                     {"offsets", ops::to_exprs(options.offsets)},
                     {"strides", options.strides},
                     {"dilations", options.dilations}});
}

}  // namespace heddle
