// Views, padding, shapes as data: values by NumPy, errors by their text.
#include "support/evaluate.h"

#include "ir/graph.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <numeric>

using namespace heddle;
using namespace heddle::test;

namespace {

ops::HostTensor iota(std::vector<int64_t> shape) {
  ops::HostTensor t(f64, std::move(shape));
  std::iota(t.f.begin(), t.f.end(), 0.0);
  return t;
}

Fed fed(Graph& graph, const ops::HostTensor& value) {
  Shape shape(value.shape.begin(), value.shape.end());
  return {graph.placeholder(value.dtype, shape), value};
}

}  // namespace

TEST(Reshape, KeepsTheOrderOfElements) {
  Graph g;
  Fed x = fed(g, iota({2, 3}));
  EXPECT_EQ(text(evaluate({x}, reshape(x.tensor, {3, -1}))), "f64[3,2] 0 1 2 3 4 5");
  EXPECT_EQ(text(evaluate({x}, expand_dims(x.tensor, {0, -1}))), "f64[1,2,3,1] 0 1 2 3 4 5");
}

TEST(Reshape, SaysWhatDoesNotFit) {
  Graph g;
  Tensor x = g.placeholder(f32, {2, 3});
  EXPECT_EQ(graph_error([&] { reshape(x, {4, 2}); }),
            "reshape: shape [4,2] has 8 elements, x [2,3] has 6");
  EXPECT_EQ(graph_error([&] { reshape(x, {-1, 4}); }),
            "reshape: shape [-1,4]: the -1 at axis 0 has no value: [2,3] has 6 elements");
  EXPECT_EQ(graph_error([&] { reshape(x, {-1, -1}); }),
            "reshape: shape [-1,-1] has more than one -1");
  EXPECT_EQ(graph_error([&] { squeeze(x, {0}); }),
            "squeeze: axis 0 of x [2,3] has extent 2, expected 1");
}

TEST(Reshape, FollowsShapesAsData) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f64, {n, 4, 3});
  Tensor extents = shape_of(x);
  Tensor head = slice(extents, {.starts = {0}, .stops = {1}, .strides = {}});
  Tensor rest = gather(extents, g.constant(Array::from<int64_t>({1}, {-1})));
  Tensor flat = rest * g.constant(int64_t{4}, i64, {1});
  Tensor y = reshape(x, concat({head, flat}, 0));
  EXPECT_EQ(to_string(y.type()), "f64[n,12]");
  EXPECT_EQ(text(evaluate({{x, iota({2, 4, 3})}}, shape_of(y))), "i64[2] 2 12");
  EXPECT_NE(graph_error([&] { reshape(x, g.placeholder(i64, {2})); }), "no error");
}

TEST(Views, V01TransposeSliceSum) {
  Graph g;
  Fed x = fed(g, iota({3, 4}));
  Tensor t = transpose(x.tensor, {1, 0});
  Tensor rows = slice(t, {.starts = {0, 0}, .stops = {3, 3}, .strides = {2, 1}});
  EXPECT_EQ(text(evaluate({x}, sum(rows, {.axes = {-1}}))), "f64[2] 12 18");
}

TEST(Views, V04EverySecondRow) {
  Graph g;
  Fed x = fed(g, iota({6, 4}));
  Fed v = fed(g, floats({4, 1}, {1, 0, 2, -1}));
  Tensor w = slice(x.tensor, {.starts = {}, .stops = {}, .strides = {2, 1}});
  EXPECT_EQ(text(evaluate({x, v}, matmul(w, v.tensor))), "f64[3,1] 1 17 33");
}

TEST(Slice, WalksBackwards) {
  Graph g;
  Fed x = fed(g, iota({6}));
  auto run = [&](Expr start, Expr stop, int64_t stride) {
    return text(
        evaluate({x}, slice(x.tensor, {.starts = {start}, .stops = {stop}, .strides = {stride}})));
  };
  EXPECT_EQ(run(5, 0, -2), "f64[3] 5 3 1");
  EXPECT_EQ(run(-1, -7, -1), "f64[6] 5 4 3 2 1 0");
  EXPECT_EQ(run(1, 100, 3), "f64[2] 1 4");
  EXPECT_EQ(run(4, 2, 1), "f64[0]");
  EXPECT_EQ(run(-3, -1, 1), "f64[2] 3 4");
  EXPECT_EQ(text(evaluate({x}, slice(x.tensor, {.starts = {}, .stops = {}, .strides = {-1}}))),
            "f64[6] 5 4 3 2 1 0");
}

TEST(Slice, TakesSymbols) {
  Graph g;
  Dim n("n", 2);
  Tensor x = g.placeholder(f64, {n});
  Tensor y = slice(x, {.starts = {1}, .stops = {Expr(n) - 1}, .strides = {}});
  EXPECT_EQ(to_string(y.type()), "f64[n + -2]");
  EXPECT_EQ(text(evaluate({{x, iota({5})}}, y)), "f64[3] 1 2 3");
}

// Rows appended again and again, as in a cache of keys and values: extents stay short expressions.
TEST(Slice, PartsOfSymbolicExtentsMayBeAppendedManyTimes) {
  struct Case {
    SliceOptions part;
    std::function<std::pair<int64_t, int64_t>(int64_t n)> range;
  };
  const Case cases[] = {{{.starts = {0}, .stops = {1}},
                         [](int64_t n) { return std::pair(0, std::min<int64_t>(n, 1)); }},
                        {{.starts = {-3}, .stops = {}},
                         [](int64_t n) { return std::pair(std::max<int64_t>(n - 3, 0), n); }},
                        {{.starts = {-5}, .stops = {}, .strides = {1}},
                         [](int64_t n) { return std::pair(std::max<int64_t>(n - 5, 0), n); }}};
  for (const Dim& dim : {Dim("n"), Dim("n", 1), Dim("n", 1, 512)}) {
    for (const Case& c : cases) {
      Graph g;
      Tensor x = g.placeholder(f64, {dim}), t = x;
      for (int round = 0; round < 24; ++round) t = concat({t, slice(t, c.part)}, 0);
      for (int64_t n : {0, 1, 2, 3, 7}) {
        if (n < dim.lower()) continue;
        std::vector<double> expected;
        for (int64_t k = 0; k < n; ++k) expected.push_back(static_cast<double>(k));
        for (int round = 0; round < 24; ++round) {
          auto [from, to] = c.range(static_cast<int64_t>(expected.size()));
          std::vector<double> part(expected.begin() + from, expected.begin() + to);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        EXPECT_EQ(evaluate({{x, iota({n})}}, t).f, expected) << "n = " << n;
      }
    }
  }
}

TEST(Slice, SpansThatCountFromTheEnd) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f64, {n});
  auto shape = [&](const SliceOptions& part) { return to_string(slice(x, part).type()); };
  EXPECT_EQ(shape({.starts = {-4}, .stops = {}}), to_string(Type{f64, Shape{min(Expr(4), n)}}));
  for (int64_t start : {-9, -4, -1}) {
    for (int64_t stop : {-10, -2, -1, 0, 3}) {
      for (int64_t stride : {1, 2, 3, -1}) {
        for (int64_t size : {0, 1, 2, 5, 9}) {
          std::vector<double> expected;  // as NumPy
          int64_t lo = stride > 0 ? 0 : -1, hi = stride > 0 ? size : size - 1;
          auto end = [&](int64_t v) { return std::clamp(v < 0 ? v + size : v, lo, hi); };
          for (int64_t k = end(start); stride > 0 ? k < end(stop) : k > end(stop); k += stride)
            expected.push_back(static_cast<double>(k));
          Tensor y = slice(x, {.starts = {start}, .stops = {stop}, .strides = {stride}});
          EXPECT_EQ(evaluate({{x, iota({size})}}, y).f, expected)
              << start << ":" << stop << ":" << stride << " of " << size;
        }
      }
    }
  }
}

TEST(Slice, SaysWhatDoesNotFit) {
  Graph g;
  Tensor x = g.placeholder(f32, {2, 3});
  EXPECT_EQ(graph_error([&] { slice(x, {.starts = {1}, .stops = {}, .strides = {}}); }),
            "slice: starts has 1 numbers, expected one for each of the 2 axes of [2,3]");
  EXPECT_EQ(graph_error([&] { slice(x, {.starts = {}, .stops = {}, .strides = {1, 0}}); }),
            "slice: strides [1,0] has 0 at axis 1");
}

TEST(Concat, E11EmptyPartsVanish) {
  Graph g;
  Fed a = fed(g, ops::HostTensor(f64, {0, 3}));
  Fed b = fed(g, iota({2, 3}));
  EXPECT_EQ(text(evaluate({a, b}, concat({a.tensor, b.tensor}, 0))), "f64[2,3] 0 1 2 3 4 5");
}

TEST(Concat, X04NamesShapesAndAxis) {
  Graph g;
  Tensor a = g.placeholder(f32, {2, 3});
  Tensor b = g.placeholder(f32, {2});
  EXPECT_EQ(graph_error([&] { concat({a, b}, 0); }),
            "concat: xs have different ranks along axis 0: [2,3], [2]");
  Tensor c = g.placeholder(f32, {2, 4});
  EXPECT_EQ(graph_error([&] { concat({a, c}, 0); }),
            "concat: xs differ at axis 1, only axis 0 may: [2,3], [2,4]");
  EXPECT_EQ(graph_error([&] { concat({a, c}, 2); }),
            "concat: axis 2 is outside a tensor of rank 2");
}

TEST(Pad, P01Constant) {
  Graph g;
  Fed x = fed(g, floats({2, 1}, {5, 6}));
  EXPECT_EQ(text(evaluate({x}, pad(x.tensor, {.before = {1, 1}, .after = {1, 1}}))),
            "f64[4,3] 0 0 0 0 5 0 0 6 0 0 0 0");
}

TEST(Pad, P02P03EveryModeAsNumPy) {
  Graph g;
  Fed x = fed(g, floats({3}, {1, 2, 3}));
  auto run = [&](const Fed& v, int64_t before, int64_t after, PaddingMode mode) {
    return text(evaluate({v}, pad(v.tensor, {.before = {before}, .after = {after}, .mode = mode})));
  };
  EXPECT_EQ(run(x, 2, 2, PaddingMode::reflect), "f64[7] 3 2 1 2 3 2 1");
  EXPECT_EQ(run(x, 3, 3, PaddingMode::reflect), "f64[9] 2 3 2 1 2 3 2 1 2");
  EXPECT_EQ(run(x, 2, 2, PaddingMode::symmetric), "f64[7] 2 1 1 2 3 3 2");
  EXPECT_EQ(run(x, 5, 4, PaddingMode::symmetric), "f64[12] 2 3 3 2 1 1 2 3 3 2 1 1");
  EXPECT_EQ(run(x, 4, 4, PaddingMode::periodic), "f64[11] 3 1 2 3 1 2 3 1 2 3 1");
  EXPECT_EQ(run(x, 4, 4, PaddingMode::anti_periodic), "f64[11] 3 -1 -2 -3 1 2 3 -1 -2 -3 1");
  EXPECT_EQ(run(x, -1, 2, PaddingMode::reflect), "f64[4] 2 3 2 1");
  EXPECT_EQ(run(x, -1, -1, PaddingMode::constant), "f64[1] 2");
  Fed two = fed(g, floats({2}, {1, 2}));
  EXPECT_EQ(run(two, 3, 3, PaddingMode::clamp_to_edge), "f64[8] 1 1 1 1 2 2 2 2");
  Fed one = fed(g, floats({1}, {4}));
  EXPECT_EQ(run(one, 2, 1, PaddingMode::reflect), "f64[4] 4 4 4 4");
}

// A number is true as a boolean where it is not 0, also below 0 and between whole numbers.
TEST(Pad, FillsOfBooleans) {
  for (double value : {-2.25, 0.0, 0.5, 1.0, 3.0}) {
    Graph g;
    ops::HostTensor x(bool_, {2});
    x.i = {0, 1};
    Fed f = fed(g, x);
    Tensor y = pad(f.tensor, {.before = {1}, .after = {1}, .value = value});
    int64_t outside = value != 0 ? 1 : 0;
    EXPECT_EQ(evaluate({f}, y).i, (std::vector<int64_t>{outside, 0, 1, outside})) << value;
  }
}

TEST(Pad, P05LongAxis) {
  Graph g;
  Fed x = fed(g, iota({131072}));
  ops::HostTensor y = evaluate({x}, pad(x.tensor, {.before = {0}, .after = {1}, .value = 2}));
  EXPECT_EQ(y.shape[0], 131073);
  EXPECT_EQ(y.f[131071], 131071);
  EXPECT_EQ(y.f[131072], 2);
}

TEST(Pad, SaysWhatDoesNotFit) {
  Graph g;
  Tensor x = g.placeholder(f32, {0, 3});
  EXPECT_EQ(graph_error(
                [&] { pad(x, {.before = {1, 0}, .after = {0, 0}, .mode = PaddingMode::reflect}); }),
            "pad: axis 0 of x [0,3] is empty, which only constant and zero can pad");
  EXPECT_EQ(graph_error([&] { pad(x, {.before = {0, -2}, .after = {0, -2}}); }),
            "pad: before -2 and after -2 crop more than the extent 3 of axis 1");
  Tensor n = g.placeholder(i32, {3});
  EXPECT_EQ(graph_error([&] { pad(n, {.before = {1}, .after = {1}, .value = 0.5}); }),
            "pad: value 0.5 is not a value of i32, the dtype of x");
}

TEST(Coordinate, CountsAlongAnAxis) {
  Graph g;
  EXPECT_EQ(text(evaluate({}, coordinate(g.impl(), {2, 3}, 1))), "i32[2,3] 0 1 2 0 1 2");
  EXPECT_EQ(text(evaluate({}, coordinate(g.impl(), {2, 2}, 0, f64))), "f64[2,2] 0 0 1 1");
}

// Inference keeps elements of short vectors only, whatever the values are made of.
TEST(Coordinate, ValuesOfAnyExtentCostTheSameToBuild) {
  for (DType dtype : {i32, i64}) {
    for (int64_t n : {0, 1, 5, 1000, 1 << 30}) {
      Graph g;
      Tensor c = coordinate(g.impl(), {Expr(n)}, 0, dtype), k = g.constant(int64_t{251}, dtype);
      Tensor two = g.constant(int64_t{2}, dtype), many = broadcast_to(two, {n});
      for (const Tensor& t : {floor_modulo(c, k), c + c, two * many, maximum(k, many) - c}) {
        const auto& elements = g.impl()->value(t.id()).elements;
        if (n > 64) EXPECT_FALSE(elements.has_value());
        if (elements) EXPECT_EQ(elements->size(), static_cast<size_t>(n));
      }
    }
  }
}

TEST(Broadcast, FitsTypes) {
  Graph g;
  Fed x = fed(g, iota({2, 3, 2}));
  Fed like = fed(g, iota({3, 1}));
  EXPECT_EQ(text(evaluate({x, like}, sum_to_like(x.tensor, like.tensor))), "f64[3,1] 14 22 30");
  EXPECT_EQ(text(evaluate({like}, broadcast_to(like.tensor, {2, 3, 2}))),
            "f64[2,3,2] 0 0 1 1 2 2 0 0 1 1 2 2");
  EXPECT_EQ(graph_error([&] { broadcast_to(x.tensor, {2, 3, 4}); }),
            "broadcast_to: x [2,3,2] does not broadcast to shape [2,3,4]");
}

TEST(Broadcast, OpenTypesAreFittedLater) {
  Graph g;
  Tensor x = g.placeholder(Type{f64, std::nullopt}, "x");
  Tensor like = g.placeholder(Type{f64, std::nullopt}, "like");
  Tensor y = sum_to_like(x, like);
  EXPECT_EQ(text(evaluate({{x, iota({2, 3, 2})}, {like, iota({3, 1})}}, y)), "f64[3,1] 14 22 30");
}
