// Values that custom_gradient's forward takes from outside, and xs that no y depends on.
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

using namespace heddle;
using namespace heddle::test;

namespace {

std::string said(const std::function<void()>& f) {
  try {
    f();
  } catch (const GraphError& e) {
    return e.what();
  }
  return "no error";
}

// x * k with k captured; the gradient by x alone.
Tensor scaled(const Tensor& x, const Tensor& k, const CustomGradientOptions& options = {}) {
  return custom_gradient(
      {x}, [&](const Tensors& v) { return Tensors{v[0] * k}; },
      [&](const Tensors&, const Tensors&, const Tensors& up) { return Tensors{up[0] * k}; },
      options)[0];
}

constexpr const char* kRefused = "custom_gradient: forward captures ";

double value_of(Graph& g, const Tensors& feeds, const std::vector<double>& at, const Tensor& t) {
  std::vector<std::pair<Tensor, Array>> fed;
  for (size_t i = 0; i < feeds.size(); ++i)
    fed.emplace_back(feeds[i], Array::from<double>({}, {at[i]}));
  return g.run(fed, {t}, {}, device("judge"))[0].to_vector<double>()[0];
}

// X05
TEST(CapturedGradient, IsRefusedByName) {
  Graph g;
  Tensor x = g.placeholder(f64, {}, "x"), k = g.placeholder(f64, {}, "k");
  Tensor y = scaled(x, k);
  EXPECT_NE(said([&] { gradients(y, {k}); }).find("captures 'k'"), std::string::npos);
  EXPECT_NE(said([&] { gradients(y, {x, k}); }).find("'k'"), std::string::npos);
  // k is a constant for the gradient by x.
  EXPECT_EQ(value_of(g, {x, k}, {3, 5}, gradients(y, {x})[0]), 5);
}

// Through any chain: computed values, blocks, both at once, and behind further operations.
TEST(CapturedGradient, IsRefusedThroughChains) {
  Graph g;
  Tensor x = g.placeholder(f64, {}, "x"), k = g.placeholder(f64, {}, "k");
  Tensor chained = exp(k * 2.0).named("chained");
  EXPECT_NE(said([&] { gradients(sum(square(scaled(x, chained))), {k}); }).find("'chained'"),
            std::string::npos);
  Tensor own = square(x).named("own");
  EXPECT_NE(said([&] { gradients(scaled(x, own), {x}); }).find("'own'"), std::string::npos);
  Tensor looped = for_loop(
      Expr(3), {x}, [&](const Tensor&, const Tensors& v) { return Tensors{scaled(v[0], k)}; })[0];
  EXPECT_NE(said([&] { gradients(looped, {k}); }).find(kRefused), std::string::npos);
  Tensor nested = custom_gradient(
      {x}, [&](const Tensors& v) { return Tensors{scaled(v[0], k)}; },
      [&](const Tensors&, const Tensors&, const Tensors& up) { return Tensors{up[0]}; })[0];
  EXPECT_NE(said([&] { gradients(nested, {k}); }).find("'k'"), std::string::npos);
}

// What does not depend on the xs, or not in a way that has gradients, is a constant.
TEST(CapturedGradient, ConstantsMayBeCaptured) {
  Graph g;
  Tensor x = g.placeholder(f64, {}, "x"), k = g.placeholder(f64, {}, "k");
  EXPECT_EQ(value_of(g, {x, k}, {3, 5}, gradients(scaled(x, stop_gradient(x * k)), {x})[0]), 15);
  Tensor whole = cast(cast(k, i32), f64);
  EXPECT_EQ(value_of(g, {x, k}, {3, 5}, gradients(scaled(x, whole) + k, {k})[0]), 1);
  EXPECT_EQ(value_of(g, {x, k}, {3, 5},
                     gradients(scaled(x, k, {.constant_captures = true}) + k * k, {k})[0]),
            10);
  EXPECT_EQ(
      value_of(g, {x, k}, {3, 5}, gradients(scaled(x, k, {.constant_captures = true}), {x, k})[0]),
      5);
  // As an input it has a gradient.
  Tensor both = custom_gradient(
      {x, k}, [](const Tensors& v) { return Tensors{v[0] * v[1]}; },
      [](const Tensors& v, const Tensors&, const Tensors& up) {
        return Tensors{up[0] * v[1], up[0] * v[0]};
      })[0];
  EXPECT_EQ(value_of(g, {x, k}, {3, 5}, gradients(both, {k})[0]), 3);
  // backward's captures are differentiated as any operation's.
  Tensor first = gradients(scaled(x, k, {.constant_captures = true}), {x})[0];
  EXPECT_EQ(value_of(g, {x, k}, {3, 5}, gradients(first, {k})[0]), 1);
}

TEST(CapturedGradient, TheOptionIsKeptInText) {
  Graph g;
  Tensor x = g.placeholder(f64, {}, "x"), k = g.placeholder(f64, {}, "k");
  scaled(x, k, {.constant_captures = true}).named("y");
  Graph again = Graph::from_text(g.to_text());
  EXPECT_NO_THROW(gradients(again.find("y"), {again.find("k")}));
}

TEST(UnrelatedGradient, CanBeRefused) {
  Graph g;
  Tensor x = g.placeholder(f64, {}, "x"), z = g.placeholder(f64, {}, "z");
  Tensor y = square(x);
  EXPECT_EQ(value_of(g, {x, z}, {3, 5}, gradients(y, {z})[0]), 0);
  EXPECT_EQ(said([&] { gradients(y, {x, z}, {}, {.refuse_unrelated = true}); }),
            "gradients: no y depends on xs[1] 'z' (refuse_unrelated)");
  EXPECT_EQ(said([&] { gradients(Tensors{y, z}, {x, z}, Tensors{}, {.refuse_unrelated = true}); }),
            "no error");
  EXPECT_NE(said([&] {
              gradients(stop_gradient(z) * y, {z}, {}, {.refuse_unrelated = true});
            }).find("'z'"),
            std::string::npos);
}

}  // namespace
