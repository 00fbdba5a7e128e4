#include "backend/cuda/nest_plan.h"

#include "backend/cuda/nest_expand.h"
#include "base/check.h"
#include "base/env.h"

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

namespace heddle::cuda {

using ir::AxisKind;
using ir::BufferRole;
using ir::ScalarOp;

Expr total(const std::vector<LoopAxis>& axes) {
  Expr n(1);
  for (const LoopAxis& a : axes) n = n * a.extent;
  return n;
}
Expr NestPlan::points() const { return total(outer); }
int64_t lookback_tile(const NestPlan& plan) {
  return int64_t{plan.group} * plan.lanes * plan.vectors;
}
Expr NestPlan::units() const {
  if (mapping == Mapping::chain) {
    const Expr& row = phases[0].inner.back().extent;
    if (!lookback) return row;
    int64_t tile = lookback_tile(*this);
    return points() * ((row + Expr(tile - 1)) / Expr(tile));
  }
  Expr n(1);
  for (size_t k = 0; k < outer.size(); ++k) {
    int step = mapping != Mapping::tile ? 1
               : k == tile_axis         ? tile_rows
               : k + 1 == outer.size()  ? tile_columns
                                        : 1;
    n = n * (step == 1 ? outer[k].extent : (outer[k].extent + Expr(step - 1)) / Expr(step));
  }
  return n;
}

DType memory_type(DType d) {
  if (is_complex(d)) return real_part(d);
  return is_storage_only(d) ? DType::u8 : d;
}
int memory_bytes(DType d) { return bit_width(memory_type(d)) / 8; }
bool is_local(const ir::Buffer& b) {
  return b.role == BufferRole::scalar_local || b.role == BufferRole::row_local;
}
int64_t bounded(const Expr& e, int64_t limit) {
  int64_t v = e.is_constant() ? *e.constant() : e.upper();
  return std::min(v, limit);
}

bool is_multiple(const Expr& e, int n, std::vector<Expr>& conditions) {
  if (e.is_constant()) return *e.constant() % n == 0;
  if (e.kind() == ExprKind::add) {
    for (const Expr& t : e.operands()) {
      if (!is_multiple(t, n, conditions)) return false;
    }
    return true;
  }
  Expr size(1);
  bool only_sizes = true;
  auto take = [&](const Expr& f) {
    bool is_size =
        f.is_constant() || (f.kind() == ExprKind::symbol && f.symbol()->kind == SymbolKind::extent);
    if (is_size) size = size * f;
    only_sizes = only_sizes && is_size;
  };
  if (e.kind() == ExprKind::mul) {
    for (const Expr& f : e.operands()) take(f);
  } else {
    take(e);
  }
  if (size.is_constant()) return *size.constant() % n == 0;
  if (std::find(conditions.begin(), conditions.end(), size) == conditions.end())
    conditions.push_back(size);
  return true;
}

namespace {

constexpr int64_t kUnknown = int64_t{1} << 40;

// ---- offsets and joined axes

Expr row_major(const ir::Buffer& buffer, const std::vector<Expr>& coords) {
  Expr offset(0), stride(1);
  for (size_t k = coords.size(); k-- > 0;) {
    offset = offset + coords[k] * stride;
    stride = stride * buffer.extents[k];
  }
  return offset;
}

PhasePlan plan_phase(const ir::Kernel& kernel, const ir::Phase& phase) {
  PhasePlan p;
  p.source = &phase;
  // Phases may share variables; axes are joined phase by phase, so each gets its own.
  std::unordered_map<uint64_t, Expr> own;
  auto renamed = [&](const Expr& e) {
    return substitute(e, [&](const SymbolRef& s) -> std::optional<Expr> {
      auto it = own.find(s->id);
      return it == own.end() ? std::nullopt : std::optional<Expr>(it->second);
    });
  };
  for (const ir::Axis& a : phase.inner) {
    Expr extent = renamed(a.extent);
    SymbolRef var = make_loop_symbol(a.var->name, extent);
    own.insert_or_assign(a.var->id, Expr(var));
    p.inner.push_back({var, extent, a.kind});
  }
  for (const Expr& e : phase.body.exprs) p.exprs.push_back(renamed(e));
  for (const ir::Access& a : phase.body.accesses) {
    const ir::Buffer& b = kernel.buffers[a.buffer];
    std::vector<Expr> coords;
    for (const Expr& c : a.coords) coords.push_back(renamed(c));
    p.offsets.push_back(is_local(b) ? Expr(0) : row_major(b, coords));
    p.coords.push_back(std::move(coords));
  }
  return p;
}

// Every expression that names a loop variable of the nest.
void for_exprs(NestPlan& nest, const std::function<void(Expr&)>& f) {
  for (PhasePlan& p : nest.phases) {
    for (Expr& e : p.offsets) f(e);
    for (Expr& e : p.exprs) f(e);
    for (LoopAxis& a : p.inner) f(a.extent);
  }
}

// e = cb * (a * extent_b + b) + rest?
std::optional<std::pair<Expr, Expr>> joined(const Expr& e, const LoopAxis& a, const LoopAxis& b) {
  auto in_b = affine_in(e, b.var);
  if (!in_b) return std::nullopt;
  auto in_a = affine_in(in_b->second, a.var);
  if (!in_a || uses(in_b->first, *a.var) || uses(in_a->second, *b.var)) return std::nullopt;
  if (!(in_a->first == in_b->first * b.extent)) return std::nullopt;
  return std::pair(in_b->first, in_a->second);
}

bool join_pair(NestPlan& nest, std::vector<LoopAxis>& axes, size_t k) {
  LoopAxis a = axes[k], b = axes[k + 1];
  if (a.kind != b.kind || a.kind == AxisKind::scan || a.kind == AxisKind::scattered) return false;
  if (uses(b.extent, *a.var)) return false;
  bool possible = true;
  for_exprs(nest, [&](Expr& e) {
    if (possible && (uses(e, *a.var) || uses(e, *b.var))) possible = joined(e, a, b).has_value();
  });
  if (!possible) return false;
  Expr extent = a.extent * b.extent;
  SymbolRef var = make_loop_symbol(b.var->name, extent);
  for_exprs(nest, [&](Expr& e) {
    if (!uses(e, *a.var) && !uses(e, *b.var)) return;
    auto [c, rest] = *joined(e, a, b);
    e = c * Expr(var) + rest;
  });
  axes[k] = {var, extent, a.kind};
  axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(k) + 1);
  return true;
}

void join_axes(NestPlan& nest, std::vector<LoopAxis>& axes) {
  for (size_t k = 0; k < axes.size();) {  // extents of one add nothing
    if (axes.size() > 1 && axes[k].extent.is(1) && axes[k].kind != AxisKind::scan) {
      SymbolRef var = axes[k].var;
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(k));
      for_exprs(nest, [&](Expr& e) { e = substitute(e, var, Expr(0)); });
    } else {
      ++k;
    }
  }
  for (size_t k = axes.size(); k-- > 1;) join_pair(nest, axes, k - 1);
}

// ---- mapping

bool has_kind(const NestPlan& nest, AxisKind kind) {
  for (const PhasePlan& p : nest.phases) {
    for (const LoopAxis& a : p.inner) {
      if (a.kind == kind) return true;
    }
  }
  return false;
}

// A phase that is alone and folds nothing: its mapped inner axes are as independent as outer ones.
void hoist_mapped(NestPlan& nest) {
  if (nest.phases.size() != 1 || !nest.phases[0].source->reductions.empty()) return;
  PhasePlan& p = nest.phases[0];
  std::vector<LoopAxis> kept;
  for (LoopAxis& a : p.inner) {
    bool independent = a.kind == AxisKind::mapped;
    for (const LoopAxis& b : kept) independent = independent && !uses(a.extent, *b.var);
    for (const LoopAxis& b : nest.outer) independent = independent && !uses(a.extent, *b.var);
    (independent ? nest.outer : kept).push_back(a);
  }
  p.inner = std::move(kept);
}

// Must inner axes be walked by one thread?
bool serial_inner(const NestPlan& nest) {
  if (has_kind(nest, AxisKind::scattered)) return true;
  for (const PhasePlan& p : nest.phases) {
    for (size_t k = 0; k < p.inner.size(); ++k) {
      for (const LoopAxis& b : p.inner) {
        if (uses(p.inner[k].extent, *b.var)) return true;
      }
    }
  }
  return false;
}

int64_t inner_points(const NestPlan& nest) {
  int64_t n = 1;
  for (const PhasePlan& p : nest.phases) n = std::max(n, bounded(total(p.inner), kUnknown));
  return n;
}

// Accesses that are contiguous along the inner axes (rows), against those along the outer ones
// (columns).
int row_votes(const NestPlan& nest) {
  int votes = 0;
  for (const PhasePlan& p : nest.phases) {
    if (p.inner.empty()) continue;
    for (size_t k = 0; k < p.offsets.size(); ++k) {
      auto in = affine_in(p.offsets[k], p.inner.back().var);
      bool row = in && in->first.is(1);
      std::optional<std::pair<Expr, Expr>> out;
      if (!nest.outer.empty()) out = affine_in(p.offsets[k], nest.outer.back().var);
      bool column = out && out->first.is(1);
      if (row && !column && out) {
        // Windows that lie close together are read like columns.
        int64_t step = out->first.constant_or(kUnknown);
        if (step > 0 && (step < p.inner.back().extent.constant_or(0) || step <= 4) &&
            inner_points(nest) <= 64)
          column = true;
      }
      votes += row && !column ? 1 : 0;
      votes -= column ? 1 : 0;
    }
  }
  return votes;
}

bool dynamic_row_local(const ir::Kernel& kernel, const NestPlan& nest) {
  for (const PhasePlan& p : nest.phases) {
    for (const ir::Access& a : p.source->body.accesses) {
      const ir::Buffer& b = kernel.buffers[a.buffer];
      if (b.role != BufferRole::row_local) continue;
      if (!total(p.inner).is_constant() || *total(p.inner).constant() > 64) return true;
    }
  }
  return false;
}

Mapping choose_mapping(const ir::Kernel& kernel, const NestPlan& nest) {
  int64_t inner = inner_points(nest), outer = bounded(nest.points(), kUnknown);
  if (inner <= 1 || serial_inner(nest)) return Mapping::thread;
  if (dynamic_row_local(kernel, nest)) return Mapping::group;
  if (inner <= 8 && outer == 1) return Mapping::thread;
  if (outer < 4096 && inner >= 256) return Mapping::group;
  return row_votes(nest) > 0 ? Mapping::group : Mapping::thread;
}

// ---- tiles and chains

// A transposing nest: stores run along the last axis, some loads along another one.
bool choose_tile(const ir::Kernel& kernel, NestPlan& nest) {
  if (nest.mapping != Mapping::thread || nest.phases.size() != 1 || nest.outer.size() < 2 ||
      nest.replicated)
    return false;
  PhasePlan& p = nest.phases[0];
  const ir::Body& body = p.source->body;
  if (!p.inner.empty() || !p.source->reductions.empty()) return false;
  const SymbolRef& last = nest.outer.back().var;
  std::set<ir::BufferId> stored;
  for (const ir::Store& s : body.stores) {
    auto along = affine_in(p.offsets[s.access], last);
    if (!along || !along->first.is(1) || s.kind != ir::StoreKind::set) return false;
    stored.insert(body.accesses[s.access].buffer);
  }
  size_t axis = nest.outer.size();
  std::vector<uint32_t> staged;
  for (const ir::Node& n : body.nodes) {
    if (n.op != ScalarOp::load || n.a != ir::kNoNode) continue;
    ir::BufferId b = body.accesses[n.payload].buffer;
    const Expr& offset = p.offsets[n.payload];
    std::vector<SymbolRef> symbols;
    collect_symbols(offset, symbols);
    bool indirect = std::any_of(symbols.begin(), symbols.end(),
                                [](const SymbolRef& s) { return s->kind == SymbolKind::indirect; });
    auto along = affine_in(offset, last);
    if (is_local(kernel.buffers[b]) || stored.count(b) != 0 || indirect || !along) continue;
    if (along->first.is(1) || along->first.is(0)) continue;
    for (size_t k = 0; k + 1 < nest.outer.size(); ++k) {
      auto other = affine_in(offset, nest.outer[k].var);
      if (!other || !other->first.is(1)) continue;
      if (axis != nest.outer.size() && axis != k) return false;
      axis = k;
      staged.push_back(n.payload);
      break;
    }
  }
  std::sort(staged.begin(), staged.end());
  staged.erase(std::unique(staged.begin(), staged.end()), staged.end());
  if (staged.empty() || staged.size() > 4) return false;
  if (bounded(nest.outer[axis].extent, kUnknown) < kTile / 2 ||
      bounded(nest.outer.back().extent, kUnknown) < kTile / 2)
    return false;
  nest.mapping = Mapping::tile;
  nest.tile_axis = axis;
  nest.staged = staged;
  return true;
}

// One long scanned row, or a few.
constexpr int64_t kChainRow = 64 * 1024;
constexpr int64_t kChainRows = 64;
constexpr int kChainThreads = 512;
constexpr int kLookbackThreads = 256, kLookbackBytes = 128;  // of values, a thread
bool choose_chain(NestPlan& nest) {
  if (nest.phases.size() != 1 || nest.replicated) return false;
  PhasePlan& p = nest.phases[0];
  bool row =
      p.inner.size() == 1 && p.inner[0].kind == AxisKind::scan && p.source->reductions.empty();
  size_t scans = 0;
  for (const ir::Node& n : p.source->body.nodes) scans += n.op == ScalarOp::scan ? 1 : 0;
  if (!row || scans != 1) return false;
  for (const LoopAxis& a : nest.outer) {
    if (uses(p.inner[0].extent, *a.var)) return false;
  }
  if (p.inner[0].extent.constant_or(0) < kChainRow || bounded(nest.points(), kUnknown) > kChainRows)
    return false;
  nest.mapping = Mapping::chain;
  return true;
}

// ---- lanes

bool lanes_are_outer(const NestPlan& nest) {
  return nest.mapping == Mapping::thread || nest.mapping == Mapping::tile;
}

const SymbolRef* lane_axis(const NestPlan& nest, const PhasePlan& p) {
  if (lanes_are_outer(nest)) return nest.outer.empty() ? nullptr : &nest.outer.back().var;
  return p.inner.empty() ? nullptr : &p.inner.back().var;
}

bool uses_varying(const Expr& e, const SymbolRef* axis, const std::set<uint64_t>& varying) {
  if (axis != nullptr && uses(e, **axis)) return true;
  if (varying.empty()) return false;
  std::vector<SymbolRef> symbols;
  collect_symbols(e, symbols);
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](const SymbolRef& s) { return varying.count(s->id) != 0; });
}

// Sets varying and forms of one phase; counts vector and scattered accesses.
struct FormCount {
  int vector = 0, scattered = 0;
  int smallest = 16, largest = 1;  // bytes of the elements of vector accesses
};
class FormPass {
 public:
  FormPass(const ir::Kernel& kernel, NestPlan& nest, PhasePlan& p, int lanes, FormCount& count)
      : kernel_(kernel),
        nest_(nest),
        p_(p),
        lanes_(lanes),
        count_(count),
        axis_(lane_axis(nest, p)) {}

  void run() {
    const ir::Body& body = p_.source->body;
    p_.varying.assign(body.nodes.size(), false);
    p_.forms.assign(body.accesses.size(), AccessForm::uniform);
    for (size_t k = 0; k < body.nodes.size(); ++k) visit(body, k);
    for (const ir::Store& s : body.stores) store(body, s);
  }

 private:
  bool varies(ir::NodeId n) const { return n != ir::kNoNode && p_.varying[n]; }

  void visit(const ir::Body& body, size_t k) {
    const ir::Node& n = body.nodes[k];
    bool v = varies(n.a) || varies(n.b) || varies(n.c);
    if (n.op == ScalarOp::index) v = uses_varying(p_.exprs[n.payload], axis_, symbols_);
    if (n.op == ScalarOp::row) v = lanes_are_outer(nest_) && !nest_.outer.empty();
    if (n.op == ScalarOp::scan) v = true;
    if (n.op == ScalarOp::bind && v) symbols_.insert(body.symbols[n.payload]->id);
    if (n.op == ScalarOp::load) v = load(body, n) || v;
    p_.varying[k] = v;
  }

  bool load(const ir::Body& body, const ir::Node& n) {
    const ir::Buffer& b = kernel_.buffers[body.accesses[n.payload].buffer];
    if (is_local(b)) {
      p_.forms[n.payload] = AccessForm::local;
      return b.role == BufferRole::row_local;
    }
    AccessForm form = classify(n.payload, b);
    if (form == AccessForm::vector && (varies(n.a) || varies(n.b))) form = AccessForm::scattered;
    set(n.payload, form, b);
    return form != AccessForm::uniform;
  }

  void store(const ir::Body& body, const ir::Store& s) {
    const ir::Buffer& b = kernel_.buffers[body.accesses[s.access].buffer];
    if (is_local(b)) {
      p_.forms[s.access] = AccessForm::local;
      return;
    }
    AccessForm form = classify(s.access, b);
    if (form == AccessForm::vector && (varies(s.mask) || s.kind != ir::StoreKind::set))
      form = AccessForm::scattered;
    set(s.access, form, b);
  }

  AccessForm classify(uint32_t access, const ir::Buffer& b) {
    const Expr& e = p_.offsets[access];
    if (!uses_varying(e, axis_, symbols_)) return AccessForm::uniform;
    if (axis_ == nullptr || lanes_ == 1) return AccessForm::scattered;
    auto affine = affine_in(e, *axis_);
    if (!affine || !affine->first.is(1) || uses_varying(affine->second, nullptr, symbols_))
      return AccessForm::scattered;
    std::vector<Expr> conditions = nest_.divisible;
    if (!is_multiple(affine->second, lanes_, conditions)) return AccessForm::scattered;
    (void)b;
    nest_.divisible = std::move(conditions);
    return AccessForm::vector;
  }

  void set(uint32_t access, AccessForm form, const ir::Buffer& b) {
    p_.forms[access] = form;
    if (form == AccessForm::scattered) ++count_.scattered;
    if (form != AccessForm::vector) return;
    ++count_.vector;
    nest_.aligned = true;
    count_.smallest = std::min(count_.smallest, memory_bytes(b.dtype));
    count_.largest = std::max(count_.largest, memory_bytes(b.dtype));
  }

  const ir::Kernel& kernel_;
  NestPlan& nest_;
  PhasePlan& p_;
  int lanes_;
  FormCount& count_;
  const SymbolRef* axis_;
  std::set<uint64_t> symbols_;  // indirect ones that vary
};

// Classifies for `lanes`; false where an extent can't be cut into that many.
bool classify(const ir::Kernel& kernel, NestPlan& nest, int lanes, FormCount& count) {
  nest.divisible.clear();
  nest.aligned = false;
  nest.lanes = lanes;
  bool any = lanes == 1;
  for (PhasePlan& p : nest.phases) {
    for (const LoopAxis& a : p.inner) {
      if (lanes > 1 && nest.mapping == Mapping::thread && uses(a.extent, *nest.outer.back().var))
        return false;
    }
    FormPass(kernel, nest, p, lanes, count).run();
    const std::vector<LoopAxis>& axes = lanes_are_outer(nest) ? nest.outer : p.inner;
    if (axes.empty()) continue;
    any = true;
    if (lanes > 1 && !is_multiple(axes.back().extent, lanes, nest.divisible)) return false;
  }
  return any;
}

void choose_lanes(const ir::Kernel& kernel, NestPlan& nest, int max_lanes) {
  for (int lanes = max_lanes; lanes > 1; lanes /= 2) {
    FormCount count;
    if (!classify(kernel, nest, lanes, count)) continue;
    if (count.vector == 0 || count.scattered * 2 > count.vector) continue;
    if (lanes * count.smallest > 16 || lanes * count.largest > 64) continue;
    if (lanes > 8 && count.largest > 2) continue;
    return;
  }
  FormCount count;
  classify(kernel, nest, 1, count);
}

// Tiles of vectors: lines of kTileLine bytes along the axis of the staged loads, one or two of them
// along the last one. Else single elements.
constexpr int kTileLine = 128;
constexpr int64_t kTileBytes = 40 << 10;  // of shared memory
void choose_tile_lanes(const ir::Kernel& kernel, NestPlan& nest, int max_lanes) {
  PhasePlan& p = nest.phases[0];
  const ir::Body& body = p.source->body;
  int widest = 1;
  auto bytes = [&](uint32_t a) {
    return memory_bytes(kernel.buffers[body.accesses[a].buffer].dtype);
  };
  for (uint32_t a : nest.staged) widest = std::max(widest, bytes(a));
  for (const ir::Store& s : body.stores) widest = std::max(widest, bytes(s.access));
  int lanes = std::min({16 / widest, 8, max_lanes});
  const LoopAxis &other = nest.outer[nest.tile_axis], &last = nest.outer.back();
  int rows = kTileLine / 16 * lanes;
  int columns = bounded(last.extent, kUnknown) > rows ? 2 * rows : rows;
  while (rows * columns < lanes * kTileThreads) columns *= 2;
  auto fits = [&] {
    FormCount count;
    if (lanes < 2 || bounded(other.extent, kUnknown) < rows / 2 ||
        bounded(last.extent, kUnknown) < rows / 2 ||
        static_cast<int64_t>(nest.staged.size()) * widest * columns * (rows + 1) > kTileBytes ||
        !classify(kernel, nest, lanes, count))
      return false;
    for (const ir::Store& s : body.stores) {
      if (p.forms[s.access] != AccessForm::vector) return false;
    }
    for (uint32_t a : nest.staged) {
      auto along = affine_in(p.offsets[a], other.var);
      if (!is_multiple(along->second, lanes, nest.divisible)) return false;
    }
    return is_multiple(other.extent, lanes, nest.divisible);
  };
  if (fits()) {
    nest.tile_rows = rows;
    nest.tile_columns = columns;
    return;
  }
  FormCount count;
  classify(kernel, nest, 1, count);
}

int power_above(int64_t n) {
  int p = 1;
  while (p < n && p < 1024) p *= 2;
  return p;
}

// Rows of different lengths must not share a warp: their barriers and shuffles would not meet.
bool ragged(const NestPlan& nest) {
  for (const PhasePlan& p : nest.phases) {
    for (const LoopAxis& a : p.inner) {
      for (const LoopAxis& o : nest.outer) {
        if (uses(a.extent, *o.var)) return true;
      }
    }
  }
  return false;
}

int choose_group(const NestPlan& nest, int fixed) {
  int64_t inner = inner_points(nest);
  int64_t vectors = (inner + nest.lanes - 1) / nest.lanes;
  if (ragged(nest)) vectors = std::max<int64_t>(vectors, 256);
  if (vectors <= 32) return power_above(vectors);
  if (fixed > 0) return fixed;
  if (inner >= kUnknown) return 256;
  int64_t rows = bounded(nest.points(), kUnknown);
  int most = rows < 256 ? 1024 : 512;
  return std::clamp(power_above((vectors + 3) / 4), ragged(nest) ? 64 : 32, most);
}

bool stores_scalar_local(const ir::Kernel& kernel, const ir::Nest& nest) {
  for (const ir::Phase& p : nest.phases) {
    for (const ir::Store& s : p.body.stores) {
      if (kernel.buffers[p.body.accesses[s.access].buffer].role == BufferRole::scalar_local)
        return true;
    }
  }
  return false;
}

}  // namespace

unsigned forms_off() {
  static const unsigned off = [] {
    constexpr std::pair<const char*, Form> kForms[] = {
        {"expand", kExpand},     {"pack", kPack},     {"streaming", kStreaming},
        {"lookback", kLookback}, {"divide", kDivide}, {"batch", kBatch}};
    unsigned bits = 0;
    for (const auto& [name, form] : kForms)
      if (base::env_has("HEDDLE_CUDA_OFF", name)) bits |= form;
    return bits;
  }();
  return off;
}

namespace {

// The nest as given, or with several points a thread.
std::optional<Expanded> expanded(const ir::Kernel& kernel, const ir::Nest& nest,
                                 const NestLimits& limits) {
  if (limits.max_lanes == 1 || limits.check_bounds || (limits.off & kExpand) != 0)
    return std::nullopt;
  return expand_nest(kernel, nest, limits.threads);
}

void plan_chain(const ir::Kernel& kernel, NestPlan& plan, const NestLimits& limits) {
  choose_lanes(kernel, plan, limits.max_lanes);
  plan.lookback = true;  // counts the units as tiles
  plan.group = kLookbackThreads;
  int bytes = 4;
  for (const ir::Node& n : plan.phases[0].source->body.nodes)
    if (n.op == ScalarOp::scan) bytes = std::max(bytes, memory_bytes(n.type));
  plan.vectors = std::max(1, kLookbackBytes / (bytes * plan.lanes));
  plan.lookback =
      (limits.off & kLookback) == 0 && bounded(plan.units(), kUnknown) <= kLookbackTiles;
  if (!plan.lookback) plan.group = kChainThreads;
}

}  // namespace

NestPlan plan_nest(const ir::Kernel& kernel, const ir::Nest& nest, const NestLimits& limits) {
  NestPlan plan;
  std::optional<Expanded> many = expanded(kernel, nest, limits);
  if (many) plan.expanded = many->nest;
  const ir::Nest& source = many ? *many->nest : nest;
  plan.source = &source;
  for (const ir::Axis& a : source.outer) plan.outer.push_back({a.var, a.extent, a.kind});
  for (const ir::Phase& p : source.phases) plan.phases.push_back(plan_phase(kernel, p));
  hoist_mapped(plan);
  if (limits.join_axes && !limits.check_bounds) {
    join_axes(plan, plan.outer);
    for (PhasePlan& p : plan.phases) join_axes(plan, p.inner);
  }
  plan.replicated = stores_scalar_local(kernel, source);
  plan.mapping = choose_mapping(kernel, plan);
  bool tiled = !many && !limits.check_bounds && limits.whole_block && choose_tile(kernel, plan);
  bool streaming = (limits.off & kStreaming) == 0;
  if (limits.whole_grid && !limits.check_bounds && choose_chain(plan)) {
    plan_chain(kernel, plan, limits);
    return plan;
  }
  bool single = (many && many->columns > 1) ||
                (plan.mapping == Mapping::thread && plan.outer.empty()) || limits.check_bounds;
  if (tiled) {
    choose_tile_lanes(kernel, plan, limits.max_lanes);
  } else {
    choose_lanes(kernel, plan, single ? 1 : limits.max_lanes);
  }
  if (many && many->columns > 1 && (limits.off & kPack) == 0)
    find_packs(kernel, plan, many->columns);
  plan.streams = streaming && (tiled || (many && many->columns > 1 && many->rows > 1));
  plan.group = plan.mapping == Mapping::group ? choose_group(plan, limits.fixed_group) : 1;
  if (limits.whole_grid && !many && !limits.check_bounds && (limits.off & kBatch) == 0)
    plan.vectors = batch_vectors(kernel, plan, limits.threads);
  return plan;
}

}  // namespace heddle::cuda
