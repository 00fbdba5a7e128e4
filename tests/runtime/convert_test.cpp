// Array::to_vector: each element is exact or an error, for all pairs of a dtype and a C++ type.
#include "helpers.h"
#include "ops/host_tensor.h"
#include "ops/storage.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hd = heddle;
using heddle::test::message;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Numbers at the edges of the integer types, fractions, and what is no number.
const std::vector<double> kValues{0,      1,      2,         -1,        1.5,     -0.5,     127,
                                  128,    -128,   -129,      255,       256,     32767,    32768,
                                  65535,  65536,  -32769,    0x1p31,    -0x1p31, 0x1p32,   0x1p53,
                                  0x1p62, 0x1p63, -0x1p63,   0x1p64,    -0x1p64, 0x1p-140, 1e38,
                                  1e39,   NAN,    kInfinity, -kInfinity};

// Does T have this number? By the definition of its range, in long double.
template <class T>
bool has(long double v) {
  constexpr long double kMost = std::numeric_limits<T>::max();
  if (std::is_floating_point_v<T>) return !std::isfinite(v) || std::abs(v) <= kMost;
  return std::isfinite(v) && std::floor(v) == v &&
         v >= static_cast<long double>(std::numeric_limits<T>::lowest()) && v <= kMost;
}

template <class T>
void expect_pairs(const char* target) {
  for (int d = 1; d < hd::kDTypeCount; ++d) {
    auto dtype = static_cast<hd::DType>(d);
    if (hd::is_complex(dtype) || hd::is_sub_byte(dtype)) continue;
    for (double value : kValues) {
      hd::ops::HostTensor t(dtype, {2});
      bool integer = t.f.empty();
      if (integer && (!std::isfinite(value) || std::floor(value) != value)) continue;
      if (integer && std::abs(value) >= 0x1p63) continue;
      if (integer) {
        t.i.assign(2, static_cast<int64_t>(value));
      } else {
        t.f.assign(2, value);
      }
      hd::ops::round_to_dtype(t);
      long double held = integer ? static_cast<long double>(t.i[1]) : t.f[1];
      if (dtype == hd::u64) held = static_cast<uint64_t>(t.i[1]);
      hd::Array a = hd::Array::from_bytes(dtype, {2}, hd::ops::to_bytes(t));
      if (has<T>(held)) {
        std::vector<T> out = a.to_vector<T>();
        ASSERT_EQ(out.size(), 2U);
        auto expected = static_cast<T>(held);
        EXPECT_TRUE(out[1] == expected || (held != held && out[1] != out[1]))
            << hd::name(dtype) << " " << value << " to " << target;
      } else {
        std::string said = message([&] { a.to_vector<T>(); });
        EXPECT_NE(said.find("Array::to_vector: element [0] of"), std::string::npos)
            << hd::name(dtype) << " " << value << " to " << target << ": " << said;
        EXPECT_NE(said.find(std::string("no value of ") + target), std::string::npos) << said;
      }
    }
  }
}

TEST(ToVector, EveryPairIsExactOrAnError) {
  expect_pairs<double>("f64");
  expect_pairs<float>("f32");
  expect_pairs<int8_t>("i8");
  expect_pairs<int16_t>("i16");
  expect_pairs<int32_t>("i32");
  expect_pairs<int64_t>("i64");
  expect_pairs<uint8_t>("u8");
  expect_pairs<uint16_t>("u16");
  expect_pairs<uint32_t>("u32");
  expect_pairs<uint64_t>("u64");
  expect_pairs<bool>("bool");
}

TEST(ToVector, SaysElementValueAndTarget) {
  hd::Array a = hd::Array::from<float>({2, 2}, {1, 2, 3, 1.7F});
  EXPECT_EQ(
      message([&] { a.to_vector<int64_t>(); }),
      "Array::to_vector: element [1,1] of f32[2,2] is 1.7000000476837158, which is no value of "
      "i64");
  EXPECT_MESSAGE(hd::Array::from<float>({1}, {NAN}).to_vector<int64_t>(), "is nan");
  EXPECT_MESSAGE(hd::Array::from<int64_t>({1}, {-1}).to_vector<uint8_t>(),
                 "is -1, which is no value of u8");
  EXPECT_MESSAGE(hd::Array::from<uint64_t>({1}, {UINT64_MAX}).to_vector<int64_t>(),
                 "is 18446744073709551615");
  EXPECT_EQ(hd::Array::from<uint64_t>({1}, {UINT64_MAX}).to_vector<uint64_t>()[0], UINT64_MAX);
  EXPECT_EQ(hd::Array::from<int64_t>({1}, {(int64_t{1} << 53) + 1}).to_vector<double>()[0], 0x1p53);
  EXPECT_MESSAGE(hd::Array().to_vector<float>(), "Array::to_vector: the array is empty");
  EXPECT_MESSAGE(hd::Array::zeros(hd::c64, {0}).to_vector<float>(), "complex");
}

}  // namespace
