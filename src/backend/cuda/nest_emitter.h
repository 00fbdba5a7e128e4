// Writes one nest: the loop over outer points, phases, folds, scans. Internal to the emitter of
// nests.
#pragma once

#include "backend/cuda/kernel_context.h"
#include "ir/fold.h"

#include <optional>

namespace heddle::cuda {

const char* fold_name(ir::ReduceOp op);  // functor of the prelude
// The neutral element as bits. For float sums that is -0; what an empty sum gives is put right at
// the end.
uint64_t identity_bits(ir::ReduceOp op, DType d);

class NestEmitter {
 public:
  NestEmitter(KernelContext& k, const NestPlan& nest) : k_(k), nest_(nest) {}
  void emit() {
    k_.out.open();
    name_axes();
    switch (nest_.mapping) {
      case Mapping::thread:
        thread_nest();
        break;
      case Mapping::group:
        group_nest();
        break;
      case Mapping::tile:
        tile_nest();
        break;
      case Mapping::chain:
        chain_nest();
        break;
    }
    k_.out.close();
  }

 private:
  struct Fold {
    const ir::Reduction* r = nullptr;
    std::string acc, result, type;
    bool blocked = false;  // a long f32 sum: a second accumulator takes over each 32 steps
  };

  void name_axes();
  void decode_outer(const std::string& point, bool lanes);
  void thread_nest();
  void thread_vectors();
  void thread_phase(size_t p);
  void thread_loops(size_t p, size_t axis, std::vector<Fold>& folds);
  void thread_point(size_t p, std::vector<Fold>& folds);
  void tile_nest();
  void tile_decode();
  void tile_point(bool store_side);
  void tile_loads();
  int tile_trips() const {
    return nest_.tile_rows * nest_.tile_columns / (nest_.lanes * kTileThreads);
  }
  void chain_nest();
  void chain_tile(bool totals);
  void lookback_nest();
  void lookback_vectors(bool second);
  ir::NodeId only_scan() const;
  void group_nest();
  void plan_locals();
  void plan_caches();
  void declare_row_storage();
  void group_phase(size_t p);
  void group_plain(size_t p);
  void group_loop(size_t p, std::vector<Fold>& folds);
  void group_scan(size_t p, std::vector<Fold>& folds);
  void group_fold(size_t p, std::vector<Fold>& folds);
  void decode_inner(size_t p);
  void scan_node(size_t p, BodyEmitter& body, ir::NodeId n);
  void fold_lane(BodyEmitter& body, std::vector<Fold>& folds, const std::string& flat);
  std::vector<Fold> make_folds(size_t p, bool lane_results);
  void finish_fold(const Fold& f, size_t p, const std::string& lane, const std::string& count);
  bool needs_sync(size_t p) const;
  std::optional<int64_t> static_trips(size_t p) const;
  std::string inner_total(size_t p) const { return k_.names.text(total(nest_.phases[p].inner)); }
  int rows_per_block() const { return nest_.group <= 32 ? std::max(1, k_.block / nest_.group) : 1; }
  bool scanned(size_t p) const {
    return !nest_.phases[p].inner.empty() &&
           nest_.phases[p].inner.back().kind == ir::AxisKind::scan;
  }
  std::string identity(const ir::Reduction& r) const {
    std::string v = c_constant(r.type, identity_bits(r.op, r.type));
    return is_arg(r.op) ? base::cat("hd_at<", c_type(r.type), ">{", v, ", -1}") : v;
  }
  std::string leader() const {
    if (k_.single_thread) return "";
    return nest_.mapping == Mapping::thread ? "blockIdx.x == 0 && threadIdx.x == 0"
                                            : "blockIdx.x == 0";
  }

  KernelContext& k_;
  const NestPlan& nest_;
  RowCaches caches_;
  std::map<ir::BufferId, LocalPlace> locals_;
  bool needs_trailing_sync_ = false;
};

}  // namespace heddle::cuda
