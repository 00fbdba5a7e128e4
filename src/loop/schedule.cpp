#include "loop/schedule.h"

#include "base/check.h"
#include "loop/group.h"
#include "loop/limits.h"
#include "loop/nest.h"

#include <algorithm>

namespace heddle::loop {

using base::cat;
using ir::OpId;
using ir::ValueId;

namespace {

// Names of the operations, for profiles: "k3_max_exp_sum".
std::string kernel_name(const ir::Graph& graph, const Group& group, size_t index) {
  std::string s = "k" + std::to_string(index);
  std::string last;
  for (const Member& m : group.members) {
    std::string op(graph.op(m.node->op).name);
    if (op == last) continue;
    last = op;
    if (s.size() + op.size() > 48) return s + "_etc";
    s += "_" + op;
  }
  return s;
}

// Values of each group that somebody outside of it reads.
std::vector<std::set<ValueId>> needed_values(const RegionPlan& plan, const Grouping& grouping) {
  std::vector<std::set<ValueId>> needed(grouping.groups.size());
  std::map<ValueId, size_t> made;
  for (size_t g = 0; g < grouping.groups.size(); ++g) {
    for (const Member& m : grouping.groups[g].members) {
      if (m.node->value == ir::kNone) continue;
      made[m.node->value] = g;
      if (plan.stored.contains(m.node->value)) needed[g].insert(m.node->value);
    }
  }
  for (size_t g = 0; g < grouping.groups.size(); ++g) {
    for (const Member& m : grouping.groups[g].members) {
      for (const Read& r : m.reads) {
        auto it = made.find(r.value);
        if (it != made.end() && it->second != g) needed[it->second].insert(r.value);
      }
    }
  }
  return needed;
}

std::vector<std::string> locations(const ir::Graph& graph, const Group& group) {
  std::vector<std::string> out;
  for (const Member& m : group.members) {
    for (const std::string& l : graph.op(m.node->op).locations) {
      if (std::find(out.begin(), out.end(), l) == out.end()) out.push_back(l);
    }
  }
  return out;
}

BoundKernel build_group(const ir::Graph& graph, const RegionPlan& plan, const Group& group,
                        const std::set<ValueId>& needed, std::vector<std::string> notes,
                        const ScheduleOptions& options, size_t index) {
  KernelBuilder kernel(graph);
  kernel.set_locations(locations(graph, group));
  const Member& first = group.members.front();
  if (first.node->kind == NodeKind::scatter) {
    build_scatter(first, plan.placement, kernel);
  } else if (first.node->kind == NodeKind::packed) {
    build_packed(first, plan.placement, kernel);
  } else {
    GroupPlan phases = plan_phases(group, needed, plan.placement);
    SplitDecision split = decide_split(group, options);
    bool scans = std::any_of(group.members.begin(), group.members.end(),
                             [](const Member& m) { return m.node->kind == NodeKind::scan; });
    if (split.split && scans && !can_split_scan(phases)) {
      notes.push_back("long scans run in one piece: other loops of the kernel depend on them");
      split.split = false;
    }
    if (split.split && scans && scans_in_one_pass(phases, options)) {
      notes.push_back("long scans run in one pass, block after block");
      split.split = false;
    }
    if (split.split) notes.push_back(split.reason);
    if (split.split && scans) {
      build_split_scan(phases, *split.blocking[1], kernel);
    } else if (split.split) {
      build_split(phases, split, kernel);
    } else {
      build_nest(phases, kernel);
    }
  }
  return kernel.finish(kernel_name(graph, group, index), std::move(notes));
}

}  // namespace

RegionSchedule schedule_region(const ir::Graph& graph, ir::RegionId region,
                               const std::set<OpId>& opaque, const ScheduleOptions& options) {
  RegionPlan plan = plan_region(graph, region, opaque, options);
  Grouping grouping = group_nodes(plan, graph, options);
  std::vector<std::set<ValueId>> needed = needed_values(plan, grouping);
  RegionSchedule out;
  out.aliases = plan.aliases;
  for (size_t g = 0; g < grouping.groups.size(); ++g) {
    const Group& group = grouping.groups[g];
    const SchedNode& first = *group.members.front().node;
    if (first.kind == NodeKind::opaque) {
      out.items.emplace_back(first.op);
      continue;
    }
    if (needed[g].empty()) continue;
    out.items.emplace_back(
        build_group(graph, plan, group, needed[g], grouping.notes[g], options, out.items.size()));
  }
  return out;
}

}  // namespace heddle::loop
