// Element types of tensors. This header has no dependencies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle {

// Element type of a tensor. `unknown` belongs to placeholders whose type is given at compile time.
// Arithmetic exists for floats, integers, boolean and complex types. The types after `c128` are
// storage types: they convert and dequantise; the sub-byte ones are packed along a contiguous
// innermost axis, the element with the lowest index in the lowest bits.
enum class DType : uint8_t {
  unknown,
  f64,
  f32,
  f16,
  bf16,
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  boolean,  // one byte, 0 or 1
  c32,      // complex of two f16, interleaved
  c64,      // complex of two f32
  c128,     // complex of two f64
  f8e4m3fn,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  f8e8m0,
  f4e2m1,
  i2,
  i4,
  u2,
  u4,
};
inline constexpr int kDTypeCount = 27;

inline constexpr DType f64 = DType::f64, f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
inline constexpr DType i8 = DType::i8, i16 = DType::i16, i32 = DType::i32, i64 = DType::i64;
inline constexpr DType u8 = DType::u8, u16 = DType::u16, u32 = DType::u32, u64 = DType::u64;
inline constexpr DType bool_ = DType::boolean;
inline constexpr DType c32 = DType::c32, c64 = DType::c64, c128 = DType::c128;

// "f32", "bool", "c64", "f8e4m3fn", ...
std::string_view name(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);

int bit_width(DType dtype);  // 1 element; boolean is 8
// Bytes of `count` elements that lie one after another (sub-byte types round up).
int64_t byte_size(DType dtype, int64_t count);

constexpr bool is_real_float(DType d) {
  return d == DType::f64 || d == DType::f32 || d == DType::f16 || d == DType::bf16;
}
constexpr bool is_complex(DType d) {
  return d == DType::c32 || d == DType::c64 || d == DType::c128;
}
// Real or complex floating point with arithmetic.
constexpr bool is_floating(DType d) { return is_real_float(d) || is_complex(d); }
constexpr bool is_signed_integer(DType d) { return d >= DType::i8 && d <= DType::i64; }
constexpr bool is_unsigned_integer(DType d) { return d >= DType::u8 && d <= DType::u64; }
constexpr bool is_integer(DType d) { return is_signed_integer(d) || is_unsigned_integer(d); }
// FP8, FP4, E8M0, int2, int4, uint2, uint4.
constexpr bool is_storage_only(DType d) { return d >= DType::f8e4m3fn; }
constexpr bool is_sub_byte(DType d) { return d >= DType::f4e2m1; }
// The real type of a complex type's parts (c32 -> f16), else the type itself.
DType real_part(DType dtype);
// The type in which arithmetic on `dtype` is done before rounding at the store: f16, bf16 -> f32;
// c32 -> c64.
DType compute_type(DType dtype);
// The common type of two operands that a user mixes (NumPy's lattice, half with int stays half).
DType promote(DType a, DType b);

}  // namespace heddle
