// How one nest is spread over threads: element offsets, joined axes, lanes, and the mapping.
// Decided from index expressions alone.
#pragma once

#include "ir/kernel.h"

#include <vector>

namespace heddle::cuda {

enum class Mapping : uint8_t {
  thread,  // a thread makes `lanes` neighbouring outer points and walks inner axes serially
  group,   // `group` threads make one outer point and share its inner points
  tile,   // a block makes kTile x kTile points; loads that run along another axis go through shared
          // memory
  chain,  // the blocks share one long scanned row: folds of their parts first, then the scan
};
inline constexpr int kTile = 32;
inline constexpr int kTileThreads = 256;
enum class AccessForm : uint8_t {
  uniform,  // the same element for all lanes
  vector,   // lanes are neighbours, the first one aligned
  scattered,
  local,  // row_local or scalar_local
};

struct LoopAxis {
  SymbolRef var;
  Expr extent;
  ir::AxisKind kind = ir::AxisKind::mapped;
};
struct PhasePlan {
  const ir::Phase* source = nullptr;
  std::vector<LoopAxis> inner;
  std::vector<Expr> offsets;              // of accesses, in elements; 0 for locals
  std::vector<std::vector<Expr>> coords;  // of accesses, for bounds checks
  std::vector<Expr> exprs;                // of index nodes
  std::vector<AccessForm> forms;          // of accesses
  std::vector<bool> varying;              // of nodes: differs between lanes
};
struct NestPlan {
  const ir::Nest* source = nullptr;
  std::vector<LoopAxis> outer;
  std::vector<PhasePlan> phases;
  Mapping mapping = Mapping::thread;
  int lanes = 1;
  int group = 1;                // threads an outer point
  std::vector<Expr> divisible;  // by `lanes`, or this plan must not run
  bool replicated = false;      // makes scalar locals: every thread (block, for groups) computes it
  bool aligned = false;         // has vector accesses: base addresses must be aligned
  size_t tile_axis = 0;  // tile: the other outer axis, along which staged loads are contiguous
  std::vector<uint32_t> staged;  // tile: accesses of the phase

  Expr points() const;  // outer
  Expr units() const;   // of work to spread: outer points, tiles, or parts of a chained row
};

struct NestLimits {
  int max_lanes = 16;   // 1: no vectors
  int fixed_group = 0;  // > 0: groups are a warp or less, or exactly this many threads
  bool check_bounds = false;
  bool join_axes = true;
  bool whole_grid = false;  // the nest may use barriers between all blocks
  bool whole_block = true;  // ... of one block
};

// nullopt never: any nest has a plan with one lane.
NestPlan plan_nest(const ir::Kernel& kernel, const ir::Nest& nest, const NestLimits& limits);

Expr total(const std::vector<LoopAxis>& axes);
// Bytes of an element in memory, and whether the buffer lives outside the kernel.
int memory_bytes(DType d);
DType memory_type(DType d);
bool is_local(const ir::Buffer& b);
// A constant, or the expression's upper bound where that is below `limit`, or `limit`.
int64_t bounded(const Expr& e, int64_t limit);

}  // namespace heddle::cuda
