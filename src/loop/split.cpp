// Long rows: every phase becomes a nest over fixed blocks of the row, whose partial folds go to
// scratch; after a grid barrier the next nest combines them, in order, before it goes on. The
// blocks depend on sizes and limits only, never on the number of threads.
#include "base/check.h"
#include "ir/fold.h"
#include "loop/limits.h"
#include "loop/nest.h"

#include <algorithm>
#include <map>

namespace heddle::loop {

using base::cat;
using ir::kNoNode;
using ir::NodeId;
using ir::Val;
using ir::ValueId;

namespace {

// Do neighbouring outer points read neighbouring elements, so that a worker folds a tile of them
// together?
bool is_columnar(const Group& g, size_t space) {
  size_t rank = 0;
  bool columnar = false;
  for (const Member& m : g.members) {
    if (m.space != space) continue;
    for (const Read& r : m.reads) {
      if (r.coords.size() < rank || r.coords.empty() || g.find(r.value) != nullptr) continue;
      rank = r.coords.size();
      columnar = !mentions(r.coords.back(), g.spaces[space]) && mentions(r.coords.back(), g.outer);
    }
  }
  return columnar;
}

// At most `chunk` (at least 1), and a divisor of n if one is near: whole blocks need no checks.
int64_t even_chunk(int64_t n, int64_t chunk) {
  chunk = std::clamp<int64_t>(chunk, 1, std::max<int64_t>(n, 1));
  for (int64_t c = chunk; c > chunk / 2; --c) {
    if (n % c == 0) return c;
  }
  return chunk;
}

// Do all members over a space walk down columns once: each step of an inner axis lands in another
// line of memory, and neighbouring outer points are neighbours there?
bool walks_columns(const Group& g, size_t space) {
  bool any = false;
  for (const Member& m : g.members) {
    if (m.space != space) continue;
    if (m.node->kind == NodeKind::scan) return false;
    for (const Read& r : m.reads) {
      // With several passes, keeping a column's values in a row_local buffer is worth more.
      if (g.find(r.value) != nullptr) return false;
      if (r.coords.empty()) continue;
      if (mentions(r.coords.back(), g.spaces[space])) return false;
      bool inner = std::any_of(r.coords.begin(), r.coords.end(),
                               [&](const Expr& e) { return mentions(e, g.spaces[space]); });
      any = any || (inner && mentions(r.coords.back(), g.outer));
    }
  }
  return any;
}

// Elements of a block of rows that a host's worker goes through line by line; 0: whole columns are
// as good.
int64_t column_block(const Group& g, size_t space) {
  std::optional<int64_t> columns = product(g.outer).constant();
  std::optional<int64_t> length = product(g.spaces[space]).constant();
  if (!columns || !length || *columns < 1 || *length < limits::kColumnLength) return 0;
  if (*columns * *length < limits::kColumnElements || !walks_columns(g, space)) return 0;
  return std::max(limits::kHostBlock / *columns, limits::kColumnRows);
}

Blocking block(const std::vector<LoopAxis>& axes, int64_t target) {
  std::optional<int64_t> total = product(axes).constant();
  Blocking b;
  if (!total) {
    Expr rest(1);
    for (size_t k = 1; k < axes.size(); ++k) rest = rest * axes[k].extent;
    Expr n = axes[0].extent;
    Expr most = (n + Expr(limits::kMaxBlocks - 1)) / Expr(limits::kMaxBlocks);
    b.chunk = max(max(Expr(target) / max(rest, Expr(1)), most), Expr(1));
    b.blocks = (n + b.chunk - Expr(1)) / b.chunk;
    return b;
  }
  int64_t elements = std::max(target, (*total + limits::kMaxBlocks - 1) / limits::kMaxBlocks);
  int64_t wanted = (*total + elements - 1) / elements, above = 1, rest = *total;
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t n = *axes[k].extent.constant();
    rest /= std::max<int64_t>(n, 1);
    b.axis = k;
    if (above * n >= wanted || k + 1 == axes.size()) {
      int64_t chunk = even_chunk(n, elements / std::max<int64_t>(rest, 1));
      b.chunk = chunk;
      b.blocks = (n + chunk - 1) / chunk;
      return b;
    }
    above *= n;
  }
  return b;
}

}  // namespace

Cut cut_space(const std::vector<LoopAxis>& axes, const std::optional<Blocking>& b) {
  Cut c;
  c.base = 0;
  if (!b) {
    c.inner = axes;
    return c;
  }
  Expr rest(1);
  for (size_t k = b->axis + 1; k < axes.size(); ++k) rest = rest * axes[k].extent;
  Expr lead(0);
  for (size_t k = 0; k < b->axis; ++k) {
    c.outer.push_back(axes[k]);
    lead = lead * axes[k].extent + Expr(axes[k].var);
  }
  const LoopAxis& axis = axes[b->axis];
  LoopAxis at{make_loop_symbol(axis.var->name + "b", b->blocks), b->blocks};
  Expr first = Expr(at.var) * b->chunk;
  std::optional<int64_t> n = axis.extent.constant(), chunk = b->chunk.constant();
  bool even = n && chunk && *n % *chunk == 0;
  Expr left = even ? b->chunk : min(b->chunk, axis.extent - first);
  LoopAxis in{make_loop_symbol(axis.var->name, left), left};
  c.outer.push_back(at);
  c.inner.push_back(in);
  c.inner.insert(c.inner.end(), axes.begin() + static_cast<int64_t>(b->axis) + 1, axes.end());
  c.map.emplace(axis.var->id, first + Expr(in.var));
  c.base = (lead * axis.extent + first) * rest;
  return c;
}

std::optional<Expr> position_in(const Cut& cut, const Member& m) {
  if (!m.position) return std::nullopt;
  return replaced(cut.map, *m.position);
}

SplitDecision decide_split(const Group& group, const ScheduleOptions& options) {
  SplitDecision d;
  d.blocking.resize(group.spaces.size());
  bool device = options.device != nullptr && options.device->shared_memory > 0;
  int64_t least_rows = device ? limits::kDeviceRows : limits::kHostRows;
  int64_t target = device ? limits::kDeviceBlock : limits::kHostBlock;
  int64_t least_length = device ? limits::kDeviceSplit : limits::kHostSplit;
  if (options.block > 0) {
    target = options.block;
    least_length = 2 * options.block;
  }
  Expr rows = product(group.outer);
  for (size_t s = 1; s < group.spaces.size(); ++s) {
    bool columnar = is_columnar(group, s);
    int64_t enough = columnar ? least_rows * limits::kColumnTile : least_rows;
    Expr length = product(group.spaces[s]);
    int64_t lines = device || options.block > 0 ? 0 : column_block(group, s);
    // An unknown number of rows is taken for many, an unknown length for long.
    if (lines == 0 && (rows.upper() >= enough || length.upper() < least_length)) continue;
    bool short_columns = columnar && device && options.block == 0;
    int64_t elements = lines > 0 ? lines : short_columns ? limits::kDeviceColumnBlock : target;
    d.blocking[s] = block(group.spaces[s], elements);
    d.split = true;
    d.reason = cat("rows of ", length.to_string(), " elements, ", rows.to_string(),
                   " of them, are cut into blocks");
  }
  return d;
}

namespace {

class SplitBuilder {
 public:
  SplitBuilder(const GroupPlan& plan, const SplitDecision& decision, KernelBuilder& kernel)
      : plan_(plan), group_(*plan.group), decision_(decision), kernel_(kernel) {}
  void run();

 private:
  // Scratch for the folds of the blocks: the parts of a complex sum; the value and the index of an
  // arg fold.
  using Partial = std::vector<ir::BufferId>;
  struct Nest {
    size_t phase = SIZE_MAX;       // of the plan; SIZE_MAX: the nest of what has no inner axes
    std::vector<size_t> sources;   // phases of the plan whose folds are combined, in this order
    std::vector<uint32_t> counts;  // reductions of each combining phase
    std::vector<std::vector<size_t>> combined;  // members of each
    std::map<ValueId, uint32_t> rows;           // first reduction in the combining phase
    std::set<size_t> depends;                   // phases of the plan whose nests must be done
    ir::Nest nest;
  };

  Cut cut(size_t space) const;
  const Partial& partial(size_t member);
  bool is_arg(const Member& m) const;
  Val row(ir::BodyBuilder& b, Nest& nest, size_t member);
  Val winner(ir::BodyBuilder& b, const Member& m, const Partial& part, NodeId block) const;
  std::optional<Leaf> leaf(ir::BodyBuilder& b, Nest& nest, ValueId v,
                           const std::vector<Expr>& coords, NodeId mask);
  void build_phase(size_t p);
  void build_rows();
  ir::Phase main_phase(Nest& nest, const Cut& c, std::vector<size_t>& folded);
  ir::Phase combine(const Nest& nest, size_t source);
  ir::Phase store_partials(size_t main, const Cut& c, const std::vector<size_t>& folded);
  void finish(Nest nest, std::vector<LoopAxis> outer, std::vector<ir::Phase> phases);
  std::vector<Expr> with_outer(const std::vector<LoopAxis>& blocks) const {
    std::vector<Expr> c;
    for (const LoopAxis& a : blocks) c.push_back(Expr(a.var));
    for (const LoopAxis& a : group_.outer) c.push_back(Expr(a.var));
    return c;
  }

  const GroupPlan& plan_;
  const Group& group_;
  const SplitDecision& decision_;
  KernelBuilder& kernel_;
  std::map<ValueId, Partial> partials_;
  std::vector<Nest> built_;  // last first
};

std::vector<LoopAxis> renewed(const std::vector<LoopAxis>& axes) {
  std::vector<LoopAxis> out;
  for (const LoopAxis& a : axes) out.push_back({make_loop_symbol(a.var->name, a.extent), a.extent});
  return out;
}

Cut SplitBuilder::cut(size_t space) const {
  return cut_space(group_.spaces[space], decision_.blocking[space]);
}

bool SplitBuilder::is_arg(const Member& m) const { return ir::is_arg(reduce_op(kernel_, m)); }

const SplitBuilder::Partial& SplitBuilder::partial(size_t member) {
  const Member& m = group_.members[member];
  auto [it, fresh] = partials_.try_emplace(m.node->value);
  if (!fresh) return it->second;
  std::vector<Expr> extents;
  for (const LoopAxis& a : cut(m.space).outer) extents.push_back(a.extent);
  for (const LoopAxis& a : group_.outer) extents.push_back(a.extent);
  std::string name = "part" + std::to_string(m.node->value);
  it->second.push_back(kernel_.scratch(name, m.node->scalar, extents));
  if (m.node->pair) it->second.push_back(kernel_.scratch(name + "i", m.node->scalar, extents));
  if (is_arg(m)) it->second.push_back(kernel_.scratch(name + "at", DType::i64, extents));
  return it->second;
}

// The index that an arg fold's winning block found.
Val SplitBuilder::winner(ir::BodyBuilder& b, const Member& m, const Partial& part,
                         NodeId block) const {
  std::vector<LoopAxis> blocks = cut(m.space).outer;
  Expr count = product(blocks);
  SymbolRef at = b.bind(block, 0, count.constant_or(INT64_MAX) - 1, &count);
  std::vector<Expr> coords;
  Expr below(1);
  for (size_t k = blocks.size(); k-- > 0;) {
    Expr digit = Expr(at) / below;
    coords.insert(coords.begin(), k == 0 ? digit : digit % blocks[k].extent);
    below = below * blocks[k].extent;
  }
  for (const LoopAxis& a : group_.outer) coords.push_back(Expr(a.var));
  return cast_value(b, {b.load(DType::i64, {part.back(), coords})},
                    kernel_.type(m.node->value).dtype);
}

// A fold of an earlier nest: combined from its blocks by a phase at the start of this nest.
Val SplitBuilder::row(ir::BodyBuilder& b, Nest& nest, size_t member) {
  const Member& m = group_.members[member];
  size_t source = plan_.phase_of[member];
  DType dtype = kernel_.type(m.node->value).dtype;
  const Partial& part = partial(member);
  nest.depends.insert(source);
  if (!decision_.blocking[m.space]) {
    std::vector<Expr> at = with_outer({});
    if (is_arg(m)) return cast_value(b, {b.load(DType::i64, {part.back(), at})}, dtype);
    Val v{b.load(m.node->scalar, {part[0], at})};
    if (m.node->pair) v.im = b.load(m.node->scalar, {part[1], at});
    return cast_value(b, v, dtype);
  }
  auto it = std::find(nest.sources.begin(), nest.sources.end(), source);
  auto phase = static_cast<size_t>(it - nest.sources.begin());
  if (it == nest.sources.end()) {
    nest.sources.push_back(source);
    nest.counts.push_back(0);
    nest.combined.emplace_back();
  }
  auto [found, fresh] = nest.rows.try_emplace(m.node->value, nest.counts[phase]);
  if (fresh) {
    nest.counts[phase] += m.node->pair ? 2 : 1;
    nest.combined[phase].push_back(member);
  }
  if (!is_arg(m)) return row_value(b, kernel_, m, static_cast<uint32_t>(phase), found->second);
  return winner(b, m, part, b.row(DType::i64, {static_cast<uint32_t>(phase), found->second, 1}));
}

std::optional<Leaf> SplitBuilder::leaf(ir::BodyBuilder& b, Nest& nest, ValueId v,
                                       const std::vector<Expr>& coords, NodeId mask) {
  const Member* m = group_.find(v);
  if (m == nullptr) {
    if (plan_.placement[v] == Placement::inlined) return std::nullopt;
    return Leaf{load_value(b, kernel_.type(v), kernel_.input(v), coords, mask), true};
  }
  auto member = static_cast<size_t>(m - group_.members.data());
  if (m->node->kind == NodeKind::reduction) return Leaf{row(b, nest, member), false};
  size_t made = plan_.phase_of[member];
  bool reload = m->space != 0 && made != nest.phase && plan_.needed.contains(v) &&
                m->node->cost > limits::kRecomputeCost;
  if (!reload) return std::nullopt;
  nest.depends.insert(made);
  return Leaf{load_value(b, kernel_.type(v), kernel_.output(v), coords, mask), true};
}

ir::Phase SplitBuilder::main_phase(Nest& nest, const Cut& c, std::vector<size_t>& folded) {
  ir::Phase phase;
  ir::BodyBuilder b;
  ElementBuilder e(kernel_.graph(), b,
                   [&](ValueId v, const std::vector<Expr>& coords, NodeId mask) {
                     return leaf(b, nest, v, coords, mask);
                   });
  for (const Task& t : plan_.phases[nest.phase].tasks) {
    const Member& m = plan_.member(t);
    ValueId value = m.node->value;
    std::vector<Expr> coords = replaced(c.map, m.coords);
    if (m.node->kind != NodeKind::reduction) {
      if (!plan_.needed.contains(value)) continue;
      store_value(b, kernel_.type(value), kernel_.output(value), coords, e.inlined(value, coords));
    } else if (partials_.contains(value)) {
      Val v = e.folded(m.node->op, coords, replaced(c.map, m.inner_coords));
      phase.reductions.push_back(
          {reduce_op(kernel_, m), b.keep(v.re), b.type(v.re), position_in(c, m)});
      if (v.complex())
        phase.reductions.push_back({reduce_op(kernel_, m), b.keep(v.im), b.type(v.im)});
      folded.push_back(t.member);
    }
  }
  phase.body = b.take();
  for (ir::Reduction& r : phase.reductions) r.value = b.renumbered(r.value);
  phase.inner = to_axes(c.inner, folded.empty() ? ir::AxisKind::mapped : ir::AxisKind::reduced);
  return phase;
}

ir::Phase SplitBuilder::combine(const Nest& nest, size_t source) {
  ir::Phase phase;
  ir::BodyBuilder b;
  size_t space = plan_.phases[nest.sources[source]].space;
  std::vector<LoopAxis> blocks = renewed(cut(space).outer);
  for (size_t member : nest.combined[source]) {
    const Member& m = group_.members[member];
    const Partial& part = partials_.at(m.node->value);
    for (size_t k = 0; k < (m.node->pair ? 2u : 1u); ++k) {
      NodeId n = b.keep(b.load(m.node->scalar, {part[k], with_outer(blocks)}));
      std::optional<Expr> at;
      if (m.position) at = row_major(blocks);
      phase.reductions.push_back({reduce_op(kernel_, m), n, m.node->scalar, at});
    }
  }
  phase.body = b.take();
  for (ir::Reduction& r : phase.reductions) r.value = b.renumbered(r.value);
  phase.inner = to_axes(blocks, ir::AxisKind::reduced);
  return phase;
}

ir::Phase SplitBuilder::store_partials(size_t main, const Cut& c,
                                       const std::vector<size_t>& folded) {
  ir::Phase phase;
  ir::BodyBuilder b;
  std::vector<Expr> at = with_outer(c.outer);
  uint32_t index = 0;
  for (size_t member : folded) {
    const Member& m = group_.members[member];
    const Partial& part = partials_.at(m.node->value);
    auto p = static_cast<uint32_t>(main);
    for (size_t k = 0; k < (m.node->pair ? 2u : 1u); ++k, ++index) {
      b.store({part[k], at}, b.row(m.node->scalar, {p, index, 0}));
    }
    if (is_arg(m)) {
      NodeId local = b.row(DType::i64, {p, index - 1, 1});
      b.store({part.back(), at}, b.binary(ir::ScalarOp::add, local, b.index(c.base)));
    }
  }
  phase.body = b.take();
  return phase;
}

void SplitBuilder::finish(Nest nest, std::vector<LoopAxis> outer, std::vector<ir::Phase> phases) {
  outer.insert(outer.end(), group_.outer.begin(), group_.outer.end());
  nest.nest.outer = to_axes(outer, ir::AxisKind::mapped);
  for (size_t k = 0; k < nest.sources.size(); ++k) nest.nest.phases.push_back(combine(nest, k));
  for (ir::Phase& p : phases) nest.nest.phases.push_back(std::move(p));
  built_.push_back(std::move(nest));
}

void SplitBuilder::build_phase(size_t p) {
  Nest nest;
  nest.phase = p;
  Cut c = cut(plan_.phases[p].space);
  std::vector<size_t> folded;
  std::vector<ir::Phase> phases{main_phase(nest, c, folded)};
  if (phases[0].body.stores.empty() && folded.empty()) return;
  if (!folded.empty()) phases.push_back(store_partials(nest.sources.size(), c, folded));
  finish(std::move(nest), c.outer, std::move(phases));
}

// Everything without inner axes: results of folds and what is computed from them alone.
void SplitBuilder::build_rows() {
  Nest nest;
  ir::BodyBuilder b;
  ElementBuilder e(kernel_.graph(), b,
                   [&](ValueId v, const std::vector<Expr>& coords, NodeId mask) {
                     return leaf(b, nest, v, coords, mask);
                   });
  for (const PhasePlan& phase : plan_.phases) {
    if (phase.space != 0) continue;
    for (const Task& t : phase.tasks) {
      const Member& m = plan_.member(t);
      ValueId value = m.node->value;
      if (!plan_.needed.contains(value)) continue;
      Val v = t.store_row ? row(b, nest, t.member) : e.inlined(value, m.coords);
      store_value(b, kernel_.type(value), kernel_.output(value), m.coords, v);
    }
  }
  ir::Phase phase;
  phase.body = b.take();
  if (phase.body.stores.empty()) return;
  std::vector<ir::Phase> phases;
  phases.push_back(std::move(phase));
  finish(std::move(nest), {}, std::move(phases));
}

void SplitBuilder::run() {
  build_rows();
  for (size_t p = plan_.phases.size(); p-- > 0;) {
    if (plan_.phases[p].space != 0) build_phase(p);
  }
  std::set<size_t> running;
  for (size_t k = built_.size(); k-- > 0;) {
    Nest& nest = built_[k];
    bool waits = std::any_of(nest.depends.begin(), nest.depends.end(),
                             [&](size_t p) { return running.contains(p); });
    if (waits) {
      kernel_.barrier();
      running.clear();
    }
    running.insert(nest.phase);
    kernel_.add(std::move(nest.nest));
  }
}

}  // namespace

void build_split(const GroupPlan& plan, const SplitDecision& decision, KernelBuilder& kernel) {
  SplitBuilder(plan, decision, kernel).run();
}

}  // namespace heddle::loop
