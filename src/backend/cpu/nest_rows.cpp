// Rows away from all boundaries without their tests; folds over slower axes line by line.
#include "backend/cpu/nest_emitter.h"

#include <algorithm>

namespace heddle::cpu {

using ir::AxisKind;
using ir::BufferRole;
using ir::ScalarOp;
using llvm::Value;

namespace {
constexpr double kManyPoints = 32 << 10;   // of a nest: from here on a second variant pays
constexpr size_t kVariantNodes = 3000;     // and up to so many nodes in it
constexpr size_t kRowTests = 24;           // conditions that are tested a row
constexpr int64_t kStripColumns = 2048;    // of partial folds, in the first cache
constexpr double kFewColumns = 512;        // these stay in registers over all lines
constexpr int64_t kLineAheadBytes = 1024;  // fetched ahead in each line
}  // namespace

// Comparisons that neither the vector axis nor an inner loop changes hold for most rows.
void NestEmitter::by_rows(const Segment& s, const std::vector<size_t>& phases, Env& row,
                          const std::function<void(const Segment&)>& f) {
  auto& b = e_.b;
  const SymbolRef& v = plan_.vector.v ? plan_.vector.v : plan_.phases[phases[0]].vector.v;
  double points = 1;
  for (const ir::Axis& a : nest_.outer) points *= std::max(1.0, estimate(a.extent));
  for (const ir::Axis& a : nest_.phases[phases[0]].inner)
    points *= std::max(1.0, estimate(a.extent));
  Segment inside = s;
  std::vector<Expr> tests;
  size_t nodes = 0;
  for (size_t i = 0; i < phases.size(); ++i) {
    const ir::Body& body = nest_.phases[phases[i]].body;
    for (BodyForm& copy : inside.phases[i].copies) {
      nodes += body.nodes.size();
      for (ir::NodeId id = 0; id < body.nodes.size(); ++id) {
        auto d = comparison(body, copy, id);
        if (copy.known[id] || !d || d->is_constant() || uses(*d, *v)) continue;
        std::vector<SymbolRef> symbols;
        collect_symbols(*d, symbols);
        bool known = std::all_of(symbols.begin(), symbols.end(), [&](const SymbolRef& x) {
          return x->kind != SymbolKind::indirect && row.find(x->id) != nullptr;
        });
        if (!known) continue;
        if (std::find(tests.begin(), tests.end(), *d) == tests.end()) tests.push_back(*d);
        copy.known[id] = 1;
      }
    }
  }
  if (tests.empty() || tests.size() > kRowTests || points < kManyPoints || nodes > kVariantNodes) {
    f(s);
    return;
  }
  Value* all = b.getTrue();
  for (const Expr& d : tests) all = b.CreateAnd(all, b.CreateICmpSGE(e_.expr(d, row), e_.i64(0)));
  llvm::BasicBlock *yes = e_.block("inside"), *no = e_.block("border"),
                   *after = e_.block("row.done");
  b.CreateCondBr(all, yes, no);
  b.SetInsertPoint(yes);
  f(inside);
  b.CreateBr(after);
  b.SetInsertPoint(no);
  f(s);
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

// A first phase that folds long lines into one, in the order of the lines: partial results stay in
// the first cache and memory is read in order, instead of a step to another page an element.
bool NestEmitter::by_lines() const {
  const VectorLoop& v = plan_.vector;
  if (!v.v || plan_.tile >= 0 || v.segments.size() != 1 || nest_.phases.size() < 2) return false;
  const ir::Phase& fold = nest_.phases[0];
  const PhaseForm& form = v.segments[0].phases[0];
  if (form.loops.size() != 1 || form.loops[0].kind != AxisKind::reduced ||
      form.copies.size() != 1 || fold.reductions.empty() || !fold.body.stores.empty() ||
      !fold.body.symbols.empty() || plan_.phases[0].has_arg || estimate(v.extent) < kFewColumns)
    return false;
  int64_t count = form.loops[0].extent.constant_or(0);
  if (count < 8 || (floating_sum(0) && count > 2 * kSumBlock)) return false;
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    const ir::Body& body = nest_.phases[p].body;
    if ((p > 0 && !nest_.phases[p].inner.empty()) || !body.scans.empty()) return false;
    for (const ir::Access& a : body.accesses) {
      if (e_.kernel.buffers[a.buffer].role == BufferRole::row_local) return false;
    }
  }
  bool reads = false;
  for (const ir::Node& n : fold.body.nodes) {
    if (n.op != ScalarOp::load) continue;
    auto along = affine_in(form.copies[0].offsets[n.payload], v.v);
    if (!along || !(along->first.is(1) || along->first.is(0))) return false;
    reads = reads || (along->first.is(1) && uses(along->second, *form.loops[0].var));
  }
  return reads;
}

void NestEmitter::lines_piece(Env& row, Value* from, Value* to) {
  auto& b = e_.b;
  const ir::Phase& fold = nest_.phases[0];
  int64_t count = *plan_.vector.segments[0].phases[0].loops[0].extent.constant();
  int64_t together = fold.body.nodes.size() <= 6 ? 8 : fold.body.nodes.size() <= 16 ? 4 : 2;
  std::vector<llvm::AllocaInst*> strips;
  for (const ir::Reduction& r : fold.reductions)
    strips.push_back(e_.local(
        llvm::ArrayType::get(e_.ops.type(r.type), static_cast<uint64_t>(kStripColumns)), "strip"));
  Value* columns = b.CreateSub(to, from);
  Value* blocks =
      b.CreateSDiv(b.CreateAdd(columns, e_.i64(kStripColumns - 1)), e_.i64(kStripColumns));
  e_.loop(e_.i64(0), blocks, 1, [&](Value* block) {
    Value* lo = b.CreateAdd(from, b.CreateMul(block, e_.i64(kStripColumns)));
    Value* hi =
        b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b.CreateAdd(lo, e_.i64(kStripColumns)), to);
    lines(row, lo, hi, e_.i64(0), together, true, strips);
    int64_t whole = count / together * together;
    e_.loop(e_.i64(together), e_.i64(whole), together,
            [&](Value* line) { lines(row, lo, hi, line, together, false, strips); });
    if (whole != count) lines(row, lo, hi, e_.i64(whole), count - whole, false, strips);
    after_lines(row, lo, hi, strips);
  });
}

// Adds lines line, line + 1, ... of the columns lo <= v < hi to the strips.
void NestEmitter::lines(Env& row, Value* lo, Value* hi, Value* line, int64_t count, bool first,
                        const std::vector<llvm::AllocaInst*>& strips) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  const ir::Phase& fold = nest_.phases[0];
  const PhaseForm& form = v.segments[0].phases[0];
  size_t n = fold.reductions.size();
  each_group(v, v.segments[0], lo, hi, row, [&](Group& g) {
    size_t vectors = g.envs.size();
    std::vector<Value*> places(n * vectors), values(n * vectors);
    for (size_t r = 0; r < n; ++r) {
      const ir::Reduction& red = fold.reductions[r];
      llvm::Type* type = e_.ops.type(red.type);
      llvm::Align align(std::max<uint64_t>(1, type->getPrimitiveSizeInBits() / 8));
      for (size_t k = 0; k < vectors; ++k) {
        size_t at = r * vectors + k;
        places[at] = b.CreateGEP(type, strips[r], b.CreateSub(g.envs[k]->find(v.v->id), lo));
        values[at] = first ? e_.ops.splat(e_.ops.identity(red.op, red.type), g.lanes)
                           : b.CreateAlignedLoad(e_.ops.widen(type, g.lanes), places[at], align);
      }
    }
    for (int64_t l = 0; l < count; ++l) {
      BodySite site;
      site.body = &fold.body;
      site.form = &form.copies[0];
      site.lanes = g.lanes;
      site.v = g.v;
      site.first = g.first;
      site.step = g.step;
      for (const ir::Axis& a : plan_.rows) site.order.push_back(a.var);
      site.order.push_back(form.loops[0].var);
      site.order.push_back(v.v);
      for (auto& env : g.envs) {
        env->set(*form.loops[0].var, b.CreateAdd(line, e_.i64(l)));
        site.instances.push_back(env.get());
      }
      if (g.main) site.prefetch.assign(fold.body.accesses.size(), {kLineAheadBytes, true});
      BodyEmitter emitter(e_, std::move(site));
      emitter.run();
      for (size_t r = 0; r < n; ++r) {
        const ir::Reduction& red = fold.reductions[r];
        for (size_t k = 0; k < vectors; ++k) {
          Value*& value = values[r * vectors + k];
          Value* x = e_.ops.splat(emitter.values(red.value)[k], g.lanes);
          value = e_.ops.combine(red.op, red.type, value, x);
        }
      }
    }
    for (size_t at = 0; at < values.size(); ++at) {
      llvm::Type* type = values[at]->getType()->getScalarType();
      b.CreateAlignedStore(values[at], places[at],
                           llvm::Align(std::max<uint64_t>(1, type->getPrimitiveSizeInBits() / 8)));
    }
  });
}

// The phases that read the folds.
void NestEmitter::after_lines(Env& row, Value* lo, Value* hi,
                              const std::vector<llvm::AllocaInst*>& strips) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.vector;
  const Segment& s = v.segments[0];
  each_group(v, s, lo, hi, row, [&](Group& g) {
    rows_.assign(nest_.phases.size(), {});
    for (size_t p = 0; p < nest_.phases.size(); ++p)
      rows_[p].resize(nest_.phases[p].reductions.size());
    for (size_t r = 0; r < strips.size(); ++r) {
      const ir::Reduction& red = nest_.phases[0].reductions[r];
      llvm::Type* type = e_.ops.type(red.type);
      Values folded;
      for (auto& env : g.envs) {
        Value* at = b.CreateGEP(type, strips[r], b.CreateSub(env->find(v.v->id), lo));
        llvm::Align align(std::max<uint64_t>(1, type->getPrimitiveSizeInBits() / 8));
        Value* x = b.CreateAlignedLoad(e_.ops.widen(type, g.lanes), at, align);
        folded.push_back(Accumulator::finish(e_, red, {x, nullptr}, maybe_empty(0)).value);
      }
      set_rows(0, r, std::move(folded), {});
    }
    for (size_t p = 1; p < nest_.phases.size(); ++p) serial_phase(p, g, s.phases[p]);
  });
}

}  // namespace heddle::cpu
