// Values of the pool brought into a shape and dtype by views, reductions, pads and casts.
#include "support/program/generator.h"

#include <algorithm>

namespace heddle::test {

Tensor ProgramGenerator::tame(const Tensor& t) {
  if (!is_real_float(t.dtype())) return t;
  switch (tape_.below(4)) {
    case 0:
      return tanh(t);
    case 1:
      return t / (square(t) + 1.0);
    case 2:
      return sigmoid(t) - 0.5;
    default:
      return clamp(t, constant_like(t, -1.5), constant_like(t, 1.5));
  }
}

// Fewer axes by a reduction, a slice or a squeeze; more by axes of extent 1.
Tensor ProgramGenerator::with_rank(Tensor t, size_t rank) {
  while (t.shape().size() > rank) {
    auto axis = static_cast<int>(tape_.below(t.shape().size()));
    const Expr& n = t.shape()[static_cast<size_t>(axis)];
    bool number = ops::in_class(t.dtype(), ops::kReal);
    if (n.is(1)) {
      t = squeeze(t, {axis});
    } else if (number && n.lower() > 0 && tape_.chance(40)) {
      t = tape_.chance(50) ? reduce_max(t, {.axes = {axis}}) : reduce_min(t, {.axes = {axis}});
    } else if (is_real_float(t.dtype()) && tape_.chance(60)) {
      t = n.lower() > 0 ? mean(t, {.axes = {axis}}) : sum(t, {.axes = {axis}}) * 0.125;
    } else {
      t = gather(t, graph_.constant(tape_.between(-1, 1), i64), {.axis = axis});
    }
  }
  while (t.shape().size() < rank)
    t = expand_dims(t, {static_cast<int>(tape_.below(t.shape().size() + 1))});
  return t;
}

// One axis cut, walked backwards, or padded to an extent.
Tensor ProgramGenerator::with_extent(const Tensor& t, size_t axis, const Expr& extent) {
  const Expr& own = t.shape()[axis];
  if (own == extent || own.is(1)) return t;
  std::optional<int64_t> from = own.constant(), to = extent.constant();
  if (!from || !to) throw GraphError("with_extent: the extents are symbols");
  size_t rank = t.shape().size();
  if (*from >= *to) {
    SliceOptions o;
    o.strides.assign(rank, 1);
    for (size_t k = 0; k < rank; ++k) {
      o.starts.emplace_back(0);
      o.stops.push_back(t.shape()[k]);
    }
    int64_t most = *to > 1 ? (*from - 1) / (*to - 1) : 1;
    int64_t stride =
        1 + static_cast<int64_t>(tape_.below(static_cast<size_t>(std::min<int64_t>(most, 3))));
    int64_t reach = *to == 0 ? 0 : (*to - 1) * stride + 1;
    auto start = static_cast<int64_t>(tape_.below(static_cast<size_t>(*from - reach + 1)));
    if (*to > 0 && tape_.chance(40)) {
      int64_t first = start + reach - 1, end = start - 1;
      o.starts[axis] = first;
      o.stops[axis] = end < 0 ? Expr(-*from - 1) : Expr(end);
      o.strides[axis] = -stride;
    } else {
      o.starts[axis] = start;
      o.stops[axis] = start + reach;
      o.strides[axis] = stride;
    }
    return slice(t, o);
  }
  static const std::vector<PaddingMode> kModes = {
      PaddingMode::constant, PaddingMode::symmetric,     PaddingMode::reflect,
      PaddingMode::periodic, PaddingMode::clamp_to_edge, PaddingMode::anti_periodic,
      PaddingMode::zero};
  PadOptions o;
  o.mode = *from == 0 ? PaddingMode::constant : tape_.pick(kModes);
  o.value = 0.5;
  if (!is_real_float(t.dtype())) o.value = 1;
  o.before.assign(rank, 0);
  o.after.assign(rank, 0);
  o.before[axis] = static_cast<int64_t>(tape_.below(static_cast<size_t>(*to - *from + 1)));
  o.after[axis] = *to - *from - o.before[axis];
  return pad(t, o);
}

// A view of the same shape, now and then.
Tensor ProgramGenerator::decorated(const Tensor& t) {
  size_t rank = t.shape().size();
  if (rank == 0 || !tape_.chance(20)) return t;
  size_t axis = tape_.below(rank);
  switch (tape_.below(3)) {
    case 0: {  // backwards
      SliceOptions o;
      o.strides.assign(rank, 1);
      o.strides[axis] = -1;
      return slice(t, o);
    }
    case 1: {  // transposed and back
      if (rank < 2) return t;
      std::vector<int> p(rank);
      for (size_t k = 0; k < rank; ++k) p[k] = static_cast<int>(rank - 1 - k);
      Tensor turned = transpose(t, p);
      return transpose(is_real_float(t.dtype()) ? negate(turned) : turned, p);
    }
    default: {  // one element on, around the end
      PadOptions o{.before = std::vector<int64_t>(rank, 0), .after = std::vector<int64_t>(rank, 0)};
      if (t.shape()[axis].lower() < 1) return t;
      o.mode = PaddingMode::periodic;
      o.before[axis] = 1;
      o.after[axis] = -1;
      return pad(t, o);
    }
  }
}

Tensor ProgramGenerator::fit_item(Tensor t, const Shape& shape, DType dtype) {
  if (t.shape() != shape) {
    t = with_rank(t, shape.size());
    for (size_t k = 0; k < shape.size(); ++k) t = with_extent(t, k, shape[k]);
    if (t.shape() != shape) t = broadcast_to(t, shape);
  }
  if (t.dtype() != dtype) t = cast(t, dtype);
  return decorated(t);
}

Tensor ProgramGenerator::fit(const Shape& shape, DType dtype, double low, double high) {
  // Indices need values in their range: those of other tensors would mostly miss.
  bool index = is_integer(dtype) && (low < -2 || high > 2);
  if (index || is_storage_only(dtype)) return source(dtype, shape, low, high);
  std::vector<Tensor> same;
  for (const Tensor& t : pool_) {
    if (t.dtype() == dtype && t.shape() == shape) same.push_back(t);
  }
  if (!same.empty() && tape_.chance(70)) return decorated(tape_.pick(same));
  for (int tries = 0; tries < 3; ++tries) {
    try {
      Tensor t = any_item(ops::kAny);
      if (is_complex(t.dtype()) != is_complex(dtype)) continue;
      return fit_item(t, shape, dtype);
    } catch (const GraphError&) {
    }
  }
  return source(dtype, shape, low, high);
}

}  // namespace heddle::test
