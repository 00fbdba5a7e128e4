// Scheduling stays about linear in the size of the graph.
#include "loop/run_scheduled.h"

#include <gtest/gtest.h>

#include <chrono>

namespace heddle::test {
namespace {

double seconds_to_schedule(const Graph& graph, const Tensors& feeds, const Tensors& targets,
                           size_t* kernels) {
  std::shared_ptr<ir::Graph> g = prepare(graph, feeds, targets);
  auto start = std::chrono::steady_clock::now();
  loop::RegionSchedule s = loop::schedule_region(*g, ir::kTopRegion, {}, {});
  *kernels = s.items.size();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double chain(int64_t n) {
  Graph graph;
  Tensor x = graph.placeholder(f32, {64, 64}), y = x;
  for (int64_t k = 0; k < n; ++k) y = k % 2 == 0 ? y * x : y + 1.5;
  size_t kernels = 0;
  double t = seconds_to_schedule(graph, {x}, {y}, &kernels);
  printf("chain of %d: %zu kernels, %.3f s\n", static_cast<int>(n), kernels, t);
  return t;
}

double layers(int64_t n) {
  Graph graph;
  Tensor x = graph.placeholder(f32, {64, 32}), w = graph.placeholder(f32, {32, 32}),
         g = graph.placeholder(f32, {32});
  Tensor y = x;
  for (int64_t k = 0; k < n; ++k) {
    Tensor h = layer_norm(y, g, Tensor{});
    y = y + matmul(softmax(gelu(matmul(h, w))), w);
  }
  size_t kernels = 0;
  double t = seconds_to_schedule(graph, {x, w, g}, {y}, &kernels);
  printf("%d layers: %zu kernels, %.3f s\n", static_cast<int>(n), kernels, t);
  return t;
}

TEST(CompileTime, GrowsLinearly) {
  double a = chain(300), b = chain(1200);
  EXPECT_LT(b, 12 * a + 0.5);
  double c = layers(8), d = layers(32);
  EXPECT_LT(d, 12 * c + 0.5);
}

}  // namespace
}  // namespace heddle::test
