// Compilation stays about linear in the size of the graph.
#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

namespace heddle {
namespace {

// The lesser of two times of the processor, in seconds: other processes do not lengthen it.
template <class Compile>
double seconds(const char* what, int64_t n, const Compile& compile) {
  double best = 1e9;
  for (int k = 0; k < 2; ++k) {
    std::clock_t start = std::clock();
    compile(n);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  printf("%s, %d: %.3f s\n", what, static_cast<int>(n), best);
  return best;
}

// Eight times the size takes about eight times as long, not 64 times.
template <class Compile>
void expect_linear(const char* what, const Compile& compile) {
  double small = seconds(what, 250, compile), large = seconds(what, 2000, compile);
  EXPECT_LT(large, 30 * small + 0.1) << what;
}

Array three() { return Array::from<float>({3}, std::vector<float>{1, 2, 3}); }

TEST(CompileTime, VariablesWithAnAssignEach) {
  expect_linear("variables", [](int64_t n) {
    Graph graph;
    Tensor x = graph.placeholder(f32, {3});
    std::vector<Operation> assigns;
    for (int64_t k = 0; k < n; ++k) {
      Tensor v = graph.variable(three());
      assigns.push_back(assign(v, read_variable(v) * 0.5 + x));
    }
    (void)graph.compile({.feeds = {x}, .targets = {}, .operations = assigns},
                        device("interpreter"));
  });
}

TEST(CompileTime, AssignsOfOneVariable) {
  expect_linear("assigns", [](int64_t n) {
    Graph graph;
    Tensor x = graph.placeholder(f32, {3});
    Tensor v = graph.variable(three());
    std::vector<Operation> assigns;
    for (int64_t k = 0; k < n; ++k) assigns.push_back(assign(v, read_variable(v) * 0.5 + x));
    (void)graph.compile({.feeds = {x}, .targets = {}, .operations = assigns},
                        device("interpreter"));
  });
}

TEST(CompileTime, ManyTargets) {
  expect_linear("targets", [](int64_t n) {
    Graph graph;
    Tensor x = graph.placeholder(f32, {3});
    Tensors targets;
    for (int64_t k = 0; k < n; ++k) targets.push_back(x + static_cast<double>(k));
    (void)graph.compile({.feeds = {x}, .targets = targets}, device("interpreter"));
  });
}

TEST(CompileTime, GradientOfAChain) {
  expect_linear("tanh and its gradient", [](int64_t n) {
    Graph graph;
    Tensor x = graph.placeholder(f32, {3}), y = x;
    for (int64_t k = 0; k < n; ++k) y = tanh(y);
    Tensors dx = gradients(sum(y), {x});
    (void)graph.compile({.feeds = {x}, .targets = {y, dx[0]}}, device("interpreter"));
  });
}

}  // namespace
}  // namespace heddle
