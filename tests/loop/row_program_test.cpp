// Random chains of reduce -> broadcast -> reduce over random axes: one kernel each, equal to the
// judge.
#include "loop/run_scheduled.h"
#include "ops/judge.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

struct RowProgram {
  Graph graph;
  Tensors feeds, targets;
  std::vector<ops::HostTensor> values;
  std::mt19937_64 rng;
  int64_t length = 1;

  explicit RowProgram(uint64_t seed) : rng(seed) { build(); }
  int64_t pick(int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); }
  Tensor feed(const std::vector<int64_t>& shape) {
    feeds.push_back(graph.placeholder(f32, Shape(shape.begin(), shape.end())));
    values.push_back(random_tensor(f32, shape, rng));
    return feeds.back();
  }
  Tensor reduce(const Tensor& v, const std::vector<int>& axes) {
    ReduceOptions o{.axes = axes, .keep_axes = true};
    switch (pick(4)) {
      case 0:
        return reduce_max(v, o);
      case 1:
        return mean(v, o);
      case 2:
        return variance(v, o);
      default:
        return mean(abs(v), o);
    }
  }
  Tensor pointwise(const Tensor& v, const Tensor& other) {
    switch (pick(7)) {
      case 0:
        return tanh(v);
      case 1:
        return exp(minimum(v, other));
      case 2:
        return v * other;
      case 3:
        return v - other * 0.5;
      case 4:
        return sigmoid(v) + other;
      case 5:
        return relu(v) * 0.5;
      default:
        return v / (1.0 + abs(other));
    }
  }
  void build() {
    size_t rank = 2 + static_cast<size_t>(pick(3));
    std::vector<int64_t> shape;
    for (size_t k = 0; k < rank; ++k) shape.push_back(1 + pick(6));
    std::vector<int> axes;
    while (axes.empty() || axes.size() == rank) {
      axes.clear();
      for (size_t k = 0; k < rank; ++k) {
        if (pick(2) == 0) axes.push_back(static_cast<int>(k));
      }
    }
    for (int a : axes) length *= shape[static_cast<size_t>(a)];
    Tensor x = feed(shape), y = feed(shape), bias = feed({shape.back()});
    Tensor v = x;
    if (pick(2) == 0) v = pointwise(v, y);
    int64_t steps = 2 + pick(3);
    for (int64_t s = 0; s < steps; ++s) {
      Tensor r = reduce(v, axes);
      if (pick(3) == 0) r = 1.0 / (1.0 + exp(r));
      v = pointwise(v, r);
      if (pick(3) == 0) v = pointwise(v, pick(2) == 0 ? y : bias);
    }
    targets = {v};
    if (pick(3) == 0) targets.push_back(reduce(v, axes));
  }
};

TEST(RowPrograms, AreOneKernel) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    RowProgram p(seed);
    std::shared_ptr<ir::Graph> g = prepare(p.graph, p.feeds, p.targets);
    std::vector<ops::HostTensor> expected = ops::judge(*g, p.values);
    ScheduledRun r = run_scheduled(*g, p.values);
    EXPECT_EQ(r.kernels, 1) << "seed " << seed << "\n" << ir::print(*g) << r.text;
    for (size_t k = 0; k < expected.size(); ++k) {
      Tolerance t = tolerance(f32, p.length, 8);
      t.relative *= 64;
      t.absolute *= 64;
      EXPECT_EQ(difference(r.results[k], expected[k], t), "") << "seed " << seed << "\n"
                                                              << ir::print(*g) << r.text;
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::test
