#include "ir/body.h"
#include "base/small_float.h"
#include "ir/kernel.h"
#include "ir/scalar_eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace heddle::ir {
namespace {

TEST(Body, EqualNodesAreMadeOnce) {
  BodyBuilder b;
  NodeId x = b.load(f32, {0, {Expr(make_loop_symbol("i", Expr(8)))}});
  NodeId y = b.binary(ScalarOp::add, x, x);
  EXPECT_EQ(y, b.binary(ScalarOp::add, x, x));
  EXPECT_EQ(b.binary(ScalarOp::mul, y, b.constant(f32, 1)), y);
  EXPECT_NE(b.binary(ScalarOp::add, y, b.constant(f32, 0)), y);  // -0 + 0 is +0
}

TEST(Body, ConstantsFold) {
  BodyBuilder b;
  NodeId r = b.binary(ScalarOp::div, b.constant(f32, 1), b.constant(f32, 3));
  EXPECT_EQ(b.body().nodes[r].bits, std::bit_cast<uint32_t>(1.0f / 3.0f));
  NodeId z = b.binary(ScalarOp::div, b.constant_int(i32, INT32_MIN), b.constant_int(i32, -1));
  EXPECT_EQ(b.body().nodes[z].bits, 0x80000000u);
}

TEST(Body, TakeDropsUnusedAndKeepsBinds) {
  BodyBuilder b;
  Expr i(make_loop_symbol("i", Expr(8)));
  b.binary(ScalarOp::add, b.constant(f32, 1), b.load(f32, {0, {i}}));
  NodeId at = b.cast(b.load(i32, {1, {i}}), i64);
  SymbolRef s = b.bind(at, 0, 7);
  NodeId v = b.load(f32, {0, {Expr(s)}});
  b.store({2, {i}}, v);
  Body body = b.take();
  EXPECT_EQ(body.nodes.size(), 4u);  // load index, cast, bind, load
  EXPECT_EQ(b.renumbered(v), 3u);
}

TEST(Scalar, CastsSaturateThenWrap) {
  auto cast = [](double v, DType to) {
    return eval_scalar(ScalarOp::cast, to, f32, std::bit_cast<uint32_t>(static_cast<float>(v)), 0,
                       0);
  };
  EXPECT_EQ(static_cast<int8_t>(cast(130, i8)), -126);
  EXPECT_EQ(static_cast<int8_t>(cast(-129, i8)), 127);
  EXPECT_EQ(static_cast<int8_t>(cast(127.9, i8)), 127);
  EXPECT_EQ(static_cast<int8_t>(cast(-1.5, i8)), -1);
  EXPECT_EQ(cast(300, u8), 44u);
  EXPECT_EQ(cast(256, u8), 0u);
  EXPECT_EQ(cast(1e20, i32), static_cast<uint64_t>(INT32_MAX));
  EXPECT_EQ(cast(NAN, i64), 0u);
}

TEST(Scalar, MinMaxFollowTheirNanRules) {
  auto bits = [](float v) { return uint64_t{std::bit_cast<uint32_t>(v)}; };
  auto value = [](uint64_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b)); };
  EXPECT_TRUE(std::isnan(value(eval_scalar(ScalarOp::max, f32, f32, bits(NAN), bits(2), 0))));
  EXPECT_EQ(value(eval_scalar(ScalarOp::max_num, f32, f32, bits(NAN), bits(2), 0)), 2.0f);
  EXPECT_TRUE(
      std::signbit(value(eval_scalar(ScalarOp::min, f32, f32, bits(0.0f), bits(-0.0f), 0))));
}

TEST(SmallFloat, RoundTripsEveryPattern) {
  for (DType d : {f16, bf16, DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz,
                  DType::f8e8m0, DType::f4e2m1}) {
    for (uint32_t bits = 0; bits < (1u << bit_width(d)); ++bits) {
      double v = base::decode_small_float(d, bits);
      if (std::isnan(v)) {
        if (d != DType::f4e2m1)
          EXPECT_TRUE(std::isnan(base::decode_small_float(d, base::encode_small_float(d, v))));
      } else {
        EXPECT_EQ(base::encode_small_float(d, v), bits) << name(d) << " " << v;
      }
    }
  }
}

TEST(SmallFloat, RoundsToNearestEven) {
  EXPECT_EQ(base::encode_small_float(f16, 1 + 0x1p-11), 0x3c00u);
  EXPECT_EQ(base::encode_small_float(f16, 1 + 0x1.8p-10), 0x3c02u);
  EXPECT_EQ(base::encode_small_float(f16, 65520), 0x7c00u);
  EXPECT_EQ(base::encode_small_float(f16, 0x1p-25), 0u);
  EXPECT_EQ(base::encode_small_float(f16, 0x1.8p-24), 2u);
  EXPECT_TRUE(std::isnan(
      base::decode_small_float(DType::f8e4m3fn, base::encode_small_float(DType::f8e4m3fn, 1e6))));
  EXPECT_EQ(base::decode_small_float(DType::f4e2m1, base::encode_small_float(DType::f4e2m1, 100)),
            6.0);
}

TEST(Kernel, VerifyNamesTheBrokenRule) {
  Dim n("n");
  Kernel k;
  k.name = "copy";
  k.symbols = {n.symbol()};
  k.buffers = {{"x", f32, {n}, BufferRole::input}, {"y", f32, {n}, BufferRole::output}};
  auto nest = std::make_shared<Nest>();
  SymbolRef i = make_loop_symbol("i", n);
  nest->outer = {{i, n, AxisKind::mapped}};
  BodyBuilder b;
  b.store({1, {Expr(i)}}, b.load(f32, {0, {Expr(i)}}));
  nest->phases.push_back({{}, b.take(), {}});
  Stmt s;
  s.nest = nest;
  k.body = {s};
  EXPECT_EQ(verify(k), "");
  EXPECT_NE(print(k).find("nest (i_1: mapped n_0)"), std::string::npos) << print(k);
  nest->phases[0].body.stores[0].access = nest->phases[0].body.nodes[0].payload;
  EXPECT_EQ(verify(k), "write-input: x");
}

}  // namespace
}  // namespace heddle::ir
