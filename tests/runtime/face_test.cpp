// The public C++ face: handles, constructors, graphs read from text, loops for effects, and what
// mistakes are told.
#include "helpers.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace hd = heddle;
using heddle::test::message;
using heddle::test::runtime_device;
using heddle::test::Values;

namespace {

hd::Array vec(const Values& v) {
  return hd::Array::from<float>({static_cast<int64_t>(v.size())}, v);
}

// ---- graphs read from text

TEST(GraphText, CanBeFedFetchedAndRun) {
  hd::Graph made;
  hd::Tensor x = made.placeholder(hd::f32, {3}, "x");
  hd::Tensor w = made.variable(vec({1, 2, 3}), "w");
  hd::Tensor y = (x * hd::read_variable(w)).named("y");
  hd::assign(w, hd::read_variable(w) + x);
  hd::Graph read = hd::Graph::from_text(made.to_text());
  ASSERT_EQ(read.placeholders().size(), 1U);
  EXPECT_TRUE(read.placeholders()[0].is(read.find("x")));
  ASSERT_EQ(read.operations().size(), 1U);
  EXPECT_TRUE(read.targets().empty());  // a program's graph yields nothing
  hd::Executable e = read.compile(
      {.feeds = {read.find("x")}, .targets = {read.find("y")}, .operations = read.operations()},
      runtime_device());
  EXPECT_EQ(e.run({vec({1, 1, 1})})[0].to_vector<float>(), (Values{1, 2, 3}));
  EXPECT_EQ(e.run({vec({1, 1, 1})})[0].to_vector<float>(), (Values{2, 3, 4}));
  EXPECT_TRUE(y.valid());
}

// The form of HEDDLE_DUMP=graph: arguments of the body are the feeds, what it yields the targets.
TEST(GraphText, ArgumentsOfTheBodyAreFeeds) {
  hd::Graph g = hd::Graph::from_text(R"(graph 1 {
  symbol s0 "n" extent 0..
  body(%0 "x": f32[s0], %1 "flag": bool[]) {
    %2 = constant() {value = data f32[] [10.0]} : f32[]
    %3 "v" = variable() {id = 7, initial = data f32[] [1.0]} : f32[]
    %4 = read(%3) : f32[]
    %5 = add(%4, %2) : f32[]
    @0: assign(%3, %5)
    %6 = cond(%1) region() {
      %7 = multiply(%0, %4) : f32[s0]
      yield %7
    } region() {
      yield %0
    } : f32[s0]
    yield %6, %4
  }
})");
  std::vector<hd::Tensor> feeds = g.placeholders();
  ASSERT_EQ(feeds.size(), 2U);
  EXPECT_TRUE(feeds[0].is(g.find("x")));
  ASSERT_EQ(g.targets().size(), 2U);
  ASSERT_EQ(g.operations().size(), 1U);
  hd::Executable e = g.compile(
      {.feeds = {feeds[0], feeds[1]}, .targets = g.targets(), .operations = g.operations()},
      runtime_device());
  hd::Array yes = hd::Array::zeros(hd::bool_, {});
  *static_cast<bool*>(yes.data()) = true;
  for (float v : {1.0F, 11.0F, 21.0F}) {
    std::vector<hd::Array> out = e.run({vec({1, 2}), yes});
    EXPECT_EQ(out[0].to_vector<float>(), (Values{v, 2 * v}));
    EXPECT_EQ(out[1].to_vector<float>(), Values{v});
  }
  // As a function that another graph calls.
  hd::Graph pure = hd::Graph::from_text(
      "graph 1 {\n  body(%0 \"a\": f32[2], %1 \"b\": f32[2]) {\n    %2 = subtract(%0, %1)\n"
      "    yield %2\n  }\n}\n");
  hd::Graph caller;
  hd::Tensor p = caller.placeholder(hd::f32, {2}, "p");
  hd::Tensor called = hd::call(pure, pure.targets(), {p, p * 3.0})[0];
  EXPECT_EQ(caller.run({{p, vec({1, 2})}}, {called}, {}, runtime_device())[0].to_vector<float>(),
            (Values{-2, -4}));
}

TEST(GraphText, LoopsWithAssignsAreOperations) {
  hd::Graph made;
  hd::Tensor w = made.variable(vec({0}), "w");
  hd::for_loop(made, 5, [&](const hd::Tensor& i) {
    hd::assign(w, hd::read_variable(w) + hd::cast(i, hd::f32));
  });
  (hd::read_variable(w) * 1.0).named("after");
  hd::Graph read = hd::Graph::from_text(made.to_text());
  ASSERT_EQ(read.operations().size(), 1U);
  EXPECT_EQ(
      read.run({}, {read.find("after")}, read.operations(), runtime_device())[0].to_vector<float>(),
      Values{10});
}

TEST(GraphText, FindSaysWhatIsMissingOrDoubled) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {2}, "x");
  EXPECT_MESSAGE(g.find("y"), "find: there is no tensor named 'y'");
  (x + 1.0).named("x");
  EXPECT_MESSAGE(g.find("x"), "find: two tensors are named 'x'");
}

// ---- handles

TEST(Handles, EqualityIsAMask) {
  static_assert(std::is_same_v<decltype(hd::Tensor() == hd::Tensor()), hd::Tensor>);
  static_assert(!std::is_convertible_v<hd::Tensor, bool> &&
                !std::is_constructible_v<bool, hd::Tensor>);
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {3}, "x"), y = g.placeholder(hd::f32, {3}, "y");
  EXPECT_TRUE(x.is(x));
  EXPECT_FALSE(x.is(y));
  hd::Tensors all{y, x};
  EXPECT_EQ(std::find_if(all.begin(), all.end(), [&](const hd::Tensor& t) { return t.is(x); }) -
                all.begin(),
            1);
  std::vector<hd::Array> out = g.run({{x, vec({1, 2, 3})}, {y, vec({1, 5, 3})}},
                                     {hd::select(x == y, x, y), hd::cast(x != y, hd::f32),
                                      hd::cast(x == 2.0, hd::f32), hd::cast(2.0 != x, hd::f32)},
                                     {}, runtime_device());
  EXPECT_EQ(out[0].to_vector<float>(), (Values{1, 5, 3}));
  EXPECT_EQ(out[1].to_vector<float>(), (Values{0, 1, 0}));
  EXPECT_EQ(out[2].to_vector<float>(), (Values{0, 1, 0}));
  EXPECT_EQ(out[3].to_vector<float>(), (Values{1, 0, 1}));
}

template <class T>
void expect_extent(T value) {
  hd::Graph g;
  EXPECT_TRUE(hd::Expr(value).is(3));
  EXPECT_TRUE(g.placeholder(hd::f32, {value, 2}).shape()[0].is(3));
  EXPECT_TRUE((hd::Expr(4) * value).is(12));
  EXPECT_TRUE((value + hd::Expr(4)).is(7));
  hd::Array constant = g.run({}, {g.constant(value, hd::i32)}, {}, runtime_device())[0];
  EXPECT_EQ(constant.to_vector<int32_t>(), std::vector<int32_t>{3});
}

TEST(Handles, ExtentsOfEveryIntegerType) {
  expect_extent<signed char>(3);
  expect_extent<unsigned char>(3);
  expect_extent<short>(3);
  expect_extent<unsigned short>(3);
  expect_extent<int>(3);
  expect_extent<unsigned>(3);
  expect_extent<long>(3);
  expect_extent<unsigned long>(3);
  expect_extent<long long>(3);
  expect_extent<unsigned long long>(3);
  static_assert(!std::is_constructible_v<hd::Expr, double>);
  static_assert(!std::is_constructible_v<hd::Expr, bool>);
  EXPECT_MESSAGE(hd::Expr(UINT64_MAX), "18446744073709551615 is above 2^63 - 1");
  EXPECT_EQ(hd::Expr(uint64_t{INT64_MAX}).constant(), INT64_MAX);
  hd::Graph g;
  EXPECT_EQ(
      g.run({}, {g.constant(UINT64_MAX, hd::u64)}, {}, runtime_device())[0].to_vector<uint64_t>(),
      std::vector<uint64_t>{UINT64_MAX});
  EXPECT_MESSAGE(g.constant(UINT64_MAX, hd::i64), "is not a value of i64");
}

// ---- what mistakes are told

TEST(Blocks, ArgumentsThatLeftTheirBlockAreNamed) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {2}, "x"), kept;
  hd::for_loop(hd::Expr(2), {x}, [&](const hd::Tensor&, const hd::Tensors& v) {
    kept = (v[0] * 2.0).named("inner");
    return hd::Tensors{kept};
  });
  EXPECT_MESSAGE(hd::add(kept, x), "add: lhs 'inner' belongs to another region");
  EXPECT_MESSAGE(hd::add(x, kept), "add: rhs 'inner' belongs to another region");
  EXPECT_MESSAGE(hd::concat({x, kept}, 0), "concat: xs[1] 'inner' belongs to another region");
}

// ---- loops

TEST(Loops, ForTheirEffects) {
  hd::Graph g;
  hd::Tensor w = g.variable(vec({0}), "w");
  auto add = [&](const hd::Tensor& i) {
    hd::assign(w, hd::read_variable(w) + hd::cast(i, hd::f32) + 1.0);
  };
  hd::Tensor n = g.placeholder(hd::i32, {}, "n");
  hd::Tensor low = g.constant(4, hd::i16), high = g.constant(-2, hd::i16),
             by = g.constant(-3, hd::i16);
  struct Case {
    hd::Operation loop;
    float result;
  };
  hd::Tensor count = n + g.constant(0, hd::i32);
  std::vector<Case> cases{
      {hd::for_loop(g, 4, add), 10},
      {hd::for_loop(g, 0, add), 0},
      {hd::for_loop(g, 1, add), 1},
      {hd::for_loop(count, add), 6},
      {hd::for_loop(low, high, by, add), 7},
      {hd::while_loop(
           g, [&] { return hd::sum(hd::read_variable(w)) < 5.0; }, [&] { add(g.constant(1.0)); }),
       6}};
  hd::Operation reset = hd::assign(w, g.constant(vec({0})));
  hd::Array three = hd::Array::from<int32_t>({}, {3});
  for (size_t k = 0; k < cases.size(); ++k) {
    g.run({}, {}, {reset}, runtime_device());
    g.run({{n, three}}, {}, {cases[k].loop}, runtime_device());
    hd::Tensor now = hd::read_variable(w) * 1.0;
    EXPECT_EQ(g.run({}, {now}, {}, runtime_device())[0].to_vector<float>(), Values{cases[k].result})
        << k;
  }
  EXPECT_MESSAGE(hd::for_loop(hd::Expr(3), {},
                              [](const hd::Tensor&, const hd::Tensors&) { return hd::Tensors{}; }),
                 "for_loop(graph, count, body)");
}

TEST(Loops, TheCounterHasTheTypeOfTheBounds) {
  hd::Graph g;
  for (hd::DType d : {hd::i8, hd::i16, hd::i32, hd::i64, hd::u8, hd::u16, hd::u32, hd::u64}) {
    std::vector<hd::DType> seen;
    hd::Tensor v = g.constant(0, d), n = g.constant(3, d);
    hd::Tensor p = g.placeholder(d, {}, "");
    auto body = [&](const hd::Tensor& i, const hd::Tensors& s) {
      seen.push_back(i.dtype());
      return hd::Tensors{s[0] + i};
    };
    hd::Tensor known = hd::for_loop(n, {v}, body)[0], fed = hd::for_loop(p, {v}, body)[0];
    hd::Tensor ranged = hd::for_loop(g.constant(1, d), n, g.constant(1, d), {v}, body)[0];
    EXPECT_EQ(seen, std::vector<hd::DType>(3, d));
    std::vector<hd::Array> out = g.run({{p, g.run({}, {n + v}, {}, runtime_device())[0]}},
                                       {known, fed, ranged}, {}, runtime_device());
    for (const hd::Array& a : out) {
      EXPECT_EQ(a.dtype(), d);
      EXPECT_EQ(a.to_vector<int64_t>(), std::vector<int64_t>{3}) << hd::name(d);
    }
  }
  hd::Tensor x = g.placeholder(hd::i64, {}, "x");
  hd::for_loop(hd::Expr(2), {x}, [&](const hd::Tensor& i, const hd::Tensors& s) {
    EXPECT_EQ(i.dtype(), hd::i64);
    return hd::Tensors{s[0] + i};
  });
}

TEST(Loops, TheJudgeHasNoLimit) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::i64, {}, "x");
  hd::Tensor y =
      hd::for_loop(hd::Expr(1'000'003), {x}, [](const hd::Tensor&, const hd::Tensors& v) {
        return hd::Tensors{v[0] + hd::constant_like(v[0], 1)};
      })[0];
  EXPECT_EQ(g.run({{x, hd::Array::from<int64_t>({}, {0})}}, {y}, {}, hd::device("judge"))[0]
                .to_vector<int64_t>(),
            std::vector<int64_t>{1'000'003});
}

// ---- functions that stood in the registry only

TEST(Functions, StencilTranspose) {
  hd::Graph g;
  hd::Tensor u = g.placeholder(hd::f32, {3}, "u"), w = g.placeholder(hd::f32, {2}, "w");
  std::vector<hd::Array> out =
      g.run({{u, vec({1, 2, 3})}, {w, vec({10, 1})}},
            {hd::stencil_transpose(u, w, {.shape = {4}}),
             hd::stencil_transpose(u, w, {.shape = {3}, .before = {1}}),
             hd::stencil_transpose(u, w, {.shape = {7}, .strides = {2}, .dilations = {2}})},
            {}, runtime_device());
  EXPECT_EQ(out[0].to_vector<float>(), (Values{10, 21, 32, 3}));
  EXPECT_EQ(out[1].to_vector<float>(), (Values{21, 32, 3}));
  EXPECT_EQ(out[2].to_vector<float>(), (Values{10, 0, 21, 0, 32, 0, 3}));
}

TEST(Functions, BooleansAreCounted) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {2, 3}, "x");
  std::vector<hd::Array> out =
      g.run({{x, hd::Array::from<float>({2, 3}, {0, 1, NAN, -2, 0, -0.0F})}},
            {hd::sum(x > 0.0), hd::sum(x == 0.0, {.axes = {1}}), hd::count_nonzero(x),
             hd::count_nonzero(x, {.axes = {0}, .keep_axes = true}), hd::count_nonzero(x < 0.0)},
            {}, runtime_device());
  for (const hd::Array& a : out) EXPECT_EQ(a.dtype(), hd::i64);
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(out[0].to_vector<int64_t>(), Counts{1});
  EXPECT_EQ(out[1].to_vector<int64_t>(), (Counts{1, 2}));
  EXPECT_EQ(out[2].to_vector<int64_t>(), Counts{3});
  EXPECT_EQ(out[3].to_vector<int64_t>(), (Counts{1, 1, 1}));
  EXPECT_EQ(out[3].shape(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(out[4].to_vector<int64_t>(), Counts{1});
  hd::Tensor none = g.placeholder(hd::bool_, {0}, "none");
  EXPECT_EQ(
      g.run({{none, hd::Array::zeros(hd::bool_, {0})}}, {hd::sum(none)}, {}, runtime_device())[0]
          .to_vector<int64_t>(),
      Counts{0});
}

}  // namespace
