// Folds of a whole tensor that depend on each other: one nest of several folding phases, at lengths
// around which phases are forked and split.
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

// Largest |x - mean| over the root of the mean square deviation, and the deviations over it.
std::vector<std::vector<double>> expected(const std::vector<float>& x) {
  double mean = 0, square = 0, largest = 0;
  for (float v : x) mean += v / static_cast<double>(x.size());
  for (float v : x) square += (v - mean) * (v - mean) / static_cast<double>(x.size());
  for (float v : x) largest = std::max(largest, std::fabs(v - mean) / std::sqrt(square));
  std::vector<double> scaled;
  for (float v : x) scaled.push_back((v - mean) / largest);
  return {{largest}, scaled};
}

void check(const Expr& extent, int64_t n) {
  Graph graph;
  Tensor x = graph.placeholder(f32, {extent}, "x");
  Tensor centred = x - mean(x);
  Tensor largest = reduce_max(abs(centred / sqrt(mean(square(centred)))));
  CompileSpec spec;
  spec.feeds.emplace_back(x);
  spec.targets = {largest, centred / largest};
  std::mt19937_64 rng(static_cast<uint64_t>(n));
  std::uniform_real_distribution<float> uniform(-1, 3);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(rng);
  std::vector<Array> got =
      graph.compile(spec, test_device()).run({Array::from<float>({n}, values)});
  std::vector<std::vector<double>> want = expected(values);
  for (size_t k = 0; k < want.size(); ++k) {
    std::vector<double> result = got[k].to_vector<double>();
    ASSERT_EQ(result.size(), want[k].size());
    for (size_t i = 0; i < result.size(); ++i)
      ASSERT_NEAR(result[i], want[k][i], 1e-5) << n << " elements, target " << k << ", at " << i;
  }
}

TEST(WholeFolds, DependOnEachOther) {
  for (int64_t n : {2, 100, 4095, 4096, 5000, 20000, 32768, 40000}) {
    check(Expr(n), n);
    check(Dim("n"), n);
  }
}

}  // namespace
}  // namespace heddle::test
