// Loops of one nest.
#pragma once

#include "backend/cpu/body_emitter.h"
#include "backend/cpu/fold.h"
#include "backend/cpu/nest_plan.h"

#include <memory>

namespace heddle::cpu {

// Slots of the frame (8 bytes each) through which the control function passes its state to forked
// functions.
struct FrameLayout {
  int buffers = 0, symbols = 0, block = 0, partials = 0, backwards = 0, rows = 0, size = 0;
  FrameLayout(const ir::Kernel& kernel, int row_slots);
};

// Sums of floats restart after so many additions in one accumulator: the error grows with this and
// the number of blocks, not with the length.
inline constexpr int64_t kSumBlock = 128;

class NestEmitter {
 public:
  // `repeated`: inside a loop of the kernel.
  NestEmitter(EmitContext& e, const ir::Nest& nest, const FrameLayout& layout, int index,
              bool repeated);
  void emit();
  // Instead of emit() on this nest and then on `next`, with a barrier between them.
  bool blocks() const;  // many rows along one axis, none in vectors: strips may be of use
  bool strips_with(const NestEmitter& next) const;
  void emit_strips(NestEmitter& next);
  static int row_slots(const ir::Nest& nest);

 private:
  using Body = std::function<void()>;
  // Points computed side by side: an Env each.
  struct Group {
    std::vector<std::unique_ptr<Env>> envs;
    int lanes = 1;
    SymbolRef v;
    llvm::Value* first = nullptr;
    int64_t step = 0;   // between members along v
    SymbolRef tile;     // a square: members are consecutive along this axis
    bool main = false;  // the widest loop of its axis
  };
  Group group(const Env& parent, const SymbolRef& v, llvm::Value* first, int lanes, int count);

  // Runs f with the arguments of a forked function (begin, end) inside a new function, then
  // restores the old one.
  llvm::Function* forked(const char* name,
                         const std::function<void(llvm::Value*, llvm::Value*)>& f);
  void load_frame(FunctionState& state);
  void store_frame();
  void reload_scalars();
  void fork(llvm::Value* function, llvm::Value* count, llvm::Value* work);
  llvm::Value* slot(int index);

  void emit_outer();
  llvm::Value* outer_function();
  int64_t cost() const;  // picoseconds an outer point
  double block_bytes() const;
  void outer_blocks(llvm::Value* begin, llvm::Value* end);
  // Calls f with pieces of [begin, end): in a loop of the kernel every other iteration takes the
  // last piece first, because the caches still hold what the one before touched last.
  void swept(llvm::Value* begin, llvm::Value* end,
             const std::function<void(llvm::Value*, llvm::Value*)>& f);
  // Calls f with the environment of each row number in [begin, end); `more`: extents of further,
  // faster coordinates.
  using RowBody = std::function<void(Env&, const std::vector<llvm::Value*>&)>;
  void each_row(const std::vector<ir::Axis>& axes, const std::vector<llvm::Value*>& more,
                llvm::Value* begin, llvm::Value* end, const Env& env, const RowBody& f);
  llvm::Value* row_count(const std::vector<ir::Axis>& axes, const Env& env);
  // lo <= v < hi by groups: widest, one vector, single points.
  void each_group(const VectorLoop& loop, const Segment& s, llvm::Value* lo, llvm::Value* hi,
                  const Env& env, const std::function<void(Group&)>& f);
  void outer_piece(Env& row, llvm::Value* from, llvm::Value* to);
  // Rows inside all boundaries, and the others: f with a part of the vector axis and its bodies.
  void by_rows(const Segment& s, const std::vector<size_t>& phases, Env& row,
               const std::function<void(const Segment&)>& f);
  // Folds over slower axes, line by line.
  bool by_lines() const;
  void lines_piece(Env& row, llvm::Value* from, llvm::Value* to);
  void lines(Env& row, llvm::Value* lo, llvm::Value* hi, llvm::Value* line, int64_t count,
             bool first, const std::vector<llvm::AllocaInst*>& strips);
  void after_lines(Env& row, llvm::Value* lo, llvm::Value* hi,
                   const std::vector<llvm::AllocaInst*>& strips);
  void tile_piece(Env& row, llvm::Value* tile, llvm::Value* from, llvm::Value* to);
  std::vector<ir::Axis> outer_rows() const;  // without the tile's axis
  llvm::Value* tile_count(const Env& env);
  void allocate_private(int lanes);
  // Stores that may go past the cache: large results, whole aligned vectors.
  std::vector<bool> streamable(size_t p) const;
  bool streams() const;
  // What is fetched ahead of each access of a phase.
  std::vector<Prefetch> fetched_ahead(size_t p, const BodyForm& form) const;
  size_t fetching_phase(ir::BufferId buffer) const;
  llvm::Value* streams_aligned();

  void phases(Group& g, const std::vector<PhaseForm>* forms);
  llvm::Value* scan_lanes(ir::ReduceOp op, DType type, llvm::Value* v, llvm::AllocaInst* carry);
  void serial_phase(size_t p, Group& g, const PhaseForm& form);
  void serial_loops(size_t p, Group& g, const PhaseForm& form, size_t level,
                    std::vector<Accumulator>& inner);
  void copies(size_t p, Group& g, const PhaseForm& form, std::vector<Accumulator>* accumulators);
  void vector_phase(size_t p, Env& env);
  void vector_rows(size_t p, Env& env, size_t level, std::vector<Accumulator>& total);
  void vector_row(size_t p, Env& env, llvm::Value* lo, llvm::Value* hi,
                  std::vector<Accumulator>& total);
  void segment_row(size_t p, const Segment& s, Env& env, llvm::Value* lo, llvm::Value* hi,
                   std::vector<Accumulator>& total);
  void vector_blocks(size_t p, const Segment& s, Env& env, llvm::Value* lo, llvm::Value* hi,
                     std::vector<Accumulator>& total);
  bool forkable(size_t p) const;
  void fork_phase(size_t p, Env& env);
  void phase_chunks(size_t p, llvm::Value* begin, llvm::Value* end, llvm::Value* chunks);
  std::vector<Accumulator> accumulators(size_t p, int lanes, size_t count);
  void set_rows(size_t p, size_t r, Values value, Values index);
  bool floating_sum(size_t p) const;
  bool has_scan_axis(size_t p) const;
  bool maybe_empty(size_t p) const;
  std::vector<SymbolRef> loop_order(size_t p, const PhaseForm& form) const;
  void reset_scans(size_t p, Group& g);

  EmitContext& e_;
  const ir::Nest& nest_;
  const FrameLayout& layout_;
  int index_;
  bool repeated_;
  bool in_strips_ = false;  // the frame's block number is the first one's of a strip
  bool streaming_ = false;  // in the variant that is being written
  NestPlan plan_;
  // Of the point group that is being written: [phase][reduction][component] -> one value an
  // instance.
  std::vector<std::vector<std::array<Values, 2>>> rows_;
  std::vector<std::vector<llvm::AllocaInst*>>
      carries_;  // [node][instance] of the phase that is being written
};

}  // namespace heddle::cpu
