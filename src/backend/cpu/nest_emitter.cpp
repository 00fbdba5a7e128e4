#include "backend/cpu/nest_emitter.h"

#include "backend/cpu/run_context.h"
#include "base/check.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <bit>
#include <numeric>

namespace heddle::cpu {

using ir::Axis;
using ir::AxisKind;
using ir::BufferRole;
using llvm::Value;

FrameLayout::FrameLayout(const ir::Kernel& kernel, int row_slots) {
  buffers = 0;
  symbols = static_cast<int>(kernel.buffers.size());
  block = symbols + static_cast<int>(kernel.symbols.size());
  partials = block + 1;
  backwards = partials + 1;
  rows = backwards + 1;
  size = rows + row_slots;
}

int NestEmitter::row_slots(const ir::Nest& nest) {
  int n = 0;
  for (const ir::Phase& p : nest.phases) n += 2 * static_cast<int>(p.reductions.size());
  return n;
}

NestEmitter::NestEmitter(EmitContext& e, const ir::Nest& nest, const FrameLayout& layout, int index,
                         bool repeated)
    : e_(e), nest_(nest), layout_(layout), index_(index), repeated_(repeated) {
  PlanOptions options;
  options.scalar = e.check_bounds;
  plan_ = plan_nest(e.kernel, nest, e.target, options);
}

// ----------------------------------------------------------------------------------------
// functions and frames

Value* NestEmitter::slot(int index) {
  return e_.b.CreateConstGEP1_64(e_.b.getInt64Ty(), e_.f->frame, static_cast<uint64_t>(index));
}

void NestEmitter::store_frame() {
  auto& b = e_.b;
  for (size_t k = 0; k < e_.kernel.buffers.size(); ++k) {
    Value* address = e_.f->buffers[k];
    if (address == nullptr) continue;
    if (e_.kernel.buffers[k].role == BufferRole::scalar_local) {
      llvm::Type* type = e_.ops.memory_type(e_.kernel.buffers[k].dtype);
      b.CreateStore(b.CreateLoad(type, address), slot(static_cast<int>(k)));
    } else {
      b.CreateStore(address, slot(static_cast<int>(k)));
    }
  }
  int at = layout_.rows;
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    for (size_t r = 0; r < nest_.phases[p].reductions.size(); ++r) {
      for (size_t c = 0; c < 2; ++c, ++at) {
        if (p < rows_.size() && !rows_[p][r][c].empty()) b.CreateStore(rows_[p][r][c][0], slot(at));
      }
    }
  }
}

void NestEmitter::reload_scalars() {
  auto& b = e_.b;
  for (const ir::Phase& phase : nest_.phases) {
    for (const ir::Store& s : phase.body.stores) {
      ir::BufferId k = phase.body.accesses[s.access].buffer;
      if (e_.kernel.buffers[k].role != BufferRole::scalar_local) continue;
      llvm::Type* type = e_.ops.memory_type(e_.kernel.buffers[k].dtype);
      b.CreateStore(b.CreateLoad(type, slot(static_cast<int>(k))), e_.f->buffers[k]);
    }
  }
}

void NestEmitter::load_frame(FunctionState& state) {
  auto& b = e_.b;
  for (size_t k = 0; k < e_.kernel.buffers.size(); ++k) {
    Value* at = slot(static_cast<int>(k));
    // A scalar's place is its slot.
    bool scalar = e_.kernel.buffers[k].role == BufferRole::scalar_local;
    state.buffers.push_back(scalar ? at : b.CreateLoad(b.getPtrTy(), at));
  }
  for (size_t k = 0; k < e_.kernel.symbols.size(); ++k)
    state.symbols.set(*e_.kernel.symbols[k],
                      b.CreateLoad(b.getInt64Ty(), slot(layout_.symbols + static_cast<int>(k))));
}

llvm::Function* NestEmitter::forked(const char* name,
                                    const std::function<void(Value*, Value*)>& f) {
  auto& b = e_.b;
  llvm::IRBuilderBase::InsertPoint before = b.saveIP();
  FunctionState* outside = e_.f;
  auto rows = std::move(rows_);
  FunctionState state;
  llvm::Type* word = b.getInt64Ty();
  state.function = e_.create_function(base::cat(name, index_), b.getVoidTy(),
                                      {b.getPtrTy(), b.getPtrTy(), word, word}, false);
  state.context = state.function->getArg(0);
  state.frame = state.function->getArg(1);
  state.nothing = outside->nothing;
  e_.f = &state;
  e_.make_scopes(state);
  // Locals go to the entry block, code starts in the next one.
  llvm::BasicBlock* entry = e_.block("entry");
  llvm::BasicBlock* start = e_.block("start");
  b.SetInsertPoint(start);
  load_frame(state);
  f(state.function->getArg(2), state.function->getArg(3));
  if (streaming_) b.CreateIntrinsic(b.getVoidTy(), llvm::Intrinsic::x86_sse_sfence, {});
  b.CreateRetVoid();
  b.SetInsertPoint(entry);
  b.CreateBr(start);
  e_.f = outside;
  rows_ = std::move(rows);
  b.restoreIP(before);
  return state.function;
}

// Small work stays on this thread without a further call.
void NestEmitter::fork(Value* function, Value* count, Value* work) {
  auto& b = e_.b;
  llvm::BasicBlock *here = e_.block("here"), *there = e_.block("there"),
                   *after = e_.block("joined");
  b.CreateCondBr(b.CreateICmpSLT(work, e_.i64(kForkPicoseconds)), here, there);
  b.SetInsertPoint(here);
  auto* direct = llvm::FunctionType::get(
      b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()}, false);
  b.CreateCall(direct, function, {e_.f->context, e_.f->frame, e_.i64(0), count});
  b.CreateBr(after);
  b.SetInsertPoint(there);
  auto* type = llvm::FunctionType::get(
      b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty()},
      false);
  b.CreateCall(type, e_.service(kFork), {e_.f->context, function, e_.f->frame, count, work});
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

// ---------------------------------------------------------------------------------------- rows and
// groups

NestEmitter::Group NestEmitter::group(const Env& parent, const SymbolRef& v, Value* first,
                                      int lanes, int count) {
  Group g;
  g.lanes = lanes;
  g.v = v;
  g.first = first;
  g.step = lanes;
  for (int k = 0; k < count; ++k) {
    g.envs.push_back(std::make_unique<Env>(&parent));
    if (v) g.envs.back()->set(*v, e_.b.CreateAdd(first, e_.i64(static_cast<int64_t>(k) * lanes)));
  }
  return g;
}

Value* NestEmitter::row_count(const std::vector<Axis>& axes, const Env& env) {
  Value* n = e_.i64(1);
  for (const Axis& a : axes) n = e_.b.CreateMul(n, e_.expr(a.extent, env));
  return n;
}

void NestEmitter::each_row(const std::vector<Axis>& axes, const std::vector<Value*>& more,
                           Value* begin, Value* end, const Env& env, const RowBody& f) {
  auto& b = e_.b;
  std::vector<Value*> extents;
  for (const Axis& a : axes) extents.push_back(e_.expr(a.extent, env));
  extents.insert(extents.end(), more.begin(), more.end());
  std::vector<llvm::AllocaInst*> places;
  for (size_t k = 0; k < extents.size(); ++k) places.push_back(e_.local(b.getInt64Ty(), "row"));
  llvm::BasicBlock *decode = e_.block("rows"), *done = e_.block("rows.done");
  b.CreateCondBr(b.CreateICmpSLT(begin, end), decode, done);
  b.SetInsertPoint(decode);  // no extent is 0 here
  Value* rest = begin;
  for (size_t k = extents.size(); k-- > 0;) {
    b.CreateStore(k == 0 ? rest : b.CreateURem(rest, extents[k]), places[k]);
    if (k > 0) rest = b.CreateUDiv(rest, extents[k]);
  }
  e_.loop(begin, end, 1, [&](Value*) {
    Env row(&env);
    std::vector<Value*> at;
    for (size_t k = 0; k < extents.size(); ++k)
      at.push_back(b.CreateLoad(b.getInt64Ty(), places[k]));
    for (size_t k = 0; k < axes.size(); ++k) row.set(*axes[k].var, at[k]);
    f(row, {at.begin() + static_cast<std::ptrdiff_t>(axes.size()), at.end()});
    Value* carry = b.getTrue();
    for (size_t k = extents.size(); k-- > 0;) {
      Value* next = b.CreateAdd(at[k], b.CreateZExt(carry, b.getInt64Ty()));
      Value* wraps = b.CreateICmpEQ(next, extents[k]);
      b.CreateStore(k == 0 ? next : b.CreateSelect(wraps, e_.i64(0), next), places[k]);
      carry = b.CreateAnd(carry, wraps);
    }
  });
  b.CreateBr(done);
  b.SetInsertPoint(done);
}

void NestEmitter::each_group(const VectorLoop& loop, const Segment& s, Value* lo, Value* hi,
                             const Env& env, const std::function<void(Group&)>& f) {
  auto& b = e_.b;
  auto part = [&](Value* from, Value* to, int lanes, int count) {
    e_.loop(from, to, static_cast<int64_t>(lanes) * count, [&](Value* i) {
      Group g = group(env, loop.v, i, lanes, count);
      g.main = lanes == loop.lanes && count == loop.unroll;
      f(g);
    });
  };
  if (s.single) {
    // Indices are constants here. Pieces hold whole vectors, but for the last one.
    e_.when(b.CreateICmpSLT(lo, hi), [&] {
      Group g = group(env, loop.v, e_.expr(s.range.lo, env), loop.lanes, 1);
      f(g);
    });
    return;
  }
  if (loop.lanes > 1 && !s.narrow) {
    Value* n = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateSub(hi, lo), e_.i64(0));
    auto end_of = [&](int64_t step) {
      Value* rest = b.CreateURem(n, e_.i64(step));
      return b.CreateAdd(lo, b.CreateSub(n, rest));
    };
    // What a constant extent has no points for is not written. Pieces are multiples of vectors, and
    // of groups that are powers of two (kPieceStep). A rest that comes once is computed point by
    // point where it is short.
    int64_t group_points = static_cast<int64_t>(loop.lanes) * loop.unroll;
    bool whole = std::has_single_bit(static_cast<uint64_t>(group_points));
    int64_t known = loop.segments.size() == 1 ? loop.extent.constant_or(1) : 1;
    HD_CHECK(!whole || kPieceStep % group_points == 0, "a group of ", group_points, " points");
    bool once = &loop == &plan_.vector && plan_.rows.empty() && loop.segments.size() == 1 &&
                loop.unroll <= 4;
    Value* start = lo;
    if (loop.unroll > 1) {
      Value* middle = end_of(group_points);
      part(start, middle, loop.lanes, loop.unroll);
      start = middle;
    }
    if (loop.unroll == 1 || !whole || (known % group_points != 0 && !once)) {
      Value* last = end_of(loop.lanes);
      part(start, last, loop.lanes, 1);
      start = last;
      if (known % loop.lanes == 0) return;
    } else if (known % group_points == 0) {
      return;
    }
    lo = start;
  }
  part(lo, hi, 1, 1);
}

// Memory of row_local buffers for the points that this thread computes at a time.
void NestEmitter::allocate_private(int lanes) {
  auto& b = e_.b;
  std::vector<bool> used(e_.kernel.buffers.size());
  for (const ir::Phase& p : nest_.phases) {
    for (const ir::Access& a : p.body.accesses) used[a.buffer] = true;
  }
  Value* total = e_.i64(0);
  std::vector<std::pair<size_t, Value*>> places;
  for (size_t k = 0; k < e_.kernel.buffers.size(); ++k) {
    const ir::Buffer& buffer = e_.kernel.buffers[k];
    if (buffer.role != BufferRole::row_local || !used[k]) continue;
    int64_t bytes = lanes * bit_width(buffer.dtype) / 8;
    Value* size = b.CreateMul(e_.expr(element_count(buffer.extents), e_.f->symbols), e_.i64(bytes));
    size = b.CreateAnd(b.CreateAdd(size, e_.i64(127)), e_.i64(-64));
    places.emplace_back(k, total);
    total = b.CreateAdd(total, size);
  }
  if (places.empty()) return;
  auto* type = llvm::FunctionType::get(b.getPtrTy(), {b.getPtrTy(), b.getInt64Ty()}, false);
  Value* memory = b.CreateCall(type, e_.service(kScratch), {e_.f->context, total});
  for (auto& [k, offset] : places) e_.f->buffers[k] = b.CreateGEP(b.getInt8Ty(), memory, offset);
}

// ---------------------------------------------------------------------------------------- the nest

void NestEmitter::emit() {
  rows_.clear();
  if (nest_.outer.empty()) {
    allocate_private(1);
    Group g = group(e_.f->symbols, nullptr, nullptr, 1, 1);
    phases(g, nullptr);
  } else {
    emit_outer();
  }
}

std::vector<Axis> NestEmitter::outer_rows() const {
  std::vector<Axis> rows = plan_.rows;
  if (plan_.tile >= 0) rows.erase(rows.begin() + plan_.tile);
  return rows;
}

Value* NestEmitter::tile_count(const Env& env) {
  Value* extent = e_.expr(plan_.rows[static_cast<size_t>(plan_.tile)].extent, env);
  int64_t lanes = plan_.vector.lanes;
  return e_.b.CreateUDiv(e_.b.CreateAdd(extent, e_.i64(lanes - 1)), e_.i64(lanes));
}

void NestEmitter::emit_outer() {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  const Env& env = e_.f->symbols;
  Value* points = row_count(plan_.rows, env);
  Value* rows = row_count(outer_rows(), env);
  if (plan_.tile >= 0) rows = b.CreateMul(rows, tile_count(env));
  Value* count = rows;
  // Pieces of the vector axis: about 64 in all, at least 1024 points, whole cache lines.
  constexpr int64_t kPieces = 64, kPiecePoints = 1024;
  if (v.v) {
    Value* extent = e_.expr(v.extent, env);
    points = b.CreateMul(points, extent);
    Value* some = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, rows, e_.i64(1));
    Value* pieces = b.CreateUDiv(e_.i64(kPieces - 1), some);
    Value* length =
        b.CreateAdd(b.CreateUDiv(extent, b.CreateAdd(pieces, e_.i64(1))), e_.i64(kPieceStep));
    length = b.CreateAnd(length, e_.i64(-kPieceStep));
    length = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, length, e_.i64(kPiecePoints));
    b.CreateStore(length, slot(layout_.block));
    Value* blocks = b.CreateUDiv(b.CreateAdd(extent, b.CreateSub(length, e_.i64(1))), length);
    count = b.CreateMul(rows, blocks);
  }
  store_frame();
  fork(outer_function(), count, b.CreateMul(points, e_.i64(cost())));
  reload_scalars();
}

int64_t NestEmitter::cost() const {
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(plan_.cost, 1e12)));
}

// The function that is forked: past the cache where addresses allow it.
Value* NestEmitter::outer_function() {
  auto variant = [&](const char* name) {
    return forked(name, [&](Value* begin, Value* end) { outer_blocks(begin, end); });
  };
  Value* function = variant("nest");
  if (streams()) {
    streaming_ = true;
    Value* past_cache = variant("stream");
    streaming_ = false;
    function = e_.b.CreateSelect(streams_aligned(), past_cache, function);
  }
  return function;
}

void NestEmitter::swept(Value* begin, Value* end, const std::function<void(Value*, Value*)>& f) {
  auto& b = e_.b;
  constexpr double kSweptPoints = 64 << 10;  // of a nest: fewer stay in the caches anyway
  constexpr double kPiecePoints = 8 << 10;
  auto product = [](const std::vector<Axis>& axes) {
    double n = 1;
    for (const Axis& a : axes) n *= std::max(1.0, estimate(a.extent));
    return n;
  };
  double inner = 1;
  for (const ir::Phase& p : nest_.phases) inner = std::max(inner, product(p.inner));
  if (!repeated_ || product(nest_.outer) * inner < kSweptPoints) {
    f(begin, end);
    return;
  }
  double vector = plan_.vector.v ? std::max(1.0, estimate(plan_.vector.extent)) : 1.0;
  auto length = static_cast<int64_t>(std::max(1.0, kPiecePoints / (inner * vector)));
  Value* backwards =
      b.CreateICmpNE(b.CreateLoad(b.getInt64Ty(), slot(layout_.backwards)), e_.i64(0));
  Value* pieces =
      b.CreateUDiv(b.CreateAdd(b.CreateSub(end, begin), e_.i64(length - 1)), e_.i64(length));
  e_.loop(e_.i64(0), pieces, 1, [&](Value* i) {
    Value* mirrored = b.CreateSub(b.CreateSub(pieces, e_.i64(1)), i);
    Value* piece = b.CreateSelect(backwards, mirrored, i);
    Value* from = b.CreateAdd(begin, b.CreateMul(piece, e_.i64(length)));
    Value* to =
        b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(from, e_.i64(length)), end);
    f(from, to);
  });
}

void NestEmitter::outer_blocks(Value* begin, Value* end) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  allocate_private(v.v ? v.lanes * v.unroll : 1);
  const Env& env = e_.f->symbols;
  if (in_strips_) {
    Value* strip = b.CreateLoad(b.getInt64Ty(), slot(layout_.block));
    begin = b.CreateAdd(begin, strip), end = b.CreateAdd(end, strip);
  }
  if (!v.v) {
    swept(begin, end, [&](Value* first, Value* last) {
      each_row(plan_.rows, {}, first, last, env, [&](Env& row, const std::vector<Value*>&) {
        Group g = group(row, nullptr, nullptr, 1, 1);
        phases(g, nullptr);
      });
    });
    return;
  }
  Value* extent = e_.expr(v.extent, env);
  Value* length = b.CreateLoad(b.getInt64Ty(), slot(layout_.block));
  std::vector<Value*> more{
      b.CreateUDiv(b.CreateAdd(extent, b.CreateSub(length, e_.i64(1))), length)};
  if (plan_.tile >= 0) more.insert(more.begin(), tile_count(env));
  swept(begin, end, [&](Value* first, Value* last) {
    each_row(outer_rows(), more, first, last, env, [&](Env& row, const std::vector<Value*>& at) {
      Value* from = b.CreateMul(at.back(), length);
      Value* to = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(from, length), extent);
      plan_.tile >= 0 ? tile_piece(row, at[0], from, to) : outer_piece(row, from, to);
    });
  });
}

// Points from <= v < to of a row.
void NestEmitter::outer_piece(Env& row, Value* from, Value* to) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  if (by_lines()) {
    lines_piece(row, from, to);
    return;
  }
  std::vector<size_t> all(nest_.phases.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const Segment& s : v.segments) {
    Value *lo = from, *hi = to;
    if (v.segments.size() > 1) {
      lo = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, from, e_.expr(s.range.lo, row));
      hi = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, e_.expr(s.range.hi, row));
    }
    by_rows(s, all, row, [&](const Segment& part) {
      each_group(v, part, lo, hi, row, [&](Group& g) { phases(g, &part.phases); });
    });
  }
}

// The same of `lanes` rows at a time, square by square; rows that fill no square go one by one.
void NestEmitter::tile_piece(Env& row, Value* tile, Value* from, Value* to) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  const Axis& axis = plan_.rows[static_cast<size_t>(plan_.tile)];
  const Segment& s = v.segments[0];
  Value* first = b.CreateMul(tile, e_.i64(v.lanes));
  Value* extent = e_.expr(axis.extent, row);
  Value* last = b.CreateAdd(first, e_.i64(v.lanes));
  Value* full = b.CreateICmpSLE(last, extent);
  Value* rest = b.CreateSelect(full, last, first);  // rows from here are not in squares
  e_.when(full, [&] {
    Value* length = b.CreateAnd(b.CreateSub(to, from), e_.i64(-v.lanes));
    Value* whole = b.CreateAdd(from, length);
    e_.loop(from, whole, v.lanes, [&](Value* i) {
      Group g = group(row, v.v, i, v.lanes, v.lanes);
      g.step = 0;
      g.tile = axis.var;
      for (size_t k = 0; k < g.envs.size(); ++k) {
        g.envs[k]->set(*v.v, i);
        g.envs[k]->set(*axis.var, b.CreateAdd(first, e_.i64(static_cast<int64_t>(k))));
      }
      phases(g, &s.phases);
    });
    if (v.extent.constant_or(1) % v.lanes == 0) return;
    e_.loop(first, last, 1, [&](Value* j) {
      Env one(&row);
      one.set(*axis.var, j);
      e_.loop(whole, to, 1, [&](Value* i) {
        Group g = group(one, v.v, i, 1, 1);
        phases(g, &s.phases);
      });
    });
  });
  if (axis.extent.constant_or(1) % v.lanes == 0) return;
  Value* end = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, last, extent);
  e_.loop(rest, end, 1, [&](Value* j) {
    Env one(&row);
    one.set(*axis.var, j);
    outer_piece(one, from, to);
  });
}

}  // namespace heddle::cpu
