// Arrays: views, copies, wrapped memory, DLPack.
#include "helpers.h"
#include "runtime/dlpack_abi.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <numeric>

namespace hd = heddle;

namespace {

using hd::test::message;
using hd::test::Values;

hd::Array iota(std::vector<int64_t> shape) {
  int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  Values v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0.0F);
  return hd::Array::from<float>(std::move(shape), v);
}

TEST(Array, HoldsWhatItIsGiven) {
  hd::Array a = hd::Array::from<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(a.shape(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(a.strides(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(a.to_vector<float>(), (Values{1, 2, 3, 4}));
  EXPECT_EQ(a.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 256, 0U);
  EXPECT_EQ(hd::Array::zeros(hd::i32, {3}).to_vector<int32_t>(), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(hd::Array::zeros(hd::f32, {0, 5}).to_vector<float>(), Values{});
  EXPECT_EQ(iota({}).to_vector<float>(), Values{0});
}

TEST(Array, ViewsMoveNoData) {
  hd::Array a = iota({3, 4});
  EXPECT_EQ(a.slice(0, 1, 3).to_vector<float>(), (Values{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(a.slice(1, 0, 4, 2).to_vector<float>(), (Values{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(a.slice(-1, 3, 0, -1).to_vector<float>(), (Values{3, 2, 1, 7, 6, 5, 11, 10, 9}));
  EXPECT_EQ(a.transpose({1, 0}).to_vector<float>(), (Values{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(a.slice(0, 0, 1).broadcast_to({2, 4}).to_vector<float>(),
            (Values{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(a.reshape({2, 6}).shape(), (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(a.slice(0, 1, 2).data(), static_cast<char*>(a.data()) + 16);
  EXPECT_FALSE(a.transpose({1, 0}).contiguous());
  EXPECT_TRUE(a.slice(0, 1, 2).contiguous());
}

TEST(Array, StridedCopiesOfEveryWidth) {
  for (hd::DType dtype : {hd::u8, hd::f16, hd::f32, hd::f64, hd::c128}) {
    std::vector<int64_t> shape{5, 33, 7, 40};
    int64_t width = hd::bit_width(dtype) / 8, n = 5 * 33 * 7 * 40;
    std::vector<std::byte> bytes(static_cast<size_t>(n * width));
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    hd::Array a =
        hd::Array::from_bytes(dtype, shape, bytes).transpose({2, 3, 0, 1}).slice(1, 39, 1, -2);
    std::vector<std::byte> packed = a.to_bytes();
    size_t at = 0;
    for (int64_t i = 0; i < 7; ++i) {
      for (int64_t j = 39; j > 1; j -= 2) {
        for (int64_t k = 0; k < 5; ++k) {
          for (int64_t l = 0; l < 33; ++l) {
            int64_t from = ((k * 33 + l) * 7 + i) * 40 + j;
            for (int64_t b = 0; b < width; ++b, ++at) {
              ASSERT_EQ(packed[at], bytes[static_cast<size_t>(from * width + b)]);
            }
          }
        }
      }
    }
    EXPECT_EQ(at, packed.size());
  }
}

TEST(Array, ViewsOfPackedNibbles) {
  std::vector<std::byte> bytes;  // element k of 24 is k % 16
  for (int k = 0; k < 12; ++k)
    bytes.push_back(static_cast<std::byte>((2 * k % 16) | ((2 * k + 1) % 16 << 4)));
  hd::Array a = hd::Array::from_bytes(hd::DType::u4, {4, 6}, bytes);
  using Integers = std::vector<int64_t>;
  EXPECT_EQ(a.transpose({1, 0}).slice(0, 0, 2).to_vector<int64_t>(),
            (Integers{0, 6, 12, 2, 1, 7, 13, 3}));
  EXPECT_EQ(a.slice(0, 2, 0, -1).to_vector<int64_t>(),
            (Integers{12, 13, 14, 15, 0, 1, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(a.slice(1, 4, 0, -2).slice(0, 0, 1).to_vector<int64_t>(), (Integers{4, 2}));
  EXPECT_EQ(a.slice(0, 0, 1).broadcast_to({2, 6}).to_vector<int64_t>(),
            (Integers{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(message([&] { a.slice(1, 1, 3); }),
            "Array::slice: views of u4 must begin at a whole byte");
  // As feeds, and as outputs between whose elements others lie.
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::DType::u4, {4, 3}, "x");
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {hd::cast(x, hd::i32), x}},
                                   hd::device("interpreter"));
  hd::Array steps = a.slice(1, 4, 0, -2).transpose({1, 0}),
            wide = hd::Array::zeros(hd::i32, {4, 3});
  hd::Graph other;
  hd::Tensor y = other.placeholder(hd::DType::u4, {2, 4}, "y");
  EXPECT_EQ(other.run({{y, steps}}, {hd::cast(y, hd::i32)}, {}, hd::device("interpreter"))[0]
                .to_vector<int64_t>(),
            (Integers{4, 10, 0, 6, 2, 8, 14, 4}));
  hd::Array whole = hd::Array::zeros(hd::DType::u4, {4, 6});
  hd::Array odd = whole.slice(1, 0, 6, 2);
  e.run_into({a.slice(1, 0, 6, 2)}, {wide, odd});
  EXPECT_EQ(wide.to_vector<int64_t>(), (Integers{0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6}));
  EXPECT_EQ(whole.slice(0, 0, 2).to_vector<int64_t>(),
            (Integers{0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0}));
}

TEST(Array, RankSixteen) {
  std::vector<int64_t> shape(16, 1);
  shape[0] = 2, shape[15] = 3;
  hd::Array a = iota(shape);
  std::vector<int> reversed(16);
  for (int k = 0; k < 16; ++k) reversed[static_cast<size_t>(k)] = 15 - k;
  EXPECT_EQ(a.transpose(reversed).to_vector<float>(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_NE(message([] { hd::Array::zeros(hd::f32, std::vector<int64_t>(17, 1)); }).find("rank 17"),
            std::string::npos);
}

TEST(Array, MistakesAreNamed) {
  float memory[4] = {};
  EXPECT_NE(message([&] {
              hd::Array::wrap(hd::f32, {3}, {INT64_MAX}, memory, hd::Device());
            }).find("reach beyond 2^62 bytes"),
            std::string::npos);
  for (int none : {27, 77, 255})
    EXPECT_EQ(message([&] { hd::Array::zeros(static_cast<hd::DType>(none), {3}); }),
              "Array::empty: the dtype is unknown");
  hd::Array a = iota({3, 4});
  EXPECT_NE(message([&] { a.slice(2, 0, 1); }).find("axis 2 of rank 2"), std::string::npos);
  EXPECT_NE(message([&] { a.slice(0, 0, 3, 0); }).find("step is 0"), std::string::npos);
  EXPECT_NE(message([&] { a.transpose({0, 0}); }).find("permutation"), std::string::npos);
  EXPECT_NE(message([&] { a.broadcast_to({2, 4}); }).find("[3,4]"), std::string::npos);
  EXPECT_NE(message([&] { a.transpose({1, 0}).reshape({12}); }).find("not contiguous"),
            std::string::npos);
  EXPECT_EQ(message([] { hd::Array::from<float>({3}, {1, 2}); }),
            "Array::from: the shape [3] has 3 elements, given 2");
  std::vector<std::byte> eight(8);
  EXPECT_NE(message([&] { hd::Array::from_bytes(hd::f32, {3}, eight); }).find("12 bytes, given 8"),
            std::string::npos);
  EXPECT_NE(message([] { hd::Array::zeros(hd::f32, {-1}); }).find("negative"), std::string::npos);
  EXPECT_NE(
      message([] { hd::Array::empty(hd::f32, {int64_t{1} << 40, int64_t{1} << 40}); }).find("2^63"),
      std::string::npos);
  EXPECT_NE(message([] { hd::Array().to_bytes(); }).find("empty"), std::string::npos);
}

// Every start, stop and step of Python's slices; the elements are counted off one by one.
TEST(Array, SlicesAsNumPyDoes) {
  constexpr int64_t kFar = INT64_MAX;
  for (int64_t n : {0, 1, 2, 5}) {
    hd::Array x = iota({n});
    for (int64_t step : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{-1}, int64_t{-2},
                         int64_t{-7}, kFar, INT64_MIN}) {
      std::vector<int64_t> ends{-kFar - 1, kFar};
      for (int64_t e = -n - 2; e <= n + 2; ++e) ends.push_back(e);
      for (int64_t start : ends) {
        for (int64_t stop : ends) {
          // CPython's rule: PySlice_AdjustIndices.
          auto adjusted = [&](int64_t at) {
            if (at < 0) {
              at += n;
              if (at < 0) at = step < 0 ? -1 : 0;
            } else if (at >= n) {
              at = step < 0 ? n - 1 : n;
            }
            return at;
          };
          Values expected;
          int64_t first = adjusted(start), last = adjusted(stop);
          for (int64_t k = first; step > 0 ? k < last : k > last; k += step) {
            expected.push_back(static_cast<float>(k));
            if (step > n || step < -n) break;
          }
          ASSERT_EQ(x.slice(0, start, stop, step).to_vector<float>(), expected)
              << n << ": " << start << " " << stop << " " << step;
        }
      }
    }
  }
  // V19: reversed as a view, along each axis, and fed.
  hd::Array m = iota({2, 3});
  EXPECT_EQ(m.slice(1, -1, -4, -1).to_vector<float>(), (Values{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(m.slice(0, -1, -3, -1).to_vector<float>(), (Values{3, 4, 5, 0, 1, 2}));
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {3}, "x");
  EXPECT_EQ(g.run({{x, hd::Array::from<float>({3}, {1, 2, 3}).slice(0, -1, -4, -1)}}, {x + 0.0}, {},
                  hd::test::runtime_device())[0]
                .to_vector<float>(),
            (Values{3, 2, 1}));
}

TEST(Array, WrapReleasesOnce) {
  Values memory{1, 2, 3, 4, 5, 6};
  int released = 0;
  {
    hd::Array view;
    {
      hd::Array a = hd::Array::wrap(hd::f32, {2, 3}, {1, 2}, memory.data(), hd::Device(),
                                    [&] { ++released; });
      EXPECT_EQ(a.to_vector<float>(), (Values{1, 3, 5, 2, 4, 6}));
      view = a.slice(0, 1, 2);
    }
    EXPECT_EQ(released, 0);
    EXPECT_EQ(view.to_vector<float>(), (Values{2, 4, 6}));
  }
  EXPECT_EQ(released, 1);
}

TEST(DLPack, RoundTrip) {
  DLManagedTensor* exported = nullptr;
  {
    hd::Array a = iota({3, 4}).transpose({1, 0});
    exported = a.to_dlpack();
  }
  EXPECT_EQ(exported->dl_tensor.device.device_type, 1);
  EXPECT_EQ(exported->dl_tensor.ndim, 2);
  EXPECT_EQ(exported->dl_tensor.strides[0], 1);
  hd::Array back = hd::Array::from_dlpack(exported);
  EXPECT_EQ(back.dtype(), hd::f32);
  EXPECT_EQ(back.to_vector<float>(), (Values{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
}

TEST(DLPack, EveryDTypeComesBack) {
  for (int d = 1; d < hd::kDTypeCount; ++d) {
    auto dtype = static_cast<hd::DType>(d);
    hd::Array a = hd::Array::zeros(dtype, {8});
    EXPECT_EQ(hd::Array::from_dlpack(a.to_dlpack()).dtype(), dtype) << hd::name(dtype);
  }
}

TEST(DLPack, RefusesWhatItDoesNotKnow) {
  DLManagedTensor* t = iota({2}).to_dlpack();
  t->dl_tensor.dtype.lanes = 4;
  EXPECT_NE(message([&] { hd::Array::from_dlpack(t); }).find("4 lanes"), std::string::npos);
  t->dl_tensor.dtype.lanes = 1;
  t->dl_tensor.device.device_type = 99;
  EXPECT_NE(message([&] { hd::Array::from_dlpack(t); }).find("99"), std::string::npos);
  t->deleter(t);
}

}  // namespace
