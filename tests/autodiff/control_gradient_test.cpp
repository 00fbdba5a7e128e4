// Gradients through branches, loops and calls, against central differences, first and second order.
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

using namespace heddle;
using namespace heddle::test;

namespace {

#define EXPECT_GRADIENT(...) EXPECT_EQ(check_gradient(__VA_ARGS__), "")

}  // namespace

TEST(ControlGradients, Cond) {
  auto f = [](Graph&, const Tensors& x) {
    Tensor p = reshape(x[0], Shape{}) > 0.0;
    return cond(p, [&] { return x[1] * x[0] * x[1]; }, [&] { return exp(x[1]); });
  };
  EXPECT_GRADIENT(f, {floats({1}, {0.7}), floats({2}, {0.3, 0.9})});
  EXPECT_GRADIENT(f, {floats({1}, {-0.7}), floats({2}, {0.3, 0.9})});
}

TEST(ControlGradients, For) {
  // Captures, an integer carried along, and the counter in use.
  auto f = [](Graph& g, const Tensors& x) {
    Tensor n = g.constant(int64_t{1}, i64);
    Tensors r = for_loop(3, {x[0], n}, [&](const Tensor& i, const Tensors& v) {
      return Tensors{v[0] * x[1] + cast(i + v[1], f64) * x[0], v[1] + 1.0};
    });
    return r[0];
  };
  EXPECT_GRADIENT(f, {floats({2}, {0.7, -0.4}), floats({2}, {1.3, 0.9})});
}

TEST(ControlGradients, ForOfNoTrips) {
  auto f = [](Graph&, const Tensors& x) {
    return for_loop(0, {square(x[0])},
                    [&](const Tensor&, const Tensors& v) { return Tensors{v[0] * x[0]}; })[0];
  };
  EXPECT_GRADIENT(f, {floats({2}, {0.7, -0.4})});
}

TEST(ControlGradients, Scan) {
  auto f = [](Graph&, const Tensors& x) {
    ScanResult r = scan({x[0]}, {x[1], x[2]}, [&](const Tensors& v, const Tensors& s) {
      Tensor next = tanh(v[0] * s[0] + s[1]);
      return ScanResult{{next}, {next * next * s[1], s[0]}};
    });
    return concat({reshape(r.carried[0], {1, 2}), r.stacked[0], r.stacked[1]}, 0);
  };
  EXPECT_GRADIENT(f, {floats({2}, {0.7, -0.4}), floats({3, 2}, {1.3, 0.9, -0.2, 0.4, 0.8, 1.1}),
                      floats({3, 2}, {0.1, -0.3, 0.5, 0.2, -0.6, 0.3})});
}

TEST(ControlGradients, BoundedWhile) {
  for (int64_t bound : {0, 2, 10}) {
    auto f = [&](Graph&, const Tensors& x) {
      Tensors r = while_loop(
          {x[0], x[1]}, [](const Tensors& v) { return sum(v[0]) < 20.0; },
          [&](const Tensors& v) { return Tensors{v[0] * v[1] + 1.0, v[1] + x[1] * 0.5}; },
          {.max_iterations = bound});
      return r[0] * r[1];
    };
    EXPECT_GRADIENT(f, {floats({2}, {0.7, 1.4}), floats({2}, {1.3, 0.9})}, {.tolerance = 1e-5})
        << bound;
  }
}

TEST(ControlGradients, GeneralWhile) {
  auto f = [&](Graph&, const Tensors& x) {
    Tensors r = while_loop_general(
        {x[0]},
        [&](const Tensors& v) {
          Tensor d = v[0] * x[1];
          return LoopResult{d < 10.0, {d, square(d)}};
        },
        [&](const Tensors& u) { return Tensors{u[0] + u[1] * 0.1}; }, {.max_iterations = 20});
    return r[0] + r[1];
  };
  EXPECT_GRADIENT(f, {floats({}, {1.3}), floats({}, {1.2})}, {.tolerance = 1e-5});
}

TEST(ControlGradients, NestedLoops) {
  auto f = [&](Graph&, const Tensors& x) {
    return for_loop(2, {x[0]}, [&](const Tensor& i, const Tensors& v) {
      Tensors inner = while_loop(
          v, [&](const Tensors& w) { return w[0] < 4.0; },
          [&](const Tensors& w) { return Tensors{w[0] * x[1] + cast(i, f64)}; },
          {.max_iterations = 5});
      return Tensors{
          cond(inner[0] > 4.0, [&] { return inner[0] * 0.5; }, [&] { return square(inner[0]); })};
    })[0];
  };
  EXPECT_GRADIENT(f, {floats({}, {0.8}), floats({}, {1.5})}, {.tolerance = 1e-5});
}

TEST(ControlGradients, Call) {
  Graph callee;
  Tensor a = callee.placeholder(f64, {2}, "a");
  Tensor b = callee.placeholder(f64, {2}, "b");
  Tensor y = a * b * a;
  EXPECT_GRADIENT(
      [&](Graph&, const Tensors& x) {
        return call(callee, {y}, {x[0], x[1]})[0] + call(callee, {y}, {x[0], x[0]})[0];
      },
      {floats({2}, {0.7, 1.4}), floats({2}, {1.3, 0.9})});
}

TEST(ControlGradients, CountsOfTheRunHaveNone) {
  Graph g;
  Tensor n = g.placeholder(i64, {});
  Tensor x = g.placeholder(f64, {});
  Tensors r = for_loop(n, {x}, [](const Tensor&, const Tensors& v) { return Tensors{v[0] * 2.0}; });
  EXPECT_EQ(graph_error([&] { gradients(r[0], {x}); }),
            "gradients: for_loop has a count that is known only when it runs: give the count as an "
            "expression, or use "
            "while_loop with WhileOptions::max_iterations");
}
