#include "ops/host_tensor.h"

#include "base/check.h"
#include "base/floating_point.h"
#include "base/small_float.h"
#include "ops/opdef.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace heddle::ops {

namespace {

double round_real(DType dtype, double x) {
  switch (dtype) {
    case DType::f64:
    case DType::c128:
      return x;
    case DType::f32:
    case DType::c64:
      return static_cast<double>(static_cast<float>(x));
    case DType::c32:
      return base::decode_small_float(DType::f16, base::encode_small_float(DType::f16, x));
    default:
      return base::decode_small_float(dtype, base::encode_small_float(dtype, x));
  }
}

// Low bits of the dtype, sign-extended where it is signed.
int64_t wrap(DType dtype, int64_t x) {
  if (dtype == DType::boolean) return x != 0;
  int unused = 64 - bit_width(dtype);
  bool is_signed = is_signed_integer(dtype) || dtype == DType::i2 || dtype == DType::i4;
  uint64_t shifted = static_cast<uint64_t>(x) << unused;
  return is_signed ? static_cast<int64_t>(shifted) >> unused
                   : static_cast<int64_t>(shifted >> unused);
}

// An element's bit pattern in the low bits; parts of complex numbers are elements of their real
// type.
uint64_t encode_real(DType dtype, double x) {
  if (dtype == DType::f64) return std::bit_cast<uint64_t>(x);
  if (dtype == DType::f32) return std::bit_cast<uint32_t>(static_cast<float>(x));
  return base::encode_small_float(dtype, x);
}

double decode_real(DType dtype, uint64_t bits) {
  if (dtype == DType::f64) return std::bit_cast<double>(bits);
  if (dtype == DType::f32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return base::decode_small_float(dtype, static_cast<uint32_t>(bits));
}

// Elements of `width` bits (2, 4, or whole bytes; little-endian) one after another, lowest bits
// first.
void put_bits(std::vector<std::byte>& bytes, int64_t index, int width, uint64_t bits) {
  if (width < 8) {
    int64_t at = index * width;
    uint64_t mask = (uint64_t{1} << width) - 1;
    bytes[at / 8] |= static_cast<std::byte>((bits & mask) << (at % 8));
    return;
  }
  std::memcpy(bytes.data() + index * (width / 8), &bits, width / 8);
}

uint64_t get_bits(std::span<const std::byte> bytes, int64_t index, int width) {
  uint64_t bits = 0;
  if (width < 8) {
    int64_t at = index * width;
    return (static_cast<uint64_t>(bytes[at / 8]) >> (at % 8)) & ((uint64_t{1} << width) - 1);
  }
  std::memcpy(&bits, bytes.data() + index * (width / 8), width / 8);
  return bits;
}

}  // namespace

HostTensor::HostTensor(DType dtype_in, std::vector<int64_t> shape_in)
    : dtype(dtype_in), shape(std::move(shape_in)) {
  HD_CHECK(dtype != DType::unknown);
  size_t count = static_cast<size_t>(size());
  if (is_complex(dtype))
    c.resize(count);
  else if (is_float())
    f.resize(count);
  else
    i.resize(count);
}

int64_t HostTensor::size() const { return element_count(shape); }

void round_to_dtype(HostTensor& t) {
  base::StandardFloatingPoint mode;
  for (double& x : t.f) x = round_real(t.dtype, x);
  for (int64_t& x : t.i) x = wrap(t.dtype, x);
  for (std::complex<double>& x : t.c) {
    x = {round_real(t.dtype, x.real()), round_real(t.dtype, x.imag())};
  }
}

std::vector<std::byte> to_bytes(const HostTensor& t) {
  base::StandardFloatingPoint mode;
  int64_t count = t.size();
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size(t.dtype, count)));
  int width = bit_width(t.dtype);
  DType part = real_part(t.dtype);
  for (int64_t k = 0; k < count; ++k) {
    if (is_complex(t.dtype)) {
      put_bits(bytes, 2 * k, width / 2, encode_real(part, t.c[k].real()));
      put_bits(bytes, 2 * k + 1, width / 2, encode_real(part, t.c[k].imag()));
    } else if (t.is_float()) {
      put_bits(bytes, k, width, encode_real(t.dtype, t.f[k]));
    } else {
      put_bits(bytes, k, width, static_cast<uint64_t>(wrap(t.dtype, t.i[k])));
    }
  }
  return bytes;
}

HostTensor from_bytes(DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes) {
  base::StandardFloatingPoint mode;
  HostTensor t(dtype, std::move(shape));
  int64_t count = t.size();
  HD_CHECK(static_cast<int64_t>(bytes.size()) == byte_size(dtype, count), name(dtype), " x ", count,
           " in ", bytes.size(), " bytes");
  int width = bit_width(dtype);
  DType part = real_part(dtype);
  for (int64_t k = 0; k < count; ++k) {
    if (is_complex(dtype)) {
      t.c[k] = {decode_real(part, get_bits(bytes, 2 * k, width / 2)),
                decode_real(part, get_bits(bytes, 2 * k + 1, width / 2))};
    } else if (t.is_float()) {
      t.f[k] = decode_real(dtype, get_bits(bytes, k, width));
    } else {
      t.i[k] = wrap(dtype, static_cast<int64_t>(get_bits(bytes, k, width)));
    }
  }
  return t;
}

double epsilon(DType dtype) {
  switch (real_part(dtype)) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f8e4m3fn:
    case DType::f8e4m3fnuz:
      return 0x1p-3;
    case DType::f8e5m2:
    case DType::f8e5m2fnuz:
      return 0x1p-2;
    case DType::f4e2m1:
      return 0.5;
    default:
      return 0;
  }
}

std::vector<int64_t> row_major_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    strides[k] = step;
    step *= shape[k];
  }
  return strides;
}

int64_t element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    HD_CHECK(extent >= 0, "extent ", extent);
    HD_CHECK(!__builtin_mul_overflow(count, extent, &count), "too many elements");
  }
  return count;
}

ir::LiteralRef to_literal(const HostTensor& t) {
  return ir::make_literal(t.dtype, t.shape, to_bytes(t));
}

HostTensor from_literal(const ir::Literal& literal) {
  return from_bytes(literal.dtype, literal.shape, literal.bytes);
}

ir::LiteralRef constant_value(const ir::Graph& graph, ir::ValueId value) {
  ir::OpId op = graph.value(value).op;
  if (op == ir::kNone || role_of(graph.op(op)) != Role::constant) return nullptr;
  return literal_of(graph.op(op));
}

bool is_filled_with(const Tensor& t, double value) {
  ir::LiteralRef literal = constant_value(t);
  if (literal == nullptr || is_sub_byte(literal->dtype) || literal->bytes.empty()) return false;
  size_t width = static_cast<size_t>(bit_width(literal->dtype)) / 8;
  for (size_t k = width; k < literal->bytes.size(); ++k) {
    if (literal->bytes[k] != literal->bytes[k - width]) return false;
  }
  HostTensor first = from_bytes(literal->dtype, {}, std::span(literal->bytes).first(width));
  double re = first.is_float()          ? first.f[0]
              : is_complex(first.dtype) ? first.c[0].real()
                                        : static_cast<double>(first.i[0]);
  double im = is_complex(first.dtype) ? first.c[0].imag() : 0.0;
  return re == value && std::signbit(re) == std::signbit(value) && im == 0 && !std::signbit(im);
}

ir::ValueId add_constant(ir::Graph& graph, ir::LiteralRef value) {
  static const OpDef* const def = [] {
    for (const OpDef* candidate : all_ops()) {
      if (candidate->role == Role::constant) return candidate;
    }
    throw InternalError("no operation has the role of a constant");
  }();
  return graph.op(graph.add_op(*def, {}, {{"value", std::move(value)}})).results.at(0);
}

}  // namespace heddle::ops
