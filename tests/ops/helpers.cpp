#include "ops/helpers.h"

#include "base/small_float.h"

#include <bit>
#include <cmath>
#include <limits>

namespace heddle::test {

std::vector<HostTensor> judged(const Tensors& feeds, const Tensors& targets,
                               const std::vector<HostTensor>& values) {
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
  for (const Tensor& t : feeds) fed.emplace_back(t.id(), std::nullopt);
  std::vector<ir::ValueId> wanted;
  for (const Tensor& t : targets) wanted.push_back(t.id());
  return ops::judge(*ir::extract(*targets[0].graph(), fed, wanted, {}).graph, values);
}

HostTensor judged_one(const Tensors& feeds, const Tensor& target,
                      const std::vector<HostTensor>& values) {
  return judged(feeds, {target}, values)[0];
}

HostTensor host(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  HostTensor t(dtype, std::move(shape));
  for (size_t k = 0; k < t.f.size(); ++k) t.f[k] = values[k];
  for (size_t k = 0; k < t.i.size(); ++k) t.i[k] = static_cast<int64_t>(values[k]);
  for (size_t k = 0; k < t.c.size(); ++k) t.c[k] = values[k];
  round_to_dtype(t);
  return t;
}

HostTensor host_integers(DType dtype, std::vector<int64_t> shape,
                         const std::vector<int64_t>& values) {
  HostTensor t(dtype, std::move(shape));
  t.i = values;
  round_to_dtype(t);
  return t;
}

namespace {

std::vector<double> edge_floats() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                   kNaN = std::numeric_limits<double>::quiet_NaN();
  return {0.0,           -0.0,         1.0,           -1.0,         0.5,        2.0,     -2.0,
          3.0,           -2.5,         0.1,           -0.7,         3.14159265, 11.0,    -100.7,
          127.9,         200.0,        300.5,         -129.0,       1e-3,       65504.0, 65520.0,
          1e10,          -1e10,        3e9,           5e-8,         6e-5,       1e-40,   -1e-45,
          1.1754944e-38, 3.4028235e38, -3.4028235e38, 2147483648.0, 9.3e18,     1.9e19,  kInfinity,
          -kInfinity,    kNaN};
}

HostTensor every_code(DType dtype) {
  int64_t count = int64_t{1} << bit_width(dtype);
  HostTensor t(dtype, {count});
  for (int64_t k = 0; k < count; ++k) {
    if (t.is_float())
      t.f[static_cast<size_t>(k)] = base::decode_small_float(dtype, static_cast<uint32_t>(k));
    else
      t.i[static_cast<size_t>(k)] = k;
  }
  round_to_dtype(t);
  return t;
}

}  // namespace

HostTensor edge_values(DType dtype) {
  if (is_storage_only(dtype)) return every_code(dtype);
  if (is_real_float(dtype)) {
    std::vector<double> values = edge_floats();
    return host(dtype, {static_cast<int64_t>(values.size())}, values);
  }
  if (is_complex(dtype)) {
    std::vector<double> parts = {0, 1, -1, 0.5, -2.5, 3.25, 0.01};
    HostTensor t(dtype, {static_cast<int64_t>(parts.size() * parts.size())});
    for (size_t k = 0; k < t.c.size(); ++k)
      t.c[k] = {parts[k / parts.size()], parts[k % parts.size()]};
    round_to_dtype(t);
    return t;
  }
  if (dtype == bool_) return host_integers(dtype, {2}, {0, 1});
  int bits = bit_width(dtype);
  uint64_t top = uint64_t{1} << (bits - 1);
  std::vector<int64_t> values = {0, 1, 2, 3, 5, 7, 9, 100, -1, -2, -3, -9, -100};
  for (uint64_t v : {top, top - 1, top + 1, 2 * top - 1}) values.push_back(static_cast<int64_t>(v));
  return host_integers(dtype, {static_cast<int64_t>(values.size())}, values);
}

uint64_t element_bits(const HostTensor& t, size_t k, bool imaginary) {
  DType part = real_part(t.dtype);
  if (!t.i.empty()) {
    int bits = bit_width(t.dtype);
    return static_cast<uint64_t>(t.i[k]) & (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1);
  }
  double v = t.c.empty() ? t.f[k] : imaginary ? t.c[k].imag() : t.c[k].real();
  if (part == f64) return std::bit_cast<uint64_t>(v);
  if (part == f32) return std::bit_cast<uint32_t>(static_cast<float>(v));
  return base::encode_small_float(part, v);
}

}  // namespace heddle::test
