#include "ops/boundary.h"

#include "base/check.h"

#include <heddle/ops.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace heddle::ops {

using base::cat;
using ir::ScalarOp;

namespace {

constexpr std::array<std::string_view, 7> kModes{
    "constant", "reflect", "symmetric", "clamp_to_edge", "zero", "periodic", "anti_periodic"};

}  // namespace

std::string_view name(PaddingMode mode) { return name_at(kModes, mode); }

AttrDomain boundary_domain() {
  return {.kind = AttrDomain::Kind::choice, .choices = {kModes.begin(), kModes.end()}};
}

std::optional<PaddingMode> parse_padding_mode(std::string_view text) {
  for (size_t k = 0; k < kModes.size(); ++k)
    if (kModes[k] == text) return static_cast<PaddingMode>(k);
  return std::nullopt;
}

PaddingMode padding_mode(const ir::Attrs& attrs, std::string_view attr) {
  std::optional<PaddingMode> mode = parse_padding_mode(attrs.get<std::string>(attr));
  HD_CHECK(mode.has_value(), "boundary mode ", attrs.get<std::string>(attr));
  return *mode;
}

void check_padding_mode(const InferContext& c, std::string_view attr) {
  const auto& text = c.attrs.get<std::string>(attr);
  if (!parse_padding_mode(text))
    c.fail(cat(attr, " is \"", text,
               "\", expected constant, reflect, symmetric, clamp_to_edge, zero, periodic or "
               "anti_periodic"));
}

// The forms with min and max serve positions at most one reflection away: they stay affine in the
// interior, and cheap outside. Further away a modulo is needed.
Expr wrapped_index(PaddingMode mode, const Expr& i, const Expr& n) {
  auto known = [](const Expr& a, const Expr& b) { return is_less_equal(a, b) == Ordering::yes; };
  if (known(0, i) && known(i, n - 1)) return i;
  Expr last = n - 1;
  switch (mode) {
    case PaddingMode::clamp_to_edge:
      return max(min(i, last), Expr(0));
    case PaddingMode::symmetric: {
      if (known(-n, i) && known(i, n * 2 - 1)) {
        Expr left = known(0, i) ? i : max(i, Expr(-1) - i);
        return known(i, last) ? left : min(left, n * 2 - 1 - i);
      }
      Expr m = i % (max(n, Expr(1)) * 2);
      return min(m, n * 2 - 1 - m);
    }
    case PaddingMode::reflect: {
      if (known(-last, i) && known(i, last * 2)) {
        Expr left = known(0, i) ? i : max(i, -i);
        return known(i, last) ? left : min(left, last * 2 - i);
      }
      Expr m = i % max(last * 2, Expr(1));
      return min(m, max(last * 2, Expr(0)) - m);
    }
    default:
      return i % max(n, Expr(1));
  }
}

BoundaryIndex boundary_index(ir::BodyBuilder& b, PaddingMode mode, const Expr& i, const Expr& n) {
  if (fills(mode)) return {i, in_range(b, i, 0, n), ir::kNoNode};
  BoundaryIndex at{wrapped_index(mode, i, n), ir::kNoNode, ir::kNoNode};
  if (n.lower() < 1) at.inside = b.binary(ScalarOp::gt, b.index(n), b.constant_int(i64, 0));
  if (mode == PaddingMode::anti_periodic) {
    Expr period = i / max(n, Expr(1));
    if (!period.is(0))
      at.negated = b.binary(ScalarOp::ne, b.index(period % 2), b.constant_int(i64, 0));
  }
  return at;
}

ir::Val boundary_read(ElementContext& c, int operand, PaddingMode mode, double fill_value,
                      const std::vector<Expr>& outer, const std::vector<Expr>& positions) {
  std::vector<Expr> at = outer;
  ir::NodeId inside = ir::kNoNode;
  ir::NodeId negated = ir::kNoNode;
  for (const Expr& position : positions) {
    BoundaryIndex axis = boundary_index(c.b, mode, position, c.shape(operand)[at.size()]);
    at.push_back(axis.index);
    inside = both(c.b, inside, axis.inside);
    if (negated == ir::kNoNode)
      negated = axis.negated;
    else if (axis.negated != ir::kNoNode)
      negated = c.b.binary(ScalarOp::bit_xor, negated, axis.negated);
  }
  double outside = mode == PaddingMode::constant ? fill_value : 0;
  ir::Val value = c.at(operand, at, inside, constant_val(c.b, c.dtype(operand), outside));
  return negated == ir::kNoNode ? value : select(c.b, negated, negate(c.b, value), value);
}

std::optional<JudgeBoundary> judge_boundary(PaddingMode mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return JudgeBoundary{i, false};
  if (fills(mode) || n == 0) return std::nullopt;
  if (mode == PaddingMode::clamp_to_edge) return JudgeBoundary{i < 0 ? 0 : n - 1, false};
  if (mode == PaddingMode::reflect && n == 1) return JudgeBoundary{0, false};
  // Whole cycles change nothing: a reflection and back, or two periods.
  int64_t cycle = mode == PaddingMode::reflect ? 2 * (n - 1) : 2 * n;
  i %= cycle;
  bool negated = false;
  while (i < 0 || i >= n) {  // one fold or period at a time
    if (mode == PaddingMode::reflect) {
      i = i < 0 ? -i : 2 * (n - 1) - i;
    } else if (mode == PaddingMode::symmetric) {
      i = i < 0 ? -1 - i : 2 * n - 1 - i;
    } else {
      i += i < 0 ? n : -n;
      negated = !negated;
    }
  }
  return JudgeBoundary{i, mode == PaddingMode::anti_periodic && negated};
}

JudgeScalar judge_boundary_read(const HostTensor& x, PaddingMode mode, double fill_value,
                                const std::vector<int64_t>& positions) {
  std::vector<int64_t> at(positions.size());
  bool negated = false;
  for (size_t k = 0; k < at.size(); ++k) {
    std::optional<JudgeBoundary> axis = judge_boundary(mode, positions[k], x.shape[k]);
    if (!axis) {
      return judge_scalar(mode == PaddingMode::constant ? fill_value : 0);
    }
    at[k] = axis->index;
    negated = negated != axis->negated;
  }
  JudgeScalar v = load(x, flat_index(at, x.shape));
  return negated ? judge_negate(v) : v;
}

// ---- the transpose of padding, axis after axis

namespace {

using Index = std::vector<Expr>;

// Part [from, to) of one axis of u; walked backwards where asked.
Tensor part(const Tensor& u, size_t axis, const Expr& from, const Expr& to,
            bool backwards = false) {
  size_t rank = u.shape().size();
  SliceOptions s{
      .starts = Index(rank, Expr(0)), .stops = u.shape(), .strides = std::vector<int64_t>(rank, 1)};
  s.starts[axis] = from;
  s.stops[axis] = to;
  Tensor t = slice(u, s);
  if (!backwards) return t;
  SliceOptions flip;
  flip.strides.assign(rank, 1);
  flip.strides[axis] = -1;
  return slice(t, flip);
}

// x placed at `from` of an axis of extent n, zeros elsewhere.
Tensor placed(const Tensor& x, size_t axis, const Expr& from, const Expr& n) {
  Shape shape = x.shape();
  Index starts(shape.size(), Expr(0));
  Index stops = shape;
  starts[axis] = from;
  stops[axis] = from + shape[axis];
  shape[axis] = n;
  return apply("unslice", {x}, {{"starts", starts}, {"stops", stops}, {"shape", shape}});
}

// One axis whose pads are at most one reflection or period wide: sums of slices, which fuse. b and
// a: extents of the pads.
Tensor fold_near(const Tensor& u, size_t axis, int64_t n, int64_t b, int64_t a, PaddingMode mode) {
  Tensor total = part(u, axis, b, b + n);
  auto add = [&](const Tensor& t, int64_t at) {
    Tensor moved = placed(t, axis, at, n);
    total = mode == PaddingMode::anti_periodic ? total - moved : total + moved;
  };
  ReduceOptions along{.axes = {static_cast<int>(axis)}, .keep_axes = true};
  int64_t end = b + n + a;
  bool flips = mode == PaddingMode::reflect || mode == PaddingMode::symmetric;
  int64_t skip = mode == PaddingMode::reflect ? 1 : 0;
  if (b > 0) {
    Tensor left = part(u, axis, 0, b, flips);
    if (mode == PaddingMode::clamp_to_edge)
      add(sum(left, along), 0);
    else
      add(left, flips ? skip : n - b);
  }
  if (a > 0) {
    Tensor right = part(u, axis, b + n, end, flips);
    if (mode == PaddingMode::clamp_to_edge)
      add(sum(right, along), n - 1);
    else
      add(right, flips ? n - a - skip : 0);
  }
  return total;
}

// The general form: each padded position adds to the position that it read, by index.
Tensor fold_far(const Tensor& u, size_t axis, const Expr& n, const Expr& before, PaddingMode mode) {
  Tensor at = coordinate(u.graph(), {u.shape()[axis]}, 0, i64);
  auto number = [&](const Expr& e) {
    Tensor extents = shape_of(zeros_of(u.graph(), type(DType::boolean, {e})));
    return reshape(extents, Shape{});
  };
  // before may be negative: its sign is kept out of the extent.
  Tensor i = before.lower() >= 0 ? at - number(before) : at + number(-before);
  Tensor extent = number(max(n, Expr(1)));
  Tensor one = constant_like(extent, 1);
  Tensor zero = constant_like(extent, 0);
  Tensor from = u;
  switch (mode) {
    case PaddingMode::clamp_to_edge:
      i = maximum(minimum(i, extent - one), zero);
      break;
    case PaddingMode::symmetric: {
      Tensor m = floor_modulo(i, extent + extent);
      i = minimum(m, extent + extent - one - m);
      break;
    }
    case PaddingMode::reflect: {
      Tensor period = extent + extent - one - one;
      Tensor m = floor_modulo(i, maximum(period, one));
      i = minimum(m, period - m);
      break;
    }
    default: {
      if (mode == PaddingMode::anti_periodic) {
        Tensor odd = floor_modulo(i / extent, one + one);  // 0 or 1
        Shape lined(u.shape().size(), Expr(1));
        lined[axis] = u.shape()[axis];
        Tensor sign = cast(one - odd - odd, u.dtype());
        from = u * reshape(sign, lined);
      }
      i = floor_modulo(i, extent);
    }
  }
  Shape shape = u.shape();
  shape[axis] = n;
  return scatter_add(zeros_of(u.graph(), type(u.dtype(), shape)), i, from,
                     {.axis = static_cast<int>(axis)});
}

bool near(PaddingMode mode, int64_t n, int64_t b, int64_t a) {
  if (b < 0 || a < 0 || n < 1) return false;
  if (mode == PaddingMode::clamp_to_edge) return true;
  int64_t reach = mode == PaddingMode::reflect ? n - 1 : n;
  return b <= reach && a <= reach;
}

}  // namespace

Tensor pad_transpose(const Tensor& upstream, const Shape& to, const std::vector<Expr>& before,
                     PaddingMode mode) {
  Tensor u = upstream;
  size_t lead = to.size() - before.size();
  if (fills(mode)) {
    std::vector<Expr> from(to.size(), Expr(0)), after(to.size(), Expr(0));
    for (size_t k = lead; k < to.size(); ++k) {
      from[k] = -before[k - lead];
      after[k] = to[k] - u.shape()[k] + before[k - lead];
    }
    return apply("pad", {u}, {{"before", from}, {"after", after}, {"mode", std::string("zero")}});
  }
  for (size_t k = lead; k < to.size(); ++k) {
    const Expr& b = before[k - lead];
    Expr a = u.shape()[k] - to[k] - b;
    if (b.is(0) && a.is(0)) continue;
    bool numbers = b.is_constant() && a.is_constant() && to[k].is_constant();
    if (numbers && near(mode, *to[k].constant(), *b.constant(), *a.constant()))
      u = fold_near(u, k, *to[k].constant(), *b.constant(), *a.constant(), mode);
    else
      u = fold_far(u, k, to[k], b, mode);
  }
  return u;
}

}  // namespace heddle::ops
