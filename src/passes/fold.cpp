#include "base/check.h"
#include "ops/host_tensor.h"
#include "ops/opdef.h"
#include "passes/passes.h"

#include <algorithm>

namespace heddle::passes {

namespace {

using ir::OpId;
using ir::ValueId;
using ops::HostTensor;

// Results larger than both of these stay kernels: data in the graph costs memory and bandwidth.
constexpr int64_t kMaxElements = 1024;
constexpr int64_t kMaxElementsOfInputs = 65536;

std::optional<int64_t> static_count(const Type& type) {
  if (!type.known()) return std::nullopt;
  return element_count(*type.shape).constant();
}

bool is_static(const Type& type) {
  if (!type.known()) return false;
  return std::all_of(type.shape->begin(), type.shape->end(),
                     [](const Expr& e) { return e.is_constant(); });
}

bool has_symbols(const ir::Attrs& attrs) {
  bool found = false;
  for (const auto& [name, value] : attrs.items()) {
    ir::map_exprs(value, [&](const Expr& e) {
      found |= !e.is_constant();
      return e;
    });
  }
  return found;
}

// The result as data where inference knows every element as a number (shapes as data).
std::optional<HostTensor> known_elements(const ir::Graph& graph, const ir::Op& op) {
  if (op.results.size() != 1) return std::nullopt;
  const ir::Value& value = graph.value(op.results[0]);
  if (!value.elements || !is_static(value.type)) return std::nullopt;
  std::vector<int64_t> shape;
  for (const Expr& e : *value.type.shape) shape.push_back(*e.constant());
  HostTensor t(value.type.dtype, shape);
  if (t.i.size() != value.elements->size()) return std::nullopt;
  for (size_t k = 0; k < t.i.size(); ++k) {
    const Expr& e = (*value.elements)[k];
    if (!e.is_constant()) return std::nullopt;
    t.i[k] = *e.constant();
  }
  return t;
}

bool worth_folding(const ir::Graph& graph, const ir::Op& op, int64_t input_elements) {
  int64_t most = std::max(kMaxElements, std::min(input_elements, kMaxElementsOfInputs));
  return std::all_of(op.results.begin(), op.results.end(), [&](ValueId v) {
    const Type& type = graph.value(v).type;
    return is_static(type) && static_count(type).value_or(most + 1) <= most;
  });
}

bool can_fold(const ir::Graph& graph, OpId id) {
  const ir::Op& op = graph.op(id);
  return op.def->role == ops::Role::none && op.def->effect == ops::Effect::none &&
         op.regions.empty() && !op.results.empty() && op.def->judge;
}

std::optional<std::vector<HostTensor>> evaluate(ir::RewriteContext& c, const ir::Op& op) {
  if (op.operands.empty() || has_symbols(op.attrs)) return std::nullopt;
  std::vector<HostTensor> inputs;
  int64_t input_elements = 0;
  for (ValueId v : op.operands) {
    ir::LiteralRef literal = ops::constant_value(c.out, c.mapped(v));
    if (literal == nullptr) return std::nullopt;
    input_elements += ops::element_count(literal->shape);
  }
  if (!worth_folding(c.in, op, input_elements)) return std::nullopt;
  for (ValueId v : op.operands) {
    inputs.push_back(ops::from_literal(*ops::constant_value(c.out, c.mapped(v))));
  }
  ops::JudgeContext judge{op.attrs, {}, {}, [](const Expr& e) { return *e.constant(); }, {}, {}};
  for (const HostTensor& t : inputs) judge.in.push_back(&t);
  for (ValueId v : op.results) judge.result_types.push_back(c.in.value(v).type);
  std::vector<HostTensor> results = op.def->judge(judge);
  for (HostTensor& t : results) ops::round_to_dtype(t);
  return results;
}

}  // namespace

GraphRef fold_constants(const ir::Graph& graph) {
  return ir::rewrite(graph,
                     [](ir::RewriteContext& c, OpId id) -> std::optional<std::vector<ValueId>> {
                       if (!can_fold(c.in, id)) return std::nullopt;
                       const ir::Op& op = c.in.op(id);
                       if (std::optional<HostTensor> known = known_elements(c.in, op)) {
                         return {{ops::add_constant(c.out, ops::to_literal(*known))}};
                       }
                       std::optional<std::vector<HostTensor>> results = evaluate(c, op);
                       if (!results) return std::nullopt;
                       std::vector<ValueId> values;
                       for (const HostTensor& t : *results) {
                         values.push_back(ops::add_constant(c.out, ops::to_literal(t)));
                       }
                       return values;
                     });
}

}  // namespace heddle::passes
