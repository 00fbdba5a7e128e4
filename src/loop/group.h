// Groups of nodes that become one kernel: a common outer space, inner spaces of its phases, and
// every node's coordinates written in their variables. Groups are joined by solving for the
// coordinates at which one reads what the other makes.
#pragma once

#include "loop/node.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

namespace heddle::loop {

// A node in a group. All expressions are written in the group's variables.
struct Member {
  const SchedNode* node = nullptr;
  size_t space = 0;  // 0: no inner axes (of a reduction: where it folds)
  std::vector<Expr> coords, inner_coords;
  std::vector<Read> reads;
  std::optional<Expr> position;  // see SchedNode
  // At which inner points is the result there? A reduction's is there at all of them.
  size_t result_space() const { return node->kind == NodeKind::reduction ? 0 : space; }
};

struct Group {
  std::vector<LoopAxis> outer;
  std::vector<std::vector<LoopAxis>> spaces{{}};
  std::vector<Member> members;  // in program order
  bool sealed = false;          // takes no other node
  bool flat() const;            // no inner axes at all
  const Member* find(ir::ValueId v) const;
  int64_t cost() const;
};
Group make_group(const SchedNode& node);

// The two as one group, or why not.
std::variant<Group, std::string> join(const Group& a, const Group& b);

// All nodes of a region in groups, in an order in which each comes after what it reads.
struct Grouping {
  std::vector<Group> groups;
  std::vector<std::vector<std::string>> notes;  // of each group: refusals
};
Grouping group_nodes(const RegionPlan& plan, const ir::Graph& graph,
                     const ScheduleOptions& options);

}  // namespace heddle::loop
