// Values of elementwise operations and reductions that NumPy 2 (or PyTorch on CPUs, where said)
// gives, and what users get told when they are wrong.
#include "ops/helpers.h"
#include "ops/opdef.h"

#include <heddle/ops.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace heddle::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Build1 = std::function<Tensor(const Tensor&)>;
using Build2 = std::function<Tensor(const Tensor&, const Tensor&)>;

HostTensor one(const HostTensor& x, const Build1& build) {
  Graph g;
  Tensor t = g.placeholder(x.dtype, Shape(x.shape.begin(), x.shape.end()), "x");
  return judged_one({t}, build(t), {x});
}
HostTensor two(const HostTensor& x, const HostTensor& y, const Build2& build) {
  Graph g;
  Tensor a = g.placeholder(x.dtype, Shape(x.shape.begin(), x.shape.end()), "x");
  Tensor b = g.placeholder(y.dtype, Shape(y.shape.begin(), y.shape.end()), "y");
  return judged_one({a, b}, build(a, b), {x, y});
}
HostTensor row(DType d, const std::vector<double>& v) {
  return host(d, {static_cast<int64_t>(v.size())}, v);
}
HostTensor whole(DType d, const std::vector<int64_t>& v) {
  return host_integers(d, {static_cast<int64_t>(v.size())}, v);
}

void expect_floats(const HostTensor& t, const std::vector<double>& expected, double tolerance = 0) {
  ASSERT_EQ(t.f.size(), expected.size());
  for (size_t k = 0; k < expected.size(); ++k) {
    if (std::isnan(expected[k])) {
      EXPECT_TRUE(std::isnan(t.f[k])) << k << ": " << t.f[k];
    } else if (std::isinf(expected[k])) {
      EXPECT_EQ(t.f[k], expected[k]);
    } else {
      EXPECT_LE(std::fabs(t.f[k] - expected[k]), tolerance) << k << ": " << t.f[k];
    }
  }
}
void expect_integers(const HostTensor& t, const std::vector<int64_t>& expected) {
  EXPECT_EQ(t.i, expected);
}

// ---- integers

TEST(Elementwise, FloorDivisionAndModulo) {
  HostTensor a = whole(i32, {9, -9, 9, -9}), b = whole(i32, {4, 4, -4, -4});
  expect_integers(two(a, b, divide), {2, -3, -3, 2});
  expect_integers(two(a, b, floor_modulo), {1, 3, -3, -1});
}
TEST(Elementwise, DivisionNeverTraps) {
  int64_t least = std::numeric_limits<int64_t>::min();
  HostTensor a = whole(i64, {least, 7, least}), b = whole(i64, {-1, 0, 0});
  expect_integers(two(a, b, divide), {least, 0, 0});
  expect_integers(two(a, b, floor_modulo), {0, 0, 0});
  expect_integers(two(whole(u64, {-1, 5}), whole(u64, {2, 0}), divide),
                  {std::numeric_limits<int64_t>::max(), 0});
}
TEST(Elementwise, IntegersStayExact) {
  expect_integers(one(whole(i32, {-16777221}), abs), {16777221});
  expect_integers(one(whole(i64, {-(int64_t{1} << 40) - 3}), abs), {1099511627779});
  int64_t big = int64_t{1} << 53;
  HostTensor x = whole(i64, {big, big + 1, -big - 1});
  expect_integers(one(x, [](const Tensor& t) { return reduce_max(t); }), {big + 1});
  expect_integers(one(x, [](const Tensor& t) { return reduce_min(t); }), {-big - 1});
  expect_integers(two(whole(i32, {3, -2}), whole(i32, {1, 5}), minimum), {1, -2});
  expect_integers(two(whole(i8, {100}), whole(i8, {100}), add), {-56});
  expect_integers(two(whole(i32, {2, -1, 3, 0, 2}), whole(i32, {10, -3, -1, 0, 31}), power),
                  {1024, -1, 0, 1, std::numeric_limits<int32_t>::min()});
}
TEST(Elementwise, IntegersMeetFunctions) {
  expect_floats(one(whole(i32, {0, 1}), [](const Tensor& t) { return exp(t); }), {1, 2.7182817},
                1e-6);
  expect_integers(one(whole(u8, {0b1010}), bitwise_not), {0b11110101});
  expect_integers(one(whole(bool_, {0, 1}), bitwise_not), {1, 0});
  expect_integers(two(whole(i32, {0, 5}), whole(i32, {3, 4}), logical_and), {0, 1});
}

// ---- casts

Build1 to(DType d) {
  return [d](const Tensor& t) { return cast(t, d); };
}
TEST(Cast, FloatToIntegerFollowsTheRule) {
  expect_integers(one(row(f32, {130, -129, 127.9, -1.5, kNaN, 1e20}), to(i8)),
                  {-126, 127, 127, -1, 0, -1});
  expect_integers(one(row(f32, {300, 256, -1}), to(u8)), {44, 0, 255});
  expect_integers(one(row(f64, {1e20, -1e20, -5, 3.99}), to(u32)), {0xffffffff, 0, 0, 3});
  expect_integers(one(row(f64, {kInf, -kInf, kNaN}), to(i64)),
                  {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0});
  expect_integers(one(row(f32, {0, -0.0, 0.1, kNaN}), to(bool_)), {0, 0, 1, 1});
}
TEST(Cast, IntegersToFloats) {
  expect_floats(one(whole(u8, {0, 127, 128, 200, 255}), to(f32)), {0, 127, 128, 200, 255});
  expect_floats(one(whole(i64, {-1, 3, 70000}), to(f32)), {-1, 3, 70000});
  expect_integers(one(whole(i64, {-1, 3, 70000}), to(i32)), {-1, 3, 70000});
  expect_floats(one(whole(bool_, {1, 0, 1}), to(f32)), {1, 0, 1});
  expect_floats(one(whole(u64, {-1}), to(f64)), {0x1p64});
}
TEST(Cast, DoublesRoundOnceToHalves) {
  HostTensor h = one(row(f64, {1 + 0x1p-11 + 0x1p-40, 65519.99, 65520}), to(f16));
  expect_floats(h, {1 + 0x1p-10, 65504, kInf});
}
TEST(Cast, SmallFloats) {
  expect_floats(one(row(f32, {448, 464, 465, -0.001953125, 0.0009765625}), to(DType::f8e4m3fn)),
                {448, 448, kNaN, -0.001953125, 0});
  expect_floats(one(row(f32, {0.24, 0.75, 5, 7, -100}), to(DType::f4e2m1)), {0, 1, 4, 6, -6});
  expect_integers(one(whole(i32, {7, 8, -9}), to(DType::i4)), {7, -8, 7});
}
TEST(Cast, ChainsAreDropped) {
  Graph g;
  Tensor x = g.placeholder(f32, {2});
  EXPECT_TRUE(cast(x, f32).is(x));
  EXPECT_NE(graph_error([&] { cast(x, DType::unknown); }), "no error");
}

// ---- NaN and signed zeros

TEST(Elementwise, NaN) {
  HostTensor a = row(f32, {1, kNaN, 3}), b = row(f32, {kNaN, 2, 4});
  expect_floats(two(a, b, maximum), {kNaN, kNaN, 4});
  expect_floats(two(a, b, minimum), {kNaN, kNaN, 3});
  expect_floats(two(a, b, maximum_number), {1, 2, 4});
  expect_floats(
      one(row(f32, {kNaN, 2, -3}),
          [](const Tensor& t) { return clamp(t, constant_like(t, 0), constant_like(t, 1)); }),
      {kNaN, 1, 0});
  expect_floats(one(row(f32, {kNaN, -1, 2}), relu), {kNaN, 0, 2});
  HostTensor x = row(f32, {2, kNaN, 7, kNaN});
  expect_integers(one(x, [](const Tensor& t) { return argmax(t); }), {1});
  expect_integers(one(x, [](const Tensor& t) { return argmin(t); }), {1});
  expect_floats(one(x, [](const Tensor& t) { return reduce_max(t); }), {kNaN});
}
TEST(Elementwise, SignedZeros) {
  EXPECT_TRUE(std::signbit(two(row(f32, {0.0}), row(f32, {-0.0}), minimum).f[0]));
  EXPECT_FALSE(std::signbit(two(row(f32, {-0.0}), row(f32, {0.0}), maximum).f[0]));
  EXPECT_TRUE(std::signbit(two(row(f32, {4}), row(f32, {-2}), floor_modulo).f[0]));
  EXPECT_TRUE(std::signbit(one(row(f32, {-0.0}), [](const Tensor& t) { return tanh(t); }).f[0]));
}

// ---- broadcasting and promotion

TEST(Broadcast, SelectAndClamp) {
  Graph g;
  Tensor p = g.placeholder(bool_, {2, 1}), x = g.placeholder(i32, {1, 3});
  HostTensor out =
      judged_one({p, x}, select(p, x, constant_like(x, -1)),
                 {host_integers(bool_, {2, 1}, {1, 0}), host_integers(i32, {1, 3}, {1, 2, 3})});
  EXPECT_EQ(out.shape, (std::vector<int64_t>{2, 3}));
  expect_integers(out, {1, 2, 3, -1, -1, -1});
  Tensor y = g.placeholder(f32, {2, 2}), low = g.placeholder(f32, {1, 2, 2});
  Tensor clamped = clamp(y, low, constant_like(y, 100));
  HostTensor c = judged_one(
      {y, low}, clamped, {host(f32, {2, 2}, {1, 5, -2, 0}), host(f32, {1, 2, 2}, {0, 6, -1, -1})});
  EXPECT_EQ(c.shape, (std::vector<int64_t>{1, 2, 2}));
  expect_floats(c, {1, 6, -1, 0});
}
TEST(Broadcast, Promotion) {
  HostTensor r = two(row(f32, {1, 2, 3}), whole(bool_, {1, 0, 1}), multiply);
  EXPECT_EQ(r.dtype, f32);
  expect_floats(r, {1, 0, 3});
  EXPECT_EQ(two(whole(i32, {1}), row(f16, {1}), add).dtype, f16);
  EXPECT_EQ(two(whole(i8, {1}), whole(u8, {1}), add).dtype, i16);
  EXPECT_EQ(two(row(f64, {1}), host(c64, {1}, {1}), add).dtype, c128);
  expect_floats(one(row(f32, {0.25, 0.9, 0.95}), [](const Tensor& t) { return 1.0 - t; }),
                {0.75, 0.1, 0.05}, 1e-7);
}
TEST(Broadcast, OpenDTypesArePromotedLater) {
  Graph g;
  Tensor x = g.placeholder(Type{DType::unknown, Shape{2}}, "x"), y = g.placeholder(f32, {2}, "y");
  Tensor z = (x + y) * 2.0;
  auto extracted =
      ir::extract(*z.graph(), {{x.id(), type(f16, {2})}, {y.id(), std::nullopt}}, {z.id()}, {});
  HostTensor out = ops::judge(*extracted.graph, {row(f16, {1, 2}), row(f32, {0.5, 0.25})})[0];
  EXPECT_EQ(out.dtype, f32);
  expect_floats(out, {3, 4.5});
}

// ---- complex

TEST(Complex, PartsAndProducts) {
  HostTensor z(c64, {2});
  z.c = {{1, 2}, {-3, 0.5}};
  HostTensor product = two(z, z, multiply);
  EXPECT_EQ(product.c[0], std::complex<double>(-3, 4));
  expect_floats(one(z, real), {1, -3});
  expect_floats(one(z, imaginary), {2, 0.5});
  EXPECT_EQ(one(z, conjugate).c[1], std::complex<double>(-3, -0.5));
  expect_floats(one(z, abs), {std::sqrt(5.0), std::sqrt(9.25)}, 1e-6);
  EXPECT_EQ(two(row(f32, {1}), row(f32, {2}), make_complex).c[0], std::complex<double>(1, 2));
  EXPECT_EQ(two(row(f32, {4}), z, divide).c.size(), 2u);
}

// ---- reductions

TEST(Reduce, AxesAndKeeping) {
  HostTensor x = host(f32, {2, 1, 3, 1, 1}, {1, 2, 3, 4, 5, 6});
  HostTensor s = one(x, [](const Tensor& t) { return sum(t, {.axes = {-3}}); });
  EXPECT_EQ(s.shape, (std::vector<int64_t>{2, 1, 1, 1}));
  expect_floats(s, {6, 15});
  HostTensor kept =
      one(x, [](const Tensor& t) { return sum(t, {.axes = {2, 0}, .keep_axes = true}); });
  EXPECT_EQ(kept.shape, (std::vector<int64_t>{1, 1, 1, 1, 1}));
  expect_floats(kept, {21});
}
TEST(Reduce, Empty) {
  HostTensor v =
      one(HostTensor(f32, {3, 0, 5}), [](const Tensor& t) { return variance(t, {.axes = {1}}); });
  EXPECT_EQ(v.shape, (std::vector<int64_t>{3, 5}));
  for (double e : v.f) EXPECT_TRUE(std::isnan(e));
  EXPECT_EQ(one(HostTensor(f32, {0}), [](const Tensor& t) { return sum(t); }).f,
            std::vector<double>{0});
  EXPECT_EQ(
      one(HostTensor(f32, {0, 4}), [](const Tensor& t) { return reduce_max(t, {.axes = {-1}}); })
          .shape,
      std::vector<int64_t>{0});
}
TEST(Reduce, SignedZerosAndEmptyComplex) {
  HostTensor zeros = row(f32, {-0.0, 0.0, -0.0});
  EXPECT_FALSE(std::signbit(one(zeros, [](const Tensor& t) { return reduce_max(t); }).f[0]));
  EXPECT_TRUE(std::signbit(one(zeros, [](const Tensor& t) { return reduce_min(t); }).f[0]));
  expect_integers(one(zeros, [](const Tensor& t) { return argmax(t); }), {0});
  EXPECT_EQ(one(HostTensor(c32, {0, 5}), real).dtype, f16);
}
TEST(Reduce, WrapsAndKeepsRange) {
  expect_integers(one(whole(u8, {250, 3, 4}), [](const Tensor& t) { return sum(t); }), {1});
  expect_floats(one(row(f16, {60000, 60000, 60000}), [](const Tensor& t) { return mean(t); }),
                {60000});
  expect_floats(
      one(row(f16, std::vector<double>(4096, 16)), [](const Tensor& t) { return mean(t); }), {16});
  HostTensor ones = whole(i8, std::vector<int64_t>(200, 1));
  EXPECT_EQ(one(ones, [](const Tensor& t) { return cumulative_sum(t); }).i.back(), -56);
  EXPECT_EQ(one(ones, [](const Tensor& t) { return cumulative_sum(cast(t, i64)); }).i.back(), 200);
}
TEST(Reduce, MeanVarianceArg) {
  HostTensor x = host(f32, {2, 3}, {1, 2, 6, -1, 5, 5});
  expect_floats(one(x, [](const Tensor& t) { return mean(t, {.axes = {1}}); }), {3, 3});
  expect_floats(one(x, [](const Tensor& t) { return variance(t, {.axes = {1}}); }), {14.0 / 3, 8},
                1e-6);
  expect_integers(one(x, [](const Tensor& t) { return argmax(t, {.axis = 1}); }), {2, 1});
  expect_integers(one(x, [](const Tensor& t) { return argmin(t, {.axis = 0, .keep_axes = true}); }),
                  {1, 0, 1});
  EXPECT_EQ(one(x, [](const Tensor& t) { return argmax(t, {.index_dtype = i32}); }).dtype, i32);
}
TEST(Scan, CumulativeSum) {
  HostTensor x = host(i32, {2, 3}, {1, 2, 3, 4, 5, 6});
  expect_integers(one(x, [](const Tensor& t) { return cumulative_sum(t); }), {1, 3, 6, 4, 9, 15});
  expect_integers(
      one(x, [](const Tensor& t) { return cumulative_sum(t, {.axis = 0, .exclusive = true}); }),
      {0, 0, 0, 1, 2, 3});
  expect_integers(one(x, [](const Tensor& t) { return cumulative_sum(t, {.reverse = true}); }),
                  {6, 5, 3, 15, 11, 6});
  expect_integers(
      one(x,
          [](const Tensor& t) { return cumulative_sum(t, {.exclusive = true, .reverse = true}); }),
      {5, 3, 0, 11, 6, 0});
}
TEST(Dequantize, AxisAndBlocks) {
  Graph g;
  Tensor q = g.placeholder(DType::i4, {2, 4}), s = g.placeholder(f32, {2, 2}),
         z = g.placeholder(i8, {2, 2});
  HostTensor out =
      judged_one({q, s, z}, dequantize(q, s, z, {.axis = 1, .block = 2}),
                 {host(DType::i4, {2, 4}, {1, 2, 3, 4, -8, 7, 0, 1}),
                  host(f32, {2, 2}, {0.5, 2, 1, 10}), host(i8, {2, 2}, {1, 0, -1, 1})});
  expect_floats(out, {0, 0.5, 6, 8, -7, 8, -10, 0});
  Tensor v = g.placeholder(f16, {2});
  HostTensor rows =
      judged_one({q, v}, dequantize(q, v, Tensor{}, {.axis = 0}),
                 {host(DType::i4, {2, 4}, {1, 2, 3, 4, -8, 7, 0, 1}), host(f16, {2}, {2, 0.5})});
  EXPECT_EQ(rows.dtype, f16);
  expect_floats(rows, {2, 4, 6, 8, -4, 3.5, 0, 0.5});
}

// ---- errors

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& w : words)
    EXPECT_NE(message.find(w), std::string::npos) << "'" << message << "' lacks '" << w << "'";
}

TEST(Errors, NameTheOperationAndBothSides) {
  Graph g;
  Tensor a = g.placeholder(f32, {2, 3}), b = g.placeholder(f32, {2}),
         q = g.placeholder(DType::f8e4m3fn, {2, 3});
  Tensor flags = g.placeholder(bool_, {3}), empty = g.placeholder(f32, {4, 0}),
         whole3 = g.placeholder(i32, {3});
  expect_words(graph_error([&] { a + b; }), {"add", "[2,3]", "[2]"});
  expect_words(graph_error([&] { a* q; }), {"multiply", "f8e4m3fn", "cast"});
  expect_words(graph_error([&] { add(a, Tensor{}); }), {"add", "rhs", "empty"});
  expect_words(graph_error([&] { ops::apply("add", {a, whole3}); }), {"add", "f32[2,3]", "i32[3]"});
  EXPECT_EQ(sum(flags).dtype(), i64);
  expect_words(graph_error([&] { sum(a, {.axes = {2}}); }), {"sum", "axes [2]", "f32[2,3]"});
  expect_words(graph_error([&] { sum(a, {.axes = {1, -1}}); }), {"sum", "axes [1,-1]", "distinct"});
  expect_words(graph_error([&] { reduce_max(empty, {.axes = {-1}}); }),
               {"reduce_max", "axis 1", "f32[4,0]", "empty"});
  expect_words(graph_error([&] { argmax(a, {.axis = 5}); }), {"argmax", "5", "f32[2,3]"});
  expect_words(graph_error([&] { cumulative_sum(a, {.axis = -3}); }),
               {"cumulative_sum", "-3", "rank 2"});
  expect_words(graph_error([&] { whole3 * 0.5; }), {"constant_like", "0.5", "i32"});
  expect_words(graph_error([&] { make_complex(cast(a, bf16), cast(a, bf16)); }),
               {"make_complex", "bf16"});
  expect_words(graph_error([&] { less(cast(a, c64), cast(a, c64)); }), {"less", "c64"});
  expect_words(graph_error([&] { select(a, a, a); }), {"select", "predicate", "bool"});
  Tensor codes = g.placeholder(DType::u4, {2, 6}), scale = g.placeholder(f32, {2, 2});
  expect_words(graph_error([&] { dequantize(codes, scale, Tensor{}, {.block = 4}); }),
               {"dequantize", "6", "4"});
  expect_words(graph_error([&] { dequantize(codes, scale, Tensor{}, {.block = 2}); }),
               {"dequantize", "scale", "f32[2,2]", "[3]", "[2,3]"});
}

TEST(Elements, StaySymbolic) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f32, {n, 4});
  Tensor doubled = shape_of(x) * 2.0;
  const auto& elements = doubled.graph()->value(doubled.id()).elements;
  ASSERT_TRUE(elements.has_value());
  EXPECT_EQ((*elements)[0], n * 2);
  EXPECT_TRUE((*elements)[1].is(8));
}

}  // namespace
}  // namespace heddle::test
