#include "ir/body_bounds.h"
#include "ir/scalar_eval.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

namespace heddle::ir {
namespace {

constexpr size_t kLeaves = 3;

double as_double(DType t, uint64_t bits) {
  return t == f64 ? std::bit_cast<double>(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits));
}

uint64_t value_of(const Body& body, NodeId id, const std::array<uint64_t, kLeaves>& leaves) {
  const Node& n = body.nodes[id];
  if (n.op == ScalarOp::constant) return n.bits;
  if (n.op == ScalarOp::load) return leaves[n.payload];
  auto of = [&](NodeId k) { return k == kNoNode ? 0 : value_of(body, k, leaves); };
  if (n.op == ScalarOp::select) return of(n.a) != 0 ? of(n.b) : of(n.c);
  return eval_scalar(n.op, n.type, body.nodes[n.a].type, of(n.a), of(n.b), of(n.c));
}

bool same(DType t, uint64_t a, uint64_t b) {
  return a == b || (std::isnan(as_double(t, a)) && std::isnan(as_double(t, b)));
}

struct Random {
  std::mt19937 rng;
  size_t below(size_t n) { return rng() % n; }
  double number() {
    constexpr std::array<double, 14> kSpecial = {0.0,      -0.0,      1.0,   -1.0,  0.5,
                                                 -2.0,     89.0,      1e-42, 3e38,  -3e38,
                                                 INFINITY, -INFINITY, NAN,   -1e-30};
    if (below(3) != 0) return kSpecial[below(kSpecial.size())];
    return (static_cast<double>(rng()) / 0x1p31 - 1) * std::exp2(static_cast<double>(below(20)));
  }
  uint64_t bits(DType t) {
    return t == f64 ? std::bit_cast<uint64_t>(number())
                    : std::bit_cast<uint32_t>(static_cast<float>(number()));
  }
};

NodeId with_sign_of(BodyBuilder& b, NodeId x, NodeId from) {
  DType i = b.type(x) == f64 ? i64 : i32;
  NodeId sign = b.constant_bits(i, uint64_t{1} << (bit_width(i) - 1));
  NodeId bits = b.binary(ScalarOp::bit_or, b.bitcast(x, i),
                         b.binary(ScalarOp::bit_and, b.bitcast(from, i), sign));
  return b.bitcast(bits, b.type(x));
}

// The new node, and the operation that was asked for, to be evaluated as it stands.
struct Made {
  NodeId node;
  ScalarOp op;
  NodeId a, b;
};
Made grow(BodyBuilder& b, Random& random, const std::vector<NodeId>& pool) {
  auto any = [&] { return pool[random.below(pool.size())]; };
  constexpr std::array<ScalarOp, 6> kBinary = {ScalarOp::min, ScalarOp::max, ScalarOp::add,
                                               ScalarOp::sub, ScalarOp::mul, ScalarOp::mul};
  NodeId x = any();
  switch (random.below(8)) {
    case 0:
      return {b.unary(ScalarOp::neg, x), ScalarOp::neg, x, kNoNode};
    case 1:
      return {b.unary(ScalarOp::abs, x), ScalarOp::abs, x, kNoNode};
    case 2:
      return {with_sign_of(b, x, any()), ScalarOp::constant, x, kNoNode};
    case 3: {
      NodeId p = b.binary(ScalarOp::lt, x, any());
      return {b.select(p, any(), any()), ScalarOp::constant, x, kNoNode};
    }
    case 4:
      return {b.binary(ScalarOp::mul, x, x), ScalarOp::mul, x, x};
    default: {
      NodeId y = random.below(2) != 0 ? b.constant(b.type(x), random.number()) : any();
      ScalarOp op = kBinary[random.below(kBinary.size())];
      return {b.binary(op, x, y), op, x, y};
    }
  }
}

class BodyBounds : public ::testing::TestWithParam<DType> {};

TEST_P(BodyBounds, HoldWhatNodesGiveAndFoldsChangeNothing) {
  const DType t = GetParam();
  Random random{std::mt19937(7)};
  int left_out = 0;
  for (int round = 0; round < 400; ++round) {
    BodyBuilder b;
    std::vector<NodeId> pool;
    for (uint32_t k = 0; k < kLeaves; ++k) pool.push_back(b.load(t, {k, {}}));
    std::vector<Made> made;
    for (int k = 0; k < 12; ++k) {
      made.push_back(grow(b, random, pool));
      pool.push_back(made.back().node);
    }
    for (const Made& m : made) {
      bool clamp = m.op == ScalarOp::min || m.op == ScalarOp::max;
      if (clamp && (m.node == m.a || m.node == m.b)) ++left_out;
    }
    for (int sample = 0; sample < 20; ++sample) {
      std::array<uint64_t, kLeaves> leaves = {random.bits(t), random.bits(t), random.bits(t)};
      for (const Made& m : made) {
        uint64_t bits = value_of(b.body(), m.node, leaves);
        double v = as_double(t, bits);
        FloatBounds bounds = float_bounds(b.body(), m.node);
        EXPECT_TRUE(std::isnan(v) || (v >= bounds.lower && v <= bounds.upper))
            << v << " not in " << bounds.lower << " .. " << bounds.upper;
        if (m.op == ScalarOp::constant) continue;
        uint64_t y = m.b == kNoNode ? 0 : value_of(b.body(), m.b, leaves);
        uint64_t asked = eval_scalar(m.op, t, t, value_of(b.body(), m.a, leaves), y, 0);
        EXPECT_TRUE(same(t, bits, asked)) << name(m.op);
      }
    }
  }
  EXPECT_GT(left_out, 10);
}
INSTANTIATE_TEST_SUITE_P(Types, BodyBounds, ::testing::Values(f32, f64));

TEST(BodyBounds, ClampsOfSquaresAreLeftOut) {
  BodyBuilder b;
  NodeId x = b.load(f32, {0, {}});
  NodeId v = b.binary(ScalarOp::mul, b.binary(ScalarOp::mul, x, x), b.constant(f32, -0.5));
  EXPECT_EQ(b.binary(ScalarOp::min, v, b.constant(f32, 89)), v);
  EXPECT_NE(b.binary(ScalarOp::min, v, b.constant(f32, 0)), v);  // +0 would become -0
  EXPECT_NE(b.binary(ScalarOp::max, v, b.constant(f32, -104.5)), v);
}

TEST(BodyBounds, SquaresDoNotSeeSigns) {
  BodyBuilder b;
  NodeId x = b.load(f32, {0, {}}), y = b.load(f32, {1, {}});
  NodeId square = b.binary(ScalarOp::mul, x, x);
  NodeId other = b.unary(ScalarOp::neg, with_sign_of(b, b.unary(ScalarOp::abs, x), y));
  EXPECT_EQ(b.binary(ScalarOp::mul, other, other), square);
}

}  // namespace
}  // namespace heddle::ir
