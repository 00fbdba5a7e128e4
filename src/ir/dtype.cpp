#include <heddle/dtype.h>

#include <array>

namespace heddle {

namespace {
struct Info {
  std::string_view name;
  int bits;
};
constexpr std::array<Info, kDTypeCount> kInfo = {{
    {"unknown", 0},    {"f64", 64},   {"f32", 32},     {"f16", 16},   {"bf16", 16},
    {"i8", 8},         {"i16", 16},   {"i32", 32},     {"i64", 64},   {"u8", 8},
    {"u16", 16},       {"u32", 32},   {"u64", 64},     {"bool", 8},   {"c32", 32},
    {"c64", 64},       {"c128", 128}, {"f8e4m3fn", 8}, {"f8e5m2", 8}, {"f8e4m3fnuz", 8},
    {"f8e5m2fnuz", 8}, {"f8e8m0", 8}, {"f4e2m1", 4},   {"i2", 2},     {"i4", 4},
    {"u2", 2},         {"u4", 4},
}};

// A number that is no element type counts as unknown.
const Info& info(DType dtype) {
  auto k = static_cast<size_t>(dtype);
  return kInfo[k < kInfo.size() ? k : 0];
}
}  // namespace

std::string_view name(DType dtype) { return info(dtype).name; }

std::optional<DType> parse_dtype(std::string_view text) {
  for (size_t k = 1; k < kInfo.size(); ++k) {
    if (kInfo[k].name == text) return static_cast<DType>(k);
  }
  return std::nullopt;
}

int bit_width(DType dtype) { return info(dtype).bits; }

int64_t byte_size(DType dtype, int64_t count) {
  int bits = bit_width(dtype);
  if (bits >= 8) return count * (bits / 8);
  int64_t per_byte = bits == 0 ? 1 : 8 / bits;
  return count / per_byte + (count % per_byte != 0 ? 1 : 0);
}

DType real_part(DType d) {
  if (d == c32) return f16;
  if (d == c64) return f32;
  if (d == c128) return f64;
  return d;
}

DType compute_type(DType d) {
  if (d == f16 || d == bf16) return f32;
  if (d == c32) return c64;
  return d;
}

namespace {
DType complex_of(DType real) {
  if (real == f64) return c128;
  if (real == f16) return c32;
  return c64;
}
int integer_bits(DType d) { return bit_width(d); }
DType promote_integers(DType a, DType b) {
  if (is_signed_integer(a) == is_signed_integer(b))
    return integer_bits(a) >= integer_bits(b) ? a : b;
  DType s = is_signed_integer(a) ? a : b, u = is_signed_integer(a) ? b : a;
  if (integer_bits(s) > integer_bits(u)) return s;
  switch (integer_bits(u)) {
    case 8:
      return i16;
    case 16:
      return i32;
    case 32:
      return i64;
    default:
      return f64;  // i64 with u64, as NumPy does
  }
}
DType promote_reals(DType a, DType b) {
  if (a == b) return a;
  if (a == f64 || b == f64) return f64;
  return f32;  // f32 with anything, f16 with bf16
}
}  // namespace

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::unknown || b == DType::unknown || is_storage_only(a) || is_storage_only(b))
    return DType::unknown;
  if (a == bool_) return b;
  if (b == bool_) return a;
  if (is_complex(a) || is_complex(b)) {
    DType ra = real_part(a), rb = real_part(b);
    if (!is_real_float(ra)) ra = rb;
    if (!is_real_float(rb)) rb = ra;
    return complex_of(promote_reals(ra, rb));
  }
  if (is_real_float(a) && is_real_float(b)) return promote_reals(a, b);
  if (is_real_float(a)) return a;
  if (is_real_float(b)) return b;
  return promote_integers(a, b);
}

}  // namespace heddle
