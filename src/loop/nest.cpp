// One nest of a group. Phases are built from the last to the first, so that each knows what later
// ones ask of it.
#include "loop/nest.h"

#include "base/check.h"
#include "ir/fold.h"
#include "loop/limits.h"
#include "loop/scalar_eval.h"

#include <algorithm>
#include <map>

namespace heddle::loop {

using ir::kNoNode;
using ir::NodeId;
using ir::Val;
using ir::ValueId;

Val row_value(ir::BodyBuilder& b, const KernelBuilder& kernel, const Member& m, uint32_t phase,
              uint32_t first) {
  DType dtype = kernel.type(m.node->value).dtype;
  if (m.node->kind == NodeKind::reduction) {
    ir::ReduceOp op = reduce_op(kernel, m);
    if (ir::is_arg(op)) {
      return cast_value(b, {b.row(DType::i64, {phase, first, 1})}, dtype);
    }
  }
  Val v{b.row(m.node->scalar, {phase, first, 0})};
  if (m.node->pair) v.im = b.row(m.node->scalar, {phase, first + 1, 0});
  return cast_value(b, v, dtype);
}

ir::ReduceOp reduce_op(const KernelBuilder& kernel, const Member& m) {
  return reduce_op(kernel.graph().op(m.node->op));
}

ops::ScanRule scan_rule(const KernelBuilder& kernel, const Member& m) {
  const ir::Op& op = kernel.graph().op(m.node->op);
  return op.def->scan(kernel.graph(), op);
}

Val scan_element(ir::BodyBuilder& b, ElementBuilder& e, const KernelBuilder& kernel,
                 const Member& m, const std::vector<Expr>& coords, const Expr& position) {
  const ir::Op& op = kernel.graph().op(m.node->op);
  ops::ScanRule rule = scan_rule(kernel, m);
  if (!rule.exclusive) return e.element(op.operands[0], coords);
  NodeId mask = b.binary(ir::ScalarOp::gt, b.index(position), b.constant_int(DType::i64, 0));
  Val v = e.element(op.operands[0], coords, mask);
  auto masked = [&](NodeId n) {
    return b.select(mask, n, b.constant_bits(b.type(n), identity_of(rule.op, b.type(n)).bits));
  };
  return {masked(v.re), v.complex() ? masked(v.im) : kNoNode};
}

void drop_empty_phases(ir::Nest& nest) {
  std::vector<uint32_t> renumber;
  std::vector<ir::Phase> kept;
  for (ir::Phase& p : nest.phases) {
    renumber.push_back(static_cast<uint32_t>(kept.size()));
    if (!p.body.stores.empty() || !p.reductions.empty()) kept.push_back(std::move(p));
  }
  for (ir::Phase& p : kept) {
    for (ir::RowRef& r : p.body.rows) r.phase = renumber[r.phase];
  }
  nest.phases = std::move(kept);
}

namespace {

class NestBuilder {
 public:
  NestBuilder(const GroupPlan& plan, KernelBuilder& kernel)
      : plan_(plan), group_(*plan.group), kernel_(kernel) {
    counts_.assign(plan.phases.size(), 0);
  }
  void run();

 private:
  struct Slot {
    uint32_t first = 0;
  };
  ir::Phase build_phase(size_t p);
  std::optional<Leaf> leaf(ir::BodyBuilder& b, size_t p, ValueId v, const std::vector<Expr>& coords,
                           NodeId mask);
  Val row(ir::BodyBuilder& b, size_t member);
  std::optional<Leaf> from_earlier(ir::BodyBuilder& b, size_t member,
                                   const std::vector<Expr>& coords, NodeId mask);
  void build_task(ir::BodyBuilder& b, ElementBuilder& e, const Task& t, ir::Phase& phase,
                  std::vector<std::pair<uint32_t, NodeId>>& folds);
  void make(ir::BodyBuilder& b, const Member& m, Val v,
            std::vector<std::pair<uint32_t, NodeId>>& folds);
  std::optional<std::vector<ir::BufferId>> row_local(size_t member);
  std::vector<Expr> inner_coords(const Member& m) const {
    std::vector<Expr> c;
    for (const LoopAxis& a : group_.spaces[m.space]) c.push_back(Expr(a.var));
    return c;
  }

  const GroupPlan& plan_;
  const Group& group_;
  KernelBuilder& kernel_;
  std::map<ValueId, Slot> rows_;                        // folds and exports that later phases read
  std::map<ValueId, std::vector<ir::BufferId>> local_;  // row_local copies that later phases read
  std::set<ValueId> forced_;                            // scans that later phases read from memory
  std::map<ValueId, ir::BufferId> scratch_;
  std::vector<uint32_t> counts_;    // reductions of each phase
  std::map<ValueId, Val> scanned_;  // in the phase that is built
};

Val NestBuilder::row(ir::BodyBuilder& b, size_t member) {
  const Member& m = group_.members[member];
  size_t p = plan_.phase_of[member];
  auto [it, fresh] = rows_.try_emplace(m.node->value);
  if (fresh) {
    it->second.first = counts_[p];
    counts_[p] += m.node->pair ? 2 : 1;
  }
  return row_value(b, kernel_, m, static_cast<uint32_t>(p), it->second.first);
}

// A row_local copy of a member's values, where the row is known to be short.
std::optional<std::vector<ir::BufferId>> NestBuilder::row_local(size_t member) {
  const Member& m = group_.members[member];
  if (auto it = local_.find(m.node->value); it != local_.end()) return it->second;
  std::vector<Expr> extents;
  Expr count(1);
  for (const LoopAxis& a : group_.spaces[m.space]) {
    extents.push_back(a.extent);
    count = count * a.extent;
  }
  if (!count.is_constant() || *count.constant() > limits::kRowElements) return std::nullopt;
  std::vector<ir::BufferId> buffers;
  for (int part = 0; part < (m.node->pair ? 2 : 1); ++part) {
    buffers.push_back(kernel_.local("row" + std::to_string(m.node->value), m.node->scalar, extents,
                                    ir::BufferRole::row_local));
  }
  return local_.emplace(m.node->value, buffers).first->second;
}

// A value that an earlier phase made at the same inner point.
std::optional<Leaf> NestBuilder::from_earlier(ir::BodyBuilder& b, size_t member,
                                              const std::vector<Expr>& coords, NodeId mask) {
  const Member& m = group_.members[member];
  bool scan = m.node->kind == NodeKind::scan;
  if (!scan && m.node->cost <= limits::kRecomputeCost) return std::nullopt;
  if (std::optional<std::vector<ir::BufferId>> local = row_local(member)) {
    Val v{b.load(m.node->scalar, {(*local)[0], inner_coords(m)})};
    if (m.node->pair) v.im = b.load(m.node->scalar, {(*local)[1], inner_coords(m)});
    return Leaf{v, false};
  }
  ValueId value = m.node->value;
  if (plan_.needed.contains(value)) {
    return Leaf{load_value(b, kernel_.type(value), kernel_.output(value), coords, mask), true};
  }
  if (!scan) return std::nullopt;
  auto [it, fresh] = scratch_.try_emplace(value);
  if (fresh) {
    const Type& type = kernel_.type(value);
    it->second =
        kernel_.scratch("s" + std::to_string(value), memory_type(type.dtype), memory_extents(type));
  }
  return Leaf{load_value(b, kernel_.type(value), it->second, coords, mask), true};
}

std::optional<Leaf> NestBuilder::leaf(ir::BodyBuilder& b, size_t p, ValueId v,
                                      const std::vector<Expr>& coords, NodeId mask) {
  const Member* m = group_.find(v);
  if (m == nullptr) {
    if (plan_.placement[v] == Placement::inlined) return std::nullopt;
    return Leaf{load_value(b, kernel_.type(v), kernel_.input(v), coords, mask), true};
  }
  auto member = static_cast<size_t>(m - group_.members.data());
  if (m->node->kind == NodeKind::reduction) return Leaf{row(b, member), false};
  if (plan_.phase_of[member] == p) {
    if (m->node->kind == NodeKind::scan) return Leaf{scanned_.at(v), false};
    return std::nullopt;
  }
  if (m->space == 0) return Leaf{row(b, member), false};
  return from_earlier(b, member, coords, mask);
}

// Writes a value wherever somebody wants it.
void NestBuilder::make(ir::BodyBuilder& b, const Member& m, Val v,
                       std::vector<std::pair<uint32_t, NodeId>>& folds) {
  ValueId value = m.node->value;
  if (plan_.needed.contains(value))
    store_value(b, kernel_.type(value), kernel_.output(value), m.coords, v);
  if (auto it = scratch_.find(value); it != scratch_.end()) {
    store_value(b, kernel_.type(value), it->second, m.coords, v);
  }
  if (auto it = local_.find(value); it != local_.end()) {
    b.store({it->second[0], inner_coords(m)}, v.re);
    if (v.complex()) b.store({it->second[1], inner_coords(m)}, v.im);
  }
  if (auto it = rows_.find(value); it != rows_.end()) {
    folds.emplace_back(it->second.first, b.keep(v.re));
    if (v.complex()) folds.emplace_back(it->second.first + 1, b.keep(v.im));
  }
}

void NestBuilder::build_task(ir::BodyBuilder& b, ElementBuilder& e, const Task& t, ir::Phase& phase,
                             std::vector<std::pair<uint32_t, NodeId>>& folds) {
  const Member& m = plan_.member(t);
  ValueId value = m.node->value;
  if (t.store_row) {
    store_value(b, kernel_.type(value), kernel_.output(value), m.coords, row(b, t.member));
    return;
  }
  switch (m.node->kind) {
    case NodeKind::reduction: {
      auto it = rows_.find(value);
      if (it == rows_.end()) return;
      Val v = e.folded(m.node->op, m.coords, m.inner_coords);
      for (uint32_t k = 0; k < (v.complex() ? 2u : 1u); ++k) {
        NodeId n = k == 0 ? v.re : v.im;
        folds.emplace_back(it->second.first + k, b.keep(n));
        phase.reductions[it->second.first + k] = {reduce_op(kernel_, m), kNoNode, b.type(n),
                                                  m.position};
      }
      return;
    }
    case NodeKind::scan: {
      Val v =
          scan_element(b, e, kernel_, m, m.inner_coords, Expr(group_.spaces[m.space].back().var));
      ir::ScanSpec spec{scan_rule(kernel_, m).op, m.position};
      v.re = b.scan(spec, v.re);
      if (v.complex()) v.im = b.scan(spec, v.im);
      v = cast_value(b, v, kernel_.type(value).dtype);
      scanned_[value] = v;
      make(b, m, v, folds);
      return;
    }
    default:
      if (plan_.needed.contains(value) || local_.contains(value) || rows_.contains(value)) {
        make(b, m, e.inlined(value, m.coords), folds);
      }
  }
}

ir::Phase NestBuilder::build_phase(size_t p) {
  const PhasePlan& plan = plan_.phases[p];
  ir::Phase phase;
  phase.reductions.assign(counts_[p], {ir::ReduceOp::value, kNoNode, DType::unknown});
  ir::BodyBuilder b;
  ElementBuilder e(kernel_.graph(), b,
                   [&](ValueId v, const std::vector<Expr>& coords, NodeId mask) {
                     return leaf(b, p, v, coords, mask);
                   });
  std::vector<std::pair<uint32_t, NodeId>> folds;
  scanned_.clear();
  for (const Task& t : plan.tasks) build_task(b, e, t, phase, folds);
  phase.body = b.take();
  bool reduces = false;
  for (const auto& [index, node] : folds) {
    ir::Reduction& r = phase.reductions[index];
    r.value = b.renumbered(node);
    r.type = phase.body.nodes[r.value].type;
    reduces = reduces || r.op != ir::ReduceOp::value;
  }
  phase.inner =
      to_axes(group_.spaces[plan.space], reduces ? ir::AxisKind::reduced : ir::AxisKind::mapped);
  if (plan.scans) phase.inner.back().kind = ir::AxisKind::scan;
  return phase;
}

void NestBuilder::run() {
  ir::Nest nest;
  nest.outer = to_axes(group_.outer, ir::AxisKind::mapped);
  nest.phases.resize(plan_.phases.size());
  for (size_t p = plan_.phases.size(); p-- > 0;) nest.phases[p] = build_phase(p);
  drop_empty_phases(nest);
  kernel_.add(std::move(nest));
}

}  // namespace

void build_nest(const GroupPlan& plan, KernelBuilder& kernel) { NestBuilder(plan, kernel).run(); }

}  // namespace heddle::loop
