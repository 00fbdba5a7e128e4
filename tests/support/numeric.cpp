#include "support/numeric.h"

#include "base/env.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace heddle::test {

using ops::HostTensor;

HostTensor random_tensor(DType dtype, std::vector<int64_t> shape, std::mt19937_64& rng, double low,
                         double high) {
  HostTensor t(dtype, std::move(shape));
  std::uniform_real_distribution<double> uniform(low, high);
  for (double& v : t.f) v = uniform(rng);
  for (int64_t& v : t.i) {
    v = dtype == bool_ ? static_cast<int64_t>(rng() & 1)
                       : static_cast<int64_t>(std::lround(uniform(rng)));
    if (is_unsigned_integer(dtype) || dtype == DType::u2 || dtype == DType::u4) v = std::abs(v);
  }
  for (auto& v : t.c) v = {uniform(rng), uniform(rng)};
  ops::round_to_dtype(t);
  return t;
}

Array to_array(const HostTensor& t) {
  return Array::from_bytes(t.dtype, t.shape, ops::to_bytes(t));
}
HostTensor to_host(const Array& a) { return ops::from_bytes(a.dtype(), a.shape(), a.to_bytes()); }

Tolerance tolerance(DType dtype, int64_t length, double scale) {
  double e = epsilon(dtype), accumulated = epsilon(compute_type(dtype));
  double n = static_cast<double>(std::max<int64_t>(length, 1));
  return {4 * e, n > 1 ? 4 * accumulated * n * scale + e * std::numeric_limits<float>::min()
                       : std::max(4 * e * std::numeric_limits<float>::min(),
                                  dtype == f16 ? 0x1p-24 : 0.0)};
}

namespace {

bool close(double a, double b, Tolerance t) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= t.absolute + t.relative * std::fabs(b);
}

}  // namespace

std::string difference(const HostTensor& actual, const HostTensor& expected, Tolerance t) {
  std::ostringstream out;
  out.precision(17);
  if (actual.dtype != expected.dtype || actual.shape != expected.shape) {
    out << "types differ: " << name(actual.dtype) << " of rank " << actual.shape.size()
        << ", expected " << name(expected.dtype) << " of rank " << expected.shape.size();
    for (int64_t n : actual.shape) out << " " << n;
    out << " |";
    for (int64_t n : expected.shape) out << " " << n;
    return out.str();
  }
  auto report = [&](size_t k, auto a, auto b) {
    out << "element " << k << " of " << expected.size() << ": " << a << ", expected " << b;
    return out.str();
  };
  for (size_t k = 0; k < expected.f.size(); ++k) {
    if (!close(actual.f[k], expected.f[k], t)) return report(k, actual.f[k], expected.f[k]);
  }
  for (size_t k = 0; k < expected.i.size(); ++k) {
    if (actual.i[k] != expected.i[k]) return report(k, actual.i[k], expected.i[k]);
  }
  for (size_t k = 0; k < expected.c.size(); ++k) {  // relative to the modulus: one part may cancel
    double size = std::abs(expected.c[k]);
    double allowed = std::isfinite(size) ? 2 * t.relative * size : 0;
    if (t.poles) allowed *= std::max(1.0, size);
    Tolerance part{0, t.absolute + allowed};
    if (!close(actual.c[k].real(), expected.c[k].real(), part) ||
        !close(actual.c[k].imag(), expected.c[k].imag(), part)) {
      return report(k, actual.c[k], expected.c[k]);
    }
  }
  return "";
}

Device test_device() {
  if (std::optional<std::string> wanted = base::env("HEDDLE_TEST_DEVICE");
      wanted && !wanted->empty()) {
    return device(*wanted);
  }
  for (const DeviceReport& r : devices()) {
    if (r.name == "cpu" && r.reason.empty()) return device("cpu");
  }
  return device("interpreter");
}

uint64_t test_number(const char* variable, uint64_t fallback) {
  std::optional<std::string> text = base::env(variable);
  return text ? std::strtoull(text->c_str(), nullptr, 0) : fallback;
}
uint64_t test_seed(uint64_t fallback) { return test_number("HEDDLE_SEED", fallback); }
uint64_t test_count(uint64_t fallback) { return test_number("HEDDLE_TEST_COUNT", fallback); }

}  // namespace heddle::test
