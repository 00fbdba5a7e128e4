#include "support/math_sweep.h"
#include "ops/math_functions.h"
#include "support/body_eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <random>

namespace heddle::test {
namespace {

// A prime, so that all mantissas get their turn; HEDDLE_SWEEP_STRIDE in fuzz/math goes down
// to 1.
constexpr uint64_t kStride = 20011;

TEST(MathSweep, StaysInsideItsBound) {
  std::printf("stride %llu\n", static_cast<unsigned long long>(kStride));
  for (const SweptFunction& f : swept_functions()) {
    SweepResult r = sweep(f, 7, uint64_t{1} << 32, kStride);
    std::printf("%-8s %.3f ULP at %a, %lld points\n", f.name.c_str(), r.worst, r.at,
                static_cast<long long>(r.points));
    EXPECT_LE(r.worst, f.bound) << f.name << " at " << r.at;
    EXPECT_EQ(r.wrong_special, 0) << f.name << " at " << r.special_at;
  }
}

std::vector<float> special_values() {
  std::vector<float> values;
  for (float v : {0.0f,        1e-45f,      1e-40f,     1.1754944e-38f, 0.5f,    0.99999994f,
                  1.0f,        1.0000001f,  1.5f,       2.0f,           2.5f,    3.0f,
                  7.0f,        88.72283f,   88.722840f, 103.9f,         104.0f,  1e10f,
                  16777215.0f, 16777216.0f, 8388607.5f, 3.4028235e38f,  INFINITY}) {
    values.push_back(v);
    values.push_back(-v);
  }
  values.push_back(NAN);
  values.push_back(std::bit_cast<float>(0xffc00001u));
  values.push_back(std::bit_cast<float>(0x7fffffffu));
  return values;
}

TEST(MathSweep, SpecialValues) {
  for (const SweptFunction& f : swept_functions()) {
    ir::BodyBuilder b;
    ir::NodeId result = f.build(b, input(b, 0, f32));
    Lane in;
    for (float v : special_values()) in.push_back(std::bit_cast<uint32_t>(v));
    Lane got = evaluate(b.body(), {result}, {in})[0];
    for (size_t k = 0; k < in.size(); ++k) {
      float x = std::bit_cast<float>(static_cast<uint32_t>(in[k])),
            y = std::bit_cast<float>(static_cast<uint32_t>(got[k]));
      EXPECT_LE(ulp_error(y, f.truth(x)), f.bound) << f.name << '(' << x << ") gave " << y;
    }
  }
}

double power_errors(const std::vector<float>& xs, const std::vector<float>& ys) {
  ir::BodyBuilder b;
  ir::NodeId x = input(b, 0, f32), y = input(b, 1, f32);
  ir::NodeId result = ops::power_node(b, x, y);
  Lane lx, ly;
  for (float v : xs) lx.push_back(std::bit_cast<uint32_t>(v));
  for (float v : ys) ly.push_back(std::bit_cast<uint32_t>(v));
  Lane got = evaluate(b.body(), {result}, {lx, ly})[0];
  double worst = 0;
  for (size_t k = 0; k < xs.size(); ++k) {
    float p = std::bit_cast<float>(static_cast<uint32_t>(got[k]));
    double truth = std::pow(static_cast<double>(xs[k]), static_cast<double>(ys[k]));
    double error = ulp_error(p, truth);
    // Around the smallest subnormal and the largest number a rounding decides between the number
    // and 0 or infinity.
    if (truth != 0 && std::fabs(truth) < 0x1p-149 && std::fabs(p) <= 0x1p-149f) error = 0;
    EXPECT_LE(error, 2) << "power(" << xs[k] << ", " << ys[k] << ") gave " << p << ", expected "
                        << truth;
    if (std::isfinite(error)) worst = std::max(worst, error);
  }
  return worst;
}

TEST(MathSweep, PowerSpecialValues) {
  std::vector<float> xs, ys;
  for (float x : special_values())
    for (float y : special_values()) {
      xs.push_back(x);
      ys.push_back(y);
    }
  power_errors(xs, ys);
}

// Exponents that are constants of the body take shorter ways.
TEST(MathSweep, PowerOfConstantExponents) {
  for (float y : {1.0f, -1.0f, 2.0f, 3.0f, 0.5f, -0.5f, 0.75f, 0.0f, -2.0f}) {
    ir::BodyBuilder b;
    ir::NodeId result = ops::power_node(b, input(b, 0, f32), b.constant(f32, y));
    Lane in;
    for (float v : special_values()) in.push_back(std::bit_cast<uint32_t>(v));
    for (float v = 1e-38f; v < 1e38f; v *= 1.37f) in.push_back(std::bit_cast<uint32_t>(v));
    Lane got = evaluate(b.body(), {result}, {in})[0];
    for (size_t k = 0; k < in.size(); ++k) {
      float x = std::bit_cast<float>(static_cast<uint32_t>(in[k]));
      float p = std::bit_cast<float>(static_cast<uint32_t>(got[k]));
      double truth = std::pow(static_cast<double>(x), static_cast<double>(y));
      if (truth != 0 && std::fabs(truth) < 0x1p-149 && std::fabs(p) <= 0x1p-149f) continue;
      EXPECT_LE(ulp_error(p, truth), 2) << x << " to the power " << y << " gave " << p;
    }
  }
}

TEST(MathSweep, PowerSampled) {
  std::mt19937_64 rng(11);
  std::uniform_real_distribution<double> log2x(-140, 127), log2p(-149, 128), near(-0.01, 0.01),
      any(-30, 30);
  std::vector<float> xs, ys;
  for (int k = 0; k < 200'000; ++k) {
    double lx = k % 3 == 0 ? near(rng) : log2x(rng);
    xs.push_back(static_cast<float>(std::exp2(lx)));
    ys.push_back(k % 2 == 0 ? static_cast<float>(log2p(rng) / lx) : static_cast<float>(any(rng)));
    if (k % 8 == 0) {
      xs.back() = -xs.back();
      ys.back() = std::rint(ys.back());
    }
  }
  std::printf("power    %.3f ULP\n", power_errors(xs, ys));
}

}  // namespace
}  // namespace heddle::test
