#include "base/check.h"
#include "ops/opdef.h"
#include "passes/passes.h"

namespace heddle::passes {

namespace {

using ir::OpId;
using ir::ValueId;

// A composite may be made of composites; a chain this long is a cycle of definitions.
constexpr int kMaxRounds = 32;

bool has_own_kernel(const ops::OpDef& def) {
  return def.scalar || def.element || def.reduce || def.scan || def.scatter;
}

}  // namespace

GraphRef decompose(const ir::Graph& graph,
                   const std::function<bool(const ir::Graph&, OpId)>& keep) {
  GraphRef result;
  bool changed = true;
  for (int round = 0; changed; ++round) {
    HD_CHECK(round < kMaxRounds, "composites are defined by each other");
    changed = false;
    result =
        ir::rewrite(result ? *result : graph,
                    [&](ir::RewriteContext& c, OpId id) -> std::optional<std::vector<ValueId>> {
                      const ir::Op& op = c.in.op(id);
                      if (!op.def->decompose || has_own_kernel(*op.def)) return std::nullopt;
                      if (keep && keep(c.in, id)) return std::nullopt;
                      changed = true;
                      Tensors operands;
                      for (ValueId v : op.operands) operands.push_back(c.out.tensor(c.mapped(v)));
                      std::vector<ValueId> values;
                      for (const Tensor& t : op.def->decompose(c.in, op, operands))
                        values.push_back(t.id());
                      return values;
                    });
  }
  return result;
}

GraphRef inline_calls(const ir::Graph& graph) {
  return ir::rewrite(graph,
                     [](ir::RewriteContext& c, OpId id) -> std::optional<std::vector<ValueId>> {
                       ops::ControlInfo info = ops::control_info(c.in, id);
                       if (info.form != ops::Form::call) return std::nullopt;
                       std::vector<ValueId> arguments;
                       for (ValueId v : info.initial) arguments.push_back(c.mapped(v));
                       return c.inline_region(info.first, arguments);
                     });
}

}  // namespace heddle::passes
