#include "backend/cpu/nest_plan.h"

#include "base/check.h"
#include "ir/fold.h"

#include <algorithm>
#include <cmath>

namespace heddle::cpu {

using heddle::DType;
using ir::Axis;
using ir::AxisKind;
using ir::ScalarOp;

namespace {

// Thresholds, in one place.
constexpr int64_t kUnrolledPoints = 64;  // a window of at most so many points becomes straight code
constexpr int64_t kUnrolledRow = 4;      // a row of more points stays a loop
constexpr int64_t kUnrolledNodes = 1200;    // and at most so many nodes
constexpr double kVectorInstruction = 250;  // picoseconds, about one cycle
constexpr double kGatherLane = 1.5;         // instructions a lane that is loaded or stored alone
constexpr double kScatterLane = 2;          // of a store
constexpr double kHorizontal = 20;          // instructions to fold the lanes of one accumulator
constexpr double kShortBody = 20;       // instructions: those of one row overlap those of the next
constexpr double kVectorsInFlight = 8;  // of a row: fewer of a longer body wait for each other
constexpr double kScanRounds = 8;       // instructions to scan the lanes of a vector
constexpr double kPrivateBytes =
    256 << 10;  // row_local memory of a group of points that still fits a cache
constexpr double kManyPoints = 128 << 10;  // of a nest: longer bodies pay from here on
constexpr int kSegmentDepth = 3;

class Planner {
 public:
  Planner(const ir::Kernel& kernel, const ir::Nest& nest, const CpuTarget& target,
          const PlanOptions& options)
      : kernel_(kernel), nest_(nest), target_(target), options_(options) {}
  NestPlan plan();

 private:
  void make_phases();
  void merge_outer();
  void merge_inner(size_t p);
  bool row(const PhaseForm& form) const;
  void unroll(size_t p);
  bool mergeable(const Axis& a, const Axis& b, const std::vector<const PhaseForm*>& forms,
                 const std::vector<Axis>* dependants) const;
  void choose();
  double outer_cost(size_t axis) const;
  double inner_cost(size_t p, int* best) const;
  double trip(size_t p) const;
  double lane_cost(const ir::Body& body, const PhaseForm& form, const SymbolRef& v,
                   const Expr& extent, int lanes) const;
  double access_cost(const ir::Body& body, uint32_t access, const Expr& offset, const SymbolRef& v,
                     int lanes, bool store) const;
  int lanes_of(const std::vector<const ir::Phase*>& phases) const;
  bool few_points() const;
  int unroll_of(const VectorLoop& loop, const std::vector<size_t>& phases, double instructions,
                bool heavy) const;
  void use_outer(size_t axis);
  void use_inner(size_t p, int axis);
  void find_tile();
  void segments(VectorLoop& loop, const std::vector<size_t>& phases,
                const std::vector<PhaseForm>& forms, const Range& range, int depth) const;

  const ir::Kernel& kernel_;
  const ir::Nest& nest_;
  const CpuTarget& target_;
  const PlanOptions& options_;
  NestPlan out_;
};

void Planner::make_phases() {
  out_.rows = nest_.outer;
  for (const ir::Phase& phase : nest_.phases) {
    PhasePlan p;
    p.form.loops = phase.inner;
    p.form.copies = {make_form(kernel_, phase.body)};
    p.has_arg = std::any_of(phase.reductions.begin(), phase.reductions.end(),
                            [](const ir::Reduction& r) { return is_arg(r.op); });
    if (p.has_arg) {
      Expr flat = 0;
      for (const Axis& a : phase.inner) flat = flat * a.extent + Expr(a.var);
      p.form.copies[0].exprs.push_back(flat);
    }
    out_.phases.push_back(std::move(p));
  }
}

// Can consecutive axes a, b become one? Every index must advance by the same step from the end of b
// to the next a.
bool Planner::mergeable(const Axis& a, const Axis& b, const std::vector<const PhaseForm*>& forms,
                        const std::vector<Axis>* dependants) const {
  if (a.kind != b.kind || (a.kind != AxisKind::mapped && a.kind != AxisKind::reduced)) return false;
  if (uses(b.extent, *a.var)) return false;
  auto fits = [&](const Expr& e) {
    if (!uses(e, *a.var) && !uses(e, *b.var)) return true;
    auto in_a = affine_in(e, a.var);
    if (!in_a || uses(in_a->first, *b.var)) return false;
    auto in_b = affine_in(in_a->second, b.var);
    return in_b && in_a->first == in_b->first * b.extent;
  };
  for (const PhaseForm* form : forms) {
    for (const BodyForm& copy : form->copies) {
      if (!std::all_of(copy.exprs.begin(), copy.exprs.end(), fits)) return false;
      if (!std::all_of(copy.offsets.begin(), copy.offsets.end(), fits)) return false;
    }
    for (const Axis& loop : form->loops) {
      if (uses(loop.extent, *a.var) || uses(loop.extent, *b.var)) return false;
    }
  }
  if (dependants == nullptr) return true;
  return std::none_of(dependants->begin(), dependants->end(), [&](const Axis& x) {
    return uses(x.extent, *a.var) || uses(x.extent, *b.var);
  });
}

Axis merged(const Axis& a, const Axis& b, const std::vector<PhaseForm*>& forms) {
  Expr extent = a.extent * b.extent;
  Axis out{make_loop_symbol(b.var->name, extent), extent, a.kind};
  for (PhaseForm* form : forms) {
    for (BodyForm& copy : form->copies)
      copy = substituted(substituted(copy, a.var, Expr(0)), b.var, Expr(out.var));
  }
  return out;
}

void Planner::merge_outer() {
  std::vector<PhaseForm*> forms;
  std::vector<const PhaseForm*> seen;
  for (PhasePlan& p : out_.phases) forms.push_back(&p.form), seen.push_back(&p.form);
  auto& rows = out_.rows;
  for (size_t k = rows.size(); k-- > 1;) {
    if (!mergeable(rows[k - 1], rows[k], seen, &rows)) continue;
    rows[k - 1] = merged(rows[k - 1], rows[k], forms);
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(k));
    k = std::min(k + 1, rows.size());
  }
}

void Planner::merge_inner(size_t p) {
  PhaseForm& form = out_.phases[p].form;
  for (size_t k = form.loops.size(); k-- > 1;) {
    PhaseForm rest = form;
    rest.loops.clear();
    if (!mergeable(form.loops[k - 1], form.loops[k], {&rest}, &form.loops)) continue;
    form.loops[k - 1] = merged(form.loops[k - 1], form.loops[k], {&form});
    form.loops.erase(form.loops.begin() + static_cast<std::ptrdiff_t>(k));
    k = std::min(k + 1, form.loops.size());
  }
}

// Is the one inner axis a row of its own, one element after another? Windows overlap instead: the
// next point of an outer axis lies within them.
bool Planner::row(const PhaseForm& form) const {
  if (form.loops.size() != 1) return false;
  const Axis& inner = form.loops[0];
  return std::any_of(
      form.copies[0].offsets.begin(), form.copies[0].offsets.end(), [&](const Expr& offset) {
        auto along = affine_in(offset, inner.var);
        if (!along || !along->first.is(1)) return false;
        return std::none_of(out_.rows.begin(), out_.rows.end(), [&](const Axis& o) {
          auto across = affine_in(along->second, o.var);
          return !across || (!across->first.is(0) &&
                             is_less_equal(inner.extent, across->first) != Ordering::yes);
        });
      });
}

// Small windows become straight code: their boundary conditions then depend on the vector axis
// alone.
void Planner::unroll(size_t p) {
  PhaseForm& form = out_.phases[p].form;
  const ir::Phase& phase = nest_.phases[p];
  if (form.loops.empty() || !phase.body.scans.empty()) return;
  int64_t points = 1;
  for (const Axis& a : form.loops) {
    int64_t n = a.extent.constant_or(kUnrolledPoints + 1);
    if (n < 1 || n > kUnrolledPoints || a.kind == AxisKind::scattered || a.kind == AxisKind::scan)
      return;
    points *= n;
    if (points > kUnrolledPoints) return;
  }
  if (points > kUnrolledRow && row(form)) return;
  if (points * static_cast<int64_t>(phase.body.nodes.size()) > kUnrolledNodes) return;
  for (const Axis& a : form.loops) {
    std::vector<BodyForm> copies;
    for (const BodyForm& copy : form.copies) {
      for (int64_t v = 0; v < *a.extent.constant(); ++v)
        copies.push_back(substituted(copy, a.var, Expr(v)));
    }
    form.copies = std::move(copies);
  }
  form.loops.clear();
}

// ---------------------------------------------------------------------------------------- choice

double Planner::trip(size_t p) const {
  double n = 1;
  for (const Axis& a : out_.phases[p].form.loops) n *= std::max(estimate(a.extent), 1.0);
  return n;
}

// Instructions for `lanes` points.
double Planner::access_cost(const ir::Body& body, uint32_t access, const Expr& offset,
                            const SymbolRef& v, int lanes, bool store) const {
  bool local = kernel_.buffers[body.accesses[access].buffer].role == ir::BufferRole::row_local;
  if (local || lanes == 1) return 1;
  std::vector<SymbolRef> symbols;
  collect_symbols(offset, symbols);
  bool indirect = std::any_of(symbols.begin(), symbols.end(),
                              [](const SymbolRef& s) { return s->kind == SymbolKind::indirect; });
  if (!uses(offset, *v) && !indirect) return 0.3;
  auto affine = indirect && !uses(offset, *v) ? std::nullopt : affine_in(offset, v);
  // An index that was read from memory may differ between lanes; count it as the same where v
  // occurs beside it.
  if (affine) {
    int64_t stride = std::abs(affine->first.constant_or(INT32_MAX));
    if (stride == 1) return 1;
    // Stores two apart are the parts of complex elements, which come in pairs.
    if (stride == 2 || (stride <= 4 && !store)) return static_cast<double>(stride) + 1;
  }
  return (store ? kScatterLane : kGatherLane) * lanes;
}

double Planner::lane_cost(const ir::Body& body, const PhaseForm& form, const SymbolRef& v,
                          const Expr& extent, int lanes) const {
  double instructions = 0;
  for (const BodyForm& copy : form.copies) {
    Resolver resolver(v, {0, extent});
    BodyForm resolved = resolver.resolve(body, copy);
    for (const ir::Node& n : body.nodes) {
      if (n.op == ScalarOp::load) {
        instructions += access_cost(body, n.payload, resolved.offsets[n.payload], v, lanes, false);
      } else if (n.op == ScalarOp::call || n.op == ScalarOp::rem) {
        instructions += 30.0 * lanes;
      } else if (n.op == ScalarOp::div || n.op == ScalarOp::sqrt || n.op == ScalarOp::inverse) {
        instructions += 5;
      } else if (n.op != ScalarOp::constant && n.op != ScalarOp::index && n.op != ScalarOp::row) {
        instructions += 1;
      }
    }
    for (const ir::Store& s : body.stores)
      instructions += access_cost(body, s.access, resolved.offsets[s.access], v, lanes, true);
  }
  return instructions + 1;
}

// Lanes of a vector: as many as the widest type that is computed with allows.
int Planner::lanes_of(const std::vector<const ir::Phase*>& phases) const {
  int bytes = 1;
  auto count = [&](DType d) {
    if (d == DType::boolean) return;
    bool half = d == DType::f16 || d == DType::bf16;
    bytes = std::max(bytes, half ? 4 : bit_width(d) / 8);
  };
  for (const ir::Phase* phase : phases) {
    for (const ir::Node& n : phase->body.nodes) {
      // Indices are i64 everywhere; they alone do not make the data wide.
      if (n.type != DType::i64 && n.type != DType::boolean) count(n.type);
    }
    for (const ir::Store& s : phase->body.stores)
      count(kernel_.buffers[phase->body.accesses[s.access].buffer].dtype);
    for (const ir::Reduction& r : phase->reductions) count(r.type);
  }
  return std::max(1, target_.vector_bytes / bytes);
}

double Planner::outer_cost(size_t axis) const {
  const Axis& v = out_.rows[axis];
  for (const Axis& other : out_.rows) {
    if (uses(other.extent, *v.var)) return INFINITY;
  }
  std::vector<const ir::Phase*> all;
  for (const ir::Phase& p : nest_.phases) all.push_back(&p);
  int lanes = lanes_of(all);
  double extent = std::max(estimate(v.extent), 1.0);
  double filled = extent >= lanes ? static_cast<double>(lanes) : 1.0;
  double total = 0;
  for (size_t p = 0; p < out_.phases.size(); ++p) {
    for (const Axis& loop : out_.phases[p].form.loops) {
      if (uses(loop.extent, *v.var)) return INFINITY;
    }
    total += trip(p) *
             lane_cost(nest_.phases[p].body, out_.phases[p].form, v.var, v.extent, lanes) / filled;
  }
  double bytes = 0;
  for (const ir::Buffer& b : kernel_.buffers) {
    if (b.role == ir::BufferRole::row_local)
      bytes += estimate(element_count(b.extents)) * lanes * bit_width(b.dtype) / 8;
  }
  return bytes > kPrivateBytes ? total * 3 : total;
}

double Planner::inner_cost(size_t p, int* best) const {
  const PhaseForm& form = out_.phases[p].form;
  const ir::Phase& phase = nest_.phases[p];
  *best = -1;
  SymbolRef none = make_loop_symbol("none", 1);
  double point = lane_cost(phase.body, form, none, 1, 1);
  double cost = trip(p) * point;
  int lanes = lanes_of({&phase});
  for (size_t k = 0; k < form.loops.size(); ++k) {
    const Axis& v = form.loops[k];
    // Scattered axes keep their order; so do the axes inside them.
    bool ordered = std::any_of(form.loops.begin(), form.loops.end(), [](const Axis& a) {
      return a.kind == AxisKind::scattered || a.kind == AxisKind::scan;
    });
    bool scan = v.kind == AxisKind::scan;
    // Equal values: the first one wins, so a lane must see its elements in order.
    if (out_.phases[p].has_arg && k + 1 != form.loops.size()) continue;
    if (!phase.body.scans.empty() && !scan) continue;
    if (ordered && !scan && (v.kind != AxisKind::mapped || k + 1 != form.loops.size())) continue;
    bool depends = std::any_of(form.loops.begin(), form.loops.end(),
                               [&](const Axis& a) { return uses(a.extent, *v.var); });
    double extent = std::max(estimate(v.extent), 1.0);
    if (depends || extent < lanes) continue;
    // What is left of a row that is known is computed point by point.
    double rest = v.extent.is_constant() ? std::fmod(extent, lanes) : 0;
    double instructions = lane_cost(phase.body, form, v.var, v.extent, lanes);
    if (instructions > kShortBody && v.extent.is_constant())
      instructions *= std::max(1.0, kVectorsInFlight * lanes / extent);
    double c = trip(p) / extent * ((extent - rest) * instructions / lanes + rest * point) +
               kHorizontal * static_cast<double>(phase.reductions.size()) +
               kScanRounds * trip(p) * static_cast<double>(phase.body.scans.size()) / lanes;
    if (c < cost) {
      cost = c;
      *best = static_cast<int>(k);
    }
  }
  return cost;
}

// Is it known that the nest has few points? More vectors side by side take longer to compile than
// they save.
bool Planner::few_points() const {
  double points = 0;
  for (const ir::Phase& phase : nest_.phases) {
    double inner = 1;
    for (const Axis& a : phase.inner) inner *= static_cast<double>(a.extent.constant_or(INT64_MAX));
    points = std::max(points, inner);
  }
  for (const Axis& a : nest_.outer) points *= static_cast<double>(a.extent.constant_or(INT64_MAX));
  return points < kManyPoints;
}

// Vectors side by side: each operation waits for the one before, four cycles and more, while a
// processor starts two a cycle. Folds keep accumulators beside them.
int Planner::unroll_of(const VectorLoop& loop, const std::vector<size_t>& phases,
                       double instructions, bool heavy) const {
  int unroll = instructions <= 20 ? 4 : instructions <= 80 ? 2 : 1;
  bool folds = std::any_of(phases.begin(), phases.end(), [&](size_t p) {
    return !nest_.phases[p].reductions.empty() || !nest_.phases[p].body.scans.empty();
  });
  // The order of a fold must not follow from how many rows there are beside its own.
  if (unroll == 2 && folds) {
    unroll = target_.wide() ? 4 : 2;
  } else if (unroll == 2 && !few_points()) {
    unroll = target_.wide() ? 8 : 3;
  }
  if (heavy) unroll = std::min(unroll, 2);
  double extent = std::max(estimate(loop.extent), 1.0);
  double most = std::min(extent, static_cast<double>(kPieceStep));
  while (unroll > 1 && most < static_cast<double>(loop.lanes) * unroll) unroll /= 2;
  return unroll;
}

// The part of `kept` between multiples of `lanes`, where little of it is lost: then no part of the
// axis is computed point by point, and stores are aligned.
Range whole_vectors(const Range& kept, const Range& all, int lanes) {
  auto lo = kept.lo.constant(), hi = kept.hi.constant(), end = all.hi.constant();
  if (!lo || !hi || !end || *lo < 0) return kept;
  int64_t from = (*lo + lanes - 1) / lanes * lanes;
  int64_t to = *hi == *end ? *hi : *hi / lanes * lanes;
  if (*hi != *end && *end % lanes != 0) return kept;
  return 10 * (to - from) >= 9 * (*hi - *lo) ? Range{from, to} : kept;
}

void Planner::segments(VectorLoop& loop, const std::vector<size_t>& phases,
                       const std::vector<PhaseForm>& forms, const Range& range, int depth) const {
  Resolver resolver(loop.v, range);
  std::vector<PhaseForm> resolved = forms;
  for (size_t p = 0; p < forms.size(); ++p) {
    for (BodyForm& copy : resolved[p].copies)
      copy = resolver.resolve(nest_.phases[phases[p]].body, copy);
  }
  if (!resolver.shrunk()) {
    loop.segments.push_back(
        {range, std::move(resolved), estimate(range.hi - range.lo) < loop.lanes});
    return;
  }
  Range kept = whole_vectors(resolver.range(), range, loop.lanes);
  auto side = [&](const Range& r) {
    if (r.lo == r.hi) return;
    if (depth < kSegmentDepth && estimate(r.hi - r.lo) >= 2.0 * loop.lanes) {
      segments(loop, phases, forms, r, depth + 1);
    } else {
      Segment s{r, forms, estimate(r.hi - r.lo) < loop.lanes};
      auto lo = r.lo.constant();
      s.single = loop.lanes > 1 && lo && *lo % loop.lanes == 0 && (r.hi - r.lo).is(loop.lanes);
      loop.segments.push_back(std::move(s));
    }
  };
  side({range.lo, kept.lo});
  loop.segments.push_back({kept, std::move(resolved)});
  side({kept.hi, range.hi});
}

void Planner::use_outer(size_t axis) {
  Axis v = out_.rows[axis];
  out_.rows.erase(out_.rows.begin() + static_cast<std::ptrdiff_t>(axis));
  VectorLoop& loop = out_.vector;
  loop.v = v.var;
  loop.extent = v.extent;
  std::vector<const ir::Phase*> all;
  for (const ir::Phase& p : nest_.phases) all.push_back(&p);
  loop.lanes = lanes_of(all);
  double most = 0;
  bool heavy = false;
  std::vector<size_t> phases;
  std::vector<PhaseForm> forms;
  for (size_t p = 0; p < out_.phases.size(); ++p) {
    most = std::max(
        most, lane_cost(nest_.phases[p].body, out_.phases[p].form, v.var, v.extent, loop.lanes));
    heavy = heavy || out_.phases[p].has_arg;
    phases.push_back(p);
    forms.push_back(out_.phases[p].form);
  }
  loop.unroll = unroll_of(loop, phases, most, heavy);
  segments(loop, phases, forms, {0, v.extent}, 0);
  find_tile();
}

// Where something is read along another axis than the vector's: squares of both.
void Planner::find_tile() {
  const VectorLoop& loop = out_.vector;
  constexpr int kWidest = 16;
  if (loop.segments.size() != 1 || loop.lanes < 4 || loop.lanes > kWidest) return;
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    if (!nest_.phases[p].inner.empty() || !nest_.phases[p].body.scans.empty()) return;
  }
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    for (const ir::Node& n : nest_.phases[p].body.nodes) {
      if (n.op != ScalarOp::load || n.a != ir::kNoNode) continue;
      const Expr& offset = loop.segments[0].phases[p].copies[0].offsets[n.payload];
      auto along = affine_in(offset, loop.v);
      if (!along || along->first.is(0) || along->first.is(1)) continue;
      for (size_t k = 0; k < out_.rows.size(); ++k) {
        auto across = affine_in(offset, out_.rows[k].var);
        if (across && across->first.is(1) && estimate(out_.rows[k].extent) >= loop.lanes) {
          out_.tile = static_cast<int>(k);
          return;
        }
      }
    }
  }
}

void Planner::use_inner(size_t p, int axis) {
  if (axis < 0) return;
  PhasePlan& plan = out_.phases[p];
  auto k = static_cast<size_t>(axis);
  plan.rows = plan.form.loops;
  plan.rows.erase(plan.rows.begin() + axis);
  VectorLoop& loop = plan.vector;
  loop.v = plan.form.loops[k].var;
  loop.extent = plan.form.loops[k].extent;
  loop.lanes = lanes_of({&nest_.phases[p]});
  double instructions = lane_cost(nest_.phases[p].body, plan.form, loop.v, loop.extent, loop.lanes);
  loop.unroll = unroll_of(loop, {p}, instructions, plan.has_arg);
  segments(loop, {p}, {plan.form}, {0, loop.extent}, 0);
}

void Planner::choose() {
  std::vector<int> inner(out_.phases.size(), -1);
  double inner_total = 0;
  for (size_t p = 0; p < out_.phases.size(); ++p) {
    double c = inner_cost(p, &inner[p]);
    out_.phases[p].cost = c * kVectorInstruction;
    inner_total += c;
  }
  double best = inner_total;
  int outer = -1;
  for (size_t k = out_.rows.size(); k-- > 0;) {
    double c = outer_cost(k);
    if (c < best) best = c, outer = static_cast<int>(k);
  }
  out_.cost = best * kVectorInstruction;
  if (outer >= 0) {
    use_outer(static_cast<size_t>(outer));
  } else {
    for (size_t p = 0; p < out_.phases.size(); ++p) use_inner(p, inner[p]);
  }
}

NestPlan Planner::plan() {
  make_phases();
  if (options_.scalar) {
    for (size_t p = 0; p < out_.phases.size(); ++p) out_.cost += trip(p) * 20000;
    return std::move(out_);
  }
  merge_outer();
  for (size_t p = 0; p < out_.phases.size(); ++p) {
    merge_inner(p);
    unroll(p);
  }
  choose();
  return std::move(out_);
}

}  // namespace

NestPlan plan_nest(const ir::Kernel& kernel, const ir::Nest& nest, const CpuTarget& target,
                   const PlanOptions& options) {
  return Planner(kernel, nest, target, options).plan();
}

}  // namespace heddle::cpu
