#include "ir/body_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace heddle::ir {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr FloatBounds kAny = {-kInfinity, kInfinity};
constexpr int kDepth = 6;  // of operands that are looked at

// Roundings are monotone: a bound that is rounded like the values bounds what they are rounded to.
// Past the range of f32 they may give infinity or the largest number.
FloatBounds rounded(DType t, const FloatBounds& x) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (t != DType::f32) return x;
  FloatBounds r = {std::clamp(x.lower, -kLargest, kLargest),
                   std::clamp(x.upper, -kLargest, kLargest)};
  r = {static_cast<float>(r.lower), static_cast<float>(r.upper)};
  return {x.lower < -kLargest ? -kInfinity : r.lower, x.upper > kLargest ? kInfinity : r.upper};
}

// A factor that is 0 makes 0 with all that is finite, and NaN with what is not.
double product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

FloatBounds product(const FloatBounds& a, const FloatBounds& b) {
  auto [least, greatest] = std::minmax({product(a.lower, b.lower), product(a.lower, b.upper),
                                        product(a.upper, b.lower), product(a.upper, b.upper)});
  return {least, greatest};
}

FloatBounds magnitude(const FloatBounds& x) {
  double least = x.lower > 0 ? x.lower : x.upper < 0 ? -x.upper : 0;
  return {least, std::max(std::fabs(x.lower), std::fabs(x.upper))};
}

FloatBounds sum(const FloatBounds& a, const FloatBounds& b) {
  double lower = a.lower + b.lower, upper = a.upper + b.upper;
  return {std::isnan(lower) ? -kInfinity : lower, std::isnan(upper) ? kInfinity : upper};
}

std::optional<double> constant_value(const Node& n) {
  if (n.op != ScalarOp::constant) return std::nullopt;
  if (n.type == DType::f64) return std::bit_cast<double>(n.bits);
  return std::bit_cast<float>(static_cast<uint32_t>(n.bits));
}

FloatBounds bounds_of(const Body& body, NodeId id, int depth) {
  const Node& n = body.nodes[id];
  if ((n.type != DType::f32 && n.type != DType::f64) || depth == 0) return kAny;
  if (std::optional<double> c = constant_value(n))
    return std::isnan(*c) ? kAny : FloatBounds{*c, *c};
  auto of = [&](NodeId k) { return bounds_of(body, k, depth - 1); };
  FloatBounds r = kAny;
  switch (n.op) {
    case ScalarOp::neg: {
      FloatBounds x = of(n.a);
      return {-x.upper, -x.lower};
    }
    case ScalarOp::abs:
      return magnitude(of(n.a));
    case ScalarOp::min: {
      FloatBounds a = of(n.a), b = of(n.b);
      return {std::min(a.lower, b.lower), std::min(a.upper, b.upper)};
    }
    case ScalarOp::max: {
      FloatBounds a = of(n.a), b = of(n.b);
      return {std::max(a.lower, b.lower), std::max(a.upper, b.upper)};
    }
    case ScalarOp::select: {
      FloatBounds a = of(n.b), b = of(n.c);
      return {std::min(a.lower, b.lower), std::max(a.upper, b.upper)};
    }
    case ScalarOp::add:
      r = sum(of(n.a), of(n.b));
      break;
    case ScalarOp::sub: {
      FloatBounds b = of(n.b);
      r = sum(of(n.a), {-b.upper, -b.lower});
      break;
    }
    case ScalarOp::mul: {
      FloatBounds a = n.a == n.b ? magnitude(of(n.a)) : of(n.a);
      r = product(a, n.a == n.b ? a : of(n.b));
      break;
    }
    default:
      return kAny;
  }
  return rounded(n.type, r);
}

// Is it an integer that is 0 but for the sign bit?
bool only_sign(const Body& body, NodeId id) {
  const Node& n = body.nodes[id];
  uint64_t sign = uint64_t{1} << (bit_width(n.type) - 1);
  if (n.op == ScalarOp::constant) return (n.bits & ~sign) == 0;
  return n.op == ScalarOp::bit_and && (only_sign(body, n.a) || only_sign(body, n.b));
}

}  // namespace

FloatBounds float_bounds(const Body& body, NodeId n) { return bounds_of(body, n, kDepth); }

NodeId without_clamp(const Body& body, const Node& n) {
  if (n.op != ScalarOp::min && n.op != ScalarOp::max) return kNoNode;
  if (n.type != DType::f32 && n.type != DType::f64) return kNoNode;
  for (auto [x, limit] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
    std::optional<double> c = constant_value(body.nodes[limit]);
    if (!c || std::isnan(*c) || *c == 0) continue;
    FloatBounds v = float_bounds(body, x);
    if (n.op == ScalarOp::min ? v.upper <= *c : v.lower >= *c) return x;
  }
  return kNoNode;
}

NodeId without_sign(const Body& body, NodeId id) {
  for (;;) {
    const Node& n = body.nodes[id];
    if (n.op == ScalarOp::neg || n.op == ScalarOp::abs) {
      id = n.a;
      continue;
    }
    if (n.op != ScalarOp::bitcast || body.nodes[n.a].op != ScalarOp::bit_or) return id;
    const Node& bits = body.nodes[n.a];
    NodeId from = only_sign(body, bits.b) ? bits.a : only_sign(body, bits.a) ? bits.b : kNoNode;
    if (from == kNoNode) return id;
    const Node& value = body.nodes[from];
    if (value.op != ScalarOp::bitcast || body.nodes[value.a].type != n.type) return id;
    id = value.a;
  }
}

}  // namespace heddle::ir
