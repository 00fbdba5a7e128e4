// Gather, scatter, matmul.
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

using namespace heddle;
using namespace heddle::test;

TEST(Gather, G01OutOfRangeReadsZero) {
  Graph g;
  Tensor x = g.placeholder(f64, {3});
  Tensor i = g.placeholder(i64, {4});
  EXPECT_EQ(text(evaluate({{x, floats({3}, {1, 2, 3})}, {i, integers({4}, {5, -1, -4, 2})}},
                          gather(x, i))),
            "f64[4] 0 3 0 3");
}

TEST(Gather, G03NegativeIndicesAlongAnAxis) {
  Graph g;
  Tensor x = g.placeholder(f64, {2, 3});
  Tensor i = g.placeholder(i32, {2});
  ops::HostTensor data = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(
      text(evaluate({{x, data}, {i, integers({2}, {-1, 0}, i32)}}, gather(x, i, {.axis = 1}))),
      "f64[2,2] 3 1 6 4");
}

TEST(Gather, G07UnsignedIndices) {
  Graph g;
  Tensor x = g.placeholder(f64, {3});
  for (DType dtype : {u8, u16, u32, u64}) {
    Tensor i = g.placeholder(dtype, {2});
    EXPECT_EQ(text(evaluate({{x, floats({3}, {1, 2, 3})}, {i, integers({2}, {1, 0}, dtype)}},
                            gather(x, i))),
              "f64[2] 2 1");
  }
  Tensor far = g.placeholder(u64, {1});
  EXPECT_EQ(text(evaluate({{x, floats({3}, {1, 2, 3})}, {far, integers({1}, {-1}, u64)}},
                          gather(x, far))),
            "f64[1] 0");
}

TEST(Gather, ScalarIndexDropsTheAxis) {
  Graph g;
  Tensor x = g.placeholder(f64, {2, 3});
  Tensor i = g.placeholder(i64, {});
  EXPECT_EQ(text(evaluate({{x, floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {i, integers({}, {1})}},
                          gather(x, i))),
            "f64[3] 4 5 6");
}

TEST(ScatterAdd, G04DuplicatesAdd) {
  Graph g;
  Tensor data = g.placeholder(f64, {3});
  Tensor i = g.placeholder(i64, {4});
  Tensor u = g.placeholder(f64, {4});
  EXPECT_EQ(text(evaluate({{data, floats({3}, {0, 0, 0})},
                           {i, integers({4}, {0, 0, 1, 7})},
                           {u, floats({4}, {1, 2, 3, 9})}},
                          scatter_add(data, i, u))),
            "f64[3] 3 3 0");
}

TEST(ScatterAdd, SaysWhatDoesNotFit) {
  Graph g;
  Tensor data = g.placeholder(f32, {3, 2});
  Tensor i = g.placeholder(i64, {4});
  Tensor u = g.placeholder(f32, {3, 2});
  EXPECT_EQ(
      graph_error([&] { scatter_add(data, i, u); }),
      "scatter_add: updates are [3,2], expected [4,2] for data [3,2] and 4 indices along axis 0");
  EXPECT_EQ(graph_error([&] { gather(g.placeholder(f32, {}), i); }),
            "gather: x is a scalar, expected rank 1 or more");
  EXPECT_EQ(graph_error([&] { gather(data, i, {.axis = 2}); }),
            "gather: axis 2 is outside a tensor of rank 2");
}

TEST(Matmul, E03EmptyInnerAxisGivesZeros) {
  Graph g;
  Tensor a = g.placeholder(f64, {2, 0});
  Tensor b = g.placeholder(f64, {0, 3});
  EXPECT_EQ(text(evaluate({{a, ops::HostTensor(f64, {2, 0})}, {b, ops::HostTensor(f64, {0, 3})}},
                          matmul(a, b))),
            "f64[2,3] 0 0 0 0 0 0");
}

TEST(Matmul, TransposesAndBroadcasts) {
  Graph g;
  Tensor a = g.placeholder(f64, {2, 3});
  Tensor b = g.placeholder(f64, {2, 2, 3});
  std::vector<Fed> feeds{{a, floats({2, 3}, {1, 2, 3, 4, 5, 6})},
                         {b, floats({2, 2, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1})}};
  EXPECT_EQ(text(evaluate(feeds, matmul(a, b, {.transpose_b = true}))),
            "f64[2,2,2] 1 2 4 5 3 6 6 15");
  EXPECT_EQ(text(evaluate(feeds, matmul(a, a, {.transpose_a = true}))),
            "f64[3,3] 17 22 27 22 29 36 27 36 45");
}

TEST(Matmul, SaysWhatDoesNotFit) {
  Graph g;
  Tensor a = g.placeholder(f32, {8, 16});
  Tensor b = g.placeholder(f32, {32, 4});
  EXPECT_EQ(graph_error([&] { matmul(a, b); }),
            "matmul: inner extents differ: lhs [8,16] has 16, rhs [32,4] has 32");
  EXPECT_EQ(graph_error([&] { matmul(a, g.placeholder(f32, {16})); }),
            "matmul: rhs [16] has rank 1, expected 2 or more: reshape it first");
}
