// Joining two groups by index expressions.
#include "base/check.h"
#include "loop/group.h"
#include "loop/limits.h"

#include <algorithm>
#include <map>

namespace heddle::loop {

using base::cat;
using ir::ValueId;

namespace {

std::string show(const std::vector<Expr>& coords) {
  std::string s = "[";
  for (size_t k = 0; k < coords.size(); ++k) s += (k ? "," : "") + coords[k].to_string();
  return s + "]";
}

// Coordinates that must (or may) coincide, with the spaces of the two members that they belong to.
struct Link {
  std::vector<Expr> f, g;  // in the variables of the two groups
  size_t f_space = 0, g_space = 0;
};

void append(std::vector<Equation>& out, const Link& link) {
  for (size_t k = 0; k < link.f.size(); ++k) out.push_back({link.f[k], link.g[k]});
}
Link reversed(const Link& l) { return {l.g, l.f, l.g_space, l.f_space}; }
std::vector<Link> reversed(const std::vector<Link>& list) {
  std::vector<Link> out;
  for (const Link& l : list) out.push_back(reversed(l));
  return out;
}

// Reads by members of `reader` of what `maker` makes.
std::vector<Link> cross_reads(const Group& reader, const Group& maker) {
  std::vector<Link> out;
  for (const Member& m : reader.members) {
    for (const Read& r : m.reads) {
      const Member* made = maker.find(r.value);
      if (made != nullptr) out.push_back({r.coords, made->coords, m.space, made->result_space()});
    }
  }
  return out;
}

// Is every coordinate a loop variable or 0? (The middle of a window, not its rim.)
bool is_plain(const Read& r) {
  return std::all_of(r.coords.begin(), r.coords.end(),
                     [](const Expr& e) { return e.kind() == ExprKind::symbol || e.is(0); });
}

// One read of each outside value in each space of a group, a plain one if there is one.
using SpaceReads = std::map<std::pair<ValueId, size_t>, const Read*>;
SpaceReads outside_reads(const Group& g, const Group& other) {
  SpaceReads out;
  for (const Member& m : g.members) {
    for (const Read& r : m.reads) {
      bool varies = std::any_of(r.coords.begin(), r.coords.end(),
                                [](const Expr& e) { return !e.is_constant(); });
      if (!varies || g.find(r.value) != nullptr || other.find(r.value) != nullptr) continue;
      const Read*& best = out[{r.value, m.space}];
      if (best == nullptr || (is_plain(r) && !is_plain(*best))) best = &r;
    }
  }
  return out;
}

// Pairs of reads of the same value outside of both; the widest say most.
std::vector<Link> shared_reads(const Group& f, const Group& g) {
  SpaceReads mine = outside_reads(f, g), others = outside_reads(g, f);
  std::vector<Link> out;
  for (const auto& [key, read] : others) {
    auto it = mine.lower_bound({key.first, 0});
    for (; it != mine.end() && it->first.first == key.first && out.size() < 24; ++it) {
      out.push_back({it->second->coords, read->coords, it->first.second, key.second});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Link& a, const Link& b) { return a.f.size() > b.f.size(); });
  return out;
}

void rewrite(Member& m, const Bindings& map) {
  m.coords = replaced(map, m.coords);
  m.inner_coords = replaced(map, m.inner_coords);
  if (m.position) m.position = replaced(map, *m.position);
  for (Read& r : m.reads) r.coords = replaced(map, r.coords);
}

std::vector<LoopAxis> concatenated(std::vector<LoopAxis> a, const std::vector<LoopAxis>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Do the loops over `axes` take the elements of a member in the order that it needs? A scan starts
// anew with each point of the slower axes, so it needs an axis of its own.
bool in_order(const Member& m, const Expr& at, const std::vector<LoopAxis>& axes) {
  if (m.node->kind == NodeKind::scan && axes.size() != 1) return false;
  return at == row_major(axes);
}

bool runs_along(const Group& g, size_t space) {
  return std::any_of(g.members.begin(), g.members.end(), [&](const Member& m) {
    return m.node->kind == NodeKind::scan && m.space == space;
  });
}

class Joiner {
 public:
  Joiner(const Group& g, const Group& f) : g_(g), f_(f) {
    must_ = cross_reads(f, g);
    for (const Link& l : cross_reads(g, f)) must_.push_back(reversed(l));
    may_ = shared_reads(f, g);
  }
  std::variant<Group, std::string> run();

 private:
  std::optional<Group> align();
  std::optional<Group> place(const Group& base, const Group& flat, const std::vector<Link>& must,
                             const std::vector<Link>& may) const;
  std::optional<Bindings> match_space(size_t fs, size_t gs, const Bindings& outer, bool& forbidden);
  bool keeps_order(size_t fs, size_t gs, const Bindings& map) const;
  Group merged(Group base, const Group& other, const Bindings& map,
               const std::vector<size_t>& space_map) const;
  std::string invalid(const Group& g) const;

  const Group &g_, &f_;
  std::vector<Link> must_, may_;  // f: unknown side
  std::string reason_;            // the first that was found
};

Group Joiner::merged(Group base, const Group& other, const Bindings& map,
                     const std::vector<size_t>& space_map) const {
  for (Member m : other.members) {
    rewrite(m, map);
    m.space = space_map[m.space];
    base.members.push_back(std::move(m));
  }
  std::stable_sort(base.members.begin(), base.members.end(),
                   [](const Member& a, const Member& b) { return a.node->order < b.node->order; });
  return base;
}

// How f's inner space fs runs over g's gs, with f's outer variables already written in g's.
std::optional<Bindings> Joiner::match_space(size_t fs, size_t gs, const Bindings& outer,
                                            bool& forbidden) {
  auto attempt = [&](const std::vector<Link>& links, bool& any) -> std::optional<Bindings> {
    std::vector<Equation> equations;
    for (const Link& l : links) {
      if (l.f_space != fs || l.g_space != gs) continue;
      any = true;
      Link known{replaced(outer, l.f), l.g, fs, gs};
      append(equations, known);
    }
    if (!any) return std::nullopt;
    Solution s = solve(equations, f_.spaces[fs], false);
    if (!s.complete) return std::nullopt;
    // One to one for each outer point.
    if (!is_bijection(s.values, f_.spaces[fs], g_.spaces[gs])) return std::nullopt;
    return s.values;
  };
  bool bound = false, hinted = false;
  std::optional<Bindings> map = attempt(must_, bound);
  if (bound) {
    if (map && !keeps_order(fs, gs, *map)) {
      reason_ = "one runs along an axis in another order than the other";
      map.reset();
    }
    forbidden = !map;
    return map;
  }
  map = attempt(may_, hinted);
  if (!map && same_extents(f_.spaces[fs], g_.spaces[gs])) {
    map.emplace();
    for (size_t k = 0; k < f_.spaces[fs].size(); ++k) {
      map->emplace(f_.spaces[fs][k].var->id, Expr(g_.spaces[gs][k].var));
    }
  }
  if (map && (runs_along(f_, fs) || runs_along(g_, gs))) {
    // The order along a scan must stay.
    for (size_t k = 0; k < f_.spaces[fs].size(); ++k) {
      if (!same_extents(f_.spaces[fs], g_.spaces[gs])) return std::nullopt;
      if (!(map->at(f_.spaces[fs][k].var->id) == Expr(g_.spaces[gs][k].var))) return std::nullopt;
    }
  }
  if (map && !keeps_order(fs, gs, *map)) return std::nullopt;
  return map;
}

// Do f's members over its space fs keep their order where they run over g's gs? (g's loops stay.)
bool Joiner::keeps_order(size_t fs, size_t gs, const Bindings& map) const {
  return std::all_of(f_.members.begin(), f_.members.end(), [&](const Member& m) {
    return m.space != fs || !m.position || in_order(m, replaced(map, *m.position), g_.spaces[gs]);
  });
}

// The outer spaces are one to one; inner spaces are shared where they can be.
std::optional<Group> Joiner::align() {
  std::vector<Equation> equations;
  for (const Link& l : must_.empty() ? may_ : must_) append(equations, l);
  std::vector<LoopAxis> unknowns = f_.outer;
  for (const auto& s : f_.spaces) unknowns.insert(unknowns.end(), s.begin(), s.end());
  Solution s = solve(equations, unknowns, false);
  Bindings outer;
  for (const LoopAxis& a : f_.outer) {
    auto it = s.values.find(a.var->id);
    if (it == s.values.end() || !only_uses(it->second, g_.outer, {})) return std::nullopt;
    outer.emplace(a.var->id, it->second);
  }
  if (!is_bijection(outer, f_.outer, g_.outer)) return std::nullopt;
  // Pointwise work in another order would write (or read) memory in strides.
  if (f_.flat() && g_.flat() && !(replaced(outer, row_major(f_.outer)) == row_major(g_.outer))) {
    reason_ = "they run over their elements in different orders";
    return std::nullopt;
  }
  Group base = g_;
  std::vector<size_t> space_map{0};
  std::set<size_t> taken;
  Bindings map = outer;
  for (size_t fs = 1; fs < f_.spaces.size(); ++fs) {
    std::optional<size_t> found;
    for (size_t gs = 1; gs < g_.spaces.size() && !found; ++gs) {
      if (taken.contains(gs) || !(product(f_.spaces[fs]) == product(g_.spaces[gs]))) continue;
      bool forbidden = false;
      std::optional<Bindings> inner = match_space(fs, gs, outer, forbidden);
      if (forbidden) return std::nullopt;
      if (!inner) continue;
      map.insert(inner->begin(), inner->end());
      found = gs;
    }
    if (!found) {
      base.spaces.push_back(f_.spaces[fs]);
      found = base.spaces.size() - 1;
    } else {
      taken.insert(*found);
    }
    space_map.push_back(*found);
  }
  return merged(std::move(base), f_, map, space_map);
}

// A group without inner axes goes into the points (outer, inner) of another.
std::optional<Group> Joiner::place(const Group& base, const Group& flat,
                                   const std::vector<Link>& must,
                                   const std::vector<Link>& may) const {
  for (size_t k = 1; k < base.spaces.size(); ++k) {
    std::vector<LoopAxis> all = concatenated(base.outer, base.spaces[k]);
    for (bool hints : {false, true}) {
      std::vector<Equation> equations;
      for (const Link& l : must) append(equations, l);
      if (hints) {
        for (const Link& l : may) append(equations, l);
      }
      std::erase_if(equations, [&](const Equation& e) {
        return !only_uses(e.known, base.outer, base.spaces[k]);
      });
      Solution s = solve(equations, flat.outer, false);
      if (!s.complete || !is_bijection(s.values, flat.outer, all)) continue;
      return merged(base, flat, s.values, {k});
    }
  }
  if (must.empty()) return std::nullopt;
  bool folds = std::any_of(base.members.begin(), base.members.end(),
                           [](const Member& m) { return m.node->kind == NodeKind::reduction; });
  if (!folds) return std::nullopt;
  std::vector<Equation> equations;
  for (const Link& l : must) append(equations, l);
  std::erase_if(equations, [&](const Equation& e) { return !only_uses(e.known, base.outer, {}); });
  Solution s = solve(equations, flat.outer, true);
  if (!s.complete || s.fresh.empty()) return std::nullopt;
  if (!is_bijection(s.values, flat.outer, concatenated(base.outer, s.fresh))) return std::nullopt;
  // New axes: a space of the same extents, or one of its own.
  for (size_t k = 1; k < base.spaces.size(); ++k) {
    if (!same_extents(base.spaces[k], s.fresh)) continue;
    Bindings rename;
    for (size_t j = 0; j < s.fresh.size(); ++j)
      rename.emplace(s.fresh[j].var->id, Expr(base.spaces[k][j].var));
    for (auto& [id, e] : s.values) e = replaced(rename, e);
    return merged(base, flat, s.values, {k});
  }
  Group wider = base;
  wider.spaces.push_back(s.fresh);
  size_t k = wider.spaces.size() - 1;
  return merged(std::move(wider), flat, s.values, {k});
}

// Every value that the group both makes and reads must be read where it is made.
std::string Joiner::invalid(const Group& g) const {
  std::set<ValueId> reads;
  for (const Member& m : g.members) {
    if (m.position && !in_order(m, *m.position, g.spaces[m.space]))
      return "one runs along an axis in another order than the other";
    for (const Read& r : m.reads) {
      const Member* made = g.find(r.value);
      if (made == nullptr) {
        reads.insert(r.value);
        continue;
      }
      if (!(made->coords == r.coords))
        return cat("read at ", show(r.coords), ", made at ", show(made->coords));
      if (made->result_space() != 0 && made->result_space() != m.space)
        return "made in another loop than it is read in";
    }
  }
  if (reads.size() > limits::kGroupReads)
    return cat("the kernel would read ", reads.size(), " buffers");
  if (g.members.size() > limits::kGroupMembers)
    return cat("the kernel would have ", g.members.size(), " parts");
  if (g.cost() > limits::kGroupCost) return cat("the kernel would have ", g.cost(), " operations");
  return "";
}

std::variant<Group, std::string> Joiner::run() {
  if (must_.empty() && may_.empty()) return "they share nothing";
  auto accept = [&](std::optional<Group> g) {
    if (!g) return std::optional<Group>();
    std::string why = invalid(*g);
    if (why.empty()) return g;
    if (reason_.empty()) reason_ = why;
    return std::optional<Group>();
  };
  if (std::optional<Group> g = accept(align())) return *g;
  if (f_.flat()) {
    if (std::optional<Group> g = accept(place(g_, f_, must_, may_))) return *g;
  }
  if (g_.flat()) {
    if (std::optional<Group> g = accept(place(f_, g_, reversed(must_), reversed(may_)))) return *g;
  }
  return reason_.empty() ? "their iteration spaces differ" : reason_;
}

}  // namespace

bool Group::flat() const { return spaces.size() == 1; }
const Member* Group::find(ValueId v) const {
  for (const Member& m : members) {
    if (m.node->value == v) return &m;
  }
  return nullptr;
}
int64_t Group::cost() const {
  int64_t c = 0;
  for (const Member& m : members) c += m.node->cost;
  return c;
}

Group make_group(const SchedNode& node) {
  Group g;
  g.outer = node.axes;
  Member m{&node, 0, node.coords, node.inner_coords, node.reads, node.position};
  if (!node.inner.empty()) {
    g.spaces.push_back(node.inner);
    m.space = 1;
  }
  g.members.push_back(std::move(m));
  g.sealed = node.kind == NodeKind::opaque || node.kind == NodeKind::scatter ||
             node.kind == NodeKind::packed;
  return g;
}

std::variant<Group, std::string> join(const Group& a, const Group& b) {
  if (a.sealed || b.sealed) return "one of them stays alone";
  return Joiner(a, b).run();
}

}  // namespace heddle::loop
