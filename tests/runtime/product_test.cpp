// Matrix products, element by element within what sums in f32 allow: a tolerance relative to the
// whole result would hide parts that were rounded to a half type in between.
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

using ops::HostTensor;

struct Product {
  int64_t m, k, n;
  int64_t batch = 1;
  bool transpose_a = false, transpose_b = false;
  bool shared_b = false;                    // one rhs for the whole batch
  bool offset_a = false, offset_b = false;  // operands lie one element behind an aligned address
  bool open = false;                        // all extents are symbols
  bool claims = true;
};

std::string text(const Product& p) {
  auto flag = [](bool on, const char* word) { return on ? std::string(word) : std::string(); };
  return std::to_string(p.batch) + " x [" + std::to_string(p.m) + "," + std::to_string(p.k) + "," +
         std::to_string(p.n) + "]" + flag(p.transpose_a, " a transposed") +
         flag(p.transpose_b, " b transposed") + flag(p.shared_b, " b shared") +
         flag(p.offset_a, " a misaligned") + flag(p.offset_b, " b misaligned") +
         flag(p.open, " open") + flag(!p.claims, " own kernels");
}

// `t` on the device, one element behind where an allocation begins.
Array misaligned(const HostTensor& t, const Device& device) {
  HostTensor longer(t.dtype, {t.size() + 1});
  std::copy(t.f.begin(), t.f.end(), longer.f.begin() + 1);
  return to_array(longer).to(device).slice(0, 1, t.size() + 1).reshape(t.shape);
}

// The error of an element over what it may be: one rounding of the result, and for the sum of K
// products 2^-24 (f64: 2^-53) times the sum of their magnitudes times 16 + sqrt K, for errors that
// do not all point one way.
double worst_ratio(const Product& p, const HostTensor& a, const HostTensor& b,
                   const HostTensor& c) {
  double half = ops::epsilon(c.dtype) / 2, sum = ops::epsilon(compute_type(c.dtype)) / 2;
  double least = c.dtype == f16 ? 0x1p-25 : 0;  // half of the smallest number
  double growth = sum * (16 + std::sqrt(static_cast<double>(p.k))), worst = 0;
  for (int64_t t = 0; t < p.batch; ++t) {
    const double* x = a.f.data() + t * p.m * p.k;
    const double* y = b.f.data() + (p.shared_b ? 0 : t * p.k * p.n);
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        long double right = 0, size = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          long double term =
              static_cast<long double>(x[p.transpose_a ? k * p.m + i : i * p.k + k]) *
              y[p.transpose_b ? j * p.k + k : k * p.n + j];
          right += term, size += std::fabs(term);
        }
        auto allowed = static_cast<double>(std::fabs(right) * half + size * growth + least);
        double got = c.f[static_cast<size_t>((t * p.m + i) * p.n + j)];
        double ratio = static_cast<double>(std::fabs(got - right)) / allowed;
        worst = std::max(worst, std::isfinite(got) ? ratio : INFINITY);
      }
    }
  }
  return worst;
}

void check(DType dtype, const Product& p) {
  Device device = test_device();
  bool batched = p.batch > 1;
  auto shape = [&](int64_t rows, int64_t columns, bool transposed, bool with_batch) {
    std::vector<int64_t> s{transposed ? columns : rows, transposed ? rows : columns};
    if (with_batch) s.insert(s.begin(), p.batch);
    return s;
  };
  std::mt19937_64 rng(static_cast<uint64_t>(p.m * 7 + p.k * 3 + p.n));
  HostTensor a = random_tensor(dtype, shape(p.m, p.k, p.transpose_a, batched), rng, -1, 1);
  HostTensor b =
      random_tensor(dtype, shape(p.k, p.n, p.transpose_b, batched && !p.shared_b), rng, -1, 1);
  Graph g;
  Shape as(a.shape.begin(), a.shape.end()), bs(b.shape.begin(), b.shape.end());
  if (p.open) {
    Dim t("t"), m("m", 1), k("k", 1), n("n", 1);
    as = p.transpose_a ? Shape{k, m} : Shape{m, k};
    bs = p.transpose_b ? Shape{n, k} : Shape{k, n};
    if (batched) as.insert(as.begin(), t);
    if (batched && !p.shared_b) bs.insert(bs.begin(), t);
  }
  Tensor x = g.placeholder(dtype, as, "a"), y = g.placeholder(dtype, bs, "b");
  Tensor z = matmul(x, y, {.transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
  Executable e = g.compile({.feeds = {x, y}, .targets = {z}}, device, {.claims = p.claims});
  HostTensor c = to_host(e.run({p.offset_a ? misaligned(a, device) : to_array(a).to(device),
                                p.offset_b ? misaligned(b, device) : to_array(b).to(device)})[0]);
  double worst = worst_ratio(p, a, b, c);
  EXPECT_LE(worst, 1) << name(dtype) << " " << text(p) << " on " << device.name() << "\n"
                      << e.describe();
}

class Products : public testing::TestWithParam<DType> {};

TEST_P(Products, AreSumsInTheComputingType) {
  constexpr int64_t kSizes[][3] = {
      {129, 1000, 129}, {127, 500, 257}, {17, 8192, 17}, {128, 256, 128}, {1, 777, 65},
      {65, 300, 1},     {2, 4099, 3},    {64, 64, 64},   {33, 1, 31},
  };
  for (const auto& [m, k, n] : kSizes) {
    for (bool claims : {true, false}) check(GetParam(), {.m = m, .k = k, .n = n, .claims = claims});
    check(GetParam(), {.m = m, .k = k, .n = n, .open = true});
    check(GetParam(), {.m = m, .k = k, .n = n, .offset_a = true});
    check(GetParam(), {.m = m, .k = k, .n = n, .offset_b = true});
    check(GetParam(), {.m = m, .k = k, .n = n, .offset_a = true, .offset_b = true, .open = true});
  }
}

TEST_P(Products, TransposedAndBatched) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      check(GetParam(), {.m = 127, .k = 500, .n = 65, .transpose_a = ta, .transpose_b = tb});
      check(GetParam(),
            {.m = 65, .k = 512, .n = 64, .transpose_a = ta, .transpose_b = tb, .offset_b = true});
      for (bool shared : {false, true}) {
        check(GetParam(), {.m = 63,
                           .k = 257,
                           .n = 33,
                           .batch = 3,
                           .transpose_a = ta,
                           .transpose_b = tb,
                           .shared_b = shared});
        check(GetParam(), {.m = 31,
                           .k = 333,
                           .n = 65,
                           .batch = 5,
                           .transpose_a = ta,
                           .transpose_b = tb,
                           .shared_b = shared,
                           .offset_a = true,
                           .offset_b = true,
                           .open = true});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Products, testing::Values(f32, f64, f16, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace heddle::test
