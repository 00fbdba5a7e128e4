// How a nest becomes loops: merged axes, the vector axis, unrolled windows, ranges in which
// boundaries resolve.
#pragma once

#include "backend/cpu/cpu_target.h"
#include "backend/cpu/form.h"

#include <vector>

namespace heddle::cpu {

// A phase's body over the inner axes that stay loops, and the copies of those that were unrolled
// (in order).
struct PhaseForm {
  std::vector<ir::Axis> loops;
  std::vector<BodyForm> copies;
};

// A part of the vector axis and the bodies specialised for it.
struct Segment {
  Range range;
  std::vector<PhaseForm> phases;
  bool narrow = false;  // too few points for a vector
  bool single = false;  // one whole vector at a constant position, a multiple of `lanes`
};

// Pieces of a vector axis that threads take are multiples of so many points; so groups of vectors
// have no more.
constexpr int64_t kPieceStep = 256;

struct VectorLoop {
  SymbolRef v;  // null: no vector axis
  Expr extent = 1;
  int lanes = 1;
  int unroll = 1;
  std::vector<Segment> segments;
};

struct PhasePlan {
  PhaseForm form;     // before specialisation
  VectorLoop vector;  // along an inner axis; v null: the loops of `form` are run one by one
  std::vector<ir::Axis> rows;  // the other inner axes, outermost first, where `vector` is used
  bool has_arg = false;        // its forms carry the flat index as the last of `exprs`
  double cost = 1;             // picoseconds an outer point
};

struct NestPlan {
  std::vector<ir::Axis> rows;  // outer axes without the vector axis
  VectorLoop vector;           // along an outer axis: all phases run on `lanes` points at once
  int tile = -1;  // of `rows`: squares along it and the vector axis are transposed in registers
  std::vector<PhasePlan> phases;
  double cost = 1;  // picoseconds an outer point
};

struct PlanOptions {
  bool scalar = false;  // one point at a time, axes as they are (bounds checking)
};
NestPlan plan_nest(const ir::Kernel& kernel, const ir::Nest& nest, const CpuTarget& target,
                   const PlanOptions& options);

}  // namespace heddle::cpu
