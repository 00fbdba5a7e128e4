#include "base/small_float.h"

#include <bit>
#include <cmath>
#include <limits>

namespace heddle::base {

namespace {

// How the top exponent is used.
enum class Specials : uint8_t { ieee, finite_nan, fnuz, saturate };
struct Format {
  int exponent_bits, mantissa_bits, bias;
  Specials specials;
};

Format format_of(DType d) {
  switch (d) {
    case DType::f16:
      return {5, 10, 15, Specials::ieee};
    case DType::bf16:
      return {8, 7, 127, Specials::ieee};
    case DType::f8e5m2:
      return {5, 2, 15, Specials::ieee};
    case DType::f8e4m3fn:
      return {4, 3, 7, Specials::finite_nan};
    case DType::f8e4m3fnuz:
      return {4, 3, 8, Specials::fnuz};
    case DType::f8e5m2fnuz:
      return {5, 2, 16, Specials::fnuz};
    default:
      return {2, 1, 1, Specials::saturate};  // f4e2m1
  }
}

double decode_format(const Format& f, uint32_t bits) {
  uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits);
  bool negative = (bits & sign_bit) != 0;
  uint32_t magnitude = bits & (sign_bit - 1);
  int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  int mantissa = static_cast<int>(magnitude & ((1u << f.mantissa_bits) - 1));
  int top = (1 << f.exponent_bits) - 1;
  double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.specials == Specials::fnuz && negative && magnitude == 0) return nan;
  if (f.specials == Specials::finite_nan && magnitude == sign_bit - 1) return nan;
  if (f.specials == Specials::ieee && exponent == top) {
    if (mantissa != 0) return nan;
    double inf = std::numeric_limits<double>::infinity();
    return negative ? -inf : inf;
  }
  double v = exponent == 0 ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                           : std::ldexp(mantissa + (1 << f.mantissa_bits),
                                        exponent - f.bias - f.mantissa_bits);
  return negative ? -v : v;
}

// Largest finite magnitude as bits without the sign.
uint32_t largest(const Format& f) {
  uint32_t all = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
  if (f.specials == Specials::ieee) return all - (1u << f.mantissa_bits);
  if (f.specials == Specials::finite_nan) return all - 1;
  return all;
}

uint32_t encode_format(const Format& f, double value) {
  uint32_t sign_bit = 1u << (f.exponent_bits + f.mantissa_bits);
  uint32_t nan_bits = f.specials == Specials::fnuz ? sign_bit : sign_bit - 1;
  if (f.specials == Specials::ieee)
    nan_bits = (sign_bit - 1) & ~((1u << (f.mantissa_bits - 1)) - 1);
  if (std::isnan(value)) return f.specials == Specials::saturate ? largest(f) : nan_bits;
  bool negative = std::signbit(value);
  double a = std::fabs(value);
  uint32_t magnitude = 0;
  if (std::isinf(a)) {
    magnitude = largest(f) + 1;
  } else if (a != 0) {
    int e = std::max(std::ilogb(a), 1 - f.bias);  // exponent of the result's binade
    double scaled = std::ldexp(
        a, f.mantissa_bits - e);  // exact; integer part is the mantissa with its hidden bit
    double rounded = std::nearbyint(scaled);  // ties to even in the default rounding mode
    // Adding the exponent field to the rounded mantissa carries into the next binade by itself.
    double field = rounded + std::ldexp(static_cast<double>(e + f.bias - 1), f.mantissa_bits);
    magnitude = field > largest(f) ? largest(f) + 1 : static_cast<uint32_t>(field);
  }
  if (magnitude > largest(f)) {
    if (f.specials == Specials::saturate) {
      magnitude = largest(f);
    } else if (f.specials != Specials::ieee) {
      return f.specials == Specials::finite_nan && negative ? nan_bits | sign_bit : nan_bits;
    }
  }
  if (magnitude == 0 && f.specials == Specials::fnuz) return 0;  // no negative zero
  return magnitude | (negative ? sign_bit : 0);
}

double decode_e8m0(uint32_t bits) {
  if (bits == 0xff) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, static_cast<int>(bits) - 127);
}

// Nearest power of two by value, ties up; zero gives 2^-127, negative values NaN.
uint32_t encode_e8m0(double value) {
  if (std::isnan(value)) return 0xff;
  if (!(value > 0)) return value < 0 ? 0xff : 0;
  if (std::isinf(value)) return 254;
  int e = std::ilogb(value);
  if (value >= std::ldexp(1.5, e)) ++e;
  int field = e + 127;
  return field < 0 ? 0 : (field > 254 ? 254 : static_cast<uint32_t>(field));
}

}  // namespace

double decode_small_float(DType dtype, uint32_t bits) {
  if (dtype == DType::f8e8m0) return decode_e8m0(bits & 0xff);
  return decode_format(format_of(dtype), bits);
}

uint32_t encode_small_float(DType dtype, double value) {
  if (dtype == DType::f8e8m0) return encode_e8m0(value);
  return encode_format(format_of(dtype), value);
}

uint16_t f32_to_f16(float value) {
  return static_cast<uint16_t>(encode_small_float(DType::f16, value));
}
float f16_to_f32(uint16_t bits) { return static_cast<float>(decode_small_float(DType::f16, bits)); }

uint16_t f32_to_bf16(float value) {
  uint32_t b = std::bit_cast<uint32_t>(value);
  if ((b & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(0x7fc0);
  b += 0x7fff + ((b >> 16) & 1);
  return static_cast<uint16_t>(b >> 16);
}
float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace heddle::base
