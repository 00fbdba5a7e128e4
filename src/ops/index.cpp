// Gather and scatter along an axis.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <limits>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;
using ir::ScalarOp;

size_t axis_of(const ir::Attrs& attrs, size_t rank) {
  return static_cast<size_t>(resolved_axis(attrs.get<int64_t>("axis"), static_cast<int>(rank)));
}

// The position that an index means on an axis of extent n, or -1 where it is out of range. Indices
// of signed types count from the end where negative.
int64_t judge_position(const HostTensor& indices, int64_t at, int64_t n) {
  int64_t i = indices.i[static_cast<size_t>(at)];
  if (i < 0 && is_signed_integer(indices.dtype)) i += n;
  return i >= 0 && i < n ? i : -1;  // a u64 above the range of i64 shows up as negative
}

// ---- gather

std::vector<InferredResult> infer_gather(const InferContext& c) {
  const Shape& shape = c.shape(0);
  if (shape.empty()) c.fail("x is a scalar, expected rank 1 or more");
  auto axis = static_cast<size_t>(
      resolve_axis(c, c.attrs.get<int64_t>("axis"), static_cast<int>(shape.size())));
  Shape out(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), c.shape(1).begin(), c.shape(1).end());
  out.insert(out.end(), shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end());
  if (out.size() > kMaxRank)
    c.fail(cat("the result has rank ", out.size(), ", expected at most ", kMaxRank));
  InferredResult result{{c.dtype(0), std::move(out)}, std::nullopt};
  if (shape.size() == 1 && c.elements(0) && c.elements(1) && may_know_elements(result.type)) {
    auto n = static_cast<int64_t>(c.elements(0)->size());
    std::vector<Expr> elements;
    for (const Expr& e : *c.elements(1)) {
      std::optional<int64_t> i = e.constant();
      if (!i) break;
      if (*i < 0 && is_signed_integer(c.dtype(1))) *i += n;
      elements.push_back(*i >= 0 && *i < n ? (*c.elements(0))[static_cast<size_t>(*i)] : Expr(0));
    }
    if (elements.size() == c.elements(1)->size()) result.elements = std::move(elements);
  }
  return {result};
}

std::vector<HostTensor> judge_gather(const JudgeContext& c) {
  const HostTensor& x = *c.in[0];
  const HostTensor& indices = *c.in[1];
  size_t axis = axis_of(c.attrs, x.shape.size());
  size_t rank = indices.shape.size();
  return {judge_view(
      x, c.result_types[0], [&](const std::vector<int64_t>& at) -> std::optional<int64_t> {
        auto middle = at.begin() + static_cast<std::ptrdiff_t>(axis);
        std::vector<int64_t> which(middle, middle + static_cast<std::ptrdiff_t>(rank));
        int64_t i = judge_position(indices, flat_index(which, indices.shape), x.shape[axis]);
        if (i < 0) return std::nullopt;
        std::vector<int64_t> from(at.begin(), middle);
        from.push_back(i);
        from.insert(from.end(), middle + static_cast<std::ptrdiff_t>(rank), at.end());
        return flat_index(from, x.shape);
      })};
}

// The gathered position as an indirect symbol, and whether it is in range.
std::pair<Expr, ir::NodeId> bound_position(ElementContext& c, const std::vector<Expr>& which,
                                           const Expr& n) {
  ir::BodyBuilder& b = c.b;
  ir::NodeId zero = b.constant_int(i64, 0);
  ir::NodeId i = b.cast(c.at(1, which, ir::kNoNode, {}).re, i64);
  if (is_signed_integer(c.dtype(1)))
    i = b.select(b.binary(ScalarOp::lt, i, zero), b.binary(ScalarOp::add, i, b.index(n)), i);
  ir::NodeId inside =
      both(b, b.binary(ScalarOp::ge, i, zero), b.binary(ScalarOp::lt, i, b.index(n)));
  int64_t upper = n.is_constant() ? std::max<int64_t>(*n.constant() - 1, 0)
                                  : std::numeric_limits<int64_t>::max();
  Expr extent = max(n, Expr(1));
  SymbolRef symbol = b.bind(b.select(inside, i, zero), 0, upper, &extent);
  return {Expr(symbol), inside};
}

ir::Val gather_element(ElementContext& c) {
  size_t axis = axis_of(c.op.attrs, c.shape(0).size());
  auto middle = c.coords.begin() + static_cast<std::ptrdiff_t>(axis);
  auto after = middle + static_cast<std::ptrdiff_t>(c.shape(1).size());
  auto [position, inside] = bound_position(c, std::vector<Expr>(middle, after), c.shape(0)[axis]);
  std::vector<Expr> at(c.coords.begin(), middle);
  at.push_back(position);
  at.insert(at.end(), after, c.coords.end());
  return c.at(0, at, inside, constant_val(c.b, c.dtype(0), 0));
}

// The upstream gradient with the axes of the indices merged into one, added to zeros where it was
// read.
Tensors gather_gradient(const GradientContext& c) {
  const Shape& shape = *known_type(c.in[0], "gradients of gather", "x").shape;
  const Shape& indices = *known_type(c.in[1], "gradients of gather", "indices").shape;
  size_t axis = axis_of(c.op.attrs, shape.size());
  Shape merged = shape;
  merged[axis] = element_count(indices);
  Tensor flat = reshape(c.in[1], Shape{element_count(indices)});
  Tensor updates = reshape(c.upstream[0], merged);
  return {scatter_add(zeros_like(c.in[0]), flat, updates, {.axis = static_cast<int>(axis)}),
          Tensor{}};
}

const Register gather_entry({
    .name = "gather",
    .kind = Kind::index,
    .doc = "x at `indices` along an axis. Negative indices count from the end; an index out of "
           "range reads 0.",
    .operands = {{"x", kAnyStored}, {"indices", kInteger}},
    .attrs = {{.name = "axis",
               .doc = "of x, replaced by the axes of the indices",
               .fallback = int64_t{0},
               .domain = {.kind = AttrDomain::Kind::axis}}},
    .infer = infer_gather,
    .judge = judge_gather,
    .gradient = gather_gradient,
    .element = gather_element,
    .samples = {{.shapes = {{5, 3}, {2, 4}}, .low = -6, .high = 6},
                {.shapes = {{2, 5, 3}, {4}}, .attrs = {{"axis", int64_t{1}}}, .low = -6, .high = 6},
                {.shapes = {{2, 4}, {}}, .attrs = {{"axis", int64_t{-1}}}, .low = -4, .high = 3}},
});

// ---- scatter_add

std::vector<InferredResult> infer_scatter(const InferContext& c) {
  const Shape& data = c.shape(0);
  if (data.empty()) c.fail("data is a scalar, expected rank 1 or more");
  auto axis = static_cast<size_t>(
      resolve_axis(c, c.attrs.get<int64_t>("axis"), static_cast<int>(data.size())));
  if (c.shape(1).size() != 1)
    c.fail(cat("indices are ", to_string(c.shape(1)), ", expected rank 1"));
  if (c.dtype(2) != c.dtype(0))
    c.fail(
        cat("updates have dtype ", name(c.dtype(2)), ", expected ", name(c.dtype(0)), " as data"));
  Shape expected = data;
  expected[axis] = c.shape(1)[0];
  bool same = expected.size() == c.shape(2).size();
  for (size_t k = 0; same && k < expected.size(); ++k)
    same = is_equal(expected[k], c.shape(2)[k]) == Ordering::yes;
  if (!same)
    c.fail(cat("updates are ", to_string(c.shape(2)), ", expected ", to_string(expected),
               " for data ", to_string(data), " and ", c.shape(1)[0].to_string(),
               " indices along axis ", axis));
  return {{c.type(0), std::nullopt}};
}

std::vector<HostTensor> judge_scatter(const JudgeContext& c) {
  HostTensor out = *c.in[0];
  size_t axis = axis_of(c.attrs, out.shape.size());
  for_each_index(c.in[2]->shape, [&](std::vector<int64_t> at, int64_t flat) {
    int64_t i = judge_position(*c.in[1], at[axis], out.shape[axis]);
    if (i < 0) return;
    at[axis] = i;
    int64_t to = flat_index(at, out.shape);
    store(out, to, judge_add(load(out, to), load(*c.in[2], flat)));
  });
  return {out};
}

const Register scatter_entry({
    .name = "scatter_add",
    .kind = Kind::index,
    .doc = "data, with each slice of updates along an axis added at its index, in order. Negative "
           "indices count from the "
           "end; an index out of range is skipped.",
    .operands = {{"data", kNumber}, {"indices", kInteger}, {"updates", kNumber}},
    .attrs = {{.name = "axis",
               .doc = "of data and updates",
               .fallback = int64_t{0},
               .domain = {.kind = AttrDomain::Kind::axis}}},
    .infer = infer_scatter,
    .judge = judge_scatter,
    .gradient = [](const GradientContext& c) -> Tensors {
      auto axis = static_cast<int>(c.op.attrs.get<int64_t>("axis"));
      return {c.upstream[0], Tensor{},
              c.wanted[2] ? gather(c.upstream[0], c.in[1], {.axis = axis}) : Tensor{}};
    },
    .scatter =
        [](const ir::Graph& graph, const ir::Op& op) {
          ScatterRule rule;
          rule.axis =
              static_cast<int>(axis_of(op.attrs, graph.value(op.operands[0]).type.shape->size()));
          return rule;
        },
    .samples =
        {{.shapes = {{5, 3}, {4}, {4, 3}}, .low = -6, .high = 6},
         {.shapes = {{2, 4}, {6}, {2, 6}}, .attrs = {{"axis", int64_t{1}}}, .low = -5, .high = 5},
         {.shapes = {{3}, {0}, {0}}}},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor gather(const Tensor& x, const Tensor& indices, const GatherOptions& options) {
  return ops::apply("gather", {x, indices}, {{"axis", int64_t{options.axis}}});
}

Tensor scatter_add(const Tensor& data, const Tensor& indices, const Tensor& updates,
                   const ScatterOptions& options) {
  return ops::apply("scatter_add", {data, indices, updates}, {{"axis", int64_t{options.axis}}});
}

}  // namespace heddle
