// Slices with strides, and their transpose.
#include "base/check.h"
#include "ops/slice_geometry.h"

#include <heddle/ops.h>

#include <limits>

namespace heddle::ops {

using base::cat;
using ir::attr_type;
using ir::InferredResult;

namespace {

constexpr int64_t kFar = std::numeric_limits<int64_t>::max();

// One end of a slice: counted from the end where a negative number, clamped to [lo, hi].
Expr slice_end(const Expr& end, const Expr& n, const Expr& lo, const Expr& hi) {
  if (std::optional<int64_t> v = end.constant()) {
    if (*v == kFar) return hi;
    if (*v == -kFar - 1) return lo;
    return min(max(*v < 0 ? n + *v : Expr(*v), lo), hi);
  }
  return min(max(end, lo), hi);
}

// end - start, where `given` is what start was before it was clamped to [lo, hi]. A number of
// elements that counts from the end stays one: min(4, n), not n - max(n - 4, 0).
Expr slice_span(const Expr& given, const Expr& start, const Expr& end, const Expr& n,
                const Expr& lo, const Expr& hi) {
  std::optional<int64_t> v = given.constant();
  if (!v || *v >= 0 || *v < -kFar) return end - start;
  Expr span = end - (n + *v);
  return span.is_constant() ? max(min(span, end - lo), end - hi) : end - start;
}

Expr ceil_div(const Expr& a, int64_t b) { return (a + (b - 1)) / b; }

const std::vector<Expr>& ends(const ir::Attrs& attrs, const char* name) {
  return attrs.get<std::vector<Expr>>(name);
}

}  // namespace

SliceAxis slice_axis(const Expr& start, const Expr& stop, int64_t stride, const Expr& n) {
  SliceAxis axis{0, 0, stride};
  if (stride > 0) {
    axis.start = slice_end(start, n, 0, n);
    Expr end = slice_end(stop, n, 0, n);
    axis.extent = max(ceil_div(slice_span(start, axis.start, end, n, 0, n), stride), 0);
  } else {
    axis.start = slice_end(start, n, -1, n - 1);
    Expr end = slice_end(stop, n, -1, n - 1);
    axis.extent = max(ceil_div(axis.start - end, -stride), 0);
  }
  return axis;
}

std::vector<SliceAxis> slice_axes(const ir::Attrs& attrs, const Shape& shape) {
  const auto& starts = ends(attrs, "starts");
  const auto& stops = ends(attrs, "stops");
  const auto& strides = attrs.get<std::vector<int64_t>>("strides");
  std::vector<SliceAxis> axes;
  for (size_t k = 0; k < shape.size(); ++k) {
    int64_t stride = strides.empty() ? 1 : strides[k];
    Expr start = starts.empty() ? Expr(stride > 0 ? 0 : kFar) : starts[k];
    Expr stop = stops.empty() ? Expr(stride > 0 ? kFar : -kFar - 1) : stops[k];
    axes.push_back(slice_axis(start, stop, stride, shape[k]));
  }
  return axes;
}

void check_slice(const InferContext& c, const Shape& shape) {
  auto check_count = [&](const char* name, size_t n) {
    if (n != 0 && n != shape.size())
      c.fail(cat(name, " has ", n, " numbers, expected one for each of the ", shape.size(),
                 " axes of ", to_string(shape)));
  };
  check_count("starts", ends(c.attrs, "starts").size());
  check_count("stops", ends(c.attrs, "stops").size());
  const auto& strides = c.attrs.get<std::vector<int64_t>>("strides");
  check_count("strides", strides.size());
  for (size_t k = 0; k < strides.size(); ++k)
    if (strides[k] == 0 || strides[k] == -kFar - 1)
      c.fail(cat("strides ", list(strides), " has ", strides[k], " at axis ", k));
}

Shape slice_shape(const std::vector<SliceAxis>& axes) {
  Shape out;
  for (const SliceAxis& a : axes) out.push_back(a.extent);
  return out;
}

namespace {

std::vector<AttrSpec> slice_attrs() {
  return {{.name = "starts",
           .doc = "first index along each axis; empty: from the first element",
           .fallback = std::vector<Expr>{},
           .domain = {.kind = AttrDomain::Kind::per_axis, .low = -4, .high = 4}},
          {.name = "stops",
           .doc = "end along each axis, exclusive; empty: to the last element",
           .fallback = std::vector<Expr>{},
           .domain = {.kind = AttrDomain::Kind::per_axis, .low = -9, .high = 20}},
          {.name = "strides",
           .doc = "step along each axis; negative walks backwards; empty: 1",
           .fallback = std::vector<int64_t>{},
           .domain = {.kind = AttrDomain::Kind::per_axis, .low = -3, .high = 3}}};
}

ir::Attrs slice_attrs_of(const ir::Op& op) {
  return {{"starts", ends(op.attrs, "starts")},
          {"stops", ends(op.attrs, "stops")},
          {"strides", op.attrs.get<std::vector<int64_t>>("strides")}};
}

std::vector<InferredResult> infer_slice(const InferContext& c) {
  check_slice(c, c.shape(0));
  std::vector<SliceAxis> axes = slice_axes(c.attrs, c.shape(0));
  InferredResult result{{c.dtype(0), slice_shape(axes)}, std::nullopt};
  if (c.elements(0) && axes.size() == 1 && may_know_elements(result.type)) {
    std::optional<int64_t> start = axes[0].start.constant();
    if (start) {
      result.elements.emplace();
      for (int64_t i = 0; i < *axes[0].extent.constant(); ++i)
        result.elements->push_back(
            (*c.elements(0))[static_cast<size_t>(*start + i * axes[0].stride)]);
    }
  }
  return {result};
}

struct NumberAxis {
  int64_t start, stride;
};
std::vector<NumberAxis> number_axes(const JudgeContext& c, const Shape& shape) {
  std::vector<NumberAxis> out;
  for (const SliceAxis& a : slice_axes(c.attrs, shape))
    out.push_back({c.number(a.start), a.stride});
  return out;
}

Shape as_shape(const std::vector<int64_t>& extents) { return {extents.begin(), extents.end()}; }

std::vector<HostTensor> judge_slice(const JudgeContext& c) {
  const HostTensor& x = *c.in[0];
  std::vector<NumberAxis> axes = number_axes(c, as_shape(x.shape));
  return {judge_view(x, c.result_types[0], [&](std::vector<int64_t> at) {
    for (size_t k = 0; k < at.size(); ++k) at[k] = axes[k].start + at[k] * axes[k].stride;
    return flat_index(at, x.shape);
  })};
}

// The whole of x.
std::optional<Tensors> simplify_slice(const ir::Op& op, const Tensors& operands) {
  if (!operands[0].type().known()) return std::nullopt;
  const Shape& shape = operands[0].shape();
  for (const SliceAxis& a : slice_axes(op.attrs, shape))
    if (a.stride != 1 || !a.start.is(0)) return std::nullopt;
  if (slice_shape(slice_axes(op.attrs, shape)) != shape) return std::nullopt;
  return Tensors{operands[0]};
}

const Register slice_entry({
    .name = "slice",
    .kind = Kind::view,
    .doc = "x[starts:stops:strides] as in NumPy: negative numbers count from the end, ends are "
           "clamped.",
    .operands = {{"x", kAnyStored}},
    .attrs = slice_attrs(),
    .infer = infer_slice,
    .judge = judge_slice,
    .gradient = [](const GradientContext& c) -> Tensors {
      ir::Attrs attrs = slice_attrs_of(c.op);
      attrs.set("shape", *known_type(c.in[0], "gradients of slice", "x").shape);
      return {apply("unslice", {c.upstream[0]}, std::move(attrs))};
    },
    .simplify = simplify_slice,
    .element =
        [](ElementContext& c) {
          std::vector<SliceAxis> axes = slice_axes(c.op.attrs, c.shape(0));
          std::vector<Expr> at;
          for (size_t k = 0; k < axes.size(); ++k)
            at.push_back(axes[k].start + c.coords[k] * axes[k].stride);
          return c.at(0, at, ir::kNoNode, {});
        },
    .samples = {{.shapes = {{7, 4}},
                 .attrs = {{"starts", std::vector<Expr>{1, -3}},
                           {"stops", std::vector<Expr>{7, 4}},
                           {"strides", std::vector<int64_t>{2, 1}}}},
                {.shapes = {{6}},
                 .attrs = {{"starts", std::vector<Expr>{5}},
                           {"stops", std::vector<Expr>{0}},
                           {"strides", std::vector<int64_t>{-2}}}},
                {.shapes = {{3, 2}}, .attrs = {{"strides", std::vector<int64_t>{-1, 1}}}}},
});

// ---- unslice

std::vector<InferredResult> infer_unslice(const InferContext& c) {
  const Shape& shape = c.attrs.get<std::vector<Expr>>("shape");
  for (const Expr& n : shape)
    if (n.upper() < 0) c.fail(cat("shape ", to_string(shape), " has a negative extent"));
  if (shape.size() > kMaxRank) c.fail(cat("shape has rank ", shape.size()));
  check_slice(c, shape);
  Shape expected = slice_shape(slice_axes(c.attrs, shape));
  require_shape(c, c.shape(0), expected,
                cat("x is ", to_string(c.shape(0)), ", the slice of ", to_string(shape), " is ",
                    to_string(expected)));
  return {{{c.dtype(0), shape}, std::nullopt}};
}

// Index i and the mask with start + i * stride == at and 0 <= i < extent.
std::pair<Expr, ir::NodeId> unslice_axis(ir::BodyBuilder& b, const SliceAxis& axis, const Expr& at,
                                         const Expr& extent) {
  Expr distance = axis.stride > 0 ? at - axis.start : axis.start - at;
  int64_t step = axis.stride > 0 ? axis.stride : -axis.stride;
  Expr i = distance / step;
  ir::NodeId mask = in_range(b, distance, 0, extent * step);
  if (step != 1)
    mask =
        both(b, mask, b.binary(ir::ScalarOp::eq, b.index(distance % step), b.constant_int(i64, 0)));
  return {i, mask};
}

std::vector<HostTensor> judge_unslice(const JudgeContext& c) {
  HostTensor out(c.in[0]->dtype, concrete_shape(c.result_types[0]));
  std::vector<NumberAxis> axes = number_axes(c, *c.result_types[0].shape);
  for_each_index(c.in[0]->shape, [&](std::vector<int64_t> at, int64_t flat) {
    for (size_t k = 0; k < at.size(); ++k) at[k] = axes[k].start + at[k] * axes[k].stride;
    copy_element(*c.in[0], flat, out, flat_index(at, out.shape));
  });
  return {out};
}

std::vector<AttrSpec> unslice_attrs() {
  std::vector<AttrSpec> attrs = slice_attrs();
  attrs.push_back({.name = "shape",
                   .doc = "extents of the result",
                   .type = attr_type<std::vector<Expr>>,
                   .domain = {.kind = AttrDomain::Kind::extents}});
  return attrs;
}

const Register unslice_entry({
    .name = "unslice",
    .kind = Kind::view,
    .doc = "Zeros of `shape`, with x at the places that slice(starts, stops, strides) would read.",
    .operands = {{"x", kAny}},
    .attrs = unslice_attrs(),
    .infer = infer_unslice,
    .judge = judge_unslice,
    .gradient = [](const GradientContext& c) -> Tensors {
      return {apply("slice", {c.upstream[0]}, slice_attrs_of(c.op))};
    },
    .element =
        [](ElementContext& c) {
          const Shape& shape = *c.graph.value(c.op.results[0]).type.shape;
          std::vector<SliceAxis> axes = slice_axes(c.op.attrs, shape);
          std::vector<Expr> at;
          ir::NodeId mask = ir::kNoNode;
          for (size_t k = 0; k < axes.size(); ++k) {
            auto [i, inside] = unslice_axis(c.b, axes[k], c.coords[k], c.shape(0)[k]);
            at.push_back(i);
            mask = both(c.b, mask, inside);
          }
          return c.at(0, at, mask, constant_val(c.b, c.dtype(0), 0));
        },
    .samples = {{.shapes = {{3, 2}},
                 .attrs = {{"starts", std::vector<Expr>{1, 1}},
                           {"stops", std::vector<Expr>{7, 3}},
                           {"strides", std::vector<int64_t>{2, 1}},
                           {"shape", std::vector<Expr>{7, 4}}}},
                {.shapes = {{3}},
                 .attrs = {{"starts", std::vector<Expr>{5}},
                           {"stops", std::vector<Expr>{0}},
                           {"strides", std::vector<int64_t>{-2}},
                           {"shape", std::vector<Expr>{6}}}}},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor slice(const Tensor& x, const SliceOptions& options) {
  return ops::apply(
      "slice", {x},
      {{"starts", options.starts}, {"stops", options.stops}, {"strides", options.strides}});
}

}  // namespace heddle
