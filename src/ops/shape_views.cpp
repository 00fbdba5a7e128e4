// Views: reshape, transpose, broadcast.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <algorithm>
#include <numeric>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;

void check_extents(const InferContext& c, const Shape& shape, int64_t lowest) {
  if (shape.size() > kMaxRank)
    c.fail(cat("shape ", to_string(shape), " has rank ", shape.size(), ", expected at most ",
               kMaxRank));
  for (size_t k = 0; k < shape.size(); ++k)
    if (shape[k].upper() < lowest)
      c.fail(cat("shape ", to_string(shape), " has extent ", shape[k].to_string(), " at axis ", k,
                 ", expected at least ", lowest));
}

// ---- reshape

bool is_zero(const Expr& e) { return e.is(0); }

// The extent that -1 stands for: what remains of `total` elements.
Expr remaining_extent(const InferContext& c, const Shape& wanted, size_t open) {
  Expr total = element_count(c.shape(0));
  Expr known = 1;
  for (size_t k = 0; k < wanted.size(); ++k)
    if (k != open) known = known * wanted[k];
  std::string message =
      cat("shape ", to_string(wanted), ": the -1 at axis ", open,
          " has no value: ", to_string(c.shape(0)), " has ", total.to_string(), " elements");
  if (is_zero(known)) c.fail(message);
  Expr rest = total / known;
  if (is_equal(rest * known, total) != Ordering::yes) {
    c.require_at_least(known, 1, message);
    c.require_equal(rest * known, total, message);
  }
  return rest;
}

// Shape with -1 resolved; the numbers of elements agree.
Shape reshaped(const InferContext& c) {
  Shape wanted = c.attrs.get<std::vector<Expr>>("shape");
  check_extents(c, wanted, -1);
  std::optional<size_t> open;
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!wanted[k].is(-1)) continue;
    if (open) c.fail(cat("shape ", to_string(wanted), " has more than one -1"));
    open = k;
  }
  if (open) {
    wanted[*open] = remaining_extent(c, wanted, *open);
    return wanted;
  }
  Expr from = element_count(c.shape(0));
  Expr to = element_count(wanted);
  c.require_equal(to, from,
                  cat("shape ", to_string(wanted), " has ", to.to_string(), " elements, x ",
                      to_string(c.shape(0)), " has ", from.to_string()));
  return wanted;
}

std::vector<InferredResult> infer_reshape(const InferContext& c) {
  InferredResult result{{c.dtype(0), reshaped(c)}, std::nullopt};
  if (may_know_elements(result.type)) result.elements = c.elements(0);
  return {result};
}

// Ranges of axes [from, to) of two shapes with equally many elements, as short as possible, so that
// coordinates outside a merged or split group of axes stay as they are.
struct AxisGroup {
  size_t a_from, a_to, b_from, b_to;
};
std::vector<AxisGroup> matching_groups(const Shape& a, const Shape& b) {
  std::vector<AxisGroup> groups;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    AxisGroup g{i, i, j, j};
    Expr na = 1, nb = 1;
    bool closed = false;
    while (!closed) {
      // Grows the side that is known to be shorter, else both together up to the ends.
      bool grow_a = i < a.size() && (g.a_to == g.a_from || is_less_equal(na, nb) == Ordering::yes);
      if (grow_a)
        na = na * a[i++];
      else if (j < b.size())
        nb = nb * b[j++];
      else if (i < a.size())
        na = na * a[i++];
      g.a_to = i;
      g.b_to = j;
      closed = (g.a_to > g.a_from && g.b_to > g.b_from && is_equal(na, nb) == Ordering::yes) ||
               (i == a.size() && j == b.size());
    }
    groups.push_back(g);
  }
  return groups;
}

// Coordinates in `a` of the element at `coords` of its reshape `b`.
std::vector<Expr> reshape_coords(const Shape& a, const Shape& b, const std::vector<Expr>& coords) {
  std::vector<Expr> out(a.size(), Expr(0));
  for (const AxisGroup& g : matching_groups(a, b)) {
    Expr flat = 0;
    for (size_t k = g.b_from; k < g.b_to; ++k) flat = flat * b[k] + coords[k];
    for (size_t k = g.a_to; k-- > g.a_from;) {
      if (a[k].is(1)) continue;
      if (k == g.a_from) {
        out[k] = flat;
        break;
      }
      // An extent that may be 0 has no elements to read; the divisor must not be 0 for all that.
      Expr n = a[k].lower() >= 1 ? a[k] : max(a[k], Expr(1));
      out[k] = flat % n;
      flat = flat / n;
    }
  }
  return out;
}

// The source of a chain of broadcasts.
std::optional<Tensors> simplify_broadcast(const ir::Op& op, const Tensors& operands) {
  const auto& shape = op.attrs.get<std::vector<Expr>>("shape");
  Tensor source = operands[0];
  const ir::Op* from = producer(source);
  bool chain = from != nullptr && from->def == op.def;
  if (chain) source = source.graph()->tensor(from->operands[0]);
  if (source.type().shape && *source.type().shape == shape) return Tensors{source};
  if (!chain) return std::nullopt;
  return Tensors{apply(op.name, {source}, op.attrs)};
}

// x in its own shape, or a chain of reshapes as one.
std::optional<Tensors> simplify_reshape(const ir::Op& op, const Tensors& operands) {
  const Tensor& x = operands[0];
  const auto& wanted = op.attrs.get<std::vector<Expr>>("shape");
  if (x.type().known() && x.shape() == wanted) return Tensors{x};
  const ir::Op* from = producer(x);
  if (from == nullptr || from->def != op.def) return std::nullopt;
  Tensor origin = x.graph()->tensor(from->operands[0]);
  if (!origin.type().known()) return std::nullopt;
  Shape to = wanted;
  for (const Expr& e : to)
    if (e.is(-1)) return std::nullopt;
  if (to == origin.shape()) return Tensors{origin};
  if (is_equal(element_count(to), element_count(origin.shape())) != Ordering::yes)
    return std::nullopt;
  return Tensors{reshape(origin, to)};
}

const Register reshape_entry({
    .name = "reshape",
    .kind = Kind::view,
    .doc = "The elements of x in row-major order, in another shape; one extent may be -1: what "
           "remains.",
    .operands = {{"x", kAnyStored}},
    .attrs = {{.name = "shape",
               .doc = "extents of the result",
               .type = attr_type<std::vector<Expr>>,
               .domain = {.kind = AttrDomain::Kind::reshaped}}},
    .infer = infer_reshape,
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      HostTensor out = *c.in[0];
      out.shape = concrete_shape(c.result_types[0]);
      return {out};
    },
    .gradient = [](const GradientContext& c) -> Tensors {
      return {
          reshape(c.upstream[0], known_type(c.in[0], "gradients of reshape", "x").shape.value())};
    },
    .simplify = simplify_reshape,
    .element =
        [](ElementContext& c) {
          const Shape& to = *c.graph.value(c.op.results[0]).type.shape;
          return c.at(0, reshape_coords(c.shape(0), to, c.coords), ir::kNoNode, {});
        },
    .samples = {{.shapes = {{2, 3, 4}}, .attrs = {{"shape", std::vector<Expr>{4, 6}}}},
                {.shapes = {{6, 1, 5}}, .attrs = {{"shape", std::vector<Expr>{3, -1}}}},
                {.shapes = {{1, 1}}, .attrs = {{"shape", std::vector<Expr>{}}}}},
});

// ---- transpose

void check_permutation(const InferContext& c, const std::vector<int64_t>& p, size_t rank) {
  std::vector<bool> seen(rank, false);
  bool good = p.size() == rank;
  for (int64_t axis : p) {
    good =
        good && axis >= 0 && axis < static_cast<int64_t>(rank) && !seen[static_cast<size_t>(axis)];
    if (good) seen[static_cast<size_t>(axis)] = true;
  }
  if (!good)
    c.fail(cat("permutation ", list(p), " is not one of the ", rank, " axes of x ",
               to_string(c.shape(0))));
}

std::vector<InferredResult> infer_transpose(const InferContext& c) {
  const auto& p = c.attrs.get<std::vector<int64_t>>("permutation");
  check_permutation(c, p, c.shape(0).size());
  Shape out;
  for (int64_t axis : p) out.push_back(c.shape(0)[static_cast<size_t>(axis)]);
  return {{{c.dtype(0), std::move(out)}, std::nullopt}};
}

std::vector<int64_t> inverse(const std::vector<int64_t>& p) {
  std::vector<int64_t> out(p.size());
  for (size_t k = 0; k < p.size(); ++k) out[static_cast<size_t>(p[k])] = static_cast<int64_t>(k);
  return out;
}

template <class T>
std::vector<T> unpermuted(const std::vector<T>& coords, const std::vector<int64_t>& p) {
  std::vector<T> out(coords.size());
  for (size_t k = 0; k < p.size(); ++k) out[static_cast<size_t>(p[k])] = coords[k];
  return out;
}

bool is_identity(const std::vector<int64_t>& p) {
  for (size_t k = 0; k < p.size(); ++k)
    if (p[k] != static_cast<int64_t>(k)) return false;
  return true;
}

std::optional<Tensors> simplify_transpose(const ir::Op& op, const Tensors& operands) {
  auto p = op.attrs.get<std::vector<int64_t>>("permutation");
  if (is_identity(p)) return Tensors{operands[0]};
  const ir::Op* from = producer(operands[0]);
  if (from == nullptr || from->def != op.def) return std::nullopt;
  const auto& q = from->attrs.get<std::vector<int64_t>>("permutation");
  std::vector<int64_t> joined;
  for (int64_t axis : p) joined.push_back(q[static_cast<size_t>(axis)]);
  Tensor x = operands[0].graph()->tensor(from->operands[0]);
  return Tensors{is_identity(joined) ? x : apply("transpose", {x}, {{"permutation", joined}})};
}

const Register transpose_entry({
    .name = "transpose",
    .kind = Kind::view,
    .doc = "Axis k of the result is axis permutation[k] of x.",
    .operands = {{"x", kAnyStored}},
    .attrs = {{.name = "permutation",
               .doc = "of the axes",
               .type = attr_type<std::vector<int64_t>>,
               .domain = {.kind = AttrDomain::Kind::permutation}}},
    .infer = infer_transpose,
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      const auto& p = c.attrs.get<std::vector<int64_t>>("permutation");
      const HostTensor& x = *c.in[0];
      return {judge_view(x, c.result_types[0], [&](const std::vector<int64_t>& coords) {
        return flat_index(unpermuted(coords, p), x.shape);
      })};
    },
    .gradient = [](const GradientContext& c) -> Tensors {
      auto p = inverse(c.op.attrs.get<std::vector<int64_t>>("permutation"));
      return {apply("transpose", {c.upstream[0]}, {{"permutation", p}})};
    },
    .simplify = simplify_transpose,
    .element =
        [](ElementContext& c) {
          const auto& p = c.op.attrs.get<std::vector<int64_t>>("permutation");
          return c.at(0, unpermuted(c.coords, p), ir::kNoNode, {});
        },
    .samples = {{.shapes = {{2, 3}}, .attrs = {{"permutation", std::vector<int64_t>{1, 0}}}},
                {.shapes = {{2, 3, 4}}, .attrs = {{"permutation", std::vector<int64_t>{2, 0, 1}}}}},
});

// ---- broadcast_to

// May `to` be broadcast to `from`?
bool fits(const Shape& from, const Shape& to) {
  if (from.size() < to.size()) return false;
  size_t lead = from.size() - to.size();
  for (size_t k = 0; k < to.size(); ++k)
    if (!to[k].is(1) && is_equal(to[k], from[k + lead]) == Ordering::no) return false;
  return true;
}

// Extents that are not 1 in the graph must be equal when it runs.
void require_fit(const InferContext& c, const Shape& from, const Shape& to,
                 const std::string& message) {
  if (!fits(from, to)) c.fail(message);
  size_t lead = from.size() - to.size();
  for (size_t k = 0; k < to.size(); ++k)
    if (!to[k].is(1)) c.require_equal(to[k], from[k + lead], message);
}

std::vector<InferredResult> infer_broadcast(const InferContext& c) {
  const auto& to = c.attrs.get<std::vector<Expr>>("shape");
  check_extents(c, to, 0);
  const Shape& from = c.shape(0);
  require_fit(c, to, from,
              cat("x ", to_string(from), " does not broadcast to shape ", to_string(Shape(to))));
  InferredResult result{{c.dtype(0), Shape(to)}, std::nullopt};
  if (c.elements(0) && c.elements(0)->size() == 1 && may_know_elements(result.type)) {
    auto n = static_cast<size_t>(*element_count(to).constant());
    result.elements = std::vector<Expr>(n, (*c.elements(0))[0]);
  }
  return {result};
}

template <class T, class Extent>
std::vector<T> broadcast_coords(const std::vector<T>& coords, const std::vector<Extent>& from) {
  std::vector<T> out;
  for (size_t k = 0; k < from.size(); ++k)
    out.push_back(from[k] == Extent(1) ? T(0) : coords[coords.size() - from.size() + k]);
  return out;
}

const Register broadcast_entry({
    .name = "broadcast_to",
    .kind = Kind::view,
    .doc = "x repeated along axes of extent 1 and new axes in front, as NumPy broadcasts.",
    .operands = {{"x", kAnyStored}},
    .attrs = {{.name = "shape",
               .doc = "extents of the result",
               .type = attr_type<std::vector<Expr>>,
               .domain = {.kind = AttrDomain::Kind::broadcast}}},
    .infer = infer_broadcast,
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      const HostTensor& x = *c.in[0];
      return {judge_view(x, c.result_types[0], [&](const std::vector<int64_t>& coords) {
        return flat_index(broadcast_coords(coords, x.shape), x.shape);
      })};
    },
    .gradient = [](const GradientContext& c) -> Tensors {
      return {sum_to_like(c.upstream[0], c.in[0])};
    },
    .simplify = simplify_broadcast,
    .element =
        [](ElementContext& c) {
          return c.at(0, broadcast_coords(c.coords, c.shape(0)), ir::kNoNode, {});
        },
    .samples = {{.shapes = {{3, 1}}, .attrs = {{"shape", std::vector<Expr>{2, 3, 4}}}},
                {.shapes = {{}}, .attrs = {{"shape", std::vector<Expr>{5}}}}},
});

// ---- fitting to the type of another tensor

// The axes of `from` that must be summed to give `to`, once leading axes are counted from the left.
std::vector<int> summed_axes(const Shape& from, const Shape& to) {
  std::vector<int> axes;
  size_t lead = from.size() - to.size();
  for (size_t k = 0; k < from.size(); ++k)
    if (k < lead || (to[k - lead].is(1) && !from[k].is(1))) axes.push_back(static_cast<int>(k));
  return axes;
}

Tensor sum_down(const Tensor& x, const Shape& to) {
  std::vector<int> axes = summed_axes(x.shape(), to);
  Tensor s = axes.empty() ? x : sum(x, {.axes = axes, .keep_axes = false});
  return s.shape() == to ? s : reshape(s, to);
}

const Register sum_to_like_entry({
    .name = "sum_to_like",
    .kind = Kind::composite,
    .doc = "Sums x over the axes along which `like` would be broadcast to x; the result has the "
           "shape of `like`.",
    .operands = {{"x", kNumber}, {"like", kAnyStored}},
    .infer = [](const InferContext& c) -> std::vector<InferredResult> {
      require_fit(
          c, c.shape(0), c.shape(1),
          cat("like ", to_string(c.shape(1)), " does not broadcast to x ", to_string(c.shape(0))));
      return {{{c.dtype(0), c.shape(1)}, std::nullopt}};
    },
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      HostTensor out(c.in[0]->dtype, concrete_shape(c.result_types[0]));
      for_each_index(c.in[0]->shape, [&](const std::vector<int64_t>& coords, int64_t flat) {
        int64_t to = flat_index(broadcast_coords(coords, out.shape), out.shape);
        store(out, to, judge_add(load(out, to), load(*c.in[0], flat)));
      });
      return {out};
    },
    .gradient = [](const GradientContext& c) -> Tensors {
      return {broadcast_like(c.upstream[0], c.in[0]), Tensor{}};
    },
    .decompose = [](const ir::Graph&, const ir::Op&, const Tensors& in) -> Tensors {
      return {sum_down(in[0], in[1].shape())};
    },
    .samples = {{.shapes = {{2, 3, 4}, {3, 1}}},
                {.shapes = {{2, 3}, {2, 3}}},
                {.shapes = {{4, 2}, {}}}},
});

const Register broadcast_like_entry({
    .name = "broadcast_like",
    .kind = Kind::composite,
    .doc = "x broadcast to the shape of `like`.",
    .operands = {{"x", kAnyStored}, {"like", kAnyStored}},
    .infer = [](const InferContext& c) -> std::vector<InferredResult> {
      require_fit(
          c, c.shape(1), c.shape(0),
          cat("x ", to_string(c.shape(0)), " does not broadcast to like ", to_string(c.shape(1))));
      return {{{c.dtype(0), c.shape(1)}, std::nullopt}};
    },
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      const HostTensor& x = *c.in[0];
      return {judge_view(x, c.result_types[0], [&](const std::vector<int64_t>& coords) {
        return flat_index(broadcast_coords(coords, x.shape), x.shape);
      })};
    },
    .gradient = [](const GradientContext& c) -> Tensors {
      return {sum_to_like(c.upstream[0], c.in[0]), Tensor{}};
    },
    .decompose = [](const ir::Graph&, const ir::Op&, const Tensors& in) -> Tensors {
      return {broadcast_to(in[0], in[1].shape())};
    },
    .samples = {{.shapes = {{3, 1}, {2, 3, 4}}}, {.shapes = {{}, {5}}}},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

using base::cat;

Tensor reshape(const Tensor& x, Shape shape) {
  return ops::apply("reshape", {x}, {{"shape", std::move(shape)}});
}

Tensor reshape(const Tensor& x, const Tensor& shape) {
  if (!shape.valid()) throw GraphError("reshape: shape is an empty Tensor");
  const ir::Value& v = shape.graph()->value(shape.id());
  if (!v.elements || shape.rank() != 1)
    throw GraphError(
        cat("reshape: shape ", to_string(v.type),
            " must be a vector of integers whose elements are known expressions: shape_of,"
            " constants, and concat, slice, gather and arithmetic of them"));
  return reshape(x, Shape(*v.elements));
}

Tensor transpose(const Tensor& x, std::vector<int> permutation) {
  for (int& axis : permutation)
    if (axis < 0 && x.valid()) axis += static_cast<int>(permutation.size());
  return ops::apply("transpose", {x}, {{"permutation", ops::to_ints(permutation)}});
}

Tensor broadcast_to(const Tensor& x, Shape shape) {
  return ops::apply("broadcast_to", {x}, {{"shape", std::move(shape)}});
}

namespace {

// `axes` counted from 0 in a tensor of `rank`, each once.
std::vector<bool> marked_axes(const std::vector<int>& axes, int rank, const char* op) {
  std::vector<bool> marked(static_cast<size_t>(rank), false);
  for (int axis : axes) {
    int at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank)
      throw GraphError(cat(op, ": axis ", axis, " is outside a tensor of rank ", rank));
    if (marked[static_cast<size_t>(at)])
      throw GraphError(cat(op, ": axis ", axis, " is given twice"));
    marked[static_cast<size_t>(at)] = true;
  }
  return marked;
}

}  // namespace

Tensor squeeze(const Tensor& x, std::vector<int> axes) {
  const Shape& shape = *ops::known_type(x, "squeeze", "x").shape;
  std::vector<bool> marked = marked_axes(axes, x.rank(), "squeeze");
  Shape out;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (marked[k] && is_equal(shape[k], 1) != Ordering::yes)
      throw GraphError(cat("squeeze: axis ", k, " of x ", to_string(shape), " has extent ",
                           shape[k].to_string(), ", expected 1"));
    if (!marked[k]) out.push_back(shape[k]);
  }
  return reshape(x, std::move(out));
}

Tensor expand_dims(const Tensor& x, std::vector<int> axes) {
  const Shape& shape = *ops::known_type(x, "expand_dims", "x").shape;
  std::vector<bool> marked =
      marked_axes(axes, x.rank() + static_cast<int>(axes.size()), "expand_dims");
  Shape out;
  size_t next = 0;
  for (bool added : marked) out.push_back(added ? Expr(1) : shape[next++]);
  return reshape(x, std::move(out));
}

Tensor sum_to_like(const Tensor& x, const Tensor& like) {
  if (x.valid() && like.valid() && x.type().known() && like.type().known() &&
      ops::fits(x.shape(), like.shape()))
    return ops::sum_down(x, like.shape());
  return ops::apply("sum_to_like", {x, like});
}

Tensor broadcast_like(const Tensor& x, const Tensor& like) {
  if (x.valid() && like.valid() && x.type().known() && like.type().known() &&
      ops::fits(like.shape(), x.shape()))
    return x.shape() == like.shape() ? x : broadcast_to(x, like.shape());
  return ops::apply("broadcast_like", {x, like});
}

}  // namespace heddle
