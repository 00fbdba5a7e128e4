// Outputs that take the place of inputs which die at the same step.
#include "plan/builder.h"

#include <algorithm>
#include <functional>

namespace heddle::plan {

namespace {

using ir::Body;
using ir::BufferId;
using ir::NodeId;
using ir::ScalarOp;

bool mentions(const Body& body, BufferId buffer) {
  return std::any_of(body.accesses.begin(), body.accesses.end(),
                     [&](const ir::Access& a) { return a.buffer == buffer; });
}

// Does `node` depend on `on`?
bool depends(const Body& body, NodeId node, NodeId on) {
  std::vector<NodeId> open{node};
  std::vector<bool> seen(body.nodes.size(), false);
  while (!open.empty()) {
    NodeId n = open.back();
    open.pop_back();
    if (n == ir::kNoNode || seen[n]) continue;
    if (n == on) return true;
    seen[n] = true;
    for (NodeId operand : {body.nodes[n].a, body.nodes[n].b, body.nodes[n].c})
      open.push_back(operand);
  }
  return false;
}

// Distinct points have distinct coordinates: every axis is a coordinate of its own.
bool injective(const std::vector<ir::Axis>& axes, const std::vector<Expr>& coords) {
  return std::all_of(axes.begin(), axes.end(), [&](const ir::Axis& axis) {
    if (axis.extent.is(1)) return true;
    return axis.kind == ir::AxisKind::mapped &&
           std::any_of(coords.begin(), coords.end(), [&](const Expr& c) {
             return c.kind() == ExprKind::symbol && c.symbol()->id == axis.var->id;
           });
  });
}

// The phase reads `from` only at the element of `to` that it stores, and that store needs what it
// reads: then the two may be one buffer. One store a phase, so that no compiler can gain by reading
// after it.
bool phase_allows(const ir::Nest& nest, const ir::Phase& phase, BufferId from, BufferId to) {
  const Body& body = phase.body;
  if (body.stores.size() != 1) return false;
  const ir::Store& store = body.stores[0];
  const ir::Access& target = body.accesses[store.access];
  if (target.buffer != to || store.kind != ir::StoreKind::set || store.mask != ir::kNoNode)
    return false;
  std::vector<ir::Axis> axes = nest.outer;
  axes.insert(axes.end(), phase.inner.begin(), phase.inner.end());
  if (!injective(axes, target.coords)) return false;
  int loads = 0;
  for (NodeId n = 0; n < body.nodes.size(); ++n) {
    const ir::Node& node = body.nodes[n];
    if (node.op != ScalarOp::load) continue;
    const ir::Access& access = body.accesses[node.payload];
    if (access.buffer == to) return false;
    if (access.buffer != from) continue;
    if (++loads > 1 || access.coords != target.coords || !depends(body, store.value, n))
      return false;
  }
  return loads == 1;
}

}  // namespace

bool may_share(const ir::Kernel& kernel, BufferId from, BufferId to) {
  const ir::Buffer &a = kernel.buffers[from], &b = kernel.buffers[to];
  if (a.extents != b.extents || bit_width(a.dtype) != bit_width(b.dtype)) return false;
  int users = 0;
  for (const ir::Stmt& stmt : kernel.body) {
    if (stmt.kind == ir::StmtKind::barrier) continue;
    if (stmt.kind != ir::StmtKind::nest) return false;
    for (const ir::Phase& phase : stmt.nest->phases) {
      if (!mentions(phase.body, from) && !mentions(phase.body, to)) continue;
      if (++users > 1 || !phase_allows(*stmt.nest, phase, from, to)) return false;
    }
  }
  return users == 1;
}

std::vector<BufferId> argument_buffers(const ir::Kernel& kernel) {
  std::vector<BufferId> ids;
  for (BufferId i = 0; i < kernel.buffers.size(); ++i) {
    ir::BufferRole role = kernel.buffers[i].role;
    if (role != ir::BufferRole::scalar_local && role != ir::BufferRole::row_local) ids.push_back(i);
  }
  return ids;
}

namespace {

SlotId storage_of(const Plan& plan, SlotId slot) {
  while (plan.slots[slot].shares != kNone) slot = plan.slots[slot].shares;
  return slot;
}

void share_step(Plan& plan, const Step& step) {
  const ir::Kernel& kernel = *plan.kernels[step.kernel].kernel;
  std::vector<BufferId> ids = argument_buffers(kernel);
  for (size_t o = 0; o < ids.size(); ++o) {
    Slot& out = plan.slots[step.buffers[o]];
    if (kernel.buffers[ids[o]].role != ir::BufferRole::output || out.place != Place::arena ||
        out.pinned || out.begin != step.number || out.shares != kNone) {
      continue;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      Slot& in = plan.slots[step.buffers[i]];
      bool once = std::count(step.buffers.begin(), step.buffers.end(), step.buffers[i]) == 1;
      if (kernel.buffers[ids[i]].role != ir::BufferRole::input || in.place != Place::arena ||
          in.pinned || !once || in.end != step.number || in.home != out.home ||
          !(in.bytes == out.bytes) || !may_share(kernel, ids[i], ids[o])) {
        continue;
      }
      SlotId root = storage_of(plan, step.buffers[i]);
      // A storage that lives on under another name is not free.
      if (plan.slots[root].end > step.number) continue;
      out.shares = root;
      plan.slots[root].end = std::max(plan.slots[root].end, out.end);
      break;
    }
  }
}

void share_steps(Plan& plan, const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (step.kind == StepKind::kernel) share_step(plan, step);
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      share_steps(plan, *nested);
  }
}

}  // namespace

void share_in_place(Plan& plan) { share_steps(plan, plan.steps); }

}  // namespace heddle::plan
