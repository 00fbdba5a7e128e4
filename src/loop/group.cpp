#include "loop/group.h"

#include "base/check.h"
#include "base/env.h"
#include "loop/limits.h"

#include <algorithm>
#include <map>

namespace heddle::loop {

using base::cat;
using ir::OpId;
using ir::ValueId;

namespace {

class Grouper {
 public:
  Grouper(const RegionPlan& plan, const ir::Graph& graph, const ScheduleOptions& options)
      : plan_(plan), graph_(graph), options_(options) {}
  Grouping run();

 private:
  void add(const SchedNode& n);
  void index_dependencies(const SchedNode& n);
  void merge_neighbours(const SchedNode& n);
  std::vector<size_t> candidates(const SchedNode& n) const;
  size_t root(size_t g) const {
    while (parent_[g] != g) g = parent_[g];
    return g;
  }
  bool reaches(size_t from, size_t to, bool direct) const;
  void raise(size_t g);
  bool cyclic(size_t a, size_t b) const { return reaches(a, b, false) || reaches(b, a, false); }
  std::string label(size_t g) const;
  std::vector<size_t> ordered() const;

  const RegionPlan& plan_;
  const ir::Graph& graph_;
  const ScheduleOptions& options_;
  std::vector<Group> groups_;  // one a node at first; merged ones are empty
  std::vector<size_t> parent_;
  std::vector<std::set<size_t>> needs_;        // by node: nodes that must come before
  std::vector<std::set<size_t>> group_needs_;  // by root group: groups (maybe stale ids)
  std::vector<std::vector<size_t>> users_;     // by root group: groups that need it (maybe stale)
  // By root group: above the level of each group that it needs, so that a search for a path stops
  // early.
  std::vector<size_t> level_;
  std::vector<std::vector<std::string>> notes_;
  std::map<ValueId, size_t> made_by_;  // node
  std::map<ValueId, std::vector<size_t>> read_by_;
  std::map<OpId, size_t> node_of_op_;
  std::optional<size_t> last_effect_;
};

void Grouper::index_dependencies(const SchedNode& n) {
  std::set<size_t>& needs = needs_[n.order];
  for (const Read& r : n.reads) {
    if (auto it = made_by_.find(r.value); it != made_by_.end()) needs.insert(it->second);
  }
  for (OpId o : n.after) {
    if (auto it = node_of_op_.find(o); it != node_of_op_.end()) needs.insert(it->second);
  }
  if (n.kind == NodeKind::opaque) {
    // Effects keep program order; an operation with regions may hold some.
    const ir::Op& op = graph_.op(n.op);
    if (op.def->effect != ops::Effect::none || !op.regions.empty()) {
      if (last_effect_) needs.insert(*last_effect_);
      last_effect_ = n.order;
    }
    for (ValueId v : op.results) made_by_[v] = n.order;
  } else {
    made_by_[n.value] = n.order;
  }
  node_of_op_[n.op] = n.order;
  needs.erase(n.order);
}

// Is there a path from group `from` down to what it needs, `to`? With direct == false: of more than
// one step.
bool Grouper::reaches(size_t from, size_t to, bool direct) const {
  std::vector<size_t> stack;
  std::set<size_t> seen;
  for (size_t s : group_needs_[from]) {
    size_t r = root(s);
    if (r == from || (r == to && !direct)) continue;
    if ((r == to || level_[r] > level_[to]) && seen.insert(r).second) stack.push_back(r);
  }
  while (!stack.empty()) {
    size_t g = stack.back();
    stack.pop_back();
    if (g == to) return true;
    for (size_t s : group_needs_[g]) {
      size_t r = root(s);
      if (r == to) return true;
      if (r != g && level_[r] > level_[to] && seen.insert(r).second) stack.push_back(r);
    }
  }
  return false;
}

// Lifts what needs `g` above it.
void Grouper::raise(size_t g) {
  std::vector<size_t> stack{g};
  while (!stack.empty()) {
    size_t from = stack.back();
    stack.pop_back();
    for (size_t u : users_[from]) {
      size_t r = root(u);
      if (r == from || level_[r] > level_[from]) continue;
      level_[r] = level_[from] + 1;
      stack.push_back(r);
    }
  }
}

std::string Grouper::label(size_t g) const {
  const Group& group = groups_[g];
  std::string s;
  for (const Member& m : group.members) {
    if (s.size() > 40) return s + "...";
    s += (s.empty() ? "" : "+") + std::string(graph_.op(m.node->op).name);
  }
  return s;
}

// Producers first (the last made first), then groups that read the same values.
std::vector<size_t> Grouper::candidates(const SchedNode& n) const {
  std::vector<size_t> out;
  size_t own = root(n.order);
  auto push = [&](size_t node) {
    size_t g = root(node);
    if (g != own && std::find(out.begin(), out.end(), g) == out.end()) out.push_back(g);
  };
  std::vector<size_t> makers(needs_[n.order].begin(), needs_[n.order].end());
  std::sort(makers.rbegin(), makers.rend());
  for (size_t m : makers) push(m);
  for (const Read& r : n.reads) {
    auto it = read_by_.find(r.value);
    if (it == read_by_.end()) continue;
    // Only the latest: a value that everybody reads would make this quadratic.
    size_t count = 0;
    for (size_t k = it->second.size(); k-- > 0 && count < 4; ++count) push(it->second[k]);
  }
  return out;
}

void Grouper::merge_neighbours(const SchedNode& n) {
  for (size_t g : candidates(n)) {
    g = root(g);
    size_t own = root(n.order);
    if (g == own || groups_[g].sealed) continue;
    if (cyclic(own, g)) {
      notes_[own].push_back(
          cat("not joined with ", label(g), ": another kernel runs between them"));
      continue;
    }
    std::variant<Group, std::string> joined = join(groups_[g], groups_[own]);
    if (const auto* why = std::get_if<std::string>(&joined)) {
      notes_[own].push_back(cat("not joined with ", label(g), ": ", *why));
      continue;
    }
    groups_[g] = std::get<Group>(std::move(joined));
    parent_[own] = g;
    size_t level = level_[g];
    for (size_t s : group_needs_[own])
      if (size_t r = root(s); r != g) level = std::max(level, level_[r] + 1);
    bool higher = level > level_[g] || !users_[own].empty();
    level_[g] = level;
    users_[g].insert(users_[g].end(), users_[own].begin(), users_[own].end());
    if (higher) raise(g);
    group_needs_[g].insert(group_needs_[own].begin(), group_needs_[own].end());
    notes_[g].insert(notes_[g].end(), notes_[own].begin(), notes_[own].end());
    groups_[own] = Group{};
  }
}

void Grouper::add(const SchedNode& n) {
  groups_.push_back(make_group(n));
  parent_.push_back(n.order);
  notes_.emplace_back();
  needs_.emplace_back();
  index_dependencies(n);
  group_needs_.push_back(needs_[n.order]);
  users_.emplace_back();
  level_.push_back(0);
  for (size_t s : needs_[n.order]) {
    size_t r = root(s);
    level_.back() = std::max(level_.back(), level_[r] + 1);
    users_[r].push_back(n.order);
  }
  if (options_.fusion && !groups_.back().sealed) merge_neighbours(n);
  for (const Read& r : n.reads) read_by_[r.value].push_back(n.order);
}

// Kahn's order, the group whose last node comes first in the program first.
std::vector<size_t> Grouper::ordered() const {
  std::map<size_t, std::set<size_t>> blockers;
  std::map<size_t, std::vector<size_t>> unblocks;
  std::map<size_t, size_t> last;
  for (size_t k = 0; k < parent_.size(); ++k) {
    size_t g = root(k);
    last[g] = std::max(last[g], k);
    blockers[g];
    for (size_t s : needs_[k]) {
      size_t r = root(s);
      if (r != g && blockers[g].insert(r).second) unblocks[r].push_back(g);
    }
  }
  std::set<std::pair<size_t, size_t>> ready;
  for (const auto& [g, b] : blockers) {
    if (b.empty()) ready.insert({last[g], g});
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    size_t g = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(g);
    for (size_t u : unblocks[g]) {
      blockers[u].erase(g);
      if (blockers[u].empty()) ready.insert({last[u], u});
    }
  }
  HD_CHECK(order.size() == blockers.size(), "kernels depend on each other in a circle");
  return order;
}

Grouping Grouper::run() {
  for (const SchedNode& n : plan_.nodes) add(n);
  Grouping out;
  for (size_t g : ordered()) {
    for (const std::string& note : notes_[g]) base::verbose("fusion", cat(label(g), ": ", note));
    out.groups.push_back(std::move(groups_[g]));
    out.notes.push_back(notes_[g]);
  }
  return out;
}

}  // namespace

Grouping group_nodes(const RegionPlan& plan, const ir::Graph& graph,
                     const ScheduleOptions& options) {
  return Grouper(plan, graph, options).run();
}

}  // namespace heddle::loop
