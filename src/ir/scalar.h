// The meaning of one scalar operation of a body: plain C++ only, no vector code, so that it stays a
// readable definition of what the emitters must do. The interpreter and constant folding run it.
#pragma once

#include "base/check.h"
#include "base/small_float.h"
#include "ir/body.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace heddle::ir {

// A scalar in canonical form: floats by their bits in the low bytes, signed integers sign extended,
// unsigned ones zero extended, booleans 0 or 1, f16 and bf16 as their 16 bits.
struct Scalar {
  uint64_t bits = 0;
};

template <class T>
T get(Scalar s) {
  if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(s.bits);
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<uint32_t>(s.bits));
  } else {
    return static_cast<T>(s.bits);
  }
}
template <class T>
Scalar put(T v) {
  if constexpr (std::is_same_v<T, double>) {
    return {std::bit_cast<uint64_t>(v)};
  } else if constexpr (std::is_same_v<T, float>) {
    return {std::bit_cast<uint32_t>(v)};
  } else if constexpr (std::is_signed_v<T>) {
    return {static_cast<uint64_t>(static_cast<int64_t>(v))};
  } else {
    return {static_cast<uint64_t>(v)};
  }
}

// Calls f with a value of the C++ type that holds `d` (bool for booleans).
template <class F>
auto with_type(DType d, F f) {
  switch (d) {
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
      return f(uint8_t{});
    case DType::u16:
      return f(uint16_t{});
    case DType::u32:
      return f(uint32_t{});
    case DType::u64:
      return f(uint64_t{});
    case DType::boolean:
      return f(bool{});
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "scalar type", "no arithmetic on " + std::string(name(d)));
}

inline Scalar canonical(DType d, uint64_t bits) {
  if (d == DType::f16 || d == DType::bf16) return {bits & 0xffff};
  return with_type(d, [&](auto zero) { return put(get<decltype(zero)>({bits})); });
}

// NaN propagates (or, with `number`, loses); -0 < +0.
template <class T>
T pick(T a, T b, bool larger, bool number) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return number ? b : a;
    if (std::isnan(b)) return number ? a : b;
    if (a == b) return (std::signbit(a) == larger) ? b : a;
  }
  return ((a < b) == larger) ? b : a;
}

template <class T>
T wrap_shift(ScalarOp op, T a, T b) {
  constexpr unsigned kWidth = sizeof(T) * 8;
  using U = std::make_unsigned_t<T>;
  unsigned count = static_cast<unsigned>(static_cast<U>(b)) % kWidth;
  if (op == ScalarOp::shl)
    return static_cast<T>(static_cast<U>(static_cast<uint64_t>(static_cast<U>(a)) << count));
  return static_cast<T>(a >> count);  // arithmetic for signed types
}

template <class T>
T integer_binary(ScalarOp op, T a, T b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case ScalarOp::add:
      return static_cast<T>(ua + ub);
    case ScalarOp::sub:
      return static_cast<T>(ua - ub);
    case ScalarOp::mul:
      return static_cast<T>(ua * ub);
    case ScalarOp::div:
      if (b == T{0}) return T{0};
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(uint64_t{0} - ua);
      return static_cast<T>(a / b);
    case ScalarOp::rem:
      if (b == T{0} || (std::is_signed_v<T> && b == static_cast<T>(-1))) return T{0};
      return static_cast<T>(a % b);
    case ScalarOp::bit_and:
      return static_cast<T>(ua & ub);
    case ScalarOp::bit_or:
      return static_cast<T>(ua | ub);
    case ScalarOp::bit_xor:
      return static_cast<T>(ua ^ ub);
    case ScalarOp::shl:
    case ScalarOp::shr:
      if constexpr (!std::is_same_v<T, bool>) return wrap_shift(op, a, b);
      break;
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "integer operation", "");
}
template <class T>
T float_binary(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::div:
      return a / b;
    case ScalarOp::rem:
      return std::fmod(a, b);
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "floating operation", "");
}

// `type` is that of the operands.
inline Scalar eval_binary(ScalarOp op, DType type, Scalar x, Scalar y) {
  return with_type(type, [&](auto zero) -> Scalar {
    using T = decltype(zero);
    T a = get<T>(x), b = get<T>(y);
    switch (op) {
      case ScalarOp::eq:
        return put(a == b);
      case ScalarOp::ne:
        return put(a != b);
      case ScalarOp::lt:
        return put(a < b);
      case ScalarOp::le:
        return put(a <= b);
      case ScalarOp::gt:
        return put(a > b);
      case ScalarOp::ge:
        return put(a >= b);
      case ScalarOp::min:
        return put(pick(a, b, false, false));
      case ScalarOp::max:
        return put(pick(a, b, true, false));
      case ScalarOp::min_num:
        return put(pick(a, b, false, true));
      case ScalarOp::max_num:
        return put(pick(a, b, true, true));
      default:
        break;
    }
    if constexpr (std::is_floating_point_v<T>) {
      return put(float_binary(op, a, b));
    } else {
      return put(integer_binary(op, a, b));
    }
  });
}

template <class T>
T float_unary(ScalarOp op, T a) {
  switch (op) {
    case ScalarOp::neg:
      return -a;
    case ScalarOp::abs:
      return std::fabs(a);
    case ScalarOp::sqrt:
      return std::sqrt(a);
    case ScalarOp::inverse:
      return T{1} / a;
    case ScalarOp::floor:
      return std::floor(a);
    case ScalarOp::ceil:
      return std::ceil(a);
    case ScalarOp::trunc:
      return std::trunc(a);
    case ScalarOp::rint:
      return std::nearbyint(a);
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "floating operation", "");
}
template <class T>
T integer_unary(ScalarOp op, T a) {
  auto u = static_cast<uint64_t>(a);
  switch (op) {
    case ScalarOp::neg:
      return static_cast<T>(uint64_t{0} - u);
    case ScalarOp::abs:
      return a < T{0} ? static_cast<T>(uint64_t{0} - u) : a;
    case ScalarOp::bit_not:
      return std::is_same_v<T, bool> ? static_cast<T>(!a) : static_cast<T>(~u);
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::trunc:
    case ScalarOp::rint:
      return a;
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "integer operation", "");
}
inline Scalar eval_unary(ScalarOp op, DType type, Scalar x) {
  return with_type(type, [&](auto zero) -> Scalar {
    using T = decltype(zero);
    T a = get<T>(x);
    if (op == ScalarOp::is_nan) return put(a != a);
    if (op == ScalarOp::logical_not) return put(a == T{});
    if constexpr (std::is_floating_point_v<T>) {
      return put(float_unary(op, a));
    } else {
      return put(integer_unary(op, a));
    }
  });
}

// float -> integer by kConvertRule.
template <class To>
To saturate(double v) {
  if (v != v) return To{0};
  constexpr double kLow = static_cast<double>(std::numeric_limits<To>::min());
  // 2^31, 2^32, 2^63 or 2^64: exact, one above the largest value.
  const double kHigh = std::ldexp(1.0, std::numeric_limits<To>::digits);
  if (v <= kLow) return std::numeric_limits<To>::min();
  if (v >= kHigh) return std::numeric_limits<To>::max();
  return static_cast<To>(v);
}

inline Scalar round_half(DType to, double v) { return {base::encode_small_float(to, v)}; }

inline Scalar eval_cast(DType from, DType to, Scalar x) {
  if (from == to) return x;
  if (from == DType::f16 || from == DType::bf16) {
    float v = from == DType::f16 ? base::f16_to_f32(static_cast<uint16_t>(x.bits))
                                 : base::bf16_to_f32(static_cast<uint16_t>(x.bits));
    return to == DType::f32 ? put(v) : eval_cast(DType::f32, to, put(v));
  }
  if (to == DType::f16 || to == DType::bf16) {
    // Integers go through f32, floats are rounded once.
    if (from == DType::f64) return round_half(to, get<double>(x));
    return round_half(to, static_cast<double>(get<float>(eval_cast(from, DType::f32, x))));
  }
  return with_type(from, [&](auto from_zero) -> Scalar {
    using From = decltype(from_zero);
    From v = get<From>(x);
    return with_type(to, [&](auto to_zero) -> Scalar {
      using To = decltype(to_zero);
      if constexpr (std::is_same_v<To, bool>) {
        return put(v != From{});
      } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
        if constexpr (sizeof(To) >= 4) return put(saturate<To>(static_cast<double>(v)));
        return put(static_cast<To>(saturate<int32_t>(static_cast<double>(v))));
      } else {
        return put(static_cast<To>(v));
      }
    });
  });
}

inline Scalar eval_call(LibraryFunction f, Scalar x, Scalar y) {
  double a = get<double>(x);
  switch (f) {
    case LibraryFunction::exp:
      return put(std::exp(a));
    case LibraryFunction::log:
      return put(std::log(a));
    case LibraryFunction::tanh:
      return put(std::tanh(a));
    case LibraryFunction::erf:
      return put(std::erf(a));
    case LibraryFunction::pow:
      return put(std::pow(a, get<double>(y)));
    case LibraryFunction::sin:
      return put(std::sin(a));
    case LibraryFunction::cos:
      return put(std::cos(a));
  }
  base::check_failed(__FILE__, __LINE__, "library function", "");
}

inline Scalar eval_fma(DType type, Scalar a, Scalar b, Scalar c) {
  if (type == DType::f64) return put(std::fma(get<double>(a), get<double>(b), get<double>(c)));
  if (type == DType::f32) return put(std::fma(get<float>(a), get<float>(b), get<float>(c)));
  Scalar product = eval_binary(ScalarOp::mul, type, a, b);
  return eval_binary(ScalarOp::add, type, product, c);
}

}  // namespace heddle::ir
