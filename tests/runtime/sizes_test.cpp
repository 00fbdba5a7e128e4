// What inference leaves open for symbolic sizes is checked when a run brings the numbers: the same
// sentence as for numbers in the graph, and never a result.
#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <functional>

namespace hd = heddle;

namespace {

using Values = std::vector<float>;

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const hd::GraphError& e) {
    return e.what();
  }
  return "no error";
}

struct Case {
  std::string what;
  std::function<hd::Tensor(const hd::Tensor&)> build;
  int64_t good, bad;
  std::string error;  // how the sentence begins, for both
};

std::vector<Case> cases() {
  auto padded = [](int64_t each, hd::PaddingMode mode) {
    return [=](const hd::Tensor& x) {
      return hd::pad(x, {.before = {each}, .after = {each}, .mode = mode});
    };
  };
  return {
      {"reshape with -1", [](const hd::Tensor& x) { return hd::reshape(x, {-1, 2}); }, 4, 3,
       "reshape: shape [-1,2]: the -1 at axis 0 has no value"},
      {"reshape", [](const hd::Tensor& x) { return hd::reshape(x, {2, 3}); }, 6, 4,
       "reshape: shape [2,3] has 6 elements, x"},
      {"reduce_max", [](const hd::Tensor& x) { return hd::reduce_max(x); }, 1, 0,
       "reduce_max: axis 0 of x"},
      {"argmin", [](const hd::Tensor& x) { return hd::argmin(x); }, 1, 0, "argmin: axis 0 of x"},
      {"reflect", padded(1, hd::PaddingMode::reflect), 2, 0, "pad: axis 0 of x"},
      {"crop", padded(-2, hd::PaddingMode::zero), 4, 3,
       "pad: before -2 and after -2 crop more than the extent"},
      {"window",
       [](const hd::Tensor& x) {
         hd::Tensor ones = hd::broadcast_to(hd::constant_like(x, 1), {3});
         hd::StencilOptions options;
         options.padding = hd::WindowPadding::valid;
         return hd::stencil(x, ones, options);
       },
       3, 2, "stencil: the window 3 along axis 0 is longer than the padded x"},
      {"empty window",
       [](const hd::Tensor& x) {
         return hd::stencil(hd::broadcast_to(hd::constant_like(x, 1), {5}), x, {});
       },
       2, 0, "stencil: weights"}};
}

hd::Array zeros(int64_t n) { return hd::Array::zeros(hd::f32, {n}); }

}  // namespace

TEST(Sizes, WhatSymbolsLeaveOpenIsCheckedAtEachRun) {
  for (const char* device : {"interpreter", "judge"}) {
    for (const Case& c : cases()) {
      hd::Graph graph, numbers;
      hd::Dim n("n");
      hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
      hd::Executable e = graph.compile({.feeds = {x}, .targets = {c.build(x)}}, hd::device(device));
      EXPECT_EQ(message([&] { e.run({zeros(c.good)}); }), "no error") << c.what;
      std::string later = message([&] { e.run({zeros(c.bad)}); });
      EXPECT_EQ(later.find(c.error), 0U) << c.what << ": " << later;
      EXPECT_NE(later.find("n is " + std::to_string(c.bad) + " in this run"), std::string::npos)
          << later;
      EXPECT_EQ(message([&] { e.run({zeros(c.good)}); }), "no error") << c.what;
      std::string early =
          message([&] { c.build(numbers.placeholder(hd::f32, {hd::Expr(c.bad)}, "x")); });
      EXPECT_EQ(early.find(c.error), 0U) << c.what << ": " << early;
    }
  }
}

TEST(Sizes, SpecialisingTellsAtOnce) {
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
  hd::Tensor y = hd::reshape(x, {-1, 2});
  EXPECT_EQ(message([&] {
              graph.compile({.feeds = {{x, hd::type(hd::f32, {3})}}, .targets = {y}},
                            hd::device("interpreter"));
            }),
            "reshape: shape [-1,2]: the -1 at axis 0 has no value: [3] has 3 elements");
}

TEST(Sizes, GradientsOfAnOpenReshape) {
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
  hd::Tensor loss = hd::sum(hd::square(hd::reshape(x, {-1, 2})));
  hd::Array v = hd::Array::from<float>({4}, {1, 2, 3, 4});
  EXPECT_EQ(graph.run({{x, v}}, {hd::gradients(loss, {x})[0]}, {}, hd::device("interpreter"))[0]
                .to_vector<float>(),
            (Values{2, 4, 6, 8}));
}

// An empty batch: -1 beside it still has a value, as what remains does not depend on the batch.
TEST(Sizes, EmptyBatches) {
  hd::Graph graph;
  hd::Dim n("n"), m("m");
  hd::Tensor x = graph.placeholder(hd::f32, {n, 3, m}, "x");
  hd::Tensor y = hd::reshape(x, {n, -1});
  for (int64_t size : {0, 2}) {
    hd::Array out = graph.run({{x, hd::Array::zeros(hd::f32, {size, 3, 5})}}, {y}, {},
                              hd::device("interpreter"))[0];
    EXPECT_EQ(out.shape(), (std::vector<int64_t>{size, 15}));
  }
}

TEST(Sizes, TooManyElementsAreAnErrorOfTheOperation) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1}, "x");
  hd::Expr huge = int64_t{1} << 40;
  std::string error = message([&] { hd::broadcast_to(x, {huge, huge}); });
  EXPECT_NE(error.find("has more elements than fit"), std::string::npos) << error;
  EXPECT_EQ(message([&] { hd::broadcast_to(x, {huge, huge, 0}); }), "no error");
}
