// Long scans in two nests: the first folds fixed blocks of the row; after a grid barrier every
// block folds what the blocks before it left, then scans on from there.
#include "loop/limits.h"
#include "loop/nest.h"

#include <algorithm>
#include <map>

namespace heddle::loop {

using ir::kNoNode;
using ir::NodeId;
using ir::Val;
using ir::ValueId;

bool can_split_scan(const GroupPlan& plan) {
  const Group& g = *plan.group;
  if (plan.phases.size() != 1 || g.spaces.size() != 2 || g.spaces[1].size() != 1) return false;
  return std::all_of(g.members.begin(), g.members.end(), [&](const Member& m) {
    if (m.node->kind == NodeKind::pointwise) return true;
    if (m.node->kind != NodeKind::scan) return false;
    // What a scan takes in must not come from a scan.
    return std::all_of(m.reads.begin(), m.reads.end(),
                       [&](const Read& r) { return g.find(r.value) == nullptr; });
  });
}

bool scans_in_one_pass(const GroupPlan& plan, const ScheduleOptions& options) {
  const Group& g = *plan.group;
  bool device = options.device != nullptr && options.device->shared_memory > 0;
  if (!device || options.block > 0 || !can_split_scan(plan)) return false;
  int scans = 0;
  for (const Member& m : g.members) {
    if (m.node->kind != NodeKind::scan) continue;
    ++scans;
    if (m.node->pair) return false;
  }
  std::optional<int64_t> length = g.spaces[1][0].extent.constant(),
                         rows = product(g.outer).constant();
  return scans == 1 && length && rows && *length >= limits::kOnePassRow &&
         *rows <= limits::kOnePassRows && *rows * *length <= limits::kOnePassElements;
}

namespace {

ir::ScalarOp combining(ir::ReduceOp op) {
  switch (op) {
    case ir::ReduceOp::product:
      return ir::ScalarOp::mul;
    case ir::ReduceOp::max:
      return ir::ScalarOp::max;
    case ir::ReduceOp::min:
      return ir::ScalarOp::min;
    default:
      return ir::ScalarOp::add;
  }
}

class ScanSplitter {
 public:
  ScanSplitter(const GroupPlan& plan, const Blocking& blocking, KernelBuilder& kernel)
      : plan_(plan), group_(*plan.group), kernel_(kernel), axis_(group_.spaces[1][0]) {
    blocking_ = blocking;
  }
  void run();

 private:
  struct Place {  // of a block's points in the space
    Cut cut;
    Expr position;
    std::vector<Expr> partial;  // coordinates of the block's folds
  };
  Place make_place() const;
  Val element(ir::BodyBuilder& b, ElementBuilder& e, const Member& m, const Place& p) const;
  std::optional<Leaf> leaf(ir::BodyBuilder& b, ValueId v, const std::vector<Expr>& coords,
                           NodeId mask);
  void fold_blocks();
  void scan_blocks();
  ir::Phase offsets(const Place& p) const;
  ir::Phase scan_phase(const Place& p);
  template <class F>
  void each_part(F f) const {
    uint32_t index = 0;
    for (const Member& m : group_.members) {
      if (m.node->kind != NodeKind::scan) continue;
      for (int part = 0; part < (m.node->pair ? 2 : 1); ++part) f(m, part, index++);
    }
  }

  const GroupPlan& plan_;
  const Group& group_;
  KernelBuilder& kernel_;
  LoopAxis axis_;
  Blocking blocking_;
  std::vector<ir::BufferId> partials_;  // one a part of a scan
  std::map<ValueId, Val> scanned_;
};

ScanSplitter::Place ScanSplitter::make_place() const {
  Place p{cut_space(group_.spaces[1], blocking_), {}, {}};
  p.position = p.cut.map.at(axis_.var->id);
  p.partial.push_back(Expr(p.cut.outer[0].var));
  for (const LoopAxis& a : group_.outer) p.partial.push_back(Expr(a.var));
  return p;
}

Val ScanSplitter::element(ir::BodyBuilder& b, ElementBuilder& e, const Member& m,
                          const Place& p) const {
  return scan_element(b, e, kernel_, m, replaced(p.cut.map, m.inner_coords), p.position);
}

std::optional<Leaf> ScanSplitter::leaf(ir::BodyBuilder& b, ValueId v,
                                       const std::vector<Expr>& coords, NodeId mask) {
  const Member* m = group_.find(v);
  if (m != nullptr) {
    if (m->node->kind == NodeKind::scan) return Leaf{scanned_.at(v), false};
    return std::nullopt;
  }
  if (plan_.placement[v] == Placement::inlined) return std::nullopt;
  return Leaf{load_value(b, kernel_.type(v), kernel_.input(v), coords, mask), true};
}

std::vector<LoopAxis> with_blocks(const Cut& cut, const Group& g) {
  std::vector<LoopAxis> outer = cut.outer;
  outer.insert(outer.end(), g.outer.begin(), g.outer.end());
  return outer;
}

void ScanSplitter::fold_blocks() {
  Place p = make_place();
  ir::BodyBuilder b, store;
  ElementBuilder e(kernel_.graph(), b,
                   [&](ValueId v, const std::vector<Expr>& coords, NodeId mask) {
                     return leaf(b, v, coords, mask);
                   });
  ir::Phase fold, write;
  each_part([&](const Member& m, int part, uint32_t index) {
    Val v = element(b, e, m, p);
    NodeId n = part == 0 ? v.re : v.im;
    fold.reductions.push_back({scan_rule(kernel_, m).op, b.keep(n), b.type(n)});
    std::vector<Expr> extents;
    for (const LoopAxis& a : with_blocks(p.cut, group_)) extents.push_back(a.extent);
    partials_.push_back(kernel_.scratch("part" + std::to_string(index), b.type(n), extents));
    store.store({partials_.back(), p.partial}, store.row(b.type(n), {0, index, 0}));
  });
  fold.body = b.take();
  for (ir::Reduction& r : fold.reductions) r.value = b.renumbered(r.value);
  fold.inner = to_axes(p.cut.inner, ir::AxisKind::reduced);
  write.body = store.take();
  ir::Nest nest;
  nest.outer = to_axes(with_blocks(p.cut, group_), ir::AxisKind::mapped);
  nest.phases = {std::move(fold), std::move(write)};
  kernel_.add(std::move(nest));
}

// The folds of the blocks before this one.
ir::Phase ScanSplitter::offsets(const Place& p) const {
  ir::BodyBuilder b;
  ir::Phase phase;
  Expr before(p.cut.outer[0].var);
  LoopAxis axis{make_loop_symbol("before", before), before};
  std::vector<Expr> at = p.partial;
  at[0] = Expr(axis.var);
  each_part([&](const Member& m, int, uint32_t index) {
    DType type = m.node->scalar;
    NodeId n = b.keep(b.load(type, {partials_[index], at}));
    phase.reductions.push_back({scan_rule(kernel_, m).op, n, type});
  });
  phase.body = b.take();
  for (ir::Reduction& r : phase.reductions) r.value = b.renumbered(r.value);
  phase.inner = to_axes({axis}, ir::AxisKind::reduced);
  return phase;
}

ir::Phase ScanSplitter::scan_phase(const Place& p) {
  ir::BodyBuilder b;
  ElementBuilder e(kernel_.graph(), b,
                   [&](ValueId v, const std::vector<Expr>& coords, NodeId mask) {
                     return leaf(b, v, coords, mask);
                   });
  each_part([&](const Member& m, int part, uint32_t index) {
    ir::ReduceOp op = scan_rule(kernel_, m).op;
    Val v = element(b, e, m, p);
    NodeId n = b.scan({op, position_in(p.cut, m)}, part == 0 ? v.re : v.im);
    n = b.binary(combining(op), b.row(b.type(n), {0, index, 0}), n);
    (part == 0 ? scanned_[m.node->value].re : scanned_[m.node->value].im) = n;
  });
  for (const Member& m : group_.members) {
    ValueId v = m.node->value;
    bool scan = m.node->kind == NodeKind::scan;
    if (scan) scanned_[v] = cast_value(b, scanned_[v], kernel_.type(v).dtype);
    if (!plan_.needed.contains(v)) continue;
    std::vector<Expr> coords = replaced(p.cut.map, m.coords);
    Val made = scan ? scanned_[v] : e.inlined(v, coords);
    store_value(b, kernel_.type(v), kernel_.output(v), coords, made);
  }
  ir::Phase phase;
  phase.body = b.take();
  phase.inner = to_axes(p.cut.inner, ir::AxisKind::scan);
  return phase;
}

void ScanSplitter::scan_blocks() {
  Place p = make_place();
  ir::Nest nest;
  nest.outer = to_axes(with_blocks(p.cut, group_), ir::AxisKind::mapped);
  nest.phases.push_back(offsets(p));
  nest.phases.push_back(scan_phase(p));
  kernel_.add(std::move(nest));
}

void ScanSplitter::run() {
  fold_blocks();
  kernel_.barrier();
  scan_blocks();
}

}  // namespace

void build_split_scan(const GroupPlan& plan, const Blocking& blocking, KernelBuilder& kernel) {
  ScanSplitter(plan, blocking, kernel).run();
}

}  // namespace heddle::loop
