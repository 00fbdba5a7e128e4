// First and second derivatives of elementwise operations and reductions against central differences
// of the judge in f64.
#include "ops/helpers.h"
#include "support/numeric.h"

#include <heddle/ops.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace heddle::test {
namespace {

using Build = std::function<Tensor(const Tensors&)>;

// d target / d feeds[which] (one number for each element), by central differences; target is a
// scalar.
std::vector<double> slopes(const Tensors& feeds, const Tensor& target,
                           std::vector<HostTensor> values, size_t which) {
  std::vector<double> out;
  auto evaluate = [&] { return judged_one(feeds, target, values).f[0]; };
  for (size_t k = 0; k < values[which].f.size(); ++k) {
    double at = values[which].f[k], step = 1e-5 * std::max(1.0, std::fabs(at));
    values[which].f[k] = at + step;
    double up = evaluate();
    values[which].f[k] = at - step;
    double down = evaluate();
    values[which].f[k] = at;
    out.push_back((up - down) / (2 * step));
  }
  return out;
}

// A scalar that depends on every element of y with another weight.
Tensor weighted(const Tensor& y, double phase) {
  Tensor flat = reshape(y, Shape{Expr(-1)});
  Tensor weights = cast(coordinate_like(flat, 0, i32), f64) * 0.37 + phase;
  return sum(flat * (weights - floor(weights) + 0.25));
}

void expect_close(const HostTensor& got, const std::vector<double>& expected,
                  const std::string& what) {
  ASSERT_EQ(got.f.size(), expected.size()) << what;
  for (size_t k = 0; k < expected.size(); ++k)
    EXPECT_NEAR(got.f[k], expected[k], 2e-6 * std::max(1.0, std::fabs(expected[k])))
        << what << ", element " << k;
}

struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;
  Build build;
  double low = -2, high = 2;
  bool second = true;
};

void check(const Case& c) {
  std::mt19937_64 rng(5);
  Graph graph;
  Tensors feeds;
  std::vector<HostTensor> values;
  for (const auto& shape : c.shapes) {
    feeds.push_back(graph.placeholder(f64, Shape(shape.begin(), shape.end())));
    values.push_back(random_tensor(f64, shape, rng, c.low, c.high));
  }
  Tensor loss = weighted(c.build(feeds), 0.1);
  Tensors first = gradients(loss, feeds);
  std::vector<HostTensor> got = judged(feeds, first, values);
  for (size_t k = 0; k < feeds.size(); ++k) {
    EXPECT_EQ(got[k].shape, c.shapes[k]) << c.name;
    expect_close(got[k], slopes(feeds, loss, values, k),
                 c.name + " by operand " + std::to_string(k));
  }
  if (!c.second) return;
  Tensor again;
  for (size_t k = 0; k < feeds.size(); ++k) {
    Tensor part = weighted(first[k], 0.3 + 0.2 * static_cast<double>(k));
    again = again.valid() ? again + part : part;
  }
  std::vector<HostTensor> second = judged(feeds, gradients(again, feeds), values);
  for (size_t k = 0; k < feeds.size(); ++k)
    expect_close(second[k], slopes(feeds, again, values, k),
                 c.name + ", second order, by operand " + std::to_string(k));
}

TEST(Gradient, Binary) {
  std::vector<std::vector<int64_t>> shapes = {{2, 3}, {3}};
  auto binary = [&](std::string name, Tensor (*op)(const Tensor&, const Tensor&), double low = -2,
                    double high = 2) {
    check({name, shapes, [op](const Tensors& t) { return op(t[0], t[1]); }, low, high});
  };
  binary("add", add);
  binary("subtract", subtract);
  binary("multiply", multiply);
  binary("divide", divide, 0.5, 2);
  binary("floor_modulo", floor_modulo, 1.1, 7);
  binary("minimum", minimum);
  binary("maximum", maximum);
  binary("minimum_number", minimum_number);
  binary("maximum_number", maximum_number);
  binary("power", power, 0.3, 2);
}

TEST(Gradient, Unary) {
  auto unary = [&](std::string name, Tensor (*op)(const Tensor&), double low = -2,
                   double high = 2) {
    check({name, {{5}}, [op](const Tensors& t) { return op(t[0]); }, low, high});
  };
  unary("negate", negate);
  unary("abs", abs);
  unary("square", square);
  unary("sqrt", sqrt, 0.3, 4);
  unary("rsqrt", rsqrt, 0.3, 4);
  unary("exp", exp);
  unary("log", log, 0.3, 4);
  unary("tanh", tanh);
  unary("sigmoid", sigmoid);
  unary("erf", erf);
  unary("relu", relu);
  unary("identity", identity);
}

TEST(Gradient, Ternary) {
  check({"clamp", {{4, 3}, {3}, {}}, [](const Tensors& t) {
           return clamp(t[0], t[1] - 1.0, t[2] + 1.0);
         }});
  check({"select", {{4}, {4}}, [](const Tensors& t) {
           return select(less(t[0], t[1]), t[0] * t[0], exp(t[1]));
         }});
}

TEST(Gradient, Reductions) {
  for (bool keep : {false, true}) {
    ReduceOptions some{.axes = {-1, 0}, .keep_axes = keep}, all{.axes = {}, .keep_axes = keep};
    for (const ReduceOptions& o : {some, all}) {
      std::vector<std::vector<int64_t>> shape = {{2, 3, 4}};
      check({"sum", shape, [o](const Tensors& t) { return square(sum(t[0], o)); }});
      check({"mean", shape, [o](const Tensors& t) { return square(mean(t[0], o)); }});
      check({"variance", shape, [o](const Tensors& t) { return square(variance(t[0], o)); }});
      check({"reduce_max", shape, [o](const Tensors& t) { return square(reduce_max(t[0], o)); }});
      check({"reduce_min", shape, [o](const Tensors& t) { return square(reduce_min(t[0], o)); }});
    }
  }
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true})
      check({"cumulative_sum", {{3, 4}}, [=](const Tensors& t) {
               return square(
                   cumulative_sum(t[0], {.axis = 0, .exclusive = exclusive, .reverse = reverse}));
             }});
}

TEST(Gradient, Dequantize) {
  for (auto shapes : {std::vector<std::vector<int64_t>>{{3, 2}, {3, 2}}, {{2}, {}}, {{}, {2}}}) {
    check({"dequantize", shapes, [](const Tensors& t) {
             Tensor q =
                 cast(coordinate_like(broadcast_to(constant_like(t[0], 0), {3, 4}), 1), DType::u4);
             return dequantize(q, t[0], t[1], {.axis = 1, .block = 2});
           }});
  }
}

// ---- points where conventions decide

HostTensor gradient_at(const std::vector<double>& x,
                       const std::function<Tensor(const Tensor&)>& f) {
  Graph g;
  Tensor t = g.placeholder(f64, {Expr(static_cast<int64_t>(x.size()))});
  return judged_one({t}, gradients(f(t), {t})[0], {host(f64, {static_cast<int64_t>(x.size())}, x)});
}

TEST(Gradient, Conventions) {
  auto constant = [](double v) { return [v](const Tensor& t) { return constant_like(t, v); }; };
  EXPECT_EQ(gradient_at({0, 3}, square).f, (std::vector<double>{0, 6}));
  EXPECT_EQ(gradient_at({0, 3}, [&](const Tensor& t) { return power(t, constant(2)(t)); }).f,
            (std::vector<double>{0, 6}));
  EXPECT_EQ(gradient_at({0, 3}, [&](const Tensor& t) { return power(t, constant(0)(t)); }).f,
            (std::vector<double>{0, 0}));
  EXPECT_EQ(gradient_at({-1, 0, 2}, relu).f, (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(gradient_at({-1, 0, 2}, abs).f, (std::vector<double>{-1, 0, 1}));
  EXPECT_EQ(gradient_at({1, 0}, [&](const Tensor& t) { return maximum(t, constant(1)(t)); }).f,
            (std::vector<double>{0.5, 0}));
  EXPECT_EQ(gradient_at({0, 1, 2},
                        [&](const Tensor& t) { return clamp(t, constant(0)(t), constant(1)(t)); })
                .f,
            (std::vector<double>{1, 1, 0}));
  EXPECT_EQ(gradient_at({4, 1, 4}, [](const Tensor& t) { return reduce_max(t); }).f,
            (std::vector<double>{0.5, 0, 0.5}));
  EXPECT_EQ(gradient_at({1, 2}, [](const Tensor& t) { return stop_gradient(t) * t; }).f,
            (std::vector<double>{1, 2}));
  // The exponent's gradient at 0^y, y >= 0, is 0, not NaN.
  EXPECT_EQ(gradient_at({2, 0}, [&](const Tensor& t) { return power(constant(0)(t), t); }).f,
            (std::vector<double>{0, 0}));
}

TEST(Gradient, ComplexFollowsTheConjugateConvention) {
  // d|z|^2 = 2 z; L = re(z w): conj(w).
  Graph g;
  Tensor z = g.placeholder(c128, {1}), w = g.placeholder(c128, {1});
  HostTensor a(c128, {1}), b(c128, {1});
  a.c[0] = {3, -4};
  b.c[0] = {0.5, 2};
  EXPECT_EQ(judged_one({z}, gradients(square(abs(z)), {z})[0], {a}).c[0],
            std::complex<double>(6, -8));
  EXPECT_EQ(judged_one({z, w}, gradients(real(z * w), {z})[0], {a, b}).c[0], std::conj(b.c[0]));
  // Holomorphic functions: conj(f') times the upstream 1.
  auto slope = [&](const Tensor& y) {
    return judged_one({z}, gradients(real(y), {z})[0], {a}).c[0];
  };
  std::complex<double> x = a.c[0], t = std::tanh(x);
  EXPECT_NEAR(std::abs(slope(exp(z)) - std::conj(std::exp(x))), 0, 1e-12);
  EXPECT_NEAR(std::abs(slope(log(z)) - std::conj(1.0 / x)), 0, 1e-12);
  EXPECT_NEAR(std::abs(slope(tanh(z)) - std::conj(1.0 - t * t)), 0, 1e-12);
  EXPECT_NEAR(std::abs(slope(sqrt(z)) - std::conj(0.5 / std::sqrt(x))), 0, 1e-12);
  EXPECT_NEAR(std::abs(slope(1.0 / z) - std::conj(-1.0 / (x * x))), 0, 1e-12);
}

TEST(Gradient, ThroughCasts) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}), n = g.placeholder(i32, {2});
  Tensor y = sum(cast(x, f64) * cast(n, f64));
  HostTensor got =
      judged_one({x, n}, gradients(y, {x})[0], {host(f32, {2}, {1, 2}), host(i32, {2}, {3, 4})});
  EXPECT_EQ(got.dtype, f32);
  EXPECT_EQ(got.f, (std::vector<double>{3, 4}));
}

}  // namespace
}  // namespace heddle::test
