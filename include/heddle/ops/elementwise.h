// Elementwise operations: operands broadcast as in NumPy and are promoted to a common dtype.
#pragma once

#include <heddle/tensor.h>

namespace heddle {

Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
// Floats: IEEE division. Integers: true division is not this op: floor division, 0 where the
// divisor is 0.
Tensor divide(const Tensor& a, const Tensor& b);
// a - floor(a / b) * b, sign of the divisor; integers: 0 where b is 0.
Tensor floor_modulo(const Tensor& a, const Tensor& b);
// NaN wins ("propagating").
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
// The number wins (C's fmin and fmax).
Tensor minimum_number(const Tensor& a, const Tensor& b);
Tensor maximum_number(const Tensor& a, const Tensor& b);
Tensor power(const Tensor& a, const Tensor& b);
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);  // NaN stays NaN

Tensor negate(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor square(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor relu(const Tensor& x);

Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);

Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);

Tensor select(const Tensor& predicate, const Tensor& if_true, const Tensor& if_false);
Tensor cast(const Tensor& x, DType dtype);
Tensor make_complex(const Tensor& real, const Tensor& imaginary);
Tensor real(const Tensor& x);
Tensor imaginary(const Tensor& x);
Tensor conjugate(const Tensor& x);
// (q - zero_point) * scale; scale and zero_point are scalars, vectors along `axis`, or one value
// for each `block` elements along it. q: any integer or storage type; the result has scale's dtype.
struct DequantizeOptions {
  int axis = -1;
  int64_t block = 0;  // 0: scale has one value, or one for each element of the axis
};
Tensor dequantize(const Tensor& q, const Tensor& scale, const Tensor& zero_point,
                  const DequantizeOptions& options = {});
Tensor identity(const Tensor& x);
Tensor stop_gradient(const Tensor& x);

// A scalar constant of the same graph and dtype, for mixed arithmetic: x * 2.0.
Tensor constant_like(const Tensor& x, double value);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator-(const Tensor& x) { return negate(x); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, constant_like(a, b)); }
inline Tensor operator-(const Tensor& a, double b) { return subtract(a, constant_like(a, b)); }
inline Tensor operator*(const Tensor& a, double b) { return multiply(a, constant_like(a, b)); }
inline Tensor operator/(const Tensor& a, double b) { return divide(a, constant_like(a, b)); }
inline Tensor operator+(double a, const Tensor& b) { return add(constant_like(b, a), b); }
inline Tensor operator-(double a, const Tensor& b) { return subtract(constant_like(b, a), b); }
inline Tensor operator*(double a, const Tensor& b) { return multiply(constant_like(b, a), b); }
inline Tensor operator/(double a, const Tensor& b) { return divide(constant_like(b, a), b); }
// Masks, as the other comparisons; whether two handles are one value says a.is(b).
inline Tensor operator==(const Tensor& a, const Tensor& b) { return equal(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return not_equal(a, b); }
inline Tensor operator==(const Tensor& a, double b) { return equal(a, constant_like(a, b)); }
inline Tensor operator!=(const Tensor& a, double b) { return not_equal(a, constant_like(a, b)); }
inline Tensor operator==(double a, const Tensor& b) { return equal(constant_like(b, a), b); }
inline Tensor operator!=(double a, const Tensor& b) { return not_equal(constant_like(b, a), b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return less(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return less_equal(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return greater(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }
inline Tensor operator<(const Tensor& a, double b) { return less(a, constant_like(a, b)); }
inline Tensor operator>(const Tensor& a, double b) { return greater(a, constant_like(a, b)); }
inline Tensor operator<=(const Tensor& a, double b) { return less_equal(a, constant_like(a, b)); }
inline Tensor operator>=(const Tensor& a, double b) {
  return greater_equal(a, constant_like(a, b));
}

}  // namespace heddle
