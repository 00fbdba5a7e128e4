// Loops of phases: one point after another, or vectors along an inner axis.
#include "backend/cpu/nest_emitter.h"

#include "base/check.h"
#include "ir/fold.h"

#include <algorithm>

namespace heddle::cpu {

using ir::Axis;
using ir::AxisKind;
using ir::BufferRole;
using llvm::Value;

void NestEmitter::phases(Group& g, const std::vector<PhaseForm>* forms) {
  rows_.assign(nest_.phases.size(), {});
  for (size_t p = 0; p < nest_.phases.size(); ++p)
    rows_[p].resize(nest_.phases[p].reductions.size());
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
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

// Each scan node has a running value of its own.
void NestEmitter::reset_scans(size_t p, Group& g) {
  const ir::Body& body = nest_.phases[p].body;
  carries_.assign(body.nodes.size(), {});
  for (size_t id = 0; id < body.nodes.size(); ++id) {
    const ir::Node& n = body.nodes[id];
    if (n.op != ir::ScalarOp::scan) continue;
    for (size_t k = 0; k < g.envs.size(); ++k) {
      auto* place = e_.local(e_.ops.widen(e_.ops.type(n.type), g.lanes), "carry");
      e_.b.CreateStore(e_.ops.splat(e_.ops.identity(body.scans[n.payload].op, n.type), g.lanes),
                       place);
      carries_[id].push_back(place);
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
    site.step = g.step;
    site.tile = g.tile;
    site.next_tile = g.tile && !repeated_;
    if (streaming_ && g.lanes > 1) site.stream = streamable(p);
    site.order = order;
    for (auto& env : g.envs) site.instances.push_back(env.get());
    site.private_lanes = plan_.vector.v ? g.lanes * static_cast<int>(count) : 1;
    if (g.main && &copy == &form.copies.back()) site.prefetch = fetched_ahead(p, copy);
    site.row = [&](const ir::RowRef& ref, size_t k) {
      const Values& v = rows_[ref.phase][ref.reduction][ref.component];
      return v.size() == 1 ? v[0] : v[k];
    };
    site.scan = [&](ir::NodeId id, Value* value, size_t k) {
      const ir::Node& n = phase.body.nodes[id];
      ir::ReduceOp op = phase.body.scans[n.payload].op;
      // Lanes are separate rows, or consecutive points of one.
      if (plan_.phases[p].vector.v)
        return scan_lanes(op, n.type, e_.ops.splat(value, g.lanes), carries_[id][0]);
      auto* place = carries_[id][k];
      Value* before = e_.b.CreateLoad(place->getAllocatedType(), place);
      Value* now = e_.ops.combine(op, n.type, before, e_.ops.splat(value, g.lanes));
      e_.b.CreateStore(now, place);
      return now;
    };
    BodyEmitter emitter(e_, std::move(site));
    emitter.run();
    for (size_t r = 0; r < phase.reductions.size(); ++r) {
      const Values& values = emitter.values(phase.reductions[r].value);
      if (accumulators == nullptr) {
        bool arg = is_arg(phase.reductions[r].op);
        set_rows(p, r, values, arg ? Values{e_.i64(0)} : Values{});
        continue;
      }
      for (size_t k = 0; k < count; ++k) {
        Accumulator& a = (*accumulators)[r * count + k];
        Value* index =
            a.arg() ? e_.expr(copy.exprs.back(), *g.envs[k], g.v.get(), g.lanes) : nullptr;
        const ir::Node& made = phase.body.nodes[phase.reductions[r].value];
        a.add(values[k], index, made.op == ir::ScalarOp::abs);
      }
    }
  }
}

// Inclusive scan of consecutive lanes (Hillis and Steele 1986), then the carry of what came before.
Value* NestEmitter::scan_lanes(ir::ReduceOp op, DType type, Value* v, llvm::AllocaInst* carry) {
  auto& b = e_.b;
  int lanes = ScalarOps::width(v);
  Value* none = e_.ops.splat(e_.ops.identity(op, type), lanes);
  for (int d = 1; d < lanes; d *= 2) {
    std::vector<int> picks;
    for (int l = 0; l < lanes; ++l) picks.push_back(l < d ? l : lanes + l - d);
    v = e_.ops.combine(op, type, b.CreateShuffleVector(none, v, picks), v);
  }
  Value* before = b.CreateLoad(carry->getAllocatedType(), carry);
  Value* last = lanes == 1 ? v : b.CreateExtractElement(v, static_cast<uint64_t>(lanes - 1));
  b.CreateStore(e_.ops.combine(op, type, before, last), carry);
  return e_.ops.combine(op, type, e_.ops.splat(before, lanes), v);
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
  if (has_scan_axis(p)) {
    Group row;
    row.envs.push_back(nullptr);
    reset_scans(p, row);
  }
  const VectorLoop& v = plan_.phases[p].vector;
  for (const Segment& s : v.segments) {
    Value *from = lo, *to = hi;
    if (v.segments.size() > 1) {
      from = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, lo, e_.expr(s.range.lo, env));
      to = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, hi, e_.expr(s.range.hi, env));
    }
    by_rows(s, {p}, env, [&](const Segment& part) { segment_row(p, part, env, from, to, total); });
  }
}

void NestEmitter::segment_row(size_t p, const Segment& s, Env& env, Value* from, Value* to,
                              std::vector<Accumulator>& total) {
  auto& b = e_.b;
  const VectorLoop& v = plan_.phases[p].vector;
  if (!floating_sum(p) || v.extent.constant_or(INT64_MAX) <= 2 * kSumBlock * v.lanes * v.unroll) {
    vector_blocks(p, s, env, from, to, total);
    return;
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

}  // namespace heddle::cpu
