#include "ops/storage.h"
#include "base/small_float.h"
#include "ops/helpers.h"
#include "support/body_eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace heddle::test {
namespace {

constexpr DType kSmallFloats[] = {DType::f8e4m3fn,   DType::f8e5m2, DType::f8e4m3fnuz,
                                  DType::f8e5m2fnuz, DType::f8e8m0, DType::f4e2m1};

float f32_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

TEST(Storage, DecodesEveryCode) {
  for (DType dtype : kSmallFloats) {
    ir::BodyBuilder b;
    ir::NodeId value = ops::decode_storage(b, dtype, input(b, 0, u8));
    Lane codes;
    for (uint64_t k = 0; k < uint64_t{1} << bit_width(dtype); ++k) codes.push_back(k);
    Lane got = evaluate(b.body(), {value}, {codes})[0];
    for (uint64_t k : codes) {
      double expected = base::decode_small_float(dtype, static_cast<uint32_t>(k));
      float actual = f32_of(got[k]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << name(dtype) << " code " << k;
      } else {
        EXPECT_EQ(actual, expected) << name(dtype) << " code " << k;
        EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << name(dtype) << " code " << k;
      }
    }
  }
}

TEST(Storage, DecodesSmallIntegers) {
  for (DType dtype : {DType::i2, DType::i4, DType::u2, DType::u4}) {
    ir::BodyBuilder b;
    ir::NodeId value = ops::decode_storage(b, dtype, input(b, 0, u8));
    HostTensor all = edge_values(dtype);
    Lane codes;
    for (size_t k = 0; k < all.i.size(); ++k) codes.push_back(element_bits(all, k));
    Lane got = evaluate(b.body(), {value}, {codes})[0];
    for (size_t k = 0; k < all.i.size(); ++k) {
      auto actual = ops::decoded_type(dtype) == i8
                        ? static_cast<int64_t>(static_cast<int8_t>(got[k]))
                        : static_cast<int64_t>(got[k]);
      EXPECT_EQ(actual, all.i[k]) << name(dtype);
    }
  }
}

// Each format's own numbers, the midpoints between them and their f32 and f64 neighbours, both
// signs; far values.
std::vector<double> encoding_points(DType dtype) {
  std::vector<double> values = edge_values(f64).f;
  for (uint32_t k = 0; k + 1 < 1u << bit_width(dtype); ++k) {
    double a = base::decode_small_float(dtype, k), b = base::decode_small_float(dtype, k + 1);
    for (double v : {a, (a + b) / 2, a * 1.25 + b * 0.125}) {
      for (double w : {v, static_cast<double>(std::nextafterf(static_cast<float>(v), INFINITY)),
                       static_cast<double>(std::nextafterf(static_cast<float>(v), -INFINITY)),
                       std::nextafter(v, INFINITY), std::nextafter(v, -INFINITY)}) {
        values.push_back(w);
        values.push_back(-w);
      }
    }
  }
  for (double v : {464.0, 464.00001, 463.9999, 240.0, 248.0, 248.001, 61440.0, 61439.9, 57344.0,
                   6.0, 7.0, 1e30, 0.25, 0.2500001})
    values.push_back(v);
  return values;
}

TEST(Storage, EncodesAsTheSoftwareConversion) {
  for (DType dtype : kSmallFloats) {
    for (DType from : {f32, f64}) {
      ir::BodyBuilder b;
      ir::NodeId code = ops::encode_storage(b, dtype, input(b, 0, from));
      std::vector<double> values = encoding_points(dtype);
      if (from == f32)
        for (double& v : values) v = static_cast<float>(v);
      Lane in;
      for (double v : values)
        in.push_back(from == f64 ? std::bit_cast<uint64_t>(v)
                                 : std::bit_cast<uint32_t>(static_cast<float>(v)));
      Lane got = evaluate(b.body(), {code}, {in})[0];
      for (size_t k = 0; k < values.size(); ++k) {
        uint32_t expected = base::encode_small_float(dtype, values[k]);
        double back = base::decode_small_float(dtype, static_cast<uint32_t>(got[k]));
        bool both_nan = std::isnan(back) && std::isnan(base::decode_small_float(dtype, expected));
        EXPECT_TRUE(got[k] == expected || both_nan)
            << name(dtype) << " of " << name(from) << ' ' << values[k] << ": " << got[k]
            << ", expected " << expected;
      }
    }
  }
}

TEST(Storage, RoundToOddThenHalfRoundsOnce) {
  ir::BodyBuilder b;
  ir::NodeId odd = ops::round_to_odd(b, input(b, 0, f64));
  // Just above the midpoint of two f16 numbers, by less than f32 can see.
  std::vector<double> values = edge_values(f64).f;
  for (double v : {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11 - 0x1p-40, 1 + 3 * 0x1p-11 + 0x1p-40,
                   0x1p-25 + 0x1p-60, 65519.999999})
    values.push_back(v);
  Lane in;
  for (double v : values) in.push_back(std::bit_cast<uint64_t>(v));
  Lane got = evaluate(b.body(), {odd}, {in})[0];
  for (DType half : {f16, bf16}) {
    for (size_t k = 0; k < values.size(); ++k) {
      if (std::isnan(values[k])) continue;
      EXPECT_EQ(base::encode_small_float(half, f32_of(got[k])),
                base::encode_small_float(half, values[k]))
          << name(half) << ' ' << values[k];
    }
  }
}

}  // namespace
}  // namespace heddle::test
