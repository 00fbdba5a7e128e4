// Windows: values by hand and by an independent loop.
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <numeric>

using namespace heddle;
using namespace heddle::test;

namespace {

ops::HostTensor iota(std::vector<int64_t> shape, double step = 1) {
  ops::HostTensor t(f64, std::move(shape));
  for (size_t i = 0; i < t.f.size(); ++i) t.f[i] = step * static_cast<double>(i);
  return t;
}

std::string run(const ops::HostTensor& x, const ops::HostTensor& w, const StencilOptions& options) {
  Graph g;
  Tensor a = g.placeholder(x.dtype, Shape(x.shape.begin(), x.shape.end()));
  Tensor b = g.placeholder(w.dtype, Shape(w.shape.begin(), w.shape.end()));
  return text(evaluate({{a, x}, {b, w}}, stencil(a, b, options)));
}

}  // namespace

TEST(Stencil, DefaultsAreThoseOfAnImageFilter) {
  EXPECT_EQ(run(floats({5}, {1, 2, 3, 4, 5}), floats({3}, {1, 10, 100}), {}),
            "f64[5] 210 321 432 543 54");
  EXPECT_EQ(run(iota({3, 3}), floats({3, 3}, {0, 1, 0, 1, -4, 1, 0, 1, 0}), {}),
            "f64[3,3] 4 2 -2 -2 0 -6 -14 -10 -20");
}

TEST(Stencil, C01StridesOnAPlane) {
  ops::HostTensor ones = floats({3, 3}, std::vector<double>(9, 1));
  EXPECT_EQ(run(iota({5, 5}), ones, {.padding = WindowPadding::valid, .strides = {1, 2}}),
            "f64[3,2] 54 72 99 117 144 162");
}

TEST(Stencil, C03SurplusPadsGoToTheEnd) {
  ops::HostTensor ones = floats({2, 2}, std::vector<double>(4, 1));
  EXPECT_EQ(run(iota({4, 4}), ones, {}),
            "f64[4,4] 10 14 18 10 26 30 34 18 42 46 50 26 25 27 29 15");
  EXPECT_EQ(run(iota({3}), floats({2}, {1, 1}), {.padding = WindowPadding::same_lower}),
            "f64[3] 0 1 3");
}

TEST(Stencil, EveryBoundary) {
  ops::HostTensor x = floats({3}, {1, 2, 3});
  ops::HostTensor left = floats({3}, {1, 0, 0});  // reads one to the left
  auto at = [&](PaddingMode mode) { return run(x, left, {.boundary = mode, .constant = 9}); };
  EXPECT_EQ(at(PaddingMode::zero), "f64[3] 0 1 2");
  EXPECT_EQ(at(PaddingMode::constant), "f64[3] 9 1 2");
  EXPECT_EQ(at(PaddingMode::reflect), "f64[3] 2 1 2");
  EXPECT_EQ(at(PaddingMode::symmetric), "f64[3] 1 1 2");
  EXPECT_EQ(at(PaddingMode::clamp_to_edge), "f64[3] 1 1 2");
  EXPECT_EQ(at(PaddingMode::periodic), "f64[3] 3 1 2");
  EXPECT_EQ(at(PaddingMode::anti_periodic), "f64[3] -3 1 2");
}

TEST(Stencil, EveryReduction) {
  ops::HostTensor x = floats({4}, {3, 1, 1, 4});
  ops::HostTensor ones = floats({3}, {1, 1, 1});
  auto with = [&](WindowReduction r) {
    return run(x, ones, {.reduction = r, .padding = WindowPadding::valid});
  };
  EXPECT_EQ(with(WindowReduction::sum), "f64[2] 5 6");
  EXPECT_EQ(with(WindowReduction::product), "f64[2] 3 4");
  EXPECT_EQ(with(WindowReduction::min), "f64[2] 1 1");
  EXPECT_EQ(with(WindowReduction::max), "f64[2] 3 4");
  EXPECT_EQ(with(WindowReduction::argmin), "i32[2] 1 0");  // first of equals
  EXPECT_EQ(with(WindowReduction::argmax), "i32[2] 0 2");
  // The weights multiply first.
  EXPECT_EQ(run(x, floats({3}, {1, 1, -5}),
                {.reduction = WindowReduction::argmin, .padding = WindowPadding::valid}),
            "i32[2] 2 2");
}

TEST(Stencil, OffsetsAndDilations) {
  ops::HostTensor x = floats({6}, {0, 1, 2, 3, 4, 5});
  ops::HostTensor pair = floats({2}, {1, 1});
  EXPECT_EQ(run(x, pair, {.padding = WindowPadding::explicit_offset, .offsets = {-1}}),
            "f64[6] 0 1 3 5 7 9");
  EXPECT_EQ(
      run(x, pair, {.padding = WindowPadding::explicit_offset, .offsets = {1}, .strides = {2}}),
      "f64[3] 3 7 5");
  EXPECT_EQ(run(x, pair, {.padding = WindowPadding::valid, .dilations = {3}}), "f64[3] 3 5 7");
  EXPECT_EQ(run(x, pair, {.padding = WindowPadding::explicit_pads, .before = {2}, .after = {0}}),
            "f64[7] 0 0 1 3 5 7 9");
}

TEST(Stencil, LeadingAxesAreBatches) {
  EXPECT_EQ(run(iota({2, 3}), floats({2}, {1, 1}), {.padding = WindowPadding::valid}),
            "f64[2,2] 1 3 7 9");
}

TEST(Stencil, D03TiledEqualsWhole) {
  Graph g;
  ops::HostTensor values(f64, {37, 19});
  for (size_t i = 0; i < values.f.size(); ++i)
    values.f[i] = std::sin(static_cast<double>(i * i % 97));
  Tensor x = g.placeholder(f64, {37, 19});
  Tensor w = g.constant(Array::from<double>({3, 3}, {0, 1, 0, 1, -4, 1, 0, 1, 0}));
  for (PaddingMode mode :
       {PaddingMode::zero, PaddingMode::reflect, PaddingMode::symmetric, PaddingMode::clamp_to_edge,
        PaddingMode::periodic, PaddingMode::anti_periodic}) {
    Tensor whole = stencil(x, w, {.boundary = mode});
    Tensor padded = pad(x, {.before = {1, 1}, .after = {1, 1}, .mode = mode});
    Tensors tiles;
    for (int64_t row = 0; row < 37; row += 10) {
      int64_t rows = std::min<int64_t>(10, 37 - row);
      Tensor part =
          slice(padded, {.starts = {row, 0}, .stops = {row + rows + 2, 21}, .strides = {}});
      tiles.push_back(stencil(part, w, {.padding = WindowPadding::valid}));
    }
    auto out = evaluate({{x, values}}, Tensors{whole, concat(tiles, 0)});
    EXPECT_EQ(out[0].f, out[1].f);
  }
}

TEST(Stencil, SymbolicExtents) {
  Graph g;
  Dim n("n", 1);
  Tensor x = g.placeholder(f64, {n});
  Tensor w = g.constant(Array::from<double>({3}, {1, 1, 1}));
  Tensor same = stencil(x, w, {.boundary = PaddingMode::periodic});
  EXPECT_EQ(to_string(same.type()), "f64[n]");
  EXPECT_EQ(text(evaluate({{x, floats({2}, {1, 2})}}, same)), "f64[2] 5 4");
  Tensor strided = stencil(x, w, {.strides = {2}});
  EXPECT_EQ(text(evaluate({{x, floats({5}, {1, 2, 3, 4, 5})}}, strided)), "f64[3] 3 9 9");
}

TEST(Stencil, SaysWhatDoesNotFit) {
  Graph g;
  Tensor x = g.placeholder(f32, {4, 4});
  Tensor w = g.placeholder(f32, {5, 5});
  EXPECT_EQ(graph_error([&] { stencil(x, w, {.padding = WindowPadding::valid}); }),
            "stencil: the window 5 along axis 0 is longer than the padded x [4,4]");
  EXPECT_EQ(
      graph_error([&] { stencil(x, w, {.strides = {1}}); }),
      "stencil: strides [1] has 1 numbers, expected one for each of the 2 axes of the weights");
  EXPECT_EQ(graph_error([&] { stencil(x, w, {.dilations = {1, 0}}); }),
            "stencil: dilations [1,0] has 0, expected 1 to 2^31 - 1");
  EXPECT_EQ(graph_error([&] { stencil(g.placeholder(f32, {4}), w); }),
            "stencil: weights [5,5] have more axes than x [4]");
}

TEST(Composites, AgreeWithTheirFormulas) {
  Graph g;
  Tensor x = g.placeholder(f64, {2, 3});
  Fed feed{x, floats({2, 3}, {1, 2, 3, 1000, 1000, 1000})};
  ops::HostTensor y = evaluate({feed}, softmax(x));
  EXPECT_NEAR(y.f[0], 0.09003057317038046, 1e-15);
  EXPECT_NEAR(y.f[3], 1.0 / 3, 1e-15);
  ops::HostTensor n = evaluate({feed}, layer_norm(x, {}, {}, {.epsilon = 0}));
  EXPECT_NEAR(n.f[0], -1.224744871391589, 1e-14);
  ops::HostTensor l = evaluate(
      {feed}, local_response_norm(x, {.size = 3, .alpha = 3, .beta = 1, .bias = 1, .axis = 1}));
  EXPECT_NEAR(l.f[1], 2.0 / 15, 1e-15);
  EXPECT_NEAR(evaluate({feed}, gelu(x)).f[0], 0.8413447460685429, 1e-15);
  EXPECT_EQ(graph_error([&] { softmax(x, 2); }), "softmax: axis 2 is outside a tensor of rank 2");
  EXPECT_EQ(graph_error([&] { layer_norm(x, g.placeholder(f64, {2}), {}); }).substr(0, 11),
            "layer_norm:");
}
