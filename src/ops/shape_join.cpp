// Concatenation, coordinates, and shapes as data.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <algorithm>
#include <limits>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;
using ir::ScalarOp;

// ---- concat

std::string all_shapes(const InferContext& c) {
  std::string text;
  for (size_t i = 0; i < c.operands.size(); ++i)
    text += (i == 0 ? "" : ", ") + to_string(c.shape(i));
  return text;
}

std::vector<InferredResult> infer_concat(const InferContext& c) {
  if (c.operands.empty()) c.fail("expected at least one tensor, given none");
  auto given_axis = c.attrs.get<int64_t>("axis");
  int rank = static_cast<int>(c.shape(0).size());
  for (size_t i = 1; i < c.operands.size(); ++i) {
    if (c.dtype(i) != c.dtype(0))
      c.fail(cat("xs[", i, "] has dtype ", name(c.dtype(i)), ", expected ", name(c.dtype(0)),
                 " as xs[0]"));
    if (c.shape(i).size() != c.shape(0).size())
      c.fail(cat("xs have different ranks along axis ", given_axis, ": ", all_shapes(c)));
  }
  if (rank == 0) c.fail("xs are scalars, expected rank 1 or more");
  auto axis = static_cast<size_t>(resolve_axis(c, given_axis, rank));
  Shape out = c.shape(0);
  for (size_t i = 1; i < c.operands.size(); ++i) {
    for (size_t k = 0; k < out.size(); ++k) {
      if (k == axis) continue;
      if (is_equal(out[k], c.shape(i)[k]) != Ordering::yes)
        c.fail(cat("xs differ at axis ", k, ", only axis ", axis, " may: ", all_shapes(c)));
    }
    out[axis] = out[axis] + c.shape(i)[axis];
  }
  InferredResult result{{c.dtype(0), std::move(out)}, std::nullopt};
  bool known = rank == 1 && may_know_elements(result.type);
  for (size_t i = 0; i < c.operands.size(); ++i) known = known && c.elements(i).has_value();
  if (known) {
    result.elements.emplace();
    for (size_t i = 0; i < c.operands.size(); ++i)
      result.elements->insert(result.elements->end(), c.elements(i)->begin(), c.elements(i)->end());
  }
  return {result};
}

std::vector<HostTensor> judge_concat(const JudgeContext& c) {
  HostTensor out(c.in[0]->dtype, concrete_shape(c.result_types[0]));
  auto axis = static_cast<size_t>(
      resolved_axis(c.attrs.get<int64_t>("axis"), static_cast<int>(out.shape.size())));
  int64_t begin = 0;
  for (const HostTensor* x : c.in) {
    for_each_index(x->shape, [&](std::vector<int64_t> at, int64_t flat) {
      at[axis] += begin;
      copy_element(*x, flat, out, flat_index(at, out.shape));
    });
    begin += x->shape[axis];
  }
  return {out};
}

Tensors concat_gradient(const GradientContext& c) {
  auto given = c.op.attrs.get<int64_t>("axis");
  Tensors out;
  Expr begin = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const Shape& shape = *known_type(c.in[i], "gradients of concat", "x").shape;
    auto axis = static_cast<size_t>(resolved_axis(given, static_cast<int>(shape.size())));
    SliceOptions part{
        .starts = std::vector<Expr>(shape.size(), Expr(0)), .stops = shape, .strides = {}};
    part.starts[axis] = begin;
    begin = begin + shape[axis];
    part.stops[axis] = begin;
    out.push_back(c.wanted[i] ? slice(c.upstream[0], part) : Tensor{});
  }
  return out;
}

// A chain of selects from the last part to the first; each part is read only where its elements
// lie.
ir::Val concat_element(ElementContext& c) {
  size_t n = c.op.operands.size();
  auto axis = static_cast<size_t>(
      resolved_axis(c.op.attrs.get<int64_t>("axis"), static_cast<int>(c.coords.size())));
  std::vector<Expr> begin{Expr(0)};
  for (size_t i = 0; i < n; ++i) begin.push_back(begin.back() + c.shape(static_cast<int>(i))[axis]);
  ir::Val zero = constant_val(c.b, c.dtype(0), 0);
  ir::Val value;
  for (size_t i = n; i-- > 0;) {
    std::vector<Expr> at = c.coords;
    at[axis] = c.coords[axis] - begin[i];
    ir::NodeId inside = in_range(c.b, c.coords[axis], begin[i], begin[i + 1]);
    ir::Val part = c.at(static_cast<int>(i), at, inside, zero);
    if (i + 1 == n) {
      value = part;
      continue;
    }
    ir::NodeId before =
        c.b.binary(ScalarOp::lt, c.b.index(c.coords[axis]), c.b.index(begin[i + 1]));
    value = select(c.b, before, part, value);
  }
  return value;
}

// Parts of one concat, in one body; longer lists become a tree. A body of many parts compiles for
// ever and looks at each part for every element.
constexpr size_t kParts = 16, kMostGrouped = 16, kLeastGrouped = 6;

// Groups of neighbours first, so that no concat has more than kParts parts. Groups have the same
// number of parts, or one more: their kernels are few.
Tensors concat_in_groups(Tensors parts, int64_t axis) {
  while (parts.size() > kParts) {
    size_t length = std::clamp(parts.size() / 8, kLeastGrouped, kMostGrouped);
    size_t count = parts.size() / length;
    Tensors groups;
    for (size_t k = 0; k < count; ++k) {
      auto at = [&](size_t group) {
        return parts.begin() + static_cast<std::ptrdiff_t>(group * parts.size() / count);
      };
      groups.push_back(apply("concat", Tensors(at(k), at(k + 1)), {{"axis", axis}}));
    }
    parts = std::move(groups);
  }
  return {apply("concat", parts, {{"axis", axis}})};
}

const Register concat_entry({
    .name = "concat",
    .kind = Kind::view,
    .doc = "The tensors one after another along an axis; all other extents agree.",
    .operands = {{.name = "xs", .dtypes = kAnyStored, .variadic = true}},
    .attrs = {{.name = "axis",
               .doc = "along which the tensors follow each other",
               .type = attr_type<int64_t>,
               .domain = {.kind = AttrDomain::Kind::axis}}},
    .infer = infer_concat,
    .judge = judge_concat,
    .gradient = concat_gradient,
    .simplify = [](const ir::Op& op, const Tensors& operands) -> std::optional<Tensors> {
      if (operands.size() == 1) return operands;
      if (operands.size() <= kParts) return std::nullopt;
      return concat_in_groups(operands, op.attrs.get<int64_t>("axis"));
    },
    .element = concat_element,
    .samples = {{.shapes = {{2, 3}, {2, 1}, {2, 4}}, .attrs = {{"axis", int64_t{1}}}},
                {.shapes = {{0, 3}, {2, 3}}, .attrs = {{"axis", int64_t{0}}}},
                {.shapes = {{5}}, .attrs = {{"axis", int64_t{-1}}}}},
});

// ---- coordinate

std::vector<InferredResult> infer_coordinate(const InferContext& c) {
  const Shape& shape = c.attrs.get<std::vector<Expr>>("shape");
  DType dtype = c.attrs.get<DType>("dtype");
  if (!in_class(dtype, kReal))
    c.fail(cat("dtype ", name(dtype), ", expected an integer or a real float"));
  if (shape.size() > kMaxRank) c.fail(cat("shape has rank ", shape.size()));
  for (const Expr& n : shape)
    if (n.upper() < 0) c.fail(cat("shape ", to_string(shape), " has a negative extent"));
  resolve_axis(c, c.attrs.get<int64_t>("axis"), static_cast<int>(shape.size()));
  InferredResult result{{dtype, shape}, std::nullopt};
  if (shape.size() == 1 && may_know_elements(result.type) &&
      *shape[0].constant() <= std::numeric_limits<int8_t>::max()) {
    result.elements.emplace();
    for (int64_t i = 0; i < *shape[0].constant(); ++i) result.elements->push_back(i);
  }
  return {result};
}

std::vector<HostTensor> judge_coordinate(const JudgeContext& c) {
  HostTensor out(c.result_types[0].dtype, concrete_shape(c.result_types[0]));
  auto axis = static_cast<size_t>(
      resolved_axis(c.attrs.get<int64_t>("axis"), static_cast<int>(out.shape.size())));
  for_each_index(out.shape, [&](const std::vector<int64_t>& at, int64_t flat) {
    store(out, flat, {static_cast<double>(at[axis]), at[axis], {}});
  });
  return {out};
}

const Register coordinate_entry({
    .name = "coordinate",
    .kind = Kind::view,
    .doc = "The index along an axis, at each position of a shape.",
    .attrs = {{.name = "shape",
               .doc = "extents of the result",
               .type = attr_type<std::vector<Expr>>,
               .domain = {.kind = AttrDomain::Kind::extents}},
              {.name = "axis",
               .doc = "whose index it is",
               .type = attr_type<int64_t>,
               .domain = {.low = -2, .high = 3}},
              {.name = "dtype",
               .doc = "of the result",
               .fallback = ir::Attr(i32),
               .domain = {.kind = AttrDomain::Kind::dtype, .dtypes = kReal}}},
    .infer = infer_coordinate,
    .judge = judge_coordinate,
    .no_gradient = true,
    .element = [](ElementContext& c) -> ir::Val {
      auto axis = static_cast<size_t>(
          resolved_axis(c.op.attrs.get<int64_t>("axis"), static_cast<int>(c.coords.size())));
      return {c.b.cast(c.b.index(c.coords[axis]), scalar_type(c.op.attrs.get<DType>("dtype")))};
    },
    .samples = {{.shapes = {}, .attrs = {{"shape", std::vector<Expr>{2, 3}}, {"axis", int64_t{1}}}},
                {.shapes = {},
                 .attrs = {{"shape", std::vector<Expr>{5}}, {"axis", int64_t{0}}, {"dtype", f32}}}},
});

// ---- shape_of

std::vector<InferredResult> infer_shape_of(const InferContext& c) {
  DType dtype = c.attrs.get<DType>("dtype");
  if (dtype != i32 && dtype != i64) c.fail(cat("dtype ", name(dtype), ", expected i32 or i64"));
  const Shape& shape = c.shape(0);
  return {{{dtype, Shape{Expr(static_cast<int64_t>(shape.size()))}}, std::vector<Expr>(shape)}};
}

std::vector<HostTensor> judge_shape_of(const JudgeContext& c) {
  HostTensor out(c.result_types[0].dtype, concrete_shape(c.result_types[0]));
  out.i = c.in[0]->shape;
  return {out};
}

ir::Val shape_of_element(ElementContext& c) {
  const Shape& shape = c.shape(0);
  if (shape.empty())
    return {c.b.constant_int(c.op.attrs.get<DType>("dtype"), 0)};  // never read: no elements
  ir::NodeId value = c.b.index(shape.back());
  for (size_t k = shape.size() - 1; k-- > 0;) {
    auto at = c.b.constant_int(i64, static_cast<int64_t>(k));
    value = c.b.select(c.b.binary(ScalarOp::eq, c.b.index(c.coords[0]), at), c.b.index(shape[k]),
                       value);
  }
  return {c.b.cast(value, c.op.attrs.get<DType>("dtype"))};
}

const Register shape_of_entry({
    .name = "shape_of",
    .kind = Kind::view,
    .doc = "The extents of x as a vector; x itself is not read.",
    .operands = {{"x", kAnyStored}},
    .attrs = {{.name = "dtype",
               .doc = "i32 or i64",
               .fallback = ir::Attr(i64),
               .domain = {.kind = AttrDomain::Kind::dtype, .dtypes = kInteger}}},
    .infer = infer_shape_of,
    .judge = judge_shape_of,
    .no_gradient = true,
    .element = shape_of_element,
    .samples = {{.shapes = {{2, 3, 4}}},
                {.shapes = {{7}}, .attrs = {{"dtype", i32}}},
                {.shapes = {{}}}},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor concat(const Tensors& xs, int axis) {
  if (xs.empty()) throw GraphError("concat: expected at least one tensor, given none");
  Tensors operands = xs;
  for (const Tensor& x : xs)
    if (!x.valid()) return ops::apply("concat", xs, {{"axis", int64_t{axis}}});
  ops::promote_operands("concat", operands);
  return ops::apply("concat", operands, {{"axis", int64_t{axis}}});
}

Tensor coordinate(const std::shared_ptr<ir::Graph>& graph, const Shape& shape, int axis,
                  DType dtype) {
  if (graph == nullptr) throw GraphError("coordinate: graph is null");
  return ops::apply_all("coordinate", {},
                        {{"shape", shape}, {"axis", int64_t{axis}}, {"dtype", dtype}}, {},
                        graph)[0];
}

Tensor coordinate_like(const Tensor& x, int axis, DType dtype) {
  return coordinate(x.graph(), *ops::known_type(x, "coordinate", "x").shape, axis, dtype);
}

Tensor shape_of(const Tensor& x, DType dtype) {
  return ops::apply("shape_of", {x}, {{"dtype", dtype}});
}

}  // namespace heddle
