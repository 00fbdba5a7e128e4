// Applies the operations' own rules, and takes branches whose predicate is known.
#include "ops/opdef.h"
#include "passes/passes.h"

#include <heddle/error.h>

namespace heddle::passes {

namespace {

using ir::OpId;
using ir::ValueId;
using Values = std::optional<std::vector<ValueId>>;

constexpr int kMaxRounds = 8;

Values take_known_branch(ir::RewriteContext& c, OpId id) {
  if (!c.in.op(id).def->control) return std::nullopt;
  ops::ControlInfo info = ops::control_info(c.in, id);
  if (info.form != ops::Form::cond) return std::nullopt;
  ir::LiteralRef predicate = ops::constant_value(c.out, c.mapped(info.predicate));
  if (predicate == nullptr) return std::nullopt;
  bool holds = predicate->bytes.at(0) != std::byte{0};
  return c.inline_region(holds ? info.first : info.second, {});
}

Values apply_rule(ir::RewriteContext& c, OpId id) {
  const ir::Op& op = c.in.op(id);
  if (!op.def->simplify) return std::nullopt;
  Tensors operands;
  for (ValueId v : op.operands) operands.push_back(c.out.tensor(c.mapped(v)));
  std::optional<Tensors> simpler;
  try {
    simpler = op.def->simplify(op, operands);
  } catch (const GraphError&) {  // inference cannot show that the shorter form is valid
  }
  if (!simpler) return std::nullopt;
  std::vector<ValueId> values;
  for (size_t i = 0; i < simpler->size(); ++i) {
    // Symbolic extents may be equal and yet of another form, which users of the result have in
    // their types.
    if ((*simpler)[i].type() != c.in.value(op.results[i]).type) return std::nullopt;
    values.push_back((*simpler)[i].id());
  }
  return values;
}

}  // namespace

GraphRef simplify(const ir::Graph& graph) {
  GraphRef result;
  bool changed = true;
  for (int round = 0; round < kMaxRounds && changed; ++round) {
    changed = false;
    result = ir::rewrite(result ? *result : graph, [&](ir::RewriteContext& c, OpId id) {
      Values values = apply_rule(c, id);
      if (!values) values = take_known_branch(c, id);
      changed |= values.has_value();
      return values;
    });
  }
  return result;
}

}  // namespace heddle::passes
