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
  NodeId infinite =
      b.binary(ScalarOp::bit_or, o.eq(ax, o.f64c(INFINITY)), o.eq(ay, o.f64c(INFINITY)));
  return b.select(infinite, o.f64c(INFINITY), b.select(plain, big, length));
}

}  // namespace

Val complex_multiply(BodyBuilder& b, Val x, Val y) {
  Ops o{b};
  return {o.sub(o.mul(x.re, y.re), o.mul(x.im, y.im)), o.add(o.mul(x.re, y.im), o.mul(x.im, y.re))};
}

// Smith 1962, "Algorithm 116": scales by the divisor's larger part. A zero divisor gives
// infinities, as NumPy.
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

namespace heddle::ops {

using ir::LibraryFunction;

namespace {

// atan(t) for |t| <= tan(pi / 8) as t + t^3 p(t^2); relative error 2^-64 before rounding
// (tools/fit_functions.py).
NodeId atan_small(const Ops& o, NodeId t) {
  NodeId square = o.mul(t, t), p = ir::kNoNode;
  for (double k :
       {0x1.f1d5c38409e99p-7, -0x1.1232a1a469b76p-5, 0x1.70eae3134256ep-5, -0x1.ab7cdd173929cp-5,
        0x1.e171e4b625d76p-5, -0x1.110c7150054fap-4, 0x1.3b136e12402d8p-4, -0x1.745d14b87293dp-4,
        0x1.c71c71b740f8fp-4, -0x1.24924924755a1p-3, 0x1.9999999999649p-3, -0x1.5555555555554p-2}) {
    p = p == ir::kNoNode ? o.f64c(k) : o.b.fma(p, square, o.f64c(k));
  }
  return o.b.fma(o.mul(square, t), p, t);
}

NodeId copy_sign(const Ops& o, NodeId magnitude, NodeId from) {
  NodeId mask = o.b.constant_bits(i64, uint64_t{1} << 63);
  NodeId sign = o.b.binary(ScalarOp::bit_and, o.b.bitcast(from, i64), mask);
  NodeId bare = o.b.bitcast(o.abs(magnitude), i64);
  return o.b.bitcast(o.b.binary(ScalarOp::bit_or, bare, sign), f64);
}

NodeId is_infinite(const Ops& o, NodeId x) { return o.eq(o.abs(x), o.f64c(INFINITY)); }

Val exp_wide(const Ops& o, Val x) {
  NodeId length = o.b.call(LibraryFunction::exp, x.re);
  NodeId re = o.mul(length, o.b.call(LibraryFunction::cos, x.im));
  NodeId im = o.mul(length, o.b.call(LibraryFunction::sin, x.im));
  // A real operand stays real, even where its exponential is infinite.
  NodeId is_real = o.eq(x.im, o.f64c(0));
  return {o.b.select(is_real, length, re), o.b.select(is_real, x.im, im)};
}

Val log_wide(const Ops& o, Val x) {
  return {o.b.call(LibraryFunction::log, hypot(o.b, x.re, x.im)), atan2_f64(o.b, x.im, x.re)};
}

}  // namespace

// The angle of the octant's ratio, then the octants put together.
NodeId atan2_f64(BodyBuilder& b, NodeId y, NodeId x) {
  Ops o{b};
  NodeId ax = o.abs(x), ay = o.abs(y);
  NodeId steep = o.lt(ax, ay);
  NodeId big = b.select(steep, ay, ax), small = b.select(steep, ax, ay);
  NodeId ratio = o.div(small, big);
  NodeId infinite = b.binary(ScalarOp::bit_and, is_infinite(o, x), is_infinite(o, y));
  ratio = b.select(infinite, o.f64c(1), b.select(o.eq(big, o.f64c(0)), o.f64c(0), ratio));
  // Beyond tan(pi / 8): atan(t) = pi / 4 + atan((t - 1) / (t + 1)).
  NodeId wide = o.lt(o.f64c(0x1.a827999fcef32p-2), ratio);
  NodeId moved = o.div(o.sub(ratio, o.f64c(1)), o.add(ratio, o.f64c(1)));
  NodeId core = atan_small(o, b.select(wide, moved, ratio));
  NodeId angle = b.select(wide, o.add(o.f64c(M_PI_4), core), core);
  angle = b.select(steep, o.sub(o.f64c(M_PI_2), angle), angle);
  NodeId left = o.lt(copy_sign(o, o.f64c(1), x), o.f64c(0));  // -0 counts as negative
  angle = b.select(left, o.sub(o.f64c(M_PI), angle), angle);
  angle = copy_sign(o, angle, y);
  NodeId nan =
      b.binary(ScalarOp::bit_or, b.unary(ScalarOp::is_nan, x), b.unary(ScalarOp::is_nan, y));
  return b.select(nan, o.f64c(NAN), angle);
}

Val complex_exp(BodyBuilder& b, Val x) {
  return narrow(b, exp_wide(Ops{b}, widen(b, x)), b.type(x.re));
}

Val complex_log(BodyBuilder& b, Val x) {
  return narrow(b, log_wide(Ops{b}, widen(b, x)), b.type(x.re));
}

// t = sqrt((|z| + |re|) / 2) is one part, im / 2t the other (Friedland 1967); halves of halves, so
// that nothing overflows.
Val complex_sqrt(BodyBuilder& b, Val x) {
  Ops o{b};
  DType part = b.type(x.re);
  Val z = widen(b, x);
  NodeId half = o.f64c(0.5), zero = o.f64c(0);
  NodeId length = hypot(b, o.mul(z.re, half), o.mul(z.im, half));
  NodeId t = o.sqrt(o.add(length, o.mul(o.abs(z.re), half)));
  NodeId other = o.div(o.mul(o.abs(z.im), half), t);
  other = b.select(o.eq(t, zero), zero, other);
  NodeId left = o.lt(copy_sign(o, o.f64c(1), z.re), zero);
  NodeId re = b.select(left, other, t), im = b.select(left, t, other);
  NodeId infinite = is_infinite(o, z.im);
  re = b.select(infinite, o.f64c(INFINITY), re);
  im = b.select(infinite, z.im, im);
  return narrow(b, {re, copy_sign(o, im, z.im)}, part);
}

// With t = tanh re, s = sin im, c = cos im: (t + i s c (1 - t^2)) / (c^2 + t^2 s^2), and 1 - t^2
// from exp(-2 |re|).
Val complex_tanh(BodyBuilder& b, Val x) {
  Ops o{b};
  Val z = widen(b, x);
  NodeId one = o.f64c(1), t = b.call(LibraryFunction::tanh, z.re);
  NodeId s = b.call(LibraryFunction::sin, z.im), c = b.call(LibraryFunction::cos, z.im);
  NodeId e = b.call(LibraryFunction::exp, o.mul(o.f64c(-2), o.abs(z.re)));
  NodeId sum = o.add(one, e);
  NodeId slope = o.div(o.mul(o.f64c(4), e), o.mul(sum, sum));
  NodeId ts = o.mul(t, s);
  NodeId divisor = b.fma(c, c, o.mul(ts, ts));
  NodeId im = o.div(o.mul(o.mul(s, c), slope), divisor);
  return narrow(b, {o.div(t, divisor), im}, b.type(x.re));
}

Val complex_power(BodyBuilder& b, Val x, Val y) {
  Ops o{b};
  DType part = b.type(x.re);
  Val base = widen(b, x), exponent = widen(b, y);
  NodeId zero = o.f64c(0), one = o.f64c(1);
  Val result = exp_wide(o, complex_multiply(b, exponent, log_wide(o, base)));
  auto both_zero = [&](Val v) {
    return b.binary(ScalarOp::bit_and, o.eq(v.re, zero), o.eq(v.im, zero));
  };
  NodeId zero_base = both_zero(base), zero_exponent = both_zero(exponent);
  NodeId grows = b.binary(ScalarOp::bit_and, zero_base, o.lt(zero, exponent.re));
  NodeId undefined = b.binary(ScalarOp::bit_and, zero_base, b.unary(ScalarOp::logical_not, grows));
  for (NodeId* p : {&result.re, &result.im})
    *p = b.select(grows, zero, b.select(undefined, o.f64c(NAN), *p));
  result.re = b.select(zero_exponent, one, result.re);
  result.im = b.select(zero_exponent, zero, result.im);
  return narrow(b, result, part);
}

}  // namespace heddle::ops
