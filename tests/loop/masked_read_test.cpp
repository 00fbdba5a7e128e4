// Reads outside of what they read from, where the extent is 1 or 0: the coordinates that are left
// agree with the element's own, so only the mask says that it is another value.
#include "loop/run_scheduled.h"
#include "support/evaluate.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

constexpr DType kDTypes[] = {f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, c64, c128};

// 3, or 3 + 2i.
ops::HostTensor three(DType dtype, int64_t count = 1) {
  ops::HostTensor t(dtype, {count});
  for (double& v : t.f) v = 3;
  for (int64_t& v : t.i) v = 3;
  for (std::complex<double>& v : t.c) v = {3, 2};
  return t;
}

// 0 for each element.
std::string zeros(DType dtype, const std::string& shape, int count) {
  std::string s = std::string(name(dtype)) + "[" + shape + "]";
  for (int k = 0; k < count; ++k) s += is_complex(dtype) ? " 0+0i" : " 0";
  return s;
}

std::string first_of(const std::vector<ops::HostTensor>& values, const BuildTargets& f) {
  return text(check_schedules(values, f)[0]);
}

TEST(MaskedReads, GatherOutside) {
  for (DType dtype : kDTypes) {
    for (int64_t at : {int64_t{1}, int64_t{2}, int64_t{-2}, INT64_MAX, INT64_MIN}) {
      EXPECT_EQ(
          first_of({three(dtype)},
                   [&](const Tensors& x) {
                     return Tensors{gather(x[0] + x[0], Graph(x[0].graph()).constant(at, i64))};
                   }),
          zeros(dtype, "", 1));
      // The index is known when the kernel runs; several of them; the operand is a feed.
      EXPECT_EQ(first_of({three(dtype), integers({}, {at})},
                         [](const Tensors& x) { return Tensors{gather(x[0] + x[0], x[1])}; }),
                zeros(dtype, "", 1));
      EXPECT_EQ(first_of({three(dtype), integers({1}, {at})},
                         [](const Tensors& x) { return Tensors{gather(x[0], x[1])}; }),
                zeros(dtype, "1", 1));
      EXPECT_EQ(first_of({three(dtype), integers({2}, {at, at})},
                         [](const Tensors& x) { return Tensors{gather(x[0] + x[0], x[1])}; }),
                zeros(dtype, "2", 2));
    }
  }
  EXPECT_EQ(
      first_of({floats({1}, {3})},
               [](const Tensors& x) {
                 return Tensors{gather(exp(x[0]), Graph(x[0].graph()).constant(int64_t{1}, i64))};
               }),
      "f64[] 0");
}

TEST(MaskedReads, GatherInside) {
  for (int64_t at : {0, -1}) {
    EXPECT_EQ(first_of({floats({1}, {3})},
                       [&](const Tensors& x) {
                         return Tensors{gather(x[0] + 1.0, Graph(x[0].graph()).constant(at, i64))};
                       }),
              "f64[] 4");
    EXPECT_EQ(first_of({floats({1}, {3}), integers({1}, {at})},
                       [](const Tensors& x) { return Tensors{gather(x[0], x[1])}; }),
              "f64[1] 3");
  }
}

TEST(MaskedReads, GatherFromNothing) {
  for (DType dtype : kDTypes) {
    for (int64_t at : {0, 1, -1}) {
      EXPECT_EQ(first_of({three(dtype, 0), integers({1}, {at})},
                         [](const Tensors& x) { return Tensors{gather(x[0] + x[0], x[1])}; }),
                zeros(dtype, "1", 1));
    }
  }
}

TEST(MaskedReads, WindowsOutside) {
  for (DType dtype : {f64, f32, f16}) {
    for (int64_t offset : {-2, -1, 1, 2}) {
      EXPECT_EQ(first_of({three(dtype)},
                         [&](const Tensors& x) {
                           Tensor one = Graph(x[0].graph()).constant(1.0, dtype, {1});
                           return Tensors{stencil(
                               x[0] + x[0], one,
                               {.padding = WindowPadding::explicit_offset, .offsets = {offset}})};
                         }),
                zeros(dtype, "1", 1));
    }
  }
}

TEST(MaskedReads, PadsThatShowNothingOfTheOperand) {
  for (DType dtype : kDTypes) {
    for (int64_t count : {0, 1}) {
      for (int64_t shift : {-1, 1}) {
        EXPECT_EQ(
            first_of({three(dtype, count)},
                     [&](const Tensors& x) {
                       // One element beside it.
                       int64_t before = shift > 0 ? 1 : -count;
                       int64_t after = shift > 0 ? -count : 1;
                       return Tensors{pad(x[0] + x[0], {.before = {before}, .after = {after}})};
                     }),
            zeros(dtype, "1", 1));
      }
    }
  }
}

TEST(MaskedReads, GradientOfAScatterOutside) {
  for (int64_t at : {1, -2, 7}) {
    EXPECT_EQ(first_of({floats({1}, {3}), floats({1}, {5}), integers({1}, {at})},
                       [](const Tensors& x) {
                         Tensor y = square(scatter_add(x[0], x[2], x[1]));
                         return gradients(y, {x[1], x[0]});
                       }),
              "f64[1] 0");
  }
}

}  // namespace
}  // namespace heddle::test
