// From a group to the nests of one kernel.
#pragma once

#include "loop/group.h"
#include "loop/kernel_builder.h"

#include <set>

namespace heddle::loop {

// What one phase does: members in program order; `store_row`: writes a reduction's result, which an
// earlier phase folded.
struct Task {
  size_t member = 0;
  bool store_row = false;
};
struct PhasePlan {
  size_t space = 0;
  std::vector<Task> tasks;
  bool scans = false;
};
struct GroupPlan {
  const Group* group = nullptr;
  std::set<ir::ValueId> needed;  // values that must be written to memory
  std::vector<PhasePlan> phases;
  std::vector<size_t> phase_of;      // by member
  std::vector<Placement> placement;  // of the region's values
  const Member& member(const Task& t) const { return group->members[t.member]; }
};
GroupPlan plan_phases(const Group& group, const std::set<ir::ValueId>& needed,
                      const std::vector<Placement>& placement);

// One nest with all phases.
void build_nest(const GroupPlan& plan, KernelBuilder& kernel);

// How a long row is cut into blocks.
struct Blocking {
  size_t axis = 0;  // inner axes before it become outer ones, it is cut, those after it stay
  Expr chunk, blocks;
};
struct SplitDecision {
  bool split = false;
  std::string reason;
  std::vector<std::optional<Blocking>> blocking;  // by space
};
SplitDecision decide_split(const Group& group, const ScheduleOptions& options);
// How the inner axes of a space are cut in the nests over it.
struct Cut {
  std::vector<LoopAxis> outer, inner;  // block axes; what is left inside
  Bindings map;                        // the space's variables in theirs
  Expr base;                           // row-major position of the block's first point in the space
};
// A member's position (see SchedNode) in such a nest.
std::optional<Expr> position_in(const Cut& cut, const Member& m);
Cut cut_space(const std::vector<LoopAxis>& axes, const std::optional<Blocking>& b);
// A nest for each phase, with grid barriers between and partial results in scratch.
void build_split(const GroupPlan& plan, const SplitDecision& decision, KernelBuilder& kernel);

// A long scan: blocks are folded, then each scans on from the fold of those before it.
bool can_split_scan(const GroupPlan& plan);
// A device's emitter makes a group of this form in one pass over memory; a split one reads twice.
bool scans_in_one_pass(const GroupPlan& plan, const ScheduleOptions& options);
void build_split_scan(const GroupPlan& plan, const Blocking& blocking, KernelBuilder& kernel);

// Kernels of a single node with a form of their own.
void build_scatter(const Member& m, const std::vector<Placement>& placement, KernelBuilder& kernel);
void build_packed(const Member& m, const std::vector<Placement>& placement, KernelBuilder& kernel);

// ---- shared by the builders

// A reference to an earlier fold as a value of the node's dtype.
ir::Val row_value(ir::BodyBuilder& b, const KernelBuilder& kernel, const Member& m, uint32_t phase,
                  uint32_t first);
ir::ReduceOp reduce_op(const KernelBuilder& kernel, const Member& m);
ops::ScanRule scan_rule(const KernelBuilder& kernel, const Member& m);
// The element that a scan takes in at `position` along it, whose coordinates are `coords`.
ir::Val scan_element(ir::BodyBuilder& b, ElementBuilder& e, const KernelBuilder& kernel,
                     const Member& m, const std::vector<Expr>& coords, const Expr& position);
// Drops phases that do nothing and renumbers what refers to them.
void drop_empty_phases(ir::Nest& nest);

}  // namespace heddle::loop
