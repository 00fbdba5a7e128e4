// Which values get nodes of their own: those that must lie in memory, those that fold or run along
// an axis, and those that are too dear to compute again in each place that reads them. All others
// are inlined.
#include "base/check.h"
#include "ir/fold.h"
#include "loop/limits.h"
#include "loop/node.h"

#include <algorithm>
#include <map>

namespace heddle::loop {

using base::cat;
using ir::OpId;
using ir::ValueId;

ir::ReduceOp reduce_op(const ir::Op& op) {
  const ops::ReduceRule& rule = *op.def->reduce;
  return rule.choose ? rule.choose(op) : rule.op;
}

int64_t body_cost(const ir::Body& body) {
  using ir::ScalarOp;
  int64_t cost = 0;
  for (const ir::Node& n : body.nodes) {
    switch (n.op) {
      case ScalarOp::constant:
      case ScalarOp::bind:
      case ScalarOp::row:
        break;
      case ScalarOp::load:
        cost += limits::kLoadCost;
        break;
      case ScalarOp::div:
      case ScalarOp::rem:
      case ScalarOp::sqrt:
      case ScalarOp::inverse:
        cost += limits::kDivideCost;
        break;
      case ScalarOp::call:
        cost += limits::kCallCost;
        break;
      default:
        cost += 1;
    }
  }
  return cost;
}

namespace {

struct Use {
  int64_t taps = 0;       // different coordinates that are read
  bool repeated = false;  // read again along an axis that the coordinates do not name
};
// One operation by itself, all operands in memory.
struct Trace {
  int64_t cost = 0;  // without loads of operands
  std::map<ValueId, Use> uses;
  bool reduces = false;
};

std::vector<LoopAxis> axes_of(const Shape& shape, const char* prefix, std::vector<Expr>& coords) {
  std::vector<LoopAxis> axes;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k].is(1)) {
      coords.push_back(0);
      continue;
    }
    axes.push_back({make_loop_symbol(prefix + std::to_string(k), shape[k]), shape[k]});
    coords.push_back(Expr(axes.back().var));
  }
  return axes;
}

class Planner {
 public:
  Planner(const ir::Graph& graph, ir::RegionId region, const std::set<OpId>& opaque,
          const ScheduleOptions& options)
      : graph_(graph),
        region_(graph.region(region)),
        id_(region),
        opaque_(opaque),
        options_(options) {}
  RegionPlan run();

 private:
  bool is_opaque(OpId op) const {
    return opaque_.contains(op) || lowering_of(graph_, op) == Lowering::none;
  }
  bool is_source(OpId op) const { return ops::role_of(graph_.op(op)) == ops::Role::constant; }
  void mark_live();
  void require(ValueId v);
  void collect_users();
  void place(ValueId v);
  std::string reason_for_node(ValueId v);
  const Trace& trace(OpId op, ValueId result);
  SchedNode make_node(ValueId v);
  SchedNode opaque_node(OpId op);
  void trace_reads(SchedNode& n);
  std::optional<ValueId> renamed(ValueId v);
  Leaf record(ir::BodyBuilder& b, std::vector<Read>& reads, ValueId v,
              const std::vector<Expr>& coords, ir::NodeId mask);

  const ir::Graph& graph_;
  const ir::Region& region_;
  ir::RegionId id_;
  const std::set<OpId>& opaque_;
  const ScheduleOptions& options_;
  RegionPlan plan_;
  std::set<ValueId> required_;
  std::map<ValueId, std::vector<OpId>> users_;
  std::map<std::pair<OpId, ValueId>, Trace> traces_;
  std::map<ValueId, int64_t> cost_, depth_;
  std::set<OpId> live_;
};

// Captured values of nested regions and everything that opaque operations read must lie in memory.
void Planner::mark_live() {
  std::set<ValueId> wanted(region_.results.begin(), region_.results.end());
  required_ = wanted;
  for (size_t k = region_.ops.size(); k-- > 0;) {
    OpId id = region_.ops[k];
    const ir::Op& op = graph_.op(id);
    bool opaque = is_opaque(id) && !is_source(id);
    bool used = std::any_of(op.results.begin(), op.results.end(),
                            [&](ValueId v) { return wanted.contains(v); });
    if (!used && !opaque) continue;
    live_.insert(id);
    wanted.insert(op.operands.begin(), op.operands.end());
    if (!opaque) continue;
    required_.insert(op.operands.begin(), op.operands.end());
    for (ir::RegionId r : op.regions) {
      for (ValueId v : graph_.captures(r)) {
        wanted.insert(v);
        required_.insert(v);
      }
    }
  }
}

void Planner::collect_users() {
  for (OpId id : region_.ops) {
    if (!live_.contains(id)) continue;
    std::set<ValueId> once(graph_.op(id).operands.begin(), graph_.op(id).operands.end());
    for (ValueId v : once) users_[v].push_back(id);
  }
}

const Trace& Planner::trace(OpId id, ValueId result) {
  auto [it, fresh] = traces_.try_emplace({id, result});
  Trace& t = it->second;
  if (!fresh) return t;
  const ir::Op& op = graph_.op(id);
  if (is_opaque(id)) return t;
  Lowering lowering = lowering_of(graph_, id);
  if (lowering == Lowering::scan || lowering == Lowering::scatter) {
    for (ValueId v : op.operands) t.uses[v].taps = 1;
    return t;
  }
  t.reduces = lowering == Lowering::reduce;
  std::vector<Expr> coords, inner_coords;
  std::vector<LoopAxis> axes = axes_of(*graph_.value(result).type.shape, "i", coords);
  if (t.reduces) {
    std::vector<LoopAxis> inner = axes_of(op.def->reduce->inner(graph_, op), "r", inner_coords);
    axes.insert(axes.end(), inner.begin(), inner.end());
  }
  std::vector<Read> reads;
  ir::BodyBuilder b;
  ElementBuilder e(
      graph_, b,
      [&](ValueId v, const std::vector<Expr>& at, ir::NodeId mask) -> std::optional<Leaf> {
        return record(b, reads, v, at, mask);
      });
  if (t.reduces) {
    e.folded(id, coords, inner_coords);
  } else {
    e.inlined(result, coords);
  }
  t.cost = body_cost(b.body()) - limits::kLoadCost * static_cast<int64_t>(reads.size());
  for (const Read& r : reads) {
    Use& use = t.uses[r.value];
    ++use.taps;
    for (const LoopAxis& a : axes) {
      if (a.extent.upper() <= limits::kSmallAxis) continue;
      bool named = std::any_of(r.coords.begin(), r.coords.end(),
                               [&](const Expr& c) { return ::heddle::uses(c, *a.var); });
      // An index that is itself read from memory may name any axis.
      bool indirect = std::any_of(r.coords.begin(), r.coords.end(),
                                  [&](const Expr& c) { return !only_uses(c, axes, {}); });
      if (!named && !indirect) use.repeated = true;
    }
  }
  return t;
}

Leaf Planner::record(ir::BodyBuilder& b, std::vector<Read>& reads, ValueId v,
                     const std::vector<Expr>& coords, ir::NodeId mask) {
  reads.push_back({v, coords});
  return {load_value(b, graph_.value(v).type, v, coords, mask), true};
}

// Empty: the value is inlined.
std::string Planner::reason_for_node(ValueId v) {
  if (!options_.fusion) return "fusion is off";
  OpId id = graph_.value(v).op;
  const Trace& own = trace(id, v);
  int64_t cost = own.cost, depth = 1;
  for (const auto& [o, use] : own.uses) {
    bool inlined = plan_.placement[o] == Placement::inlined;
    cost += use.taps * (inlined ? cost_[o] : limits::kLoadCost);
    if (inlined) depth = std::max(depth, depth_[o] + 1);
  }
  cost_[v] = cost;
  depth_[v] = depth;
  if (cost > limits::kBodyCost || depth > limits::kBodyDepth)
    return cat("its body has ", cost, " operations");
  bool scalar = element_count(*graph_.value(v).type.shape).is(1);
  const std::vector<OpId>& users = users_[v];
  if (users.size() > 1 && cost > (scalar ? limits::kScalarCost : limits::kDuplicateCost)) {
    return cat(users.size(), " users of ", cost, " operations");
  }
  for (OpId user : users) {
    for (ValueId r : graph_.op(user).results) {
      const Trace& t = trace(user, r);
      auto it = t.uses.find(v);
      if (it == t.uses.end()) continue;
      if (it->second.taps > 1 && it->second.taps * cost > limits::kTapCost) {
        return cat("read at ", it->second.taps, " places, ", cost, " operations each");
      }
      auto others = static_cast<int64_t>(t.uses.size());
      if (others >= limits::kManyOperands && others * cost > limits::kTapCost) {
        return cat("one of ", others, " operands of an operation, ", cost, " operations each");
      }
      int64_t limit = scalar      ? limits::kScalarCost
                      : t.reduces ? limits::kContractedCost
                                  : limits::kBroadcastCost;
      int64_t loads = limits::kLoadCost;
      if (it->second.repeated && cost > limit + loads)
        return cat("computed again along an axis, ", cost, " operations");
    }
  }
  return "";
}

bool always(const ir::BodyBuilder& b, ir::NodeId mask) {
  if (mask == ir::kNoNode) return true;
  const ir::Node& n = b.body().nodes[mask];
  return n.op == ir::ScalarOp::constant && n.bits != 0;
}

// The buffer that v is only another name of: the same elements in the same row-major order.
std::optional<ValueId> Planner::renamed(ValueId v) {
  const Type& type = graph_.value(v).type;
  std::vector<Expr> coords;
  axes_of(*type.shape, "i", coords);
  std::vector<Read> reads;
  ir::BodyBuilder b;
  ir::Val first;
  // Where a mask is false the element is not the buffer's, even if the coordinates agree.
  bool masked = false;
  ElementBuilder e(
      graph_, b,
      [&](ValueId o, const std::vector<Expr>& at, ir::NodeId mask) -> std::optional<Leaf> {
        if (plan_.placement[o] == Placement::inlined) return std::nullopt;
        masked = masked || !always(b, mask);
        Leaf leaf = record(b, reads, o, at, mask);
        first = leaf.val;
        return leaf;
      });
  ir::Val got = e.inlined(v, coords);
  if (masked || reads.size() != 1 || got.re != first.re || got.im != first.im) return std::nullopt;
  const Type& from = graph_.value(reads[0].value).type;
  if (from.dtype != type.dtype || !(element_count(*from.shape) == element_count(*type.shape)))
    return std::nullopt;
  if (!(flat_coordinate(reads[0].coords, *from.shape) == flat_coordinate(coords, *type.shape)))
    return std::nullopt;
  return reads[0].value;
}

void Planner::require(ValueId v) {
  if (plan_.placement[v] == Placement::node) plan_.stored.insert(v);
}

void Planner::place(ValueId v) {
  OpId id = graph_.value(v).op;
  Placement& p = plan_.placement[v];
  Lowering lowering = lowering_of(graph_, id);
  if (lowering != Lowering::scalar && lowering != Lowering::element) {
    p = Placement::node;
  } else {
    std::string reason = reason_for_node(v);
    if (required_.contains(v)) {
      if (std::optional<ValueId> buffer = renamed(v)) {
        plan_.aliases.emplace_back(v, *buffer);
        require(*buffer);
        if (users_[v].empty()) {
          p = Placement::dead;
          return;
        }
        p = Placement::inlined;
        return;
      }
    }
    p = reason.empty() && !required_.contains(v) ? Placement::inlined : Placement::node;
    if (!reason.empty() && options_.fusion)
      plan_.notes.push_back(cat(graph_.op(id).name, ": not inlined: ", reason));
  }
  if (p == Placement::node) {
    if (required_.contains(v)) plan_.stored.insert(v);
    plan_.nodes.push_back(make_node(v));
  }
}

SchedNode Planner::make_node(ValueId v) {
  SchedNode n;
  n.value = v;
  n.op = graph_.value(v).op;
  n.order = plan_.nodes.size();
  const ir::Op& op = graph_.op(n.op);
  const Type& type = graph_.value(v).type;
  const Shape& shape = *type.shape;
  switch (lowering_of(graph_, n.op)) {
    case Lowering::reduce:
      n.kind = NodeKind::reduction;
      n.axes = axes_of(shape, "i", n.coords);
      n.inner = axes_of(op.def->reduce->inner(graph_, op), "r", n.inner_coords);
      if (n.inner.empty()) {
        n.inner.push_back({make_loop_symbol("r", 1), 1});
      } else if (ir::is_arg(reduce_op(op))) {
        n.position = flat_coordinate(n.inner_coords, op.def->reduce->inner(graph_, op));
      }
      break;
    case Lowering::scan: {
      n.kind = NodeKind::scan;
      auto axis = static_cast<size_t>(op.def->scan(graph_, op).axis);
      n.axes = axes_of(shape, "i", n.coords);
      LoopAxis along{make_loop_symbol("s", shape[axis]), shape[axis]};
      std::erase_if(n.axes, [&](const LoopAxis& a) {
        return n.coords[axis].kind() == ExprKind::symbol &&
               a.var->id == n.coords[axis].symbol()->id;
      });
      ops::ScanRule rule = op.def->scan(graph_, op);
      Expr at(along.var);
      n.coords[axis] = rule.reverse ? shape[axis] - Expr(1) - at : at;
      n.inner_coords = n.coords;
      if (rule.exclusive) n.inner_coords[axis] = n.coords[axis] + Expr(rule.reverse ? 1 : -1);
      n.inner = {along};
      n.position = rule.reverse ? shape[axis] - Expr(1) - n.coords[axis] : n.coords[axis];
      break;
    }
    case Lowering::scatter:
      n.kind = NodeKind::scatter;
      n.axes = axes_of(shape, "i", n.coords);
      break;
    default:
      n.kind = elements_per_byte(type.dtype) > 1 ? NodeKind::packed : NodeKind::pointwise;
      n.axes = axes_of(shape, "i", n.coords);
  }
  trace_reads(n);
  return n;
}

// Builds the node's body once, with everything that is not inlined as loads.
void Planner::trace_reads(SchedNode& n) {
  const ir::Op& op = graph_.op(n.op);
  ir::BodyBuilder b;
  ElementBuilder e(
      graph_, b,
      [&](ValueId v, const std::vector<Expr>& at, ir::NodeId mask) -> std::optional<Leaf> {
        if (plan_.placement[v] == Placement::inlined) return std::nullopt;
        return record(b, n.reads, v, at, mask);
      });
  ir::Val made;
  switch (n.kind) {
    case NodeKind::reduction:
      made = e.folded(n.op, n.coords, n.inner_coords);
      break;
    case NodeKind::scan:
      made = e.element(op.operands[0], n.inner_coords);
      break;
    case NodeKind::scatter:
      for (ValueId v : op.operands) {
        std::vector<Expr> coords;
        axes_of(*graph_.value(v).type.shape, "i", coords);
        e.element(v, coords);
      }
      break;
    default:
      made = e.inlined(n.value, n.coords);
  }
  if (made.re != ir::kNoNode) n.scalar = b.type(made.re);
  n.pair = made.complex();
  n.cost = body_cost(b.body());
  n.after = op.after;
  for (OpId o : e.visited())
    n.after.insert(n.after.end(), graph_.op(o).after.begin(), graph_.op(o).after.end());
}

SchedNode Planner::opaque_node(OpId id) {
  SchedNode n;
  n.kind = NodeKind::opaque;
  n.op = id;
  n.order = plan_.nodes.size();
  const ir::Op& op = graph_.op(id);
  n.after = op.after;
  auto read = [&](ValueId v) {
    // A renamed value is read from the buffer that holds it.
    for (const auto& [from, to] : plan_.aliases) {
      if (from == v) v = to;
    }
    n.reads.push_back({v, {}});
  };
  for (ValueId v : op.operands) read(v);
  for (ir::RegionId r : op.regions) {
    for (ValueId v : graph_.captures(r)) read(v);
  }
  return n;
}

RegionPlan Planner::run() {
  plan_.placement.assign(graph_.value_count(), Placement::leaf);
  mark_live();
  collect_users();
  for (OpId id : region_.ops) {
    const ir::Op& op = graph_.op(id);
    if (!live_.contains(id)) {
      for (ValueId v : op.results) plan_.placement[v] = Placement::dead;
      continue;
    }
    if (is_source(id)) continue;
    if (is_opaque(id)) {
      plan_.nodes.push_back(opaque_node(id));
      continue;
    }
    for (ValueId v : op.results) {
      if (users_.contains(v) || required_.contains(v)) {
        place(v);
      } else {
        plan_.placement[v] = Placement::dead;
      }
    }
  }
  return std::move(plan_);
}

}  // namespace

RegionPlan plan_region(const ir::Graph& graph, ir::RegionId region, const std::set<OpId>& opaque,
                       const ScheduleOptions& options) {
  return Planner(graph, region, opaque, options).run();
}

}  // namespace heddle::loop
