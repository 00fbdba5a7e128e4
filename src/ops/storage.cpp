#include "ops/storage.h"

#include "base/check.h"

#include <cmath>

namespace heddle::ops {

using ir::BodyBuilder;
using ir::NodeId;
using ir::ScalarOp;

namespace {

// How a small float uses its bits, beside the sign.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  float largest;           // finite
  bool infinity;           // e5m2: the top exponent is IEEE's
  bool negative_zero_nan;  // fnuz: 0x80 is the only NaN, there is no -0
  bool saturates;          // e2m1: neither NaN nor infinity
};

Format format_of(DType d) {
  switch (d) {
    case DType::f8e4m3fn:
      return {4, 3, 7, 448, false, false, false};
    case DType::f8e5m2:
      return {5, 2, 15, 57344, true, false, false};
    case DType::f8e4m3fnuz:
      return {4, 3, 8, 240, false, true, false};
    case DType::f8e5m2fnuz:
      return {5, 2, 16, 57344, false, true, false};
    case DType::f4e2m1:
      return {2, 1, 1, 6, false, false, true};
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "small float", std::string(name(d)));
}

float power_of_two(int e) { return std::ldexp(1.0f, e); }
bool is_small_integer(DType d) { return d >= DType::i2; }

// Nodes of u32 arithmetic, as the codes are taken apart in it.
struct Bits {
  BodyBuilder& b;
  NodeId u(uint32_t v) const { return b.constant_bits(u32, v); }
  NodeId f(float v) const { return b.constant(f32, v); }
  NodeId both(NodeId x, uint32_t mask) const { return b.binary(ScalarOp::bit_and, x, u(mask)); }
  NodeId either(NodeId x, NodeId y) const { return b.binary(ScalarOp::bit_or, x, y); }
  NodeId left(NodeId x, uint32_t n) const { return b.binary(ScalarOp::shl, x, u(n)); }
  NodeId right(NodeId x, uint32_t n) const { return b.binary(ScalarOp::shr, x, u(n)); }
  NodeId add(NodeId x, NodeId y) const { return b.binary(ScalarOp::add, x, y); }
  NodeId sub(NodeId x, NodeId y) const { return b.binary(ScalarOp::sub, x, y); }
  NodeId mul(NodeId x, NodeId y) const { return b.binary(ScalarOp::mul, x, y); }
  NodeId is(ScalarOp comparison, NodeId x, NodeId y) const { return b.binary(comparison, x, y); }
  NodeId as_float(NodeId x) const { return b.bitcast(x, f32); }
  NodeId as_bits(NodeId x) const { return b.bitcast(x, u32); }
};

// The exponent and mantissa bits are moved to where f32 has them and the bias is corrected by a
// multiplication, which is exact, subnormals included.
NodeId decode_float(BodyBuilder& b, DType dtype, NodeId code) {
  Bits o{b};
  Format f = format_of(dtype);
  int width = f.exponent_bits + f.mantissa_bits;
  uint32_t sign_bit = 1u << width, all = sign_bit - 1;
  NodeId bits = b.cast(code, u32);
  NodeId magnitude = o.both(bits, all);
  NodeId value =
      o.mul(o.as_float(o.left(magnitude, 23 - f.mantissa_bits)), o.f(power_of_two(127 - f.bias)));
  NodeId sign = o.left(o.both(bits, sign_bit), 31 - width);
  NodeId nan = o.f(NAN);
  if (f.infinity) {
    uint32_t top = all & ~((1u << f.mantissa_bits) - 1);
    NodeId special = o.as_float(o.either(o.left(magnitude, 23 - f.mantissa_bits), o.u(0x7f800000)));
    value = b.select(o.is(ScalarOp::ge, magnitude, o.u(top)), special, value);
  } else if (!f.negative_zero_nan && !f.saturates) {
    value = b.select(o.is(ScalarOp::eq, magnitude, o.u(all)), nan, value);
  }
  NodeId with_sign = o.as_float(o.either(o.as_bits(value), sign));
  if (!f.negative_zero_nan) return with_sign;
  return b.select(o.is(ScalarOp::eq, o.both(bits, 2 * sign_bit - 1), o.u(sign_bit)), nan,
                  with_sign);
}

NodeId decode_exponent(BodyBuilder& b, NodeId code) {
  Bits o{b};
  NodeId bits = b.cast(code, u32);
  NodeId value = o.as_float(o.left(bits, 23));
  value = b.select(o.is(ScalarOp::eq, bits, o.u(0)), o.as_float(o.u(0x00400000)), value);  // 2^-127
  return b.select(o.is(ScalarOp::eq, bits, o.u(0xff)), o.f(NAN), value);
}

NodeId sign_extend(BodyBuilder& b, NodeId code, int width) {
  NodeId up = b.constant_int(i8, 8 - width);
  return b.binary(ScalarOp::shr, b.binary(ScalarOp::shl, b.bitcast(code, i8), up), up);
}

// |value| rounded to the format's grid: adding 2^23 quanta makes the f32 addition round at the
// quantum's place.
NodeId round_to_grid(BodyBuilder& b, const Format& f, NodeId magnitude) {
  Bits o{b};
  NodeId exponent = o.right(o.as_bits(magnitude), 23);  // biased by 127
  NodeId least = o.u(static_cast<uint32_t>(127 + 1 - f.bias));
  exponent = b.select(o.is(ScalarOp::lt, exponent, least), least, exponent);
  NodeId shifter =
      o.as_float(o.left(o.add(exponent, o.u(static_cast<uint32_t>(23 - f.mantissa_bits))), 23));
  return o.sub(o.add(magnitude, shifter), shifter);
}

NodeId encode_float(BodyBuilder& b, DType dtype, NodeId value) {
  Bits o{b};
  Format f = format_of(dtype);
  int width = f.exponent_bits + f.mantissa_bits;
  uint32_t sign_bit = 1u << width, all = sign_bit - 1;
  NodeId bits = o.as_bits(value);
  NodeId sign = o.both(o.right(bits, 31 - width), sign_bit);
  NodeId magnitude = o.as_float(o.both(bits, 0x7fffffff));
  NodeId beyond = o.f(
      2 *
      f.largest);  // what is larger overflows all the same; keeps the exponent arithmetic in range
  NodeId bounded = b.select(o.is(ScalarOp::lt, magnitude, beyond), magnitude, beyond);
  NodeId rounded = round_to_grid(b, f, bounded);
  NodeId code =
      o.right(o.as_bits(o.mul(rounded, o.f(power_of_two(f.bias - 127)))), 23 - f.mantissa_bits);
  NodeId overflows = o.is(ScalarOp::gt, rounded, o.f(f.largest));
  NodeId is_nan = b.unary(ScalarOp::is_nan, value);
  NodeId result;
  if (f.negative_zero_nan) {
    NodeId is_zero = o.is(ScalarOp::eq, code, o.u(0));
    result = b.select(is_zero, o.u(0), o.either(code, sign));
    result = b.select(b.binary(ScalarOp::bit_or, overflows, is_nan), o.u(sign_bit), result);
  } else {
    uint32_t top = f.infinity ? all & ~((1u << f.mantissa_bits) - 1) : all;
    result = o.either(b.select(overflows, o.u(top), code), sign);
    uint32_t nan = f.infinity ? top | 1u << (f.mantissa_bits - 1) : all;
    result = b.select(is_nan, o.u(nan), result);
  }
  return b.cast(result, u8);
}

// The nearest power of two, ties upwards: half a binade is added to the bits. Negative numbers and
// NaN give 0xff.
NodeId encode_exponent(BodyBuilder& b, NodeId value) {
  Bits o{b};
  NodeId bits = o.as_bits(value);
  NodeId code = o.right(o.add(bits, o.u(0x00400000)), 23);
  // Subnormals: 2^-126 from 1.5 * 2^-127 = bits 0x00600000 on, else 2^-127.
  NodeId low = b.select(o.is(ScalarOp::lt, bits, o.u(0x00600000)), o.u(0), code);
  NodeId top = o.u(254);
  NodeId capped = b.select(o.is(ScalarOp::gt, low, top), top, low);
  NodeId nothing = o.is(ScalarOp::eq, value, o.f(0));
  NodeId positive = o.is(ScalarOp::gt, value, o.f(0));
  NodeId result = b.select(positive, capped, b.select(nothing, o.u(0), o.u(0xff)));
  return b.cast(result, u8);
}

}  // namespace

DType decoded_type(DType dtype) {
  if (!is_small_integer(dtype)) return f32;
  return dtype == DType::i2 || dtype == DType::i4 ? i8 : u8;
}

NodeId decode_storage(BodyBuilder& b, DType dtype, NodeId code) {
  if (dtype == DType::f8e8m0) return decode_exponent(b, code);
  if (!is_small_integer(dtype)) return decode_float(b, dtype, code);
  int width = bit_width(dtype);
  if (decoded_type(dtype) == i8) return sign_extend(b, code, width);
  return b.binary(ScalarOp::bit_and, code, b.constant_int(u8, (1 << width) - 1));
}

NodeId encode_storage(BodyBuilder& b, DType dtype, NodeId value) {
  if (is_small_integer(dtype)) {
    return b.binary(ScalarOp::bit_and, b.cast(value, u8),
                    b.constant_int(u8, (1 << bit_width(dtype)) - 1));
  }
  if (b.type(value) == f64) value = round_to_odd(b, value);
  HD_CHECK(b.type(value) == f32, "small floats are encoded from f32 or f64");
  return dtype == DType::f8e8m0 ? encode_exponent(b, value) : encode_float(b, dtype, value);
}

NodeId round_to_odd(BodyBuilder& b, NodeId value) {
  Bits o{b};
  NodeId nearest = b.cast(value, f32), back = b.cast(nearest, f64);
  NodeId inexact = b.binary(ScalarOp::ne, back, value);
  NodeId away = b.binary(ScalarOp::gt, b.unary(ScalarOp::abs, back), b.unary(ScalarOp::abs, value));
  NodeId bits = o.as_bits(nearest);
  NodeId truncated = b.select(away, o.sub(bits, o.u(1)), bits);
  return o.as_float(b.select(inexact, o.either(truncated, o.u(1)), bits));
}

}  // namespace heddle::ops
