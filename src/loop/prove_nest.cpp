#include "loop/prove_nest.h"
#include "base/check.h"

#include "ir/fold.h"

#include <algorithm>
#include <cstdlib>

namespace heddle::loop {

using base::cat;
using ir::Access;
using ir::BufferRole;
using ir::kNoNode;
using ir::Node;
using ir::NodeId;
using ir::ScalarOp;

namespace {

constexpr size_t kCorners =
    243;  // points at which an access is tried: first, middle, last of 5 axes

std::vector<LoopAxis> to_loops(const std::vector<ir::Axis>& axes) {
  std::vector<LoopAxis> out;
  for (const ir::Axis& a : axes) out.push_back({a.var, a.extent});
  return out;
}

bool indirect(const Access& a) {
  std::vector<SymbolRef> symbols;
  for (const Expr& e : a.coords) collect_symbols(e, symbols);
  return std::any_of(symbols.begin(), symbols.end(),
                     [](const SymbolRef& s) { return s->kind == SymbolKind::indirect; });
}

bool names(const Access& a, const LoopAxis& axis) {
  return std::any_of(a.coords.begin(), a.coords.end(),
                     [&](const Expr& e) { return uses(e, *axis.var); });
}

using Point = std::map<uint64_t, int64_t>;  // by symbol

std::optional<int64_t> value_at(const Expr& e, const Point& point) {
  try {
    return evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
      auto it = point.find(s.id);
      return it == point.end() ? std::nullopt : std::optional<int64_t>(it->second);
    });
  } catch (const GraphError&) {
    return std::nullopt;
  }
}

// A condition at a point, where it follows from the point alone.
std::optional<int64_t> value_at(const ir::Body& body, NodeId id, const Point& point) {
  const Node& n = body.nodes[id];
  if (n.op == ScalarOp::index) return value_at(body.exprs[n.payload], point);
  if (n.op == ScalarOp::constant && (n.type == DType::i64 || n.type == DType::boolean))
    return static_cast<int64_t>(n.bits);
  if (n.a == kNoNode || n.b == kNoNode || n.c != kNoNode) return std::nullopt;
  std::optional<int64_t> a = value_at(body, n.a, point), b = value_at(body, n.b, point);
  if (!a || !b) return std::nullopt;
  switch (n.op) {
    case ScalarOp::bit_and:
      return *a & *b;
    case ScalarOp::bit_or:
      return *a | *b;
    case ScalarOp::lt:
      return *a < *b;
    case ScalarOp::le:
      return *a <= *b;
    case ScalarOp::gt:
      return *a > *b;
    case ScalarOp::ge:
      return *a >= *b;
    case ScalarOp::eq:
      return *a == *b;
    case ScalarOp::ne:
      return *a != *b;
    default:
      return std::nullopt;
  }
}

// Calls f at corners of a nest whose extents are numbers, until it says true.
template <class F>
bool any_corner(const std::vector<LoopAxis>& axes, size_t k, Point& point, size_t& left,
                const F& f) {
  if (left == 0) return false;
  if (k == axes.size()) {
    --left;
    return f(point);
  }
  std::optional<int64_t> extent = value_at(axes[k].extent, point);
  if (!extent || *extent < 1) return false;
  for (int64_t at : {*extent - 1, int64_t{0}, *extent / 2}) {
    point[axes[k].var->id] = at;
    if (any_corner(axes, k + 1, point, left, f)) return true;
    if (*extent == 1) break;
  }
  return false;
}

}  // namespace

std::string NestProver::at(const Access& a) const {
  std::string s = cat("'", kernel_.buffers[a.buffer].name, "' at [");
  for (size_t k = 0; k < a.coords.size(); ++k) s += (k ? "," : "") + a.coords[k].to_string();
  return s + "]";
}

std::vector<LoopAxis> NestProver::axes(size_t phase) const {
  std::vector<LoopAxis> all = to_loops(nest_.outer), inner = to_loops(nest_.phases[phase].inner);
  all.insert(all.end(), inner.begin(), inner.end());
  return all;
}

Facts NestProver::facts(size_t phase, NodeId mask) const {
  const ir::Body& body = nest_.phases[phase].body;
  std::map<NodeId, Expr> known;
  for (NodeId id = 0; id < body.nodes.size(); ++id) {
    const Node& n = body.nodes[id];
    if (n.op == ScalarOp::load) {
      auto it = around_.iterations.find(body.accesses[n.payload].buffer);
      if (it != around_.iterations.end()) known.emplace(id, it->second);
    } else if (n.op == ScalarOp::row && body.rows[n.payload].component == 1) {
      Expr count(1);
      for (const ir::Axis& a : nest_.phases[body.rows[n.payload].phase].inner)
        count = count * a.extent;
      known.emplace(id, Expr(make_loop_symbol("found", count)));
    }
  }
  Facts f(body, std::move(known));
  for (const Expr& e : around_.facts) f.add(e);
  for (const LoopAxis& a : axes(phase)) f.add_point(a.extent);
  if (mask != kNoNode) f.assume(mask, true);
  return f;
}

// ---- bounds and order

void NestProver::phase(size_t p) {
  const ir::Phase& phase = nest_.phases[p];
  std::map<NodeId, Facts> where;  // by mask
  auto here = [&](NodeId mask) -> const Facts& {
    auto it = where.find(mask);
    return it != where.end() ? it->second : where.emplace(mask, facts(p, mask)).first->second;
  };
  std::set<std::pair<uint32_t, NodeId>> seen;
  auto check = [&](uint32_t access, NodeId mask) {
    if (seen.emplace(access, mask).second) bounds(p, phase.body.accesses[access], mask, here(mask));
  };
  for (const Node& n : phase.body.nodes) {
    if (n.op == ScalarOp::load) check(n.payload, n.a);
    if (n.op == ScalarOp::bind && !here(kNoNode).bound_holds(n))
      findings_.open("bind: the index ", phase.body.symbols[n.payload]->name,
                     " may leave the bounds of its symbol");
  }
  for (const ir::Store& s : phase.body.stores) check(s.access, s.mask);
  order(phase);
}

void NestProver::order(const ir::Phase& phase) {
  for (const ir::ScanSpec& s : phase.body.scans) {
    if (!s.position) findings_.broken("order: a scan does not say which order it asks for");
  }
  bool several = std::any_of(phase.inner.begin(), phase.inner.end(),
                             [](const ir::Axis& a) { return !a.extent.is(1); });
  for (const ir::Reduction& r : phase.reductions) {
    if (several && ir::is_arg(r.op) && !r.position)
      findings_.broken("order: ", ir::name(r.op), " does not say which order it asks for");
  }
}

void NestProver::bounds(size_t p, const Access& a, NodeId mask, const Facts& here) {
  const ir::Buffer& buffer = kernel_.buffers[a.buffer];
  for (size_t k = 0; k < a.coords.size(); ++k) {
    Verdict v = here.inside(a.coords[k], buffer.extents[k]);
    if (v == Verdict::proven) continue;
    if (leaves(p, a, mask)) {
      findings_.broken("bounds: ", at(a), " leaves the buffer along axis ", k, " of ",
                       buffer.extents[k].to_string());
      return;
    }
    findings_.open("bounds: ", at(a), " may leave the buffer along axis ", k, " of ",
                   buffer.extents[k].to_string());
  }
}

// Is there a point, found by trying, at which an access is outside?
bool NestProver::leaves(size_t p, const Access& a, NodeId mask) const {
  const std::vector<Expr>& extents = kernel_.buffers[a.buffer].extents;
  Point point;
  size_t left = kCorners;
  return any_corner(axes(p), 0, point, left, [&](const Point& at) {
    if (mask != kNoNode && value_at(nest_.phases[p].body, mask, at).value_or(0) == 0) return false;
    for (size_t k = 0; k < extents.size(); ++k) {
      std::optional<int64_t> c = value_at(a.coords[k], at), n = value_at(extents[k], at);
      if (c && n && (*c < 0 || *c >= *n)) return true;
    }
    return false;
  });
}

// ---- races

// `rule`: the point of the axis that writes the element. It must be the one that touches it.
void NestProver::same_point(const Touch& t, const LoopAxis& axis, const std::optional<Expr>& rule) {
  if (rule && *rule == Expr(axis.var)) return;
  const char* does = t.store ? "written" : "read";
  std::optional<int64_t> step = rule ? (*rule - Expr(axis.var)).constant() : std::nullopt;
  // Surely not: the same element at each point, or one that is some steps away.
  bool same = !indirect(*t.access) && !names(*t.access, axis) &&
              is_less_equal(2, axis.extent) == Ordering::yes;
  bool shifted = step && is_less_equal(Expr(std::abs(*step) + 1), axis.extent) == Ordering::yes;
  if (t.mask == kNoNode && (same || shifted)) {
    findings_.broken("race: ", at(*t.access), " is ", does, " where other points of ",
                     axis.var->name, " write it");
  } else {
    findings_.open("race: ", at(*t.access), " is ", does,
                   ", and it is not shown that no other point of ", axis.var->name, " writes it");
  }
}

void NestProver::races() {
  std::map<ir::BufferId, std::vector<Touch>> touches;
  std::set<ir::BufferId> written;
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    const ir::Body& body = nest_.phases[p].body;
    for (const Node& n : body.nodes) {
      if (n.op != ScalarOp::load) continue;
      const Access& a = body.accesses[n.payload];
      touches[a.buffer].push_back({p, &a, n.a, false});
    }
    for (const ir::Store& s : body.stores) {
      const Access& a = body.accesses[s.access];
      touches[a.buffer].push_back({p, &a, s.mask, true});
      written.insert(a.buffer);
    }
  }
  for (ir::BufferId b : written) {
    BufferRole role = kernel_.buffers[b].role;
    if (role == BufferRole::scalar_local) continue;
    if (role == BufferRole::row_local) {
      for (const Touch& t : touches[b]) own_points_only(t.phase, *t.access);
    } else {
      outer_races(touches[b]);
    }
    for (size_t p = 0; p < nest_.phases.size(); ++p) inner_races(p, touches[b]);
  }
}

void NestProver::own_points_only(size_t p, const Access& a) {
  std::vector<Expr> own;
  for (const ir::Axis& axis : nest_.phases[p].inner) own.push_back(Expr(axis.var));
  if (a.coords != own) findings_.broken("row-local: ", at(a), " is not the point that runs");
}

// Points of the outer axes run side by side: the element that one touches must tell which point it
// is, by one rule for all accesses of the nest.
void NestProver::outer_races(const std::vector<Touch>& touches) {
  std::vector<LoopAxis> outer = to_loops(nest_.outer);
  std::erase_if(outer, [](const LoopAxis& a) { return a.extent.is(1); });
  if (outer.empty()) return;
  const std::vector<Expr>& extents = kernel_.buffers[touches[0].access->buffer].extents;
  Inverse rule;
  for (const Touch& t : touches) {
    if (!t.store) continue;
    rule = invert(t.access->coords, axes(t.phase), extents);
    if (std::all_of(outer.begin(), outer.end(),
                    [&](const LoopAxis& a) { return rule.of.contains(a.var->id); }))
      break;
  }
  for (const Touch& t : touches) {
    for (const LoopAxis& a : outer) {
      same_point(t, a, rule.at(a, t.access->coords));
    }
  }
}

// So do the points of a phase, but for those of a scatter; what a phase stores is there only after
// it.
void NestProver::inner_races(size_t p, const std::vector<Touch>& touches) {
  std::vector<LoopAxis> inner;
  for (const ir::Axis& a : nest_.phases[p].inner) {
    if (a.kind == ir::AxisKind::scattered) return;
    if (!a.extent.is(1)) inner.push_back({a.var, a.extent});
  }
  auto stores = [&](const Touch& t) { return t.phase == p && t.store; };
  auto first = std::find_if(touches.begin(), touches.end(), stores);
  if (first == touches.end()) return;
  const std::vector<Expr>& own = first->access->coords;
  Inverse rule = invert(own, axes(p), kernel_.buffers[first->access->buffer].extents);
  for (const Touch& t : touches) {
    if (t.phase != p || (!t.store && t.access->coords == own)) continue;
    for (const LoopAxis& a : inner) same_point(t, a, rule.at(a, t.access->coords));
  }
}

}  // namespace heddle::loop
