// One long phase on all threads: fixed chunks, whose results are combined in order.
#include "backend/cpu/nest_emitter.h"

#include "base/check.h"

#include <algorithm>

namespace heddle::cpu {

using ir::Axis;
using ir::AxisKind;
using ir::BufferRole;
using llvm::Value;

namespace {
constexpr int64_t kSmallPhase = 4096;  // elements below which a phase is not worth another function
}  // namespace

bool NestEmitter::forkable(size_t p) const {
  if (!nest_.outer.empty() || has_scan_axis(p)) return false;
  const PhasePlan& plan = plan_.phases[p];
  double points = estimate(plan.vector.extent);
  for (const Axis& a : plan.rows) {
    if (a.kind == AxisKind::scattered || a.kind == AxisKind::scan) return false;
    for (const Axis& other : plan.rows) {
      if (uses(other.extent, *a.var)) return false;
    }
    if (uses(plan.vector.extent, *a.var)) return false;
    points *= estimate(a.extent);
  }
  bool constant = plan.vector.extent.is_constant();
  return !(constant && points < kSmallPhase);
}

namespace {
constexpr int64_t kChunks = 256;  // pieces of a long reduction, whatever the number of threads
constexpr int64_t kChunkPoints = 16384;  // of the vector axis in one of them, at least
}  // namespace

void NestEmitter::fork_phase(size_t p, Env& env) {
  auto& b = e_.b;
  const PhasePlan& plan = plan_.phases[p];
  const auto& reductions = nest_.phases[p].reductions;
  Value* extent = e_.expr(plan.vector.extent, env);
  Value* rows = row_count(plan.rows, env);
  Value* blocks = b.CreateUDiv(b.CreateAdd(extent, e_.i64(kChunkPoints - 1)), e_.i64(kChunkPoints));
  Value* pieces = b.CreateMul(rows, blocks);
  Value* chunks = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, pieces, e_.i64(kChunks));
  auto words = static_cast<uint64_t>(kChunks) * std::max<size_t>(1, 2 * reductions.size());
  auto* partials = e_.local(llvm::ArrayType::get(b.getInt64Ty(), words), "partials");
  store_frame();
  b.CreateStore(partials, slot(layout_.partials));
  llvm::Function* function = forked(p == 0 ? "phase" : "later", [&](Value* begin, Value* end) {
    phase_chunks(p, begin, end, nullptr);
  });
  function->setName(base::cat("phase", index_, "_", p));
  Value* points = b.CreateMul(rows, extent);
  double per_point = std::max(1.0, plan.cost / std::max(
                                                   1.0, estimate(plan.vector.extent) * [&] {
                                                     double n = 1;
                                                     for (const Axis& a : plan.rows)
                                                       n *= std::max(1.0, estimate(a.extent));
                                                     return n;
                                                   }()));
  fork(function, chunks, b.CreateMul(points, e_.i64(static_cast<int64_t>(per_point))));
  std::vector<Accumulator> total = accumulators(p, 1, 1);
  size_t n = reductions.size();
  if (n == 0) return;
  e_.loop(e_.i64(0), chunks, 1, [&](Value* c) {
    for (size_t r = 0; r < n; ++r) {
      auto load = [&](llvm::Type* type, size_t component) {
        Value* at = b.CreateAdd(b.CreateMul(c, e_.i64(static_cast<int64_t>(2 * n))),
                                e_.i64(static_cast<int64_t>(2 * r + component)));
        return b.CreateLoad(type, b.CreateGEP(b.getInt64Ty(), partials, at));
      };
      FoldValue v{load(e_.ops.type(reductions[r].type), 0), nullptr};
      if (total[r].arg()) v.index = load(b.getInt64Ty(), 1);
      total[r].merge(v);
    }
  });
  for (size_t r = 0; r < n; ++r) {
    FoldValue v = Accumulator::finish(e_, reductions[r], total[r].get(), maybe_empty(p));
    set_rows(p, r, {v.value}, v.index != nullptr ? Values{v.index} : Values{});
  }
}

void NestEmitter::phase_chunks(size_t p, Value* begin, Value* end, Value* /*chunks*/) {
  auto& b = e_.b;
  const PhasePlan& plan = plan_.phases[p];
  const auto& reductions = nest_.phases[p].reductions;
  const Env& env = e_.f->symbols;
  // Results of earlier phases come through the frame.
  rows_.assign(nest_.phases.size(), {});
  int at = layout_.rows;
  for (size_t q = 0; q < nest_.phases.size(); ++q) {
    rows_[q].resize(nest_.phases[q].reductions.size());
    for (size_t r = 0; r < rows_[q].size(); ++r, at += 2) {
      if (q >= p) continue;
      rows_[q][r] = {
          Values{b.CreateLoad(e_.ops.type(nest_.phases[q].reductions[r].type), slot(at))},
          Values{b.CreateLoad(b.getInt64Ty(), slot(at + 1))}};
    }
  }
  Value* partials = b.CreateLoad(b.getPtrTy(), slot(layout_.partials));
  Value* extent = e_.expr(plan.vector.extent, env);
  Value* rows = row_count(plan.rows, env);
  Value* blocks = b.CreateUDiv(b.CreateAdd(extent, e_.i64(kChunkPoints - 1)), e_.i64(kChunkPoints));
  Value* pieces = b.CreateMul(rows, blocks);
  Value* chunks = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, pieces, e_.i64(kChunks));
  auto chunk = [&](Value* c) {
    std::vector<Accumulator> total = accumulators(p, plan.vector.lanes, 1);
    for (Accumulator& a : accumulators(p, 1, 1)) total.push_back(a);
    Value* first = b.CreateUDiv(b.CreateMul(pieces, c), chunks);
    Value* last = b.CreateUDiv(b.CreateMul(pieces, b.CreateAdd(c, e_.i64(1))), chunks);
    each_row(plan.rows, {blocks}, first, last, env,
             [&](Env& row, const std::vector<Value*>& piece) {
               Value* lo = b.CreateMul(piece[0], e_.i64(kChunkPoints));
               Value* hi = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                                   b.CreateAdd(lo, e_.i64(kChunkPoints)), extent);
               vector_row(p, row, lo, hi, total);
             });
    size_t n = reductions.size();
    for (size_t r = 0; r < n; ++r) {
      FoldValue lanes = Accumulator::across_lanes(e_, reductions[r], total[r].get());
      FoldValue v = Accumulator::combine(e_, reductions[r], lanes, total[n + r].get());
      Value* place = b.CreateAdd(b.CreateMul(c, e_.i64(static_cast<int64_t>(2 * n))),
                                 e_.i64(static_cast<int64_t>(2 * r)));
      b.CreateStore(v.value, b.CreateGEP(b.getInt64Ty(), partials, place));
      if (v.index != nullptr)
        b.CreateStore(v.index,
                      b.CreateGEP(b.getInt64Ty(), partials, b.CreateAdd(place, e_.i64(1))));
    }
  };
  swept(begin, end, [&](Value* lo, Value* hi) { e_.loop(lo, hi, 1, chunk); });
}

}  // namespace heddle::cpu
