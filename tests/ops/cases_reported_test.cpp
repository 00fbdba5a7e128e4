// Small cases of faults that users of comparable systems reported: each test carries the case's id.
// The values are known from NumPy, or by hand.
#include "support/evaluate.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

ops::HostTensor filled(DType dtype, std::vector<int64_t> shape, double value) {
  ops::HostTensor t(dtype, std::move(shape));
  for (double& v : t.f) v = value;
  for (int64_t& v : t.i) v = static_cast<int64_t>(value);
  return t;
}

// f of placeholders that hold the values.
template <class F>
ops::HostTensor value_of(const std::vector<ops::HostTensor>& values, F f) {
  Graph g;
  std::vector<Fed> feeds;
  Tensors xs;
  for (const ops::HostTensor& v : values) {
    xs.push_back(g.placeholder(v.dtype, Shape(v.shape.begin(), v.shape.end())));
    feeds.push_back({xs.back(), v});
  }
  return evaluate(feeds, f(xs));
}

// A flip by a slice of stride -1.
Tensor flipped(const Tensor& x) {
  return slice(x, {.starts = {-1}, .stops = {-x.shape()[0] - Expr(1)}, .strides = {-1}});
}

}  // namespace

TEST(Cases, E06VarianceOfAnEmptyAxisIsNaN) {
  for (DType dtype : {f32, f16, f64}) {
    ops::HostTensor v = value_of({ops::HostTensor(dtype, {3, 0, 5})},
                                 [](const Tensors& x) { return variance(x[0], {.axes = {1}}); });
    EXPECT_EQ(v.shape, (std::vector<int64_t>{3, 5}));
    for (double e : v.f) EXPECT_TRUE(std::isnan(e));
  }
}

TEST(Cases, E08MaximumOfAnEmptyAxisIsAnError) {
  ops::HostTensor v = value_of({ops::HostTensor(f32, {0, 4})},
                               [](const Tensors& x) { return reduce_max(x[0], {.axes = {-1}}); });
  EXPECT_EQ(text(v), "f32[0]");
  Graph g;
  Tensor empty = g.placeholder(f32, {4, 0});
  for (auto reduce : {reduce_max, reduce_min}) {
    std::string error = graph_error([&] { reduce(empty, {.axes = {-1}}); });
    EXPECT_NE(error.find("axis 1"), std::string::npos) << error;
  }
  std::string error = graph_error([&] { argmax(empty); });
  EXPECT_NE(error.find("axis 1"), std::string::npos) << error;
}

TEST(Cases, N01NaNWinsInMaximumAndMinimum) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    std::vector<ops::HostTensor> in = {floats({3}, {1, kNaN, 3}, dtype),
                                       floats({3}, {kNaN, 2, 4}, dtype)};
    std::string d(name(dtype));
    EXPECT_EQ(text(value_of(in, [](const Tensors& x) { return maximum(x[0], x[1]); })),
              d + "[3] nan nan 4");
    EXPECT_EQ(text(value_of(in, [](const Tensors& x) { return minimum(x[0], x[1]); })),
              d + "[3] nan nan 3");
    EXPECT_EQ(text(value_of(in, [](const Tensors& x) { return maximum_number(x[0], x[1]); })),
              d + "[3] 1 2 4");
    EXPECT_EQ(text(value_of(in, [](const Tensors& x) { return minimum_number(x[0], x[1]); })),
              d + "[3] 1 2 3");
  }
}

TEST(Cases, N14MinimumOfIntegers) {
  for (DType dtype : {i8, i16, i32, i64})
    EXPECT_EQ(text(value_of({integers({2}, {3, -2}, dtype), integers({2}, {1, 5}, dtype)},
                            [](const Tensors& x) { return minimum(x[0], x[1]); })),
              std::string(name(dtype)) + "[2] 1 -2");
}

TEST(Cases, I01FloorQuotientAndModulo) {
  for (DType dtype : {i8, i16, i32, i64}) {
    std::vector<ops::HostTensor> in = {integers({4}, {9, -9, 9, -9}, dtype),
                                       integers({4}, {4, 4, -4, -4}, dtype)};
    std::string d(name(dtype));
    EXPECT_EQ(text(value_of(in, [](const Tensors& x) { return x[0] / x[1]; })),
              d + "[4] 2 -3 -3 2");
    EXPECT_EQ(text(value_of(in, [](const Tensors& x) { return floor_modulo(x[0], x[1]); })),
              d + "[4] 1 3 -3 -1");
  }
}

TEST(Cases, I08RunningSumOfBytesWraps) {
  ops::HostTensor ones = filled(i8, {200}, 1);
  EXPECT_EQ(value_of({ones}, [](const Tensors& x) { return cumulative_sum(x[0]); }).i.back(), -56);
  EXPECT_EQ(
      value_of({ones}, [](const Tensors& x) { return cumulative_sum(cast(x[0], i64)); }).i.back(),
      200);
}

TEST(Cases, I11SumOfBytesWraps) {
  EXPECT_EQ(
      text(value_of({integers({3}, {250, 3, 4}, u8)}, [](const Tensors& x) { return sum(x[0]); })),
      "u8[] 1");
}

TEST(Cases, I15BytesAreNotSigned) {
  for (DType dtype : {f32, f64, f16})
    EXPECT_EQ(text(value_of({integers({5}, {0, 127, 128, 200, 255}, u8)},
                            [&](const Tensors& x) { return cast(x[0], dtype); })),
              std::string(name(dtype)) + "[5] 0 127 128 200 255");
}

TEST(Cases, I16CastsOfIntegersAndBooleans) {
  ops::HostTensor x = integers({3}, {-1, 3, 70000}, i64);
  EXPECT_EQ(text(value_of({x}, [](const Tensors& t) { return cast(t[0], f32); })),
            "f32[3] -1 3 70000");
  EXPECT_EQ(text(value_of({x}, [](const Tensors& t) { return cast(t[0], i32); })),
            "i32[3] -1 3 70000");
  EXPECT_EQ(text(value_of({integers({3}, {1, 0, 1}, bool_)},
                          [](const Tensors& t) { return cast(t[0], f32); })),
            "f32[3] 1 0 1");
}

TEST(Cases, F01SoftmaxOfLargeHalves) {
  EXPECT_EQ(text(value_of({floats({3}, {60000, 60000, 0}, f16)},
                          [](const Tensors& x) { return softmax(x[0]); })),
            "f16[3] 0.5 0.5 0");
}

TEST(Cases, F02LogSoftmaxFromPrimitives) {
  EXPECT_EQ(text(value_of({floats({3}, {0, 100, -200}, f32)},
                          [](const Tensors& x) {
                            ReduceOptions all{.axes = {0}, .keep_axes = true};
                            Tensor shifted = x[0] - reduce_max(x[0], all);
                            return shifted - log(sum(exp(shifted), all));
                          })),
            "f32[3] -100 0 -300");
}

TEST(Cases, F08MeanOfHalvesIsKeptInF32) {
  auto halves = [](int64_t n, double value) {
    return text(value_of({filled(f16, {n}, value)}, [](const Tensors& x) { return mean(x[0]); }));
  };
  EXPECT_EQ(halves(3, 60000), "f16[] 60000");
  EXPECT_EQ(halves(4096, 16), "f16[] 16");
}

TEST(Cases, B01SelectBroadcasts) {
  EXPECT_EQ(
      text(value_of({integers({2, 1}, {1, 0}, bool_), integers({1, 3}, {1, 2, 3}, i32)},
                    [](const Tensors& x) { return select(x[0], x[1], constant_like(x[1], -1)); })),
      "i32[2,3] 1 2 3 -1 -1 -1");
}

TEST(Cases, B05ShapesThatDoNotBroadcastAreNamed) {
  Graph g;
  Tensor a = g.placeholder(f32, {2, 3}), b = g.placeholder(f32, {2});
  std::string error = graph_error([&] { add(a, b); });
  EXPECT_NE(error.find("[2,3]"), std::string::npos) << error;
  EXPECT_NE(error.find("[2]"), std::string::npos) << error;
  EXPECT_EQ(error.find("add: "), 0U) << error;
  ops::HostTensor x = filled(f32, {2, 3}, 1);
  EXPECT_EQ(text(evaluate({{a, x}}, sum(a + a))), "f32[] 12");  // the graph is still good
}

TEST(Cases, R01SumAlongAnAxisFromTheEnd) {
  EXPECT_EQ(text(value_of({floats({2, 1, 3, 1, 1}, {1, 2, 3, 4, 5, 6}, f32)},
                          [](const Tensors& x) { return sum(x[0], {.axes = {-3}}); })),
            "f32[2,1,1,1] 6 15");
}

TEST(Cases, R07TheSameSumEachTime) {
  Graph g;
  Tensor x = g.placeholder(f32, {1000000});
  std::mt19937_64 rng(11);
  Array values = to_array(random_tensor(f32, {1000000}, rng));
  Device device = test_device();
  Executable total = g.compile({.feeds = {x}, .targets = {sum(x)}}, device);
  std::vector<std::byte> first = total.run({values})[0].to_bytes();
  int runs = device.name() == "interpreter" ? 1 : 999;
  for (int k = 0; k < runs; ++k) ASSERT_EQ(total.run({values})[0].to_bytes(), first) << k;
  // The number of threads does not matter either.
  Executable alone = g.compile({.feeds = {x}, .targets = {sum(x)}}, device, {.threads = 1});
  EXPECT_EQ(alone.run({values})[0].to_bytes(), first);
}

TEST(Cases, R08RunningSumsInBothDirections) {
  std::vector<ops::HostTensor> x = {floats({3}, {1, 2, 4})};
  EXPECT_EQ(text(value_of(x,
                          [](const Tensors& t) {
                            return cumulative_sum(cumulative_sum(t[0]), {.reverse = true});
                          })),
            "f64[3] 11 10 7");
  EXPECT_EQ(text(value_of(x,
                          [](const Tensors& t) {
                            return cumulative_sum(cumulative_sum(t[0], {.reverse = true}));
                          })),
            "f64[3] 7 13 17");
  ops::HostTensor s = value_of(
      x, [](const Tensors& t) { return cumulative_sum(softmax(t[0]), {.reverse = true}); });
  EXPECT_NEAR(s.f[0], 1, 1e-7);
  EXPECT_NEAR(s.f[1], 0.9579899, 1e-7);
  EXPECT_NEAR(s.f[2], 0.8437948, 1e-7);
}

TEST(Cases, S05PositionsInBothDirections) {
  Graph g;
  Tensor x = g.placeholder(f32, {4}), y = g.placeholder(f32, {4});
  ops::HostTensor v = floats({4}, {1, 5, 3, 2}, f32);
  std::vector<ops::HostTensor> r = evaluate({{x, v}}, {reduce_max(x), argmax(flipped(x))});
  EXPECT_EQ(text(r[0]) + ", " + text(r[1]), "f32[] 5, i64[] 2");
  r = evaluate({{y, v}}, {argmin(y), argmin(flipped(y))});
  EXPECT_EQ(text(r[0]) + ", " + text(r[1]), "i64[] 0, i64[] 3");
}

TEST(Cases, GR10GradientsThroughRunningSums) {
  std::vector<ops::HostTensor> x = {floats({3}, {1, 2, 4})};
  EXPECT_EQ(text(value_of(x,
                          [](const Tensors& t) {
                            return gradients(sum(square(cumulative_sum(t[0]))), {t[0]})[0];
                          })),
            "f64[3] 22 20 14");
  ops::HostTensor g = value_of(
      x, [](const Tensors& t) { return gradients(sum(log(cumulative_sum(t[0]))), {t[0]})[0]; });
  EXPECT_NEAR(g.f[0], 1.4761905, 1e-7);
  EXPECT_NEAR(g.f[1], 0.4761905, 1e-7);
  EXPECT_NEAR(g.f[2], 0.1428571, 1e-7);
}

TEST(Cases, G13ReadsOutsideOfOneElement) {
  std::vector<ops::HostTensor> x = {floats({1}, {3}, f32)};
  EXPECT_EQ(text(value_of(x,
                          [](const Tensors& t) {
                            return gather(exp(t[0]), Graph(t[0].graph()).constant(int64_t{1}, i64));
                          })),
            "f32[] 0");
  EXPECT_EQ(text(value_of(x,
                          [](const Tensors& t) {
                            Tensor one = Graph(t[0].graph()).constant(1.0, f32, {1});
                            return stencil(
                                exp(t[0]), one,
                                {.padding = WindowPadding::explicit_offset, .offsets = {2}});
                          })),
            "f32[1] 0");
}

TEST(Cases, G14GradientOfAScatterOutside) {
  EXPECT_EQ(text(value_of({floats({1}, {3}, f32), floats({1}, {5}, f32)},
                          [](const Tensors& t) {
                            Tensor index = Graph(t[0].graph()).constant(int64_t{1}, i64, {1});
                            Tensor y = scatter_add(t[0], index, t[1]);
                            return gradients(sum(square(y)), {t[1]})[0];
                          })),
            "f32[1] 0");
}

TEST(Cases, L03LargestOfWindowsOfOneWithStride) {
  ops::HostTensor x(f32, {4, 6});
  for (size_t k = 0; k < x.f.size(); ++k) x.f[k] = static_cast<double>(k);
  EXPECT_EQ(text(value_of({x},
                          [](const Tensors& t) {
                            Tensor one = broadcast_to(constant_like(t[0], 1), {1, 1});
                            return stencil(t[0], one,
                                           {.reduction = WindowReduction::max,
                                            .padding = WindowPadding::valid,
                                            .before = {},
                                            .after = {},
                                            .offsets = {},
                                            .strides = {2, 2},
                                            .dilations = {}});
                          })),
            "f32[2,3] 0 2 4 12 14 16");
}

TEST(Cases, L06LargestOfWindowsWithPositions) {
  ops::HostTensor x = floats({2, 2, 2}, {1, 3, 2, 0, 5, 4, 6, 7}, f32);
  auto pooled = [&](WindowReduction reduction) {
    return text(value_of({x}, [&](const Tensors& t) {
      Tensor ones = broadcast_to(constant_like(t[0], 1), {2, 2});
      return stencil(t[0], ones,
                     {.reduction = reduction,
                      .padding = WindowPadding::valid,
                      .before = {},
                      .after = {},
                      .offsets = {},
                      .strides = {},
                      .dilations = {}});
    }));
  };
  EXPECT_EQ(pooled(WindowReduction::max), "f32[2,1,1] 3 7");
  EXPECT_EQ(pooled(WindowReduction::argmax), "i32[2,1,1] 1 3");  // in its channel's window
}

TEST(Cases, RN01GatedRecurrentStepFromPrimitives) {
  // x = 1, h = 0.5; W(z,r,h) = 0.5, 0.25, 1; R = 0.5, -0.5, 2; candidate biases 0.1 and 0.3.
  for (bool reset_after : {false, true}) {
    ops::HostTensor next = value_of({floats({}, {1}), floats({}, {0.5})}, [&](const Tensors& v) {
      const Tensor &x = v[0], &h = v[1];
      Tensor z = sigmoid(x * 0.5 + h * 0.5), r = sigmoid(x * 0.25 - h * 0.5);
      Tensor candidate =
          reset_after ? tanh(x + 0.1 + r * (h * 2.0 + 0.3)) : tanh(x + 0.1 + (r * h) * 2.0 + 0.3);
      return (1.0 - z) * candidate + z * h;
    });
    EXPECT_NEAR(next.f[0], reset_after ? 0.6416027 : 0.6463707, 1e-7);
  }
}
