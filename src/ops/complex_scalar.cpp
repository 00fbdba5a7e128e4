#include "ops/complex_scalar.h"

#include <cmath>

namespace heddle::ops {

using ir::BodyBuilder;
using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

namespace {

Val widen(BodyBuilder& b, Val x) { return {b.cast(x.re, f64), b.cast(x.im, f64)}; }
Val narrow(BodyBuilder& b, Val x, DType part) { return {b.cast(x.re, part), b.cast(x.im, part)}; }

// Shorter names for chains of nodes.
struct Ops {
  BodyBuilder& b;
  NodeId add(NodeId x, NodeId y) const { return b.binary(ScalarOp::add, x, y); }
  NodeId sub(NodeId x, NodeId y) const { return b.binary(ScalarOp::sub, x, y); }
  NodeId mul(NodeId x, NodeId y) const { return b.binary(ScalarOp::mul, x, y); }
  NodeId div(NodeId x, NodeId y) const { return b.binary(ScalarOp::div, x, y); }
  NodeId neg(NodeId x) const { return b.unary(ScalarOp::neg, x); }
  NodeId abs(NodeId x) const { return b.unary(ScalarOp::abs, x); }
  NodeId sqrt(NodeId x) const { return b.unary(ScalarOp::sqrt, x); }
  NodeId lt(NodeId x, NodeId y) const { return b.binary(ScalarOp::lt, x, y); }
  NodeId eq(NodeId x, NodeId y) const { return b.binary(ScalarOp::eq, x, y); }
  NodeId f64c(double v) const { return b.constant(f64, v); }
};

// sqrt(x^2 + y^2) of f64 numbers, scaled by the larger: no overflow, infinite where a part is.
NodeId hypot(BodyBuilder& b, NodeId x, NodeId y) {
  Ops o{b};
  NodeId ax = o.abs(x), ay = o.abs(y);
  NodeId swap = o.lt(ax, ay);
  NodeId big = b.select(swap, ay, ax), small = b.select(swap, ax, ay);
  // big is 0: ratio 0 / 0; infinite: inf / inf. Both give big itself.
  NodeId plain = b.binary(ScalarOp::bit_or, o.eq(big, o.f64c(0)), o.eq(big, o.f64c(INFINITY)));
  NodeId ratio = o.div(small, big);
  NodeId length = o.mul(big, o.sqrt(b.fma(ratio, ratio, o.f64c(1))));
  NodeId infinite = b.binary(ScalarOp::bit_or, o.eq(ax, o.f64c(INFINITY)), o.eq(ay, o.f64c(INFINITY)));
  return b.select(infinite, o.f64c(INFINITY), b.select(plain, big, length));
}

}  // namespace

Val complex_multiply(BodyBuilder& b, Val x, Val y) {
  Ops o{b};
  return {o.sub(o.mul(x.re, y.re), o.mul(x.im, y.im)), o.add(o.mul(x.re, y.im), o.mul(x.im, y.re))};
}

// Smith 1962, "Algorithm 116": scales by the divisor's larger part. A zero divisor gives infinities, as NumPy.
Val complex_divide(BodyBuilder& b, Val x, Val y) {
  Ops o{b};
  DType part = b.type(x.re);
  x = widen(b, x);
  y = widen(b, y);
  NodeId swap = o.lt(o.abs(y.re), o.abs(y.im));
  NodeId big = b.select(swap, y.im, y.re), small = b.select(swap, y.re, y.im);
  NodeId ratio = b.select(o.eq(big, o.f64c(0)), o.f64c(0), o.div(small, big));
  NodeId divisor = b.fma(small, ratio, big);
  NodeId re = b.select(swap, b.fma(x.re, ratio, x.im), b.fma(x.im, ratio, x.re));
  NodeId im = b.select(swap, b.fma(x.im, ratio, o.neg(x.re)), b.fma(o.neg(x.re), ratio, x.im));
  return narrow(b, {o.div(re, divisor), o.div(im, divisor)}, part);
}

NodeId complex_abs(BodyBuilder& b, Val x) {
  DType part = b.type(x.re);
  Val wide = widen(b, x);
  return b.cast(hypot(b, wide.re, wide.im), part);
}

}  // namespace heddle::ops
