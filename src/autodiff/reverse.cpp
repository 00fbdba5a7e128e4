#include "autodiff/reverse.h"

#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <algorithm>

namespace heddle::autodiff {

using base::cat;

bool carries_gradient(const Type& type) {
  return type.dtype == DType::unknown || is_floating(type.dtype);
}

namespace {

// A gradient in the form of the value that it belongs to.
Tensor fitted(const Tensor& gradient, const Tensor& value) {
  Tensor g = gradient;
  if (is_complex(g.dtype()) && value.dtype() != DType::unknown && !is_complex(value.dtype()))
    g = real(g);
  if (!g.type().known() || !value.type().known() || g.shape() != value.shape())
    g = sum_to_like(g, value);
  if (value.dtype() != DType::unknown && g.dtype() != value.dtype()) g = cast(g, value.dtype());
  return g;
}

}  // namespace

void Contributions::add(ValueId value, const Tensor& gradient) {
  if (!gradient.valid() || !carries_gradient(graph_->value(value).type)) return;
  parts_[value].push_back(fitted(gradient, graph_->tensor(value)));
}

Tensor Contributions::sum(ValueId value) {
  auto at = parts_.find(value);
  if (at == parts_.end()) return {};
  Tensors& parts = at->second;
  Tensor total = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) total = total + parts[i];
  parts = {total};
  return total;
}

std::vector<ValueId> used_values(const ir::Graph& graph, ir::OpId op) {
  std::vector<ValueId> used = graph.op(op).operands;
  for (ir::RegionId region : graph.op(op).regions)
    for (ValueId v : graph.captures(region)) used.push_back(v);
  std::vector<ValueId> once;
  for (ValueId v : used)
    if (std::find(once.begin(), once.end(), v) == once.end()) once.push_back(v);
  return once;
}

namespace {

// The ops on the way from xs to ys, in program order (ids ascend), and the values there that depend
// on an x.
struct Paths {
  std::set<ir::OpId> ops;
  std::set<ValueId> depends;
  std::set<ValueId> cut;  // nothing flows beyond these
};

std::set<ir::OpId> ops_behind(const ir::Graph& graph, const std::vector<ValueId>& ys,
                              const std::set<ValueId>& cut) {
  std::set<ir::OpId> seen;
  std::vector<ValueId> todo(ys.begin(), ys.end());
  while (!todo.empty()) {
    ValueId v = todo.back();
    todo.pop_back();
    ir::OpId op = graph.value(v).op;
    if (op == ir::kNone || cut.contains(v) || !carries_gradient(graph.value(v).type)) continue;
    if (!seen.insert(op).second) continue;
    for (ValueId used : used_values(graph, op)) todo.push_back(used);
  }
  return seen;
}

Paths paths_between(const ir::Graph& graph, const std::vector<ValueId>& ys,
                    const std::vector<ValueId>& xs, bool stop) {
  Paths paths;
  paths.depends.insert(xs.begin(), xs.end());
  if (stop) paths.cut = paths.depends;
  for (ir::OpId op : ops_behind(graph, ys, paths.cut)) {
    if (graph.op(op).def->no_gradient) continue;
    bool reached = false;
    for (ValueId v : used_values(graph, op))
      reached = reached || (paths.depends.contains(v) && carries_gradient(graph.value(v).type));
    if (!reached) continue;
    paths.ops.insert(op);
    for (ValueId r : graph.op(op).results)
      if (carries_gradient(graph.value(r).type)) paths.depends.insert(r);
  }
  return paths;
}

Tensors tensors_of(const GraphRef& graph, const std::vector<ValueId>& values) {
  Tensors out;
  for (ValueId v : values) out.push_back(graph->tensor(v));
  return out;
}

// Differentiates the op's decomposition. An operand that is given twice gets its gradient once.
Tensors gradient_by_decomposition(const GraphRef& graph, const ir::Op& op, const Tensors& in,
                                  const Tensors& upstream) {
  Tensors parts = op.def->decompose(*graph, op, in);
  std::vector<ValueId> ys;
  for (const Tensor& t : parts) ys.push_back(t.id());
  Tensors gradients = reverse(graph, ys, upstream, op.operands, true);
  for (size_t i = 0; i < gradients.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (op.operands[j] == op.operands[i]) gradients[i] = Tensor{};
  return gradients;
}

void op_gradient(const GraphRef& graph, ir::OpId id, const Tensors& upstream, const Paths& paths,
                 Contributions& into) {
  const ir::Op& op = graph->op(id);
  const ops::OpDef& def = *op.def;
  if (!def.gradient && def.control) {
    control_gradient(graph, id, upstream, paths.depends, into);
    return;
  }
  Tensors in = tensors_of(graph, op.operands);
  Tensors gradients;
  if (def.gradient) {
    auto wanted = [&](ValueId v) {
      return paths.depends.contains(v) && carries_gradient(graph->value(v).type);
    };
    ops::GradientContext context{op, in, tensors_of(graph, op.results), upstream, {}};
    for (ValueId v : op.operands) context.wanted.push_back(wanted(v));
    if (!op.regions.empty()) {
      // Of the region that computes the results; others may hold the gradient itself.
      for (ValueId v : graph->captures(op.regions[0]))
        if (wanted(v)) context.wanted_captures.push_back(v);
    }
    gradients = def.gradient(context);
  } else if (def.decompose) {
    gradients = gradient_by_decomposition(graph, op, in, upstream);
  } else {
    throw GraphError(cat("gradients: ", op.name,
                         " has no gradient; stop_gradient before it treats it as a constant"));
  }
  HD_CHECK(gradients.size() <= op.operands.size(), op.name, " gives ", gradients.size(),
           " gradients");
  for (size_t i = 0; i < gradients.size(); ++i)
    if (paths.depends.contains(op.operands[i])) into.add(op.operands[i], gradients[i]);
}

}  // namespace

Tensors reverse(const GraphRef& graph, const std::vector<ValueId>& ys, const Tensors& seeds,
                const std::vector<ValueId>& xs, bool stop) {
  Paths paths = paths_between(*graph, ys, xs, stop);
  Contributions flow(graph);
  for (size_t i = 0; i < ys.size(); ++i)
    if (paths.depends.contains(ys[i])) flow.add(ys[i], seeds[i]);
  for (auto op = paths.ops.rbegin(); op != paths.ops.rend(); ++op) {
    Tensors upstream;
    bool any = false;
    for (ValueId r : graph->op(*op).results) {
      bool flows = paths.depends.contains(r) && !paths.cut.contains(r);
      upstream.push_back(flows ? flow.sum(r) : Tensor{});
      any = any || upstream.back().valid();
    }
    if (any) op_gradient(graph, *op, upstream, paths, flow);
  }
  Tensors out;
  for (ValueId x : xs) out.push_back(flow.sum(x));
  return out;
}

}  // namespace heddle::autodiff
