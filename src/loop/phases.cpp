// The order of a group's loops: a member comes in the first phase over its space after what it
// reads is there.
#include "loop/nest.h"

#include <algorithm>

namespace heddle::loop {

namespace {

bool folds_in(const GroupPlan& plan, const PhasePlan& phase) {
  return std::any_of(phase.tasks.begin(), phase.tasks.end(), [&](const Task& t) {
    return !t.store_row && plan.member(t).node->kind == NodeKind::reduction;
  });
}

size_t place_task(GroupPlan& plan, Task task, size_t space, size_t from) {
  bool scans = !task.store_row && plan.member(task).node->kind == NodeKind::scan;
  bool folds = !task.store_row && plan.member(task).node->kind == NodeKind::reduction;
  for (size_t p = from; p < plan.phases.size(); ++p) {
    PhasePlan& phase = plan.phases[p];
    if (phase.space != space || (scans && folds_in(plan, phase)) || (folds && phase.scans))
      continue;
    phase.tasks.push_back(task);
    phase.scans = phase.scans || scans;
    return p;
  }
  plan.phases.push_back({space, {task}, scans});
  return plan.phases.size() - 1;
}

}  // namespace

GroupPlan plan_phases(const Group& group, const std::set<ir::ValueId>& needed,
                      const std::vector<Placement>& placement) {
  GroupPlan plan;
  plan.group = &group;
  plan.needed = needed;
  plan.placement = placement;
  std::vector<Task> late;
  for (size_t k = 0; k < group.members.size(); ++k) {
    const Member& m = group.members[k];
    size_t from = 0;
    for (const Read& r : m.reads) {
      const Member* made = group.find(r.value);
      if (made == nullptr) continue;
      size_t at = plan.phase_of[static_cast<size_t>(made - group.members.data())];
      bool same_points = made->node->kind != NodeKind::reduction && made->space == m.space;
      from = std::max(from, same_points ? at : at + 1);
    }
    plan.phase_of.push_back(place_task(plan, {k, false}, m.space, from));
    if (m.node->kind == NodeKind::reduction && needed.contains(m.node->value))
      late.push_back({k, true});
  }
  for (Task t : late) place_task(plan, t, 0, plan.phase_of[t.member] + 1);
  return plan;
}

}  // namespace heddle::loop
