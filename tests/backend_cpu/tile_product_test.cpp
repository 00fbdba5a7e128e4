// Products in tiles: every element has the bits of one chain of fused multiply-adds in the order of
// the inner axis, whatever the shape, the strides, and how the bands are shared out.
#include "backend/cpu/tile_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace heddle::test {
namespace {

struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = uniform(rng);
  return values;
}

float chain(const cpu::TileProduct& p, int64_t i, int64_t j) {
  float sum = 0;
  for (int64_t q = 0; q < p.k; ++q)
    sum = std::fma(p.a[i * p.row_a + q * p.column_a], p.b[q * p.row_b + j * p.column_b], sum);
  return sum;
}

void check(const Case& c, int64_t bands_at_once) {
  std::vector<float> a = random_values(c.m * c.k, 1), b = random_values(c.k * c.n, 2);
  std::vector<float> out(static_cast<size_t>(c.m * c.n + 1), 7);
  cpu::TileProduct p{c.m,
                     c.n,
                     c.k,
                     a.data(),
                     c.transpose_a ? 1 : c.k,
                     c.transpose_a ? c.m : 1,
                     b.data(),
                     c.transpose_b ? 1 : c.n,
                     c.transpose_b ? c.k : 1,
                     out.data(),
                     c.n};
  int64_t bands = cpu::tile_bands(p);
  for (int64_t band = 0; band < bands; band += bands_at_once)
    cpu::multiply_bands(p, band, std::min(bands, band + bands_at_once));
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j)
      ASSERT_EQ(out[static_cast<size_t>(i * c.n + j)], chain(p, i, j))
          << c.m << "x" << c.n << "x" << c.k << " at " << i << "," << j;
  }
  EXPECT_EQ(out.back(), 7);  // nothing is written behind the last row
}

TEST(TileProduct, HasTheBitsOfOneChain) {
  if (!cpu::has_tile_products()) GTEST_SKIP() << "no fused multiply-add";
  for (int64_t m : {1, 2, 6, 7, 12, 13, 25, 40}) {
    for (int64_t n : {1, 10, 16, 17, 32, 33, 80}) {
      for (int64_t k : {1, 5, 64}) {
        for (int t = 0; t < 4; ++t) check({m, n, k, t % 2 != 0, t / 2 != 0}, 1 + (m + n + k) % 3);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
