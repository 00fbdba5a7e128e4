// The units of scheduling: values that are not inlined into their users, with what they read.
#pragma once

#include "loop/element.h"
#include "loop/schedule.h"
#include "loop/unify.h"

#include <set>
#include <string>
#include <vector>

namespace heddle::loop {

struct Read {
  ir::ValueId value = ir::kNone;
  std::vector<Expr> coords;
};

enum class NodeKind : uint8_t {
  pointwise,  // one element at each point of `axes`
  reduction,  // folds over `inner` at each point of `axes`
  scan,       // runs along the one axis of `inner`, at each point of `axes`
  scatter,    // combines rows into a copy of an operand
  packed,     // pointwise, several elements a byte
  opaque,     // an operation that stays one
};

struct SchedNode {
  NodeKind kind = NodeKind::pointwise;
  ir::OpId op = ir::kNone;
  ir::ValueId value = ir::kNone;  // the result (opaque: none)
  size_t order = 0;               // program order
  std::vector<LoopAxis> axes, inner;
  std::vector<Expr> coords;  // of the result, in the axes (a scan's: also the inner axis)
  std::vector<Expr>
      inner_coords;  // of a reduction, in the inner axes; of the element that a scan reads
  // Of a scan, or a fold whose result is an index (of more than one element): how many elements
  // come before a point in the order that the operation asks for. Loops must count it up from 0.
  std::optional<Expr> position;
  std::vector<Read> reads;        // of values that are not inlined
  std::vector<ir::OpId> after;    // operations that must have run
  int64_t cost = 0;               // of one point, see limits.h
  DType scalar = DType::unknown;  // of the value (reduction: the fold's accumulator; scan: the
                                  // element) in bodies
  bool pair = false;              // complex
};

enum class Placement : uint8_t { dead, leaf, node, inlined };

// What becomes of each value of a region.
struct RegionPlan {
  std::vector<Placement> placement;  // by value id; values of other regions are leaves
  std::vector<SchedNode> nodes;      // in program order
  std::set<ir::ValueId> stored;      // values that must lie in memory
  std::vector<std::pair<ir::ValueId, ir::ValueId>> aliases;
  std::vector<std::string> notes;  // why values became nodes
};
RegionPlan plan_region(const ir::Graph& graph, ir::RegionId region,
                       const std::set<ir::OpId>& opaque, const ScheduleOptions& options);

// How a reduction folds.
ir::ReduceOp reduce_op(const ir::Op& op);

// Simple scalar operations of a body: see limits.h.
int64_t body_cost(const ir::Body& body);

}  // namespace heddle::loop
