// Host tensors of the judge: every element as f64, exact 64-bit integer, or complex f64.
#pragma once

#include <heddle/dtype.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::ops {

struct HostTensor {
  DType dtype = DType::unknown;
  std::vector<int64_t> shape;
  // Exactly one is filled, by dtype: floats (and FP8, FP4, E8M0) f; integers, boolean and int2/int4
  // i (u64 as its bit pattern); complex c.
  std::vector<double> f;
  std::vector<int64_t> i;
  std::vector<std::complex<double>> c;

  HostTensor() = default;
  HostTensor(DType dtype, std::vector<int64_t> shape);  // zeros
  int64_t size() const;
  bool is_float() const {
    return is_real_float(dtype) || (dtype >= DType::f8e4m3fn && dtype <= DType::f4e2m1);
  }
};

// Rounds every element to its dtype (nearest even; integers wrap).
void round_to_dtype(HostTensor& t);
// Packed bytes of the dtype, and back.
std::vector<std::byte> to_bytes(const HostTensor& t);
HostTensor from_bytes(DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes);

// Distance between 1 and the next number of the dtype (its real part); 0 for integers and boolean.
double epsilon(DType dtype);

// Row-major helpers.
std::vector<int64_t> row_major_strides(std::span<const int64_t> shape);
int64_t element_count(std::span<const int64_t> shape);
// Calls f(coords, flat) for each point.
template <class F>
void for_each_index(std::span<const int64_t> shape, F f) {
  int64_t n = element_count(shape);
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t flat = 0; flat < n; ++flat) {
    f(at, flat);
    for (size_t k = shape.size(); k-- > 0;) {
      if (++at[k] < shape[k]) break;
      at[k] = 0;
    }
  }
}

}  // namespace heddle::ops
