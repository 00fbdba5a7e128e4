#include "ir/scalar_eval.h"

#include "base/check.h"
#include "base/small_float.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace heddle::ir {

namespace {

template <class T>
using Bits =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
template <class T>
T from_bits(uint64_t bits) {
  return std::bit_cast<T>(static_cast<Bits<T>>(bits));
}
template <class T>
uint64_t to_bits(T v) {
  return std::bit_cast<Bits<T>>(v);
}

template <class F>
uint64_t dispatch(DType type, F f) {
  switch (type) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::i8:
      return f(int8_t{});
    case DType::i16:
      return f(int16_t{});
    case DType::i32:
      return f(int32_t{});
    case DType::i64:
      return f(int64_t{});
    case DType::u8:
    case DType::boolean:
      return f(uint8_t{});
    case DType::u16:
      return f(uint16_t{});
    case DType::u32:
      return f(uint32_t{});
    case DType::u64:
      return f(uint64_t{});
    default:
      break;
  }
  HD_CHECK(false, "no scalar arithmetic on ", name(type));
  return 0;
}

template <class T>
T minimum(T a, T b, bool propagate) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return propagate ? a : b;
    if (std::isnan(b)) return propagate ? b : a;
    if (a == b) return std::signbit(a) ? a : b;  // -0 < +0
  }
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b, bool propagate) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return propagate ? a : b;
    if (std::isnan(b)) return propagate ? b : a;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <class T>
uint64_t integer_binary(ScalarOp op, T a, T b) {
  using U = std::make_unsigned_t<T>;
  auto wide = [](T v) { return static_cast<uint64_t>(static_cast<U>(v)); };
  unsigned shift = static_cast<unsigned>(wide(b)) & (sizeof(T) * 8 - 1);
  switch (op) {
    case ScalarOp::add:
      return to_bits(static_cast<T>(wide(a) + wide(b)));
    case ScalarOp::sub:
      return to_bits(static_cast<T>(wide(a) - wide(b)));
    case ScalarOp::mul:
      return to_bits(static_cast<T>(wide(a) * wide(b)));
    case ScalarOp::div:
      if (b == 0) return 0;
      if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return to_bits(static_cast<T>(0 - wide(a)));
      return to_bits(static_cast<T>(a / b));
    case ScalarOp::rem:
      if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
      return to_bits(static_cast<T>(a % b));
    case ScalarOp::bit_and:
      return to_bits(static_cast<T>(a & b));
    case ScalarOp::bit_or:
      return to_bits(static_cast<T>(a | b));
    case ScalarOp::bit_xor:
      return to_bits(static_cast<T>(a ^ b));
    case ScalarOp::shl:
      return to_bits(static_cast<T>(wide(a) << shift));
    case ScalarOp::shr:
      return to_bits(static_cast<T>(a >> shift));
    default:
      break;
  }
  HD_CHECK(false, "integer ", name(op));
  return 0;
}

template <class T>
uint64_t float_binary(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::add:
      return to_bits(a + b);
    case ScalarOp::sub:
      return to_bits(a - b);
    case ScalarOp::mul:
      return to_bits(a * b);
    case ScalarOp::div:
      return to_bits(a / b);
    case ScalarOp::rem:
      return to_bits(std::fmod(a, b));
    default:
      break;
  }
  HD_CHECK(false, "float ", name(op));
  return 0;
}

template <class T>
uint64_t binary(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::min:
      return to_bits(minimum(a, b, true));
    case ScalarOp::max:
      return to_bits(maximum(a, b, true));
    case ScalarOp::min_num:
      return to_bits(minimum(a, b, false));
    case ScalarOp::max_num:
      return to_bits(maximum(a, b, false));
    case ScalarOp::eq:
      return a == b;
    case ScalarOp::ne:
      return a != b;
    case ScalarOp::lt:
      return a < b;
    case ScalarOp::le:
      return a <= b;
    case ScalarOp::gt:
      return a > b;
    case ScalarOp::ge:
      return a >= b;
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    return float_binary(op, a, b);
  } else {
    return integer_binary(op, a, b);
  }
}

template <class T>
uint64_t unary(ScalarOp op, T a) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ScalarOp::neg:
        return to_bits(-a);
      case ScalarOp::abs:
        return to_bits(std::fabs(a));
      case ScalarOp::sqrt:
        return to_bits(std::sqrt(a));
      case ScalarOp::floor:
        return to_bits(std::floor(a));
      case ScalarOp::ceil:
        return to_bits(std::ceil(a));
      case ScalarOp::trunc:
        return to_bits(std::trunc(a));
      case ScalarOp::rint:
        return to_bits(std::nearbyint(a));
      case ScalarOp::is_nan:
        return std::isnan(a);
      default:
        break;
    }
  } else {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case ScalarOp::neg:
        return to_bits(static_cast<T>(0 - static_cast<uint64_t>(static_cast<U>(a))));
      case ScalarOp::abs:
        return a < 0 ? to_bits(static_cast<T>(0 - static_cast<uint64_t>(static_cast<U>(a))))
                     : to_bits(a);
      case ScalarOp::bit_not:
        return to_bits(static_cast<T>(~a));
      case ScalarOp::is_nan:
        return 0;
      case ScalarOp::floor:
      case ScalarOp::ceil:
      case ScalarOp::trunc:
      case ScalarOp::rint:
        return to_bits(a);
      default:
        break;
    }
  }
  HD_CHECK(false, "unary ", name(op));
  return 0;
}

template <class T>
T saturate(double v) {  // T: 32 or 64 bits; the bounds are exact in double, or one above
  if (std::isnan(v)) return 0;
  constexpr T low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  if (v <= static_cast<double>(low)) return low;
  if (v >= static_cast<double>(high)) return high;
  return static_cast<T>(v);
}

uint64_t cast_from_double(DType to, double v) {
  switch (to) {
    case DType::f64:
      return to_bits(v);
    case DType::f32:
      return to_bits(static_cast<float>(v));
    case DType::f16:
    case DType::bf16:
      return base::encode_small_float(to, v);
    case DType::boolean:
      return v != 0 ? 1 : 0;  // NaN is true
    case DType::i64:
      return to_bits(saturate<int64_t>(v));
    case DType::u64:
      return to_bits(saturate<uint64_t>(v));
    case DType::u32:
      return to_bits(saturate<uint32_t>(v));
    default:
      return narrow_bits(to, static_cast<uint64_t>(saturate<int32_t>(v)));
  }
}

template <class T>
uint64_t cast_from(DType to, T v) {
  if constexpr (std::is_floating_point_v<T>) {
    return cast_from_double(to, static_cast<double>(v));
  } else {
    if (to == f64) return to_bits(static_cast<double>(v));
    if (to == f32) return to_bits(static_cast<float>(v));  // one rounding from 64 bits
    if (to == f16 || to == bf16)
      return base::encode_small_float(to, static_cast<double>(static_cast<float>(v)));
    if (to == bool_) return v != 0 ? 1 : 0;
    return narrow_bits(to, static_cast<uint64_t>(v));  // sign extends, then drops high bits
  }
}

}  // namespace

uint64_t narrow_bits(DType type, uint64_t bits) {
  if (type == bool_) return bits != 0 ? 1 : 0;
  int width = bit_width(type);
  return width >= 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

double bits_to_double(DType type, uint64_t bits) {
  if (type == f16 || type == bf16)
    return base::decode_small_float(type, static_cast<uint32_t>(bits));
  uint64_t r = dispatch(
      type, [&](auto t) { return to_bits(static_cast<double>(from_bits<decltype(t)>(bits))); });
  return std::bit_cast<double>(r);
}

uint64_t eval_scalar(ScalarOp op, DType type, DType operand, uint64_t a, uint64_t b, uint64_t c) {
  switch (op) {
    case ScalarOp::select:
      return a != 0 ? b : c;
    case ScalarOp::bitcast:
      return a;
    case ScalarOp::logical_not:
      return a == 0;
    case ScalarOp::cast:
      if (operand == f16 || operand == bf16)
        return cast_from_double(type, bits_to_double(operand, a));
      return dispatch(operand, [&](auto t) { return cast_from(type, from_bits<decltype(t)>(a)); });
    case ScalarOp::fma:
      if (type == f32)
        return to_bits(std::fma(from_bits<float>(a), from_bits<float>(b), from_bits<float>(c)));
      if (type == f64)
        return to_bits(std::fma(from_bits<double>(a), from_bits<double>(b), from_bits<double>(c)));
      return eval_scalar(ScalarOp::add, type, type, eval_scalar(ScalarOp::mul, type, type, a, b, 0),
                         c, 0);
    default:
      break;
  }
  uint64_t r = dispatch(operand, [&](auto t) {
    using T = decltype(t);
    return op < ScalarOp::add ? unary(op, from_bits<T>(a))
                              : binary(op, from_bits<T>(a), from_bits<T>(b));
  });
  return type == bool_ ? (r & 1) : r;
}

uint64_t eval_call(LibraryFunction f, uint64_t a, uint64_t b) {
  double x = std::bit_cast<double>(a), y = std::bit_cast<double>(b);
  switch (f) {
    case LibraryFunction::exp:
      return to_bits(std::exp(x));
    case LibraryFunction::log:
      return to_bits(std::log(x));
    case LibraryFunction::tanh:
      return to_bits(std::tanh(x));
    case LibraryFunction::erf:
      return to_bits(std::erf(x));
    case LibraryFunction::pow:
      return to_bits(std::pow(x, y));
    case LibraryFunction::sin:
      return to_bits(std::sin(x));
    case LibraryFunction::cos:
      return to_bits(std::cos(x));
  }
  return 0;
}

uint64_t reduce_identity(ReduceOp op, DType type) {
  auto limit = [&](bool low) {
    return dispatch(type, [&](auto t) {
      using T = decltype(t);
      using L = std::numeric_limits<T>;
      if constexpr (std::is_floating_point_v<T>)
        return to_bits(low ? -L::infinity() : L::infinity());
      return to_bits(low ? L::min() : L::max());
    });
  };
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::any:
    case ReduceOp::value:
      return 0;
    case ReduceOp::all:
      return 1;
    case ReduceOp::product:
      return dispatch(type, [](auto t) { return to_bits(static_cast<decltype(t)>(1)); });
    case ReduceOp::max:
    case ReduceOp::argmax:
      return type == bool_ ? 0 : limit(true);
    case ReduceOp::min:
    case ReduceOp::argmin:
      return type == bool_ ? 1 : limit(false);
    case ReduceOp::max_num:
    case ReduceOp::min_num: {
      if (type == f32) return to_bits(std::numeric_limits<float>::quiet_NaN());
      if (type == f64) return to_bits(std::numeric_limits<double>::quiet_NaN());
      return reduce_identity(op == ReduceOp::max_num ? ReduceOp::max : ReduceOp::min, type);
    }
  }
  return 0;
}

uint64_t reduce_step(ReduceOp op, DType type, uint64_t accumulator, uint64_t value) {
  auto apply = [&](ScalarOp s) { return eval_scalar(s, type, type, accumulator, value, 0); };
  switch (op) {
    case ReduceOp::sum:
      return type == bool_ ? (accumulator | value) : apply(ScalarOp::add);
    case ReduceOp::product:
      return apply(ScalarOp::mul);
    case ReduceOp::max:
      return apply(ScalarOp::max);
    case ReduceOp::min:
      return apply(ScalarOp::min);
    case ReduceOp::max_num:
      return apply(ScalarOp::max_num);
    case ReduceOp::min_num:
      return apply(ScalarOp::min_num);
    case ReduceOp::any:
      return accumulator | value;
    case ReduceOp::all:
      return accumulator & value;
    default:
      return value;
  }
}

bool arg_replaces(ReduceOp op, DType type, uint64_t best, uint64_t value) {
  if (eval_scalar(ScalarOp::is_nan, bool_, type, best, 0, 0) != 0) return false;
  if (eval_scalar(ScalarOp::is_nan, bool_, type, value, 0, 0) != 0) return true;
  return eval_scalar(op == ReduceOp::argmax ? ScalarOp::gt : ScalarOp::lt, bool_, type, value, best,
                     0) != 0;
}

}  // namespace heddle::ir
