#include "support/body_eval.h"

#include "base/check.h"
#include "ir/scalar_eval.h"

#include <bit>
#include <cmath>

namespace heddle::test {

using ir::Node;
using ir::NodeId;
using ir::ScalarOp;

namespace {

uint64_t from_f32(float v) { return std::bit_cast<uint32_t>(v); }
float f32_of(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }

// The hot nodes of f32 in loops that a compiler sees through; false: not one of them.
bool evaluate_f32(const Node& node, DType operand, const Lane* a, const Lane* b, const Lane* c,
                  Lane& out) {
  if (operand != f32) return false;
  size_t n = out.size();
  auto unary = [&](auto f) {
    for (size_t k = 0; k < n; ++k) out[k] = from_f32(f(f32_of((*a)[k])));
    return true;
  };
  auto binary = [&](auto f) {
    for (size_t k = 0; k < n; ++k) out[k] = from_f32(f(f32_of((*a)[k]), f32_of((*b)[k])));
    return true;
  };
  auto comparison = [&](auto f) {
    for (size_t k = 0; k < n; ++k) out[k] = f(f32_of((*a)[k]), f32_of((*b)[k])) ? 1 : 0;
    return true;
  };
  switch (node.op) {
    case ScalarOp::neg:
      return unary([](float x) { return -x; });
    case ScalarOp::abs:
      return unary([](float x) { return std::fabs(x); });
    case ScalarOp::inverse:
      return unary([](float x) { return 1 / x; });
    case ScalarOp::add:
      return binary([](float x, float y) { return x + y; });
    case ScalarOp::sub:
      return binary([](float x, float y) { return x - y; });
    case ScalarOp::mul:
      return binary([](float x, float y) { return x * y; });
    case ScalarOp::div:
      return binary([](float x, float y) { return x / y; });
    case ScalarOp::lt:
      return comparison([](float x, float y) { return x < y; });
    case ScalarOp::gt:
      return comparison([](float x, float y) { return x > y; });
    case ScalarOp::eq:
      return comparison([](float x, float y) { return x == y; });
    case ScalarOp::fma:
      for (size_t k = 0; k < n; ++k)
        out[k] = from_f32(std::fma(f32_of((*a)[k]), f32_of((*b)[k]), f32_of((*c)[k])));
      return true;
    default:
      return false;
  }
}

void evaluate_node(const ir::Body& body, NodeId id, std::vector<Lane>& lanes,
                   const std::vector<Lane>& inputs) {
  const Node& node = body.nodes[id];
  Lane& out = lanes[id];
  auto lane = [&](NodeId n) { return n == ir::kNoNode ? nullptr : &lanes[n]; };
  const Lane *a = lane(node.a), *b = lane(node.b), *c = lane(node.c);
  DType operand = node.a == ir::kNoNode ? DType::unknown : body.nodes[node.a].type;
  switch (node.op) {
    case ScalarOp::constant:
      out.assign(out.size(), node.bits);
      return;
    case ScalarOp::load:
      out = inputs[body.accesses[node.payload].buffer];
      return;
    case ScalarOp::select:
      for (size_t k = 0; k < out.size(); ++k) out[k] = (*a)[k] != 0 ? (*b)[k] : (*c)[k];
      return;
    case ScalarOp::call:
      for (size_t k = 0; k < out.size(); ++k)
        out[k] = ir::eval_call(static_cast<ir::LibraryFunction>(node.payload), (*a)[k],
                               b != nullptr ? (*b)[k] : 0);
      return;
    case ScalarOp::index:
    case ScalarOp::bind:
    case ScalarOp::row:
    case ScalarOp::scan:
      HD_CHECK(false, "a node without a value at a single point");
    default:
      break;
  }
  if (evaluate_f32(node, operand, a, b, c, out)) return;
  for (size_t k = 0; k < out.size(); ++k) {
    out[k] = ir::eval_scalar(node.op, node.type, operand, (*a)[k], b != nullptr ? (*b)[k] : 0,
                             c != nullptr ? (*c)[k] : 0);
  }
}

}  // namespace

NodeId input(ir::BodyBuilder& b, int index, DType type) {
  return b.load(type, {static_cast<ir::BufferId>(index), {}});
}

std::vector<Lane> evaluate(const ir::Body& body, const std::vector<NodeId>& wanted,
                           const std::vector<Lane>& inputs) {
  size_t count = inputs.empty() ? 1 : inputs[0].size();
  std::vector<Lane> lanes(body.nodes.size(), Lane(count));
  for (NodeId id = 0; id < body.nodes.size(); ++id) evaluate_node(body, id, lanes, inputs);
  std::vector<Lane> results;
  for (NodeId id : wanted) results.push_back(lanes[id]);
  return results;
}

}  // namespace heddle::test
