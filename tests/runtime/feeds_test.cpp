// What compiling and running say of feeds that are missing, doubled, wrong or too large.
#include "helpers.h"

#include <heddle/heddle.h>
#include <heddle/heddle_c.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace hd = heddle;
using heddle::test::message;
using heddle::test::runtime_device;

namespace {

TEST(Compile, NothingToComputeIsRefused) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {2}, "x");
  EXPECT_MESSAGE(g.compile({.feeds = {x}}, runtime_device()),
                 "compile: there is nothing to compute");
  EXPECT_MESSAGE(g.run({{x, hd::Array::zeros(hd::f32, {2})}}, {}, {}, runtime_device()),
                 "nothing to compute");
  hd_graph* c = nullptr;
  ASSERT_EQ(hd_graph_create(&c), HD_OK);
  hd_executable* e = nullptr;
  EXPECT_EQ(hd_graph_compile(c, nullptr, 0, nullptr, 0, "interpreter", &e), HD_GRAPH_ERROR);
  hd_graph_destroy(c);
}

TEST(Feeds, MistakesNameThePlaceholder) {
  hd::Graph g;
  hd::Tensor weights = g.placeholder(hd::f32, {2, 3}, "weights");
  hd::Tensor bias = g.placeholder(hd::f32, {3}, "bias");
  hd::Tensor y = hd::sum(weights, {.axes = {0}}) + bias;
  hd::Array w = hd::Array::zeros(hd::f32, {2, 3}), b = hd::Array::zeros(hd::f32, {3});
  auto run = [&](const std::vector<std::pair<hd::Tensor, hd::Array>>& feeds) {
    return message([&] { g.run(feeds, {y}, {}, runtime_device()); });
  };
  EXPECT_EQ(run({{weights, w}, {bias, b}}), "no error");
  EXPECT_EQ(run({{weights, w}}), "placeholder 'bias' is needed by the targets but not fed");
  EXPECT_EQ(run({{weights, w}, {bias, b}, {bias, b}}), "feed 'bias' is given twice");
  EXPECT_EQ(run({{weights, w}, {bias, hd::Array::zeros(hd::f64, {3})}}),
            "run: feed 1 (bias): dtype is f64, expected f32[3]");
  EXPECT_EQ(run({{weights, b}, {bias, b}}),
            "run: feed 0 (weights): rank of f32[3] is 1, expected f32[2,3]");
  EXPECT_EQ(run({{weights, hd::Array::zeros(hd::f32, {2, 4})}, {bias, b}}),
            "run: feed 0 (weights): axis 1 of [2,4] has extent 4, expected f32[2,3]");
  EXPECT_EQ(run({{weights, hd::Array()}, {bias, b}}),
            "run: feed 0 (weights): the array holds no data, expected f32[2,3]");
}

// Extents that the user has not named are told by their place.
TEST(Feeds, OpenExtentsAreToldByTheirPlace) {
  hd::Graph g;
  hd::Dim n, batch("batch", 1, 8);
  hd::Tensor x = g.placeholder(hd::f32, {n, hd::Dim()}, "x");
  hd::Tensor y = g.placeholder(hd::f32, {batch, n}, "y");
  hd::Executable e =
      g.compile({.feeds = {x, y}, .targets = {hd::sum(x) + hd::sum(y)}}, runtime_device());
  auto zeros = [](std::vector<int64_t> shape) {
    return hd::Array::zeros(hd::f32, std::move(shape));
  };
  EXPECT_EQ(message([&] { e.run({zeros({3, 2}), zeros({3})}); }),
            "run: feed 1 (y): rank of f32[3] is 1, expected f32[batch,axis 0 of feed 0 (x)]");
  EXPECT_EQ(message([&] { e.run({zeros({3}), zeros({3, 3})}); }),
            "run: feed 0 (x): rank of f32[3] is 1, expected f32[?,?]");
  EXPECT_EQ(
      message([&] { e.run({zeros({3, 2}), zeros({3, 4})}); }),
      "run: feed 1 (y): axis 1 of [3,4] has extent 4, expected f32[batch,axis 0 of feed 0 (x)] "
      "where axis 0 of feed 0 (x) is 3");
  EXPECT_EQ(
      message([&] { e.run({zeros({3, 2}), zeros({9, 3})}); }),
      "run: feed 1 (y): axis 0 of [9,3] has extent 9, expected f32[batch,axis 0 of feed 0 (x)] "
      "with batch in 1..8");
}

TEST(Results, TooLargeIsOutOfMemoryOnBothSidesOf64Bits) {
  hd::Graph g;
  hd::Dim n("n"), m("m");
  hd::Tensor x = g.placeholder(hd::f32, {n, 1}, "x"), y = g.placeholder(hd::f32, {1, m}, "y");
  hd::Executable e = g.compile({.feeds = {x, y}, .targets = {x + y}}, runtime_device());
  float one = 1;
  auto huge = [&](std::vector<int64_t> shape) {
    std::vector<int64_t> strides(shape.size(), 0);
    return hd::Array::wrap(hd::f32, std::move(shape), strides, &one, hd::Device());
  };
  for (int bits : {25, 30, 31, 32, 40}) {
    int64_t extent = int64_t{1} << bits;
    EXPECT_THROW(e.run({huge({extent, 1}), huge({1, extent})}), hd::DeviceError) << bits;
    EXPECT_MESSAGE(e.run({huge({extent, 1}), huge({1, extent})}), "out of memory");
    EXPECT_THROW(hd::Array::empty(hd::f32, {extent, extent}), hd::DeviceError) << bits;
    EXPECT_MESSAGE(hd::Array::empty(hd::f32, {extent, extent}), "out of memory");
  }
}

}  // namespace
