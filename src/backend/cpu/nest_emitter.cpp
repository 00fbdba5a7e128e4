#include "backend/cpu/nest_emitter.h"

#include "backend/cpu/run_context.h"
#include "base/check.h"

#include <algorithm>

namespace heddle::cpu {

using ir::Axis;
using ir::AxisKind;
using ir::BufferRole;
using llvm::Value;

namespace {

// Sums of floats restart after so many additions in one accumulator: the error grows with this and
// the number of blocks, not with the length.
constexpr int64_t kSumBlock = 128;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kSmallPhase = 4096;  // elements below which a phase is not worth another function

}  // namespace

FrameLayout::FrameLayout(const ir::Kernel& kernel, int row_slots) {
  buffers = 0;
  symbols = static_cast<int>(kernel.buffers.size());
  block = symbols + static_cast<int>(kernel.symbols.size());
  partials = block + 1;
  rows = partials + 1;
  size = rows + row_slots;
}

int NestEmitter::row_slots(const ir::Nest& nest) {
  int n = 0;
  for (const ir::Phase& p : nest.phases) n += 2 * static_cast<int>(p.reductions.size());
  return n;
}

NestEmitter::NestEmitter(EmitContext& e, const ir::Nest& nest, const FrameLayout& layout, int index)
    : e_(e), nest_(nest), layout_(layout), index_(index) {
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
  b.CreateRetVoid();
  b.SetInsertPoint(entry);
  b.CreateBr(start);
  e_.f = outside;
  rows_ = std::move(rows);
  b.restoreIP(before);
  return state.function;
}

// Small work stays on this thread without a further call.
void NestEmitter::fork(llvm::Function* function, Value* count, Value* work) {
  auto& b = e_.b;
  llvm::BasicBlock *here = e_.block("here"), *there = e_.block("there"),
                   *after = e_.block("joined");
  b.CreateCondBr(b.CreateICmpSLT(work, e_.i64(kForkPicoseconds)), here, there);
  b.SetInsertPoint(here);
  b.CreateCall(function, {e_.f->context, e_.f->frame, e_.i64(0), count});
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

void NestEmitter::each_row(const std::vector<Axis>& axes, Value* blocks, Value* begin, Value* end,
                           const Env& env, const std::function<void(Env&, Value*)>& f) {
  auto& b = e_.b;
  std::vector<Value*> extents;
  for (const Axis& a : axes) extents.push_back(e_.expr(a.extent, env));
  if (blocks != nullptr) extents.push_back(blocks);
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
    f(row, blocks != nullptr ? at.back() : nullptr);
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
  if (loop.lanes > 1 && !s.narrow) {
    Value* n = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateSub(hi, lo), e_.i64(0));
    auto end_of = [&](int64_t step) { return b.CreateAdd(lo, b.CreateAnd(n, e_.i64(-step))); };
    Value* start = lo;
    if (loop.unroll > 1) {
      Value* middle = end_of(static_cast<int64_t>(loop.lanes) * loop.unroll);
      part(start, middle, loop.lanes, loop.unroll);
      start = middle;
    }
    Value* last = end_of(loop.lanes);
    part(start, last, loop.lanes, 1);
    lo = last;
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

void NestEmitter::emit_outer() {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  Value* rows = row_count(plan_.rows, e_.f->symbols);
  Value* extent = v.v ? e_.expr(v.extent, e_.f->symbols) : e_.i64(1);
  // Pieces of the vector axis: about 64 in all, at least 1024 points, whole cache lines.
  constexpr int64_t kPieces = 64, kPiecePoints = 1024, kRound = 256;
  Value* count = rows;
  Value* points = b.CreateMul(rows, extent);
  if (v.v) {
    Value* some = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, rows, e_.i64(1));
    Value* pieces = b.CreateUDiv(e_.i64(kPieces - 1), some);
    Value* length =
        b.CreateAdd(b.CreateUDiv(extent, b.CreateAdd(pieces, e_.i64(1))), e_.i64(kRound));
    length = b.CreateAnd(length, e_.i64(-kRound));
    length = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, length, e_.i64(kPiecePoints));
    b.CreateStore(length, slot(layout_.block));
    Value* blocks = b.CreateUDiv(b.CreateAdd(extent, b.CreateSub(length, e_.i64(1))), length);
    count = b.CreateMul(rows, blocks);
  }
  store_frame();
  llvm::Function* function =
      forked("nest", [&](Value* begin, Value* end) { outer_blocks(begin, end); });
  int64_t cost = std::max<int64_t>(1, static_cast<int64_t>(std::min(plan_.cost, 1e12)));
  fork(function, count, b.CreateMul(points, e_.i64(cost)));
  reload_scalars();
}

void NestEmitter::outer_blocks(Value* begin, Value* end) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  allocate_private(v.v ? v.lanes * v.unroll : 1);
  const Env& env = e_.f->symbols;
  if (!v.v) {
    each_row(plan_.rows, nullptr, begin, end, env, [&](Env& row, Value*) {
      Group g = group(row, nullptr, nullptr, 1, 1);
      phases(g, nullptr);
    });
    return;
  }
  Value* extent = e_.expr(v.extent, env);
  Value* length = b.CreateLoad(b.getInt64Ty(), slot(layout_.block));
  Value* blocks = b.CreateUDiv(b.CreateAdd(extent, b.CreateSub(length, e_.i64(1))), length);
  each_row(plan_.rows, blocks, begin, end, env, [&](Env& row, Value* block) {
    Value* from = b.CreateMul(block, length);
    Value* to = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(from, length), extent);
    for (const Segment& s : v.segments) {
      Value *lo = from, *hi = to;
      if (v.segments.size() > 1) {
        lo = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, from, e_.expr(s.range.lo, row));
        hi = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, e_.expr(s.range.hi, row));
      }
      each_group(v, s, lo, hi, row, [&](Group& g) { phases(g, &s.phases); });
    }
  });
}

// ---------------------------------------------------------------------------------------- phases

void NestEmitter::phases(Group& g, const std::vector<PhaseForm>* forms) {
  rows_.assign(nest_.phases.size(), {});
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    rows_[p].resize(nest_.phases[p].reductions.size());
    if (forms == nullptr && plan_.phases[p].vector.v) {
      forkable(p) ? fork_phase(p, *g.envs[0]) : vector_phase(p, *g.envs[0]);
    } else {
      serial_phase(p, g, forms != nullptr ? (*forms)[p] : plan_.phases[p].form);
    }
  }
}

void NestEmitter::set_rows(size_t p, size_t r, Values value, Values index) {
  rows_[p][r] = {std::move(value), std::move(index)};
}

std::vector<Accumulator> NestEmitter::accumulators(size_t p, int lanes, size_t count) {
  std::vector<Accumulator> out;
  for (const ir::Reduction& r : nest_.phases[p].reductions) {
    for (size_t k = 0; k < count; ++k) out.emplace_back(e_, r, lanes);
  }
  return out;
}

bool NestEmitter::floating_sum(size_t p) const {
  const auto& all = nest_.phases[p].reductions;
  return std::any_of(all.begin(), all.end(), [](const ir::Reduction& r) {
    return r.op == ir::ReduceOp::sum && is_real_float(r.type);
  });
}

bool NestEmitter::maybe_empty(size_t p) const {
  const auto& inner = nest_.phases[p].inner;
  return std::any_of(inner.begin(), inner.end(),
                     [](const Axis& a) { return a.extent.lower() <= 0; });
}

bool NestEmitter::has_scan_axis(size_t p) const {
  return !nest_.phases[p].inner.empty() && nest_.phases[p].inner.back().kind == AxisKind::scan;
}

void NestEmitter::reset_scans(size_t p, Group& g) {
  const ir::Body& body = nest_.phases[p].body;
  std::vector<DType> types(body.scans.size(), DType::unknown);
  for (const ir::Node& n : body.nodes) {
    if (n.op == ir::ScalarOp::scan) types[n.payload] = n.type;
  }
  carries_.assign(body.scans.size(), {});
  for (size_t s = 0; s < body.scans.size(); ++s) {
    if (types[s] == DType::unknown) continue;
    for (size_t k = 0; k < g.envs.size(); ++k) {
      auto* place = e_.local(e_.ops.widen(e_.ops.type(types[s]), g.lanes), "carry");
      e_.b.CreateStore(e_.ops.splat(e_.ops.identity(body.scans[s].op, types[s]), g.lanes), place);
      carries_[s].push_back(place);
    }
  }
}

// Loop variables, outermost first.
std::vector<SymbolRef> NestEmitter::loop_order(size_t p, const PhaseForm& form) const {
  std::vector<SymbolRef> out;
  for (const Axis& a : plan_.rows) out.push_back(a.var);
  if (plan_.vector.v) out.push_back(plan_.vector.v);
  const PhasePlan& plan = plan_.phases[p];
  for (const Axis& a : plan.vector.v ? plan.rows : form.loops) out.push_back(a.var);
  if (plan.vector.v) out.push_back(plan.vector.v);
  return out;
}

// One copy of the body after another, at the point that the environments describe.
void NestEmitter::copies(size_t p, Group& g, const PhaseForm& form,
                         std::vector<Accumulator>* accumulators) {
  const ir::Phase& phase = nest_.phases[p];
  size_t count = g.envs.size();
  std::vector<SymbolRef> order = loop_order(p, form);
  for (const BodyForm& copy : form.copies) {
    BodySite site;
    site.body = &phase.body;
    site.form = &copy;
    site.lanes = g.lanes;
    site.v = g.v;
    site.first = g.first;
    site.order = order;
    for (auto& env : g.envs) site.instances.push_back(env.get());
    site.private_lanes = plan_.vector.v ? g.lanes * static_cast<int>(count) : 1;
    if (g.main && phase.body.nodes.size() > 8) site.prefetch = kPrefetchBytes;
    site.row = [&](const ir::RowRef& ref, size_t k) {
      const Values& v = rows_[ref.phase][ref.reduction][ref.component];
      return v.size() == 1 ? v[0] : v[k];
    };
    site.scan = [&](uint32_t scan, DType type, Value* value, size_t k) {
      auto* place = carries_[scan][k];
      Value* before = e_.b.CreateLoad(place->getAllocatedType(), place);
      Value* now =
          e_.ops.combine(phase.body.scans[scan].op, type, before, e_.ops.splat(value, g.lanes));
      e_.b.CreateStore(now, place);
      return now;
    };
    BodyEmitter emitter(e_, std::move(site));
    emitter.run();
    for (size_t r = 0; r < phase.reductions.size(); ++r) {
      const Values& values = emitter.values(phase.reductions[r].value);
      if (accumulators == nullptr) {
        bool arg = phase.reductions[r].op == ir::ReduceOp::argmax ||
                   phase.reductions[r].op == ir::ReduceOp::argmin;
        set_rows(p, r, values, arg ? Values{e_.i64(0)} : Values{});
        continue;
      }
      for (size_t k = 0; k < count; ++k) {
        Accumulator& a = (*accumulators)[r * count + k];
        Value* index =
            a.arg() ? e_.expr(copy.exprs.back(), *g.envs[k], g.v.get(), g.lanes) : nullptr;
        a.add(values[k], index);
      }
    }
  }
}

void NestEmitter::serial_phase(size_t p, Group& g, const PhaseForm& form) {
  const ir::Phase& phase = nest_.phases[p];
  if (phase.inner.empty()) {
    copies(p, g, form, nullptr);
    return;
  }
  size_t count = g.envs.size();
  std::vector<Accumulator> accs = accumulators(p, g.lanes, count);
  serial_loops(p, g, form, 0, accs);
  for (size_t r = 0; r < phase.reductions.size(); ++r) {
    Values value, index;
    for (size_t k = 0; k < count; ++k) {
      FoldValue v =
          Accumulator::finish(e_, phase.reductions[r], accs[r * count + k].get(), maybe_empty(p));
      value.push_back(v.value);
      index.push_back(v.index);
    }
    set_rows(p, r, value, accs[r * count].arg() ? index : Values{});
  }
}

void NestEmitter::serial_loops(size_t p, Group& g, const PhaseForm& form, size_t level,
                               std::vector<Accumulator>& accs) {
  auto& b = e_.b;
  if (level == form.loops.size()) {
    copies(p, g, form, &accs);
    return;
  }
  const Axis& axis = form.loops[level];
  bool innermost = level + 1 == form.loops.size();
  if (innermost && has_scan_axis(p)) reset_scans(p, g);
  Value* extent = e_.expr(axis.extent, *g.envs[0]);
  auto run = [&](Value* lo, Value* hi, std::vector<Accumulator>& into) {
    e_.loop(lo, hi, 1, [&](Value* i) {
      for (auto& env : g.envs) env->set(*axis.var, i);
      serial_loops(p, g, form, level + 1, into);
    });
  };
  if (!innermost || !floating_sum(p) || axis.extent.constant_or(INT64_MAX) <= 2 * kSumBlock) {
    run(e_.i64(0), extent, accs);
    return;
  }
  Value* blocks = b.CreateUDiv(b.CreateAdd(extent, e_.i64(kSumBlock - 1)), e_.i64(kSumBlock));
  e_.loop(e_.i64(0), blocks, 1, [&](Value* block) {
    std::vector<Accumulator> partial = accumulators(p, g.lanes, g.envs.size());
    Value* lo = b.CreateMul(block, e_.i64(kSumBlock));
    Value* hi =
        b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(lo, e_.i64(kSumBlock)), extent);
    run(lo, hi, partial);
    for (size_t k = 0; k < accs.size(); ++k) accs[k].merge(partial[k].get());
  });
}

// ---------------------------------------------------------------------------------------- vectors
// along an inner axis

// Totals of a phase: for each reduction lanes, then one for the points that fill no vector.
void NestEmitter::vector_phase(size_t p, Env& env) {
  const ir::Phase& phase = nest_.phases[p];
  std::vector<Accumulator> total = accumulators(p, plan_.phases[p].vector.lanes, 1);
  for (Accumulator& a : accumulators(p, 1, 1)) total.push_back(a);
  vector_rows(p, env, 0, total);
  size_t n = phase.reductions.size();
  for (size_t r = 0; r < n; ++r) {
    const ir::Reduction& red = phase.reductions[r];
    FoldValue lanes = Accumulator::across_lanes(e_, red, total[r].get());
    FoldValue v = Accumulator::finish(
        e_, red, Accumulator::combine(e_, red, lanes, total[n + r].get()), maybe_empty(p));
    set_rows(p, r, {v.value}, v.index != nullptr ? Values{v.index} : Values{});
  }
}

void NestEmitter::vector_rows(size_t p, Env& env, size_t level, std::vector<Accumulator>& total) {
  const PhasePlan& plan = plan_.phases[p];
  if (level == plan.rows.size()) {
    vector_row(p, env, e_.i64(0), e_.expr(plan.vector.extent, env), total);
    return;
  }
  e_.loop(e_.i64(0), e_.expr(plan.rows[level].extent, env), 1, [&](Value* i) {
    Env row(&env);
    row.set(*plan.rows[level].var, i);
    vector_rows(p, row, level + 1, total);
  });
}

void NestEmitter::vector_row(size_t p, Env& env, Value* lo, Value* hi,
                             std::vector<Accumulator>& total) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.phases[p].vector;
  for (const Segment& s : v.segments) {
    Value *from = lo, *to = hi;
    if (v.segments.size() > 1) {
      from = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, lo, e_.expr(s.range.lo, env));
      to = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, hi, e_.expr(s.range.hi, env));
    }
    if (!floating_sum(p) || v.extent.constant_or(INT64_MAX) <= 2 * kSumBlock * v.lanes * v.unroll) {
      vector_blocks(p, s, env, from, to, total);
      continue;
    }
    int64_t step = kSumBlock * v.lanes * v.unroll;
    Value* length = b.CreateSub(to, from);
    Value* blocks = b.CreateSDiv(b.CreateAdd(length, e_.i64(step - 1)), e_.i64(step));
    e_.loop(e_.i64(0), blocks, 1, [&](Value* block) {
      Value* start = b.CreateAdd(from, b.CreateMul(block, e_.i64(step)));
      Value* stop =
          b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(start, e_.i64(step)), to);
      vector_blocks(p, s, env, start, stop, total);
    });
  }
}

void NestEmitter::vector_blocks(size_t p, const Segment& s, Env& env, Value* lo, Value* hi,
                                std::vector<Accumulator>& total) {
  const VectorLoop& v = plan_.phases[p].vector;
  size_t n = nest_.phases[p].reductions.size();
  auto unroll = static_cast<size_t>(v.unroll);
  std::vector<Accumulator> partial = accumulators(p, v.lanes, unroll);
  each_group(v, s, lo, hi, env, [&](Group& g) {
    std::vector<Accumulator> into;
    for (size_t r = 0; r < n; ++r) {
      for (size_t k = 0; k < g.envs.size(); ++k)
        into.push_back(g.lanes > 1 ? partial[r * unroll + k] : total[n + r]);
    }
    copies(p, g, s.phases[0], &into);
  });
  for (size_t r = 0; r < n; ++r) {
    for (size_t k = 0; k < unroll; ++k) total[r].merge(partial[r * unroll + k].get());
  }
}

// ---------------------------------------------------------------------------------------- one long
// phase on all threads

bool NestEmitter::forkable(size_t p) const {
  if (!nest_.outer.empty()) return false;
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
  e_.loop(begin, end, 1, [&](Value* c) {
    std::vector<Accumulator> total = accumulators(p, plan.vector.lanes, 1);
    for (Accumulator& a : accumulators(p, 1, 1)) total.push_back(a);
    Value* first = b.CreateUDiv(b.CreateMul(pieces, c), chunks);
    Value* last = b.CreateUDiv(b.CreateMul(pieces, b.CreateAdd(c, e_.i64(1))), chunks);
    each_row(plan.rows, blocks, first, last, env, [&](Env& row, Value* block) {
      Value* lo = b.CreateMul(block, e_.i64(kChunkPoints));
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
  });
}

}  // namespace heddle::cpu
