#include "ops/math_functions.h"

#include "base/check.h"

#include <bit>
#include <cmath>
#include <initializer_list>
#include <optional>

namespace heddle::ops {

using ir::BodyBuilder;
using ir::LibraryFunction;
using ir::NodeId;
using ir::ScalarOp;

namespace {

// Nodes of f32 with their bits as i32.
class F32 {
 public:
  explicit F32(BodyBuilder& builder) : b(builder) {}
  BodyBuilder& b;

  NodeId c(float v) const { return b.constant_bits(f32, std::bit_cast<uint32_t>(v)); }
  NodeId i(int32_t v) const { return b.constant_int(i32, v); }
  NodeId add(NodeId x, NodeId y) const { return b.binary(ScalarOp::add, x, y); }
  NodeId sub(NodeId x, NodeId y) const { return b.binary(ScalarOp::sub, x, y); }
  NodeId mul(NodeId x, NodeId y) const { return b.binary(ScalarOp::mul, x, y); }
  NodeId div(NodeId x, NodeId y) const { return b.binary(ScalarOp::div, x, y); }
  NodeId fma(NodeId x, NodeId y, NodeId z) const { return b.fma(x, y, z); }
  NodeId abs(NodeId x) const { return b.unary(ScalarOp::abs, x); }
  NodeId lt(NodeId x, NodeId y) const { return b.binary(ScalarOp::lt, x, y); }
  NodeId gt(NodeId x, NodeId y) const { return b.binary(ScalarOp::gt, x, y); }
  NodeId eq(NodeId x, NodeId y) const { return b.binary(ScalarOp::eq, x, y); }
  NodeId both(NodeId x, NodeId y) const { return b.binary(ScalarOp::bit_and, x, y); }
  NodeId either(NodeId x, NodeId y) const { return b.binary(ScalarOp::bit_or, x, y); }
  NodeId shl(NodeId x, int n) const { return b.binary(ScalarOp::shl, x, i(n)); }
  NodeId shr(NodeId x, int n) const { return b.binary(ScalarOp::shr, x, i(n)); }
  NodeId bits(NodeId x) const { return b.bitcast(x, i32); }
  NodeId value(NodeId x) const { return b.bitcast(x, f32); }

  NodeId at_most(NodeId x, float limit) const { return b.binary(ScalarOp::min, x, c(limit)); }
  NodeId at_least(NodeId x, float limit) const { return b.binary(ScalarOp::max, x, c(limit)); }
  // Coefficients from the highest power down.
  NodeId horner(NodeId x, std::initializer_list<float> coefficients) const {
    NodeId sum = ir::kNoNode;
    for (float k : coefficients) sum = sum == ir::kNoNode ? c(k) : fma(sum, x, c(k));
    return sum;
  }
  NodeId copy_sign(NodeId magnitude, NodeId from) const {
    NodeId sign = both(bits(from), i(INT32_MIN));
    return value(either(bits(magnitude), sign));
  }
};

constexpr float kLog2e = 0x1.715476p+0f;  // log2(e), and what it lacks
constexpr float kLog2eLow = 0x1.4ae0cp-26f;
constexpr float kLn2 = 0x1.62e43p-1f;
constexpr float kShifter =
    0x1.8p23f;  // adding it rounds to an integer, found in the low bits of the sum
constexpr float kShifter127 = kShifter + 127;  // the low bits are the exponent field of 2^n
constexpr float kShifter254 = kShifter + 254;  // twice that: the field is split in two

// 2^r for |r| <= 0.5005; relative error 2^-28.3.
NodeId exp2_fraction(const F32& f, NodeId r) {
  return f.horner(r, {0x1.4172d2p-13f, 0x1.5f097ap-10f, 0x1.3b2ddap-7f, 0x1.c6af7ap-5f,
                      0x1.ebfbdcp-3f, 0x1.62e43p-1f, 1.0f});
}

// p * 2^n for z = n + kShifter254 and n in [-252, 256]: two factors, so that subnormal results are
// rounded once and overflow gives infinity.
NodeId scale_in_two(const F32& f, NodeId p, NodeId z) {
  NodeId field = f.bits(z);
  NodeId low_half = f.shr(field, 1);
  NodeId high_half = f.sub(field, low_half);
  return f.mul(f.mul(p, f.value(f.shl(low_half, 23))), f.value(f.shl(high_half, 23)));
}

// e^x by 2^n 2^r with n + r = x log2(e), |r| <= 1/2, within 1.02 ULP. x within [-151, 152] ln 2, or
// NaN.
NodeId exact_exp(const F32& f, NodeId x) {
  NodeId z = f.fma(x, f.c(kLog2e), f.c(kShifter254));
  NodeId n = f.sub(z, f.c(kShifter254));
  NodeId r = f.fma(x, f.c(kLog2e), f.b.unary(ScalarOp::neg, n));
  r = f.fma(x, f.c(kLog2eLow), r);
  return scale_in_two(f, exp2_fraction(f, r), z);
}

// e^x = (e^r 2^m) 2^m with r + 2 m ln 2 = x, |r| <= ln 2: subnormal results are rounded once and
// overflow gives infinity. e^r = 1 + r p(r), relative error 2^-26.
NodeId exp_f32(const F32& f, NodeId x) {
  // exp(89) overflows, exp(-104.5) is below half of the smallest subnormal.
  x = f.at_most(f.at_least(x, -104.5f), 89.0f);
  NodeId z = f.fma(x, f.c(kLog2e / 2), f.c(kShifter127));
  NodeId m = f.sub(z, f.c(kShifter127));
  NodeId r = f.fma(m, f.c(-0x1.62e4p+0f), x);  // 2 ln 2 with so few bits that this is exact
  r = f.fma(m, f.c(-0x1.7f7d1cp-19f), r);      // and the rest of it
  NodeId p = f.horner(r, {0x1.9ba6dap-13f, 0x1.71bef4p-10f, 0x1.1126eap-7f, 0x1.5549fp-5f,
                          0x1.555514p-3f, 0x1.00000cp-1f, 1.0f, 1.0f});
  NodeId scale = f.value(f.shl(f.bits(z), 23));
  return f.mul(f.mul(p, scale), scale);
}

// x = m 2^e with m in [sqrt(1/2), sqrt(2)), for x > 0; e as f32. Subnormals are scaled first.
struct Split {
  NodeId mantissa, exponent;
};
Split split_f32(const F32& f, NodeId x) {
  NodeId tiny = f.lt(x, f.c(0x1p-126f));
  NodeId scaled = f.b.select(tiny, f.mul(x, f.c(0x1p23f)), x);
  NodeId offset = f.b.select(tiny, f.c(-23.0f), f.c(0.0f));
  NodeId bits = f.bits(scaled);
  NodeId e = f.shr(f.sub(bits, f.i(0x3f3504f3)), 23);  // bits of sqrt(1/2)
  NodeId m = f.value(f.sub(bits, f.shl(e, 23)));
  return {m, f.add(f.b.cast(e, f32), offset)};
}

// log(1 + f) = f + f^2 (f p(f) - 1/2), p of relative error 2^-27.3 in the whole, plus e ln 2.
NodeId log_f32(const F32& f, NodeId x) {
  Split s = split_f32(f, x);
  NodeId r = f.sub(s.mantissa, f.c(1.0f));
  NodeId p = f.horner(r, {-0x1.38cf12p-4f, 0x1.056036p-3f, -0x1.0d81f6p-3f, 0x1.22d8f8p-3f,
                          -0x1.54728cp-3f, 0x1.99a01ep-3f, -0x1.000226p-2f, 0x1.555554p-2f, -0.5f});
  NodeId log1p = f.fma(f.mul(r, r), p, r);
  NodeId result = f.fma(s.exponent, f.c(kLn2), log1p);
  NodeId finite = f.b.select(f.lt(x, f.c(INFINITY)), result, x);
  NodeId special = f.b.select(f.eq(x, f.c(0.0f)), f.c(-INFINITY), f.c(NAN));
  return f.b.select(f.gt(x, f.c(0.0f)), finite, special);
}

// h / (1 + h) for h in [0, 2^100], corrected by the residual h - q - q h, which does not see how
// 1 + h was rounded.
NodeId quotient_of_sum(const F32& f, NodeId h) {
  NodeId inverse = f.b.unary(ScalarOp::inverse, f.add(h, f.c(1.0f)));
  NodeId q = f.mul(h, inverse);
  NodeId residual = f.fma(f.b.unary(ScalarOp::neg, q), h, f.sub(h, q));
  return f.fma(residual, inverse, q);
}

// h / (1 + h) with h = (e^(2a) - 1) / 2, a = min(|x|, 9.1), which gives 1 from 9.02 on. With
// a = n ln(2) / 2 + v it is 2^n (v + v^2 q(v)) + (2^n - 1) / 2, |v| <= ln(2) / 4: where n = 0, v is
// exact. Relative error of the polynomial 2^-26.1.
NodeId tanh_f32(const F32& f, NodeId x) {
  NodeId a = f.at_most(f.abs(x), 9.1f);
  NodeId z = f.fma(a, f.c(2 * kLog2e), f.c(kShifter127));
  NodeId n = f.sub(z, f.c(kShifter127));
  NodeId v = f.fma(n, f.c(-kLn2 / 2), a);  // what kLn2 lacks is 2^-29, n at most 26
  NodeId q =
      f.horner(v, {0x1.6b9c7ap-5f, 0x1.12254cp-3f, 0x1.5556f2p-2f, 0x1.5554b4p-1f, 0x1.fffffep-1f});
  NodeId t = f.fma(f.mul(v, v), q, v);
  NodeId scale = f.value(f.shl(f.bits(z), 23));
  NodeId h = f.fma(scale, t, f.fma(scale, f.c(0.5f), f.c(-0.5f)));
  return f.copy_sign(quotient_of_sum(f, h), x);  // -0 keeps its sign
}

// q = e / (1 + e) with e = exp(-|x|); 1 - q where x is not negative.
NodeId sigmoid_f32(const F32& f, NodeId x) {
  NodeId e = exact_exp(f, f.b.unary(ScalarOp::neg, f.at_most(f.abs(x), 104.5f)));
  NodeId q = quotient_of_sum(f, e);
  return f.b.select(f.lt(x, f.c(0.0f)), q, f.sub(f.c(1.0f), q));
}

// |x| < 0.85: x + x p(x^2). Else 1 - 2^(a q(a)), a = |x|, which is 1 from 3.92 on.
NodeId erf_f32(const F32& f, NodeId x) {
  NodeId square = f.mul(x, x);
  NodeId p = f.horner(square, {-0x1.4cd85ep-11f, 0x1.4b763p-8f, -0x1.b735eap-6f, 0x1.ce256ap-4f,
                               -0x1.812726p-2f, 0x1.06eba8p-3f});
  NodeId near = f.fma(p, x, x);
  NodeId a = f.at_most(f.abs(x), 3.95f);
  NodeId q = f.horner(a, {0x1.45b96ep-12f, -0x1.3102bp-8f, 0x1.0ef21p-5f, -0x1.372cc8p-3f,
                          -0x1.d58c6p-1f, -0x1.a0cc7cp+0f});
  NodeId t = f.mul(q, a);
  NodeId z = f.add(t, f.c(kShifter127));
  NodeId r = f.sub(t, f.sub(z, f.c(kShifter127)));
  NodeId minus = f.b.unary(ScalarOp::neg, exp2_fraction(f, r));
  NodeId far = f.fma(minus, f.value(f.shl(f.bits(z), 23)), f.c(1.0f));
  return f.b.select(f.lt(f.abs(x), f.c(0.85f)), near, f.copy_sign(far, x));
}

// log2(a) in f64 for f32 a >= 0: e + f p(f), relative error 2^-33.2. Times an exponent it is at
// most 150, so that the power is right to 0.1 ULP before its own rounding.
NodeId log2_in_f64(const F32& f, NodeId a) {
  BodyBuilder& b = f.b;
  Split s = split_f32(f, a);
  NodeId r = b.cast(f.sub(s.mantissa, f.c(1.0f)), f64);
  NodeId p = ir::kNoNode;
  for (double k :
       {-0x1.61b1907eb5b13p-4, 0x1.3d275faacf91bp-3, -0x1.417f639174b25p-3, 0x1.45a23e447b4fap-3,
        -0x1.6eb034d9dd231p-3, 0x1.a615d25fe125fp-3, -0x1.ec8d738181a3dp-3, 0x1.277732af2c099p-2,
        -0x1.715435ec4aa23p-2, 0x1.ec709c0152bedp-2, -0x1.7154767bae3afp-1, 0x1.71547652ef886p+0}) {
    NodeId c = b.constant(f64, k);
    p = p == ir::kNoNode ? c : b.fma(p, r, c);
  }
  NodeId result = b.fma(p, r, b.cast(s.exponent, f64));
  result = b.select(f.lt(a, f.c(INFINITY)), result, b.cast(a, f64));  // infinity and NaN stay
  return b.select(f.eq(a, f.c(0.0f)), b.constant(f64, -INFINITY), result);
}

// 2^t for an f64 t, as f32.
NodeId exp2_to_f32(const F32& f, NodeId t) {
  BodyBuilder& b = f.b;
  NodeId low = b.constant(f64, -160), high = b.constant(f64, 130);
  t = b.select(b.binary(ScalarOp::lt, t, low), low, t);
  t = b.select(b.binary(ScalarOp::gt, t, high), high, t);
  NodeId shifter = b.constant(f64, 0x1.8p52);
  NodeId n = b.binary(ScalarOp::sub, b.binary(ScalarOp::add, t, shifter), shifter);
  NodeId r = b.cast(b.binary(ScalarOp::sub, t, n), f32);
  NodeId z = f.add(b.cast(n, f32), f.c(kShifter254));
  return scale_in_two(f, exp2_fraction(f, r), z);
}

NodeId power_f32(const F32& f, NodeId x, NodeId y) {
  BodyBuilder& b = f.b;
  NodeId a = f.abs(x), one = f.c(1.0f), zero = f.c(0.0f), infinity = f.c(INFINITY);
  NodeId t = b.binary(ScalarOp::mul, b.cast(y, f64), log2_in_f64(f, a));
  NodeId magnitude = exp2_to_f32(f, t);
  // Odd exponents keep the base's sign; a negative base has no power with a fraction.
  NodeId half = f.mul(y, f.c(0.5f));
  NodeId whole = f.eq(b.unary(ScalarOp::floor, y), y);
  NodeId half_whole = f.eq(b.unary(ScalarOp::floor, half), half);
  NodeId odd = f.both(whole, b.unary(ScalarOp::logical_not, half_whole));
  NodeId result = b.select(odd, f.copy_sign(magnitude, x), magnitude);
  NodeId negative = f.both(f.lt(x, zero), f.lt(a, infinity));
  result = b.select(f.both(negative, b.unary(ScalarOp::logical_not, whole)), f.c(NAN), result);
  // x^0 = 1^y = 1 and (-1)^inf = 1, NaN or not.
  NodeId unit = f.both(f.eq(a, one), f.either(f.eq(x, one), f.eq(f.abs(y), infinity)));
  return b.select(f.either(f.eq(y, zero), unit), one, result);
}

// The value of a constant node of f32 or f64.
std::optional<double> constant_of(const BodyBuilder& b, NodeId n) {
  const ir::Node& node = b.body().nodes[n];
  if (node.op != ScalarOp::constant) return std::nullopt;
  if (node.type == f64) return std::bit_cast<double>(node.bits);
  return std::bit_cast<float>(static_cast<uint32_t>(node.bits));
}

// x^(3/4) as sqrt(x sqrt(x)), within 1.2 ULP: far from 1 scaled by powers of two, so that nothing
// leaves the normal range on the way.
NodeId three_quarter_power(BodyBuilder& b, NodeId x) {
  auto c = [&](double v) { return b.constant(f32, v); };
  auto mul = [&](NodeId p, NodeId q) { return b.binary(ScalarOp::mul, p, q); };
  NodeId small = b.binary(ScalarOp::lt, x, c(0x1p-64)),
         large = b.binary(ScalarOp::gt, x, c(0x1p64));
  NodeId up = b.select(small, c(0x1p96), b.select(large, c(0x1p-96), c(1)));
  NodeId back = b.select(small, c(0x1p-72), b.select(large, c(0x1p72), c(1)));
  NodeId near = mul(x, up);
  NodeId root = b.unary(ScalarOp::sqrt, mul(near, b.unary(ScalarOp::sqrt, near)));
  NodeId least = b.binary(ScalarOp::eq, x, c(-INFINITY));
  return b.select(least, c(INFINITY), mul(root, back));
}

// Frequent exponents that are constants of the kernel, where a few nodes are at least as exact;
// else kNoNode.
NodeId plain_power(BodyBuilder& b, NodeId x, double exponent) {
  DType t = b.type(x);
  NodeId one = b.constant(t, 1), infinity = b.constant(t, INFINITY);
  if (exponent == 1) return x;
  if (exponent == -1) return b.binary(ScalarOp::div, one, x);
  if (exponent == 2) return b.binary(ScalarOp::mul, x, x);
  if (exponent == 3) return b.binary(ScalarOp::mul, b.binary(ScalarOp::mul, x, x), x);
  if (exponent == 0.75 && t == f32) return three_quarter_power(b, x);
  if (std::fabs(exponent) != 0.5) return ir::kNoNode;
  // pow(-0, 1/2) is +0, pow(-inf, 1/2) is +inf.
  NodeId positive = b.binary(ScalarOp::add, x, b.constant(t, 0));
  NodeId least = b.binary(ScalarOp::eq, x, b.constant(t, -INFINITY));
  NodeId root = b.select(least, infinity, b.unary(ScalarOp::sqrt, positive));
  return exponent > 0 ? root : b.binary(ScalarOp::div, one, root);
}

NodeId sigmoid_f64(BodyBuilder& b, NodeId x) {
  NodeId one = b.constant(f64, 1);
  NodeId e = b.call(LibraryFunction::exp, b.unary(ScalarOp::neg, b.unary(ScalarOp::abs, x)));
  NodeId top = b.select(b.binary(ScalarOp::lt, x, b.constant(f64, 0)), e, one);
  return b.binary(ScalarOp::div, top, b.binary(ScalarOp::add, e, one));
}

bool is_f32(const BodyBuilder& b, NodeId x) {
  HD_CHECK(b.type(x) == f32 || b.type(x) == f64, "elementary functions are of f32 and f64");
  return b.type(x) == f32;
}

}  // namespace

NodeId exp_node(BodyBuilder& b, NodeId x) {
  return is_f32(b, x) ? exp_f32(F32(b), x) : b.call(LibraryFunction::exp, x);
}
NodeId log_node(BodyBuilder& b, NodeId x) {
  return is_f32(b, x) ? log_f32(F32(b), x) : b.call(LibraryFunction::log, x);
}
NodeId tanh_node(BodyBuilder& b, NodeId x) {
  return is_f32(b, x) ? tanh_f32(F32(b), x) : b.call(LibraryFunction::tanh, x);
}
NodeId sigmoid_node(BodyBuilder& b, NodeId x) {
  return is_f32(b, x) ? sigmoid_f32(F32(b), x) : sigmoid_f64(b, x);
}
NodeId erf_node(BodyBuilder& b, NodeId x) {
  return is_f32(b, x) ? erf_f32(F32(b), x) : b.call(LibraryFunction::erf, x);
}
NodeId power_node(BodyBuilder& b, NodeId x, NodeId y) {
  if (std::optional<double> exponent = constant_of(b, y)) {
    NodeId plain = plain_power(b, x, *exponent);
    if (plain != ir::kNoNode) return plain;
  }
  return is_f32(b, x) ? power_f32(F32(b), x, y) : b.call(LibraryFunction::pow, x, y);
}

// Square and multiply over the bits of the exponent.
NodeId integer_power_node(BodyBuilder& b, NodeId x, NodeId y) {
  DType t = b.type(x);
  NodeId zero = b.constant_int(t, 0), one = b.constant_int(t, 1);
  int exponent_bits = bit_width(t) - (is_signed_integer(t) ? 1 : 0);
  NodeId result = one, square = x;
  for (int k = 0; k < exponent_bits; ++k) {
    NodeId bit = b.binary(ScalarOp::bit_and, y, b.constant_bits(t, uint64_t{1} << k));
    NodeId factor = b.select(b.binary(ScalarOp::ne, bit, zero), square, one);
    result = b.binary(ScalarOp::mul, result, factor);
    if (k + 1 < exponent_bits) square = b.binary(ScalarOp::mul, square, square);
  }
  if (is_unsigned_integer(t)) return result;
  // Negative exponents: 1 / x^-y truncated.
  NodeId minus_one = b.constant_int(t, -1);
  NodeId odd = b.binary(ScalarOp::ne, b.binary(ScalarOp::bit_and, y, one), zero);
  NodeId of_minus_one = b.select(odd, minus_one, one);
  NodeId inverse = b.select(b.binary(ScalarOp::eq, x, minus_one), of_minus_one, zero);
  inverse = b.select(b.binary(ScalarOp::eq, x, one), one, inverse);
  return b.select(b.binary(ScalarOp::lt, y, zero), inverse, result);
}

}  // namespace heddle::ops
