// How one nest is spread over threads: element offsets, joined axes, lanes, and the mapping.
// Decided from index expressions alone.
#pragma once

#include "ir/kernel.h"

#include <memory>
#include <vector>

namespace heddle::cuda {

enum class Mapping : uint8_t {
  thread,  // a thread makes `lanes` neighbouring outer points and walks inner axes serially
  group,   // `group` threads make one outer point and share its inner points
  tile,    // a block makes tile_rows x tile_columns points; loads that run along another axis go
           // through shared memory
  chain,   // the blocks share one long scanned row: folds of their parts first, then the scan
};
inline constexpr int kTile = 32;
inline constexpr int kTileThreads = 256;
enum class AccessForm : uint8_t {
  uniform,  // the same element for all lanes
  vector,   // lanes are neighbours, the first one aligned
  scattered,
  local,  // row_local or scalar_local
};

// Forms of code that can be switched off, to measure them and to find faults.
enum Form : unsigned {
  kExpand = 1,     // several outer points a thread
  kPack = 2,       // their neighbouring elements as vectors
  kStreaming = 4,  // stores past the cache, where a block writes separated segments
  kLookback = 8,   // long scans in one pass
  kDivide = 16,    // by what a row shares: through its reciprocal, corrected to the exact quotient
  kBatch = 32,     // a thread loads several vectors, far from each other, before it computes
};
// Those that HEDDLE_CUDA_OFF names; read once.
unsigned forms_off();

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
  // Load nodes, and stores (by their place in the body), of neighbouring elements, the first one
  // aligned: one vector each.
  std::vector<std::vector<uint32_t>> load_packs, store_packs;
};
struct NestPlan {
  const ir::Nest* source = nullptr;
  std::shared_ptr<const ir::Nest>
      expanded;  // what `source` is, where a thread makes several points
  std::vector<LoopAxis> outer;
  std::vector<PhasePlan> phases;
  Mapping mapping = Mapping::thread;
  int lanes = 1;
  int group = 1;                // threads an outer point
  std::vector<Expr> divisible;  // by `lanes`, or this plan must not run
  bool replicated = false;      // makes scalar locals: every thread (block, for groups) computes it
  bool aligned = false;         // has vector accesses: base addresses must be aligned
  size_t tile_axis = 0;  // tile: the other outer axis, along which staged loads are contiguous
  int tile_rows = kTile, tile_columns = kTile;  // points along that axis and along the last one
  std::vector<uint32_t> staged;                 // tile: accesses of the phase
  bool streams = false;   // blocks write several separated segments: stores past the cache
  bool lookback = false;  // chain: one pass, each tile adds the totals of those before it
  int vectors = 1;        // of a thread: with lookback, or of a thread nest that loads them first

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
  int64_t threads = 0;      // that the device should have, at least
  unsigned off = 0;         // Form
};

// nullopt never: any nest has a plan with one lane.
NestPlan plan_nest(const ir::Kernel& kernel, const ir::Nest& nest, const NestLimits& limits);

// Of a chain with lookback: elements a tile, tiles at most.
inline constexpr int64_t kLookbackTiles = 8192;
int64_t lookback_tile(const NestPlan& plan);

Expr total(const std::vector<LoopAxis>& axes);
// Is e a multiple of n, perhaps on condition that sizes are (which are added)?
bool is_multiple(const Expr& e, int n, std::vector<Expr>& conditions);
// Vectors that a thread of the planned nest should load before it computes; `threads`: that the
// device should have, at least.
int batch_vectors(const ir::Kernel& kernel, const NestPlan& nest, int64_t threads);
// Neighbouring accesses of the nest's points as vectors of n.
void find_packs(const ir::Kernel& kernel, NestPlan& nest, int n);
// Bytes of an element in memory, and whether the buffer lives outside the kernel.
int memory_bytes(DType d);
DType memory_type(DType d);
bool is_local(const ir::Buffer& b);
// A constant, or the expression's upper bound where that is below `limit`, or `limit`.
int64_t bounded(const Expr& e, int64_t limit);

}  // namespace heddle::cuda
