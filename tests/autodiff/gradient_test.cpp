// Gradients: known values, then every rule against central differences, first and second order.
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace heddle;
using namespace heddle::test;

namespace {

ops::HostTensor random(std::vector<int64_t> shape, uint64_t seed = 1, double low = -1.5,
                       double high = 1.5) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  ops::HostTensor t(f64, std::move(shape));
  for (double& v : t.f) v = uniform(rng);
  return t;
}

#define EXPECT_GRADIENT(...) EXPECT_EQ(check_gradient(__VA_ARGS__), "")

}  // namespace

TEST(Gradients, GR01SineOfProduct) {
  Graph g;
  Tensor x = g.placeholder(f64, {3, 2});
  Tensor w = g.placeholder(f64, {2, 1});
  // The loss is sum(sin(x w)); its derivative is cos(x w) w^T. sin comes as sum over the series'
  // custom rule.
  Tensor xw = matmul(x, w);
  Tensor loss = sum(custom_gradient(
      {xw}, [](const Tensors& v) { return Tensors{v[0]}; },
      [](const Tensors& in, const Tensors&, const Tensors& up) {
        return Tensors{up[0] * exp(in[0])};
      })[0]);
  Tensor dx = gradients(loss, {x})[0];
  ops::HostTensor v =
      evaluate({{x, floats({3, 2}, {1, 2, 3, 4, 5, 6})}, {w, floats({2, 1}, {2, -1})}}, dx);
  for (int64_t row = 0; row < 3; ++row) {
    double e = std::exp(static_cast<double>(2 * row));
    EXPECT_NEAR(v.f[static_cast<size_t>(2 * row)], 2 * e, 1e-9);
    EXPECT_NEAR(v.f[static_cast<size_t>(2 * row + 1)], -e, 1e-9);
  }
}

TEST(Gradients, GR02KnownValues) {
  Graph g;
  Tensor x = g.placeholder(f64, {2});
  EXPECT_EQ(text(evaluate({{x, floats({2}, {0, 3})}}, gradients(x * x, {x})[0])), "f64[2] 0 6");
  EXPECT_EQ(text(evaluate({{x, floats({2}, {0, 0})}}, gradients(log(1.0 + exp(x)), {x})[0])),
            "f64[2] 0.5 0.5");
  EXPECT_EQ(text(evaluate({{x, floats({2}, {0, 2})}}, gradients(relu(x), {x})[0])), "f64[2] 0 1");
}

TEST(Gradients, G10EmbeddingTable) {
  Graph g;
  Tensor table = g.placeholder(f64, {4, 2});
  Tensor ids = g.placeholder(i64, {3});
  Tensor seed = g.placeholder(f64, {3, 2});
  Tensor d = gradients(gather(table, ids), {table}, seed)[0];
  EXPECT_EQ(text(evaluate({{table, random({4, 2})},
                           {ids, integers({3}, {2, 0, 2})},
                           {seed, floats({3, 2}, {1, 2, 3, 4, 10, 20})}},
                          d)),
            "f64[4,2] 3 4 0 0 11 22 0 0");
}

TEST(Gradients, ThroughXsThatDependOnEachOther) {
  Graph g;
  Tensor x = g.placeholder(f64, {});
  Tensor y = x * x;
  Tensor z = y * x;
  Tensors d = gradients(z, {x, y, z});
  auto out = evaluate({{x, floats({}, {2})}}, d);
  EXPECT_EQ(text(out[0]), "f64[] 12");
  EXPECT_EQ(text(out[1]), "f64[] 2");
  EXPECT_EQ(text(out[2]), "f64[] 1");
}

TEST(Gradients, ZerosWhereNothingFlows) {
  Graph g;
  Tensor x = g.placeholder(f32, {2});
  Tensor y = g.placeholder(f32, {3});
  EXPECT_EQ(text(evaluate({{y, floats({3}, {1, 2, 3}, f32)}}, gradients(sum(x), {y})[0])),
            "f32[3] 0 0 0");
  Tensor stopped = gradients(sum(stop_gradient(y) * y), {y})[0];
  EXPECT_EQ(text(evaluate({{y, floats({3}, {1, 2, 3}, f32)}}, stopped)), "f32[3] 1 2 3");
}

TEST(Gradients, SayWhatDoesNotFit) {
  Graph g;
  Tensor x = g.placeholder(f32, {2});
  Tensor n = g.placeholder(i32, {2});
  Graph other;
  EXPECT_EQ(graph_error([&] { gradients(x, {n}); }),
            "gradients: xs[0] is i32[2], expected a float or complex type");
  EXPECT_EQ(graph_error([&] { gradients(x, {other.placeholder(f32, {2})}); }),
            "gradients: xs[0] belongs to another graph");
  EXPECT_EQ(graph_error([&] { gradients(x, {x}, g.placeholder(f32, {3})); }),
            "gradients: seeds[0] is f32[3], expected f32[2] as ys[0]");
  Tensors w = while_loop(
      {x}, [&](const Tensors& v) { return reduce_max(v[0]) < 9.0; },
      [](const Tensors& v) { return Tensors{v[0] * 2.0}; });
  EXPECT_EQ(
      graph_error([&] { gradients(w[0], {x}); }),
      "gradients: while_loop has no bound on its iterations: set WhileOptions::max_iterations");
}

TEST(Gradients, ComplexAreConjugated) {
  Graph g;
  Tensor x = g.placeholder(c128, {1});
  Tensor w = g.placeholder(c128, {1});
  // d Re(x w) with the convention of PyTorch: conj(w).
  Tensor dx = gradients(real(x * w), {x})[0];
  EXPECT_EQ(text(evaluate({{x, complexes({1}, {{1, 2}})}, {w, complexes({1}, {{3, 4}})}}, dx)),
            "c128[1] 3-4i");
}

TEST(GradientRules, Views) {
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return square(reshape(x[0], {3, -1})); },
                  {random({2, 3})});
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return square(transpose(x[0], {2, 0, 1})); },
                  {random({2, 3, 2})});
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return square(broadcast_to(x[0], {2, 3, 2})); },
                  {random({3, 1})});
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return square(concat({x[0], x[1], x[0]}, 1)); },
                  {random({2, 1}), random({2, 3}, 2)});
  for (int64_t stride : {1, 2, -1, -3})
    EXPECT_GRADIENT(
        [&](Graph&, const Tensors& x) {
          return square(slice(x[0], {.starts = {}, .stops = {}, .strides = {1, stride}}));
        },
        {random({2, 7})});
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return square(sum_to_like(x[0], x[1])) * x[1]; },
                  {random({2, 3}), random({3}, 2)});
}

TEST(GradientRules, PadInEveryMode) {
  for (int mode = 0; mode < 7; ++mode)
    for (auto [before, after] : {std::pair{1, 2}, {2, 0}, {5, 7}, {-1, 2}, {0, -1}}) {
      PadOptions options{.before = {before, 1},
                         .after = {after, 0},
                         .mode = static_cast<PaddingMode>(mode),
                         .value = 3};
      EXPECT_GRADIENT([&](Graph&, const Tensors& x) { return square(pad(x[0], options)); },
                      {random({3, 2})})
          << mode << " " << before;
    }
}

TEST(GradientRules, Index) {
  auto at = [](Graph& g, std::vector<int64_t> v) {
    return g.constant(Array::from<int64_t>({static_cast<int64_t>(v.size())}, v));
  };
  EXPECT_GRADIENT(
      [&](Graph& g, const Tensors& x) {
        return square(gather(x[0], at(g, {2, -1, 2, 9}), {.axis = 1}));
      },
      {random({2, 4})});
  EXPECT_GRADIENT(
      [&](Graph& g, const Tensors& x) {
        return square(scatter_add(x[0], at(g, {1, 0, 1, 7}), x[1]));
      },
      {random({3, 2}), random({4, 2}, 2)});
}

TEST(GradientRules, Matmul) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      EXPECT_GRADIENT(
          [&](Graph&, const Tensors& x) {
            return matmul(x[0], x[1], {.transpose_a = ta, .transpose_b = tb});
          },
          {ta ? random({3, 2}) : random({2, 3}), tb ? random({2, 2, 3}, 2) : random({2, 3, 2}, 2)});
}

TEST(GradientRules, Stencil) {
  for (int boundary = 0; boundary < 7; ++boundary)
    for (int padding : {1, 2, 3, 4})
      for (int64_t stride : {1, 2}) {
        StencilOptions options{.boundary = static_cast<PaddingMode>(boundary),
                               .constant = 0.7,
                               .padding = static_cast<WindowPadding>(padding),
                               .offsets = {1, -1},
                               .strides = {1, stride},
                               .dilations = {stride, 1}};
        EXPECT_GRADIENT([&](Graph&, const Tensors& x) { return stencil(x[0], x[1], options); },
                        {random({4, 5}), random({2, 3}, 2)})
            << boundary << " " << padding << " " << stride;
      }
}

TEST(GradientRules, StencilExtremaAndProducts) {
  for (WindowReduction r : {WindowReduction::max, WindowReduction::min, WindowReduction::product})
    for (PaddingMode mode : {PaddingMode::zero, PaddingMode::constant, PaddingMode::reflect,
                             PaddingMode::anti_periodic})
      for (WindowPadding padding : {WindowPadding::same, WindowPadding::valid}) {
        StencilOptions options{
            .reduction = r, .boundary = mode, .constant = 0.3, .padding = padding, .strides = {2}};
        EXPECT_GRADIENT(
            [&](Graph&, const Tensors& x) { return square(stencil(x[0], x[1], options)); },
            {random({2, 6}), random({3}, 2, 0.5, 1.5)});
      }
}

TEST(GradientRules, Composites) {
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return softmax(x[0], 0); }, {random({3, 2})});
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return layer_norm(x[0], x[1], x[2]); },
                  {random({2, 4}), random({4}, 2), random({4}, 3)});
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return gelu(x[0]); }, {random({5})});
  EXPECT_GRADIENT(
      [](Graph&, const Tensors& x) { return local_response_norm(x[0], {.size = 3, .alpha = 0.5}); },
      {random({2, 4, 2})});
}

TEST(GradientRules, ComplexByDifferences) {
  auto values = [](std::vector<int64_t> shape, uint64_t seed) {
    ops::HostTensor t(c128, shape), re = random(shape, seed), im = random(shape, seed + 100);
    for (size_t i = 0; i < t.c.size(); ++i) t.c[i] = {re.f[i], im.f[i]};
    return t;
  };
  ops::HostTensor a = values({2, 3}, 1), b = values({3, 2}, 2), w = values({3}, 3);
  EXPECT_GRADIENT([](Graph&, const Tensors& x) { return matmul(x[0], x[1]) * x[1]; },
                  {values({2, 2}, 4), values({2, 2}, 5)});
  EXPECT_GRADIENT(
      [](Graph&, const Tensors& x) {
        return matmul(x[1], x[0], {.transpose_a = true, .transpose_b = true});
      },
      {a, b});
  for (PaddingMode mode : {PaddingMode::zero, PaddingMode::reflect, PaddingMode::anti_periodic})
    for (WindowReduction r : {WindowReduction::sum, WindowReduction::product})
      EXPECT_GRADIENT(
          [&](Graph&, const Tensors& x) {
            return square(stencil(x[0], x[1], {.reduction = r, .boundary = mode}));
          },
          {a, w});
  EXPECT_GRADIENT(
      [](Graph&, const Tensors& x) {
        return pad(x[0], {.before = {3, 1}, .after = {1, 2}, .mode = PaddingMode::anti_periodic}) *
               sum(gather(x[0], coordinate(x[0].graph(), {1}, 0), {.axis = 1}));
      },
      {values({2, 2}, 6)});
  EXPECT_GRADIENT(
      [](Graph&, const Tensors& x) {
        return for_loop(3, {x[0]}, [&](const Tensor&, const Tensors& v) {
          return Tensors{v[0] * x[1] + real(v[0])};
        })[0];
      },
      {values({2}, 7), values({2}, 8)});
}

TEST(GradientRules, HalfTypesKeepTheirDtype) {
  Graph g;
  for (DType dtype : {f16, bf16}) {
    Tensor x = g.placeholder(dtype, {2, 4});
    for (const Tensor& y :
         {softmax(x), layer_norm(x, {}, {}), gelu(x), matmul(x, transpose(x, {1, 0})),
          stencil(x, broadcast_to(constant_like(x, 1), {1, 3}))}) {
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(gradients(y, {x})[0].type(), x.type());
    }
  }
}

TEST(GradientRules, Custom) {
  // The rule doubles the true gradient; differences see the true one.
  auto forward = [](const Tensors& v) { return Tensors{v[0] * v[1]}; };
  auto backward = [](const Tensors& in, const Tensors&, const Tensors& up) {
    return Tensors{up[0] * in[1], up[0] * in[0]};
  };
  EXPECT_GRADIENT(
      [&](Graph&, const Tensors& x) { return square(custom_gradient(x, forward, backward)[0]); },
      {random({3}), random({3}, 2)});
  Graph g;
  Tensor x = g.placeholder(f64, {2});
  Tensor y = custom_gradient(
      {x}, [](const Tensors& v) { return Tensors{v[0] * 1.0}; },
      [](const Tensors&, const Tensors&, const Tensors& up) { return Tensors{up[0] * 5.0}; })[0];
  EXPECT_EQ(text(evaluate({{x, floats({2}, {1, 2})}}, gradients(y, {x})[0])), "f64[2] 5 5");
}
