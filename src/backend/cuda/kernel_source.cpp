// Statements, signature and launch shape of a kernel.
#include "backend/cuda/kernel_source.h"

#include <algorithm>

namespace heddle::cuda {

using ir::BufferRole;
using ir::StmtKind;

namespace {

constexpr int kBlock = 256;                // threads of kernels with several nests
constexpr int64_t kOneBlockPoints = 2048;  // more work in a nest than this asks for the whole grid
constexpr int kOneBlockThreads = 512;
constexpr int64_t kResidentThreads = 1024;  // a multiprocessor, at least
constexpr int kRowThreads = 1152;  // the same, where rows are kept in registers: 56 of them
constexpr int kBatchBlock = 128;   // threads that load several vectors each

void collect_nests(const std::vector<ir::Stmt>& list, std::vector<const ir::Nest*>& out) {
  for (const ir::Stmt& s : list) {
    if (s.kind == StmtKind::nest) out.push_back(s.nest.get());
    collect_nests(s.first, out);
    collect_nests(s.second, out);
  }
}
bool has_control(const std::vector<ir::Stmt>& list) {
  return std::any_of(list.begin(), list.end(), [](const ir::Stmt& s) {
    return s.kind != StmtKind::nest &&
           !(s.kind == StmtKind::barrier && s.barrier == ir::BarrierScope::none);
  });
}

// Work of one nest if each inner point of every phase counted.
int64_t nest_points(const ir::Nest& nest) {
  constexpr int64_t kMany = int64_t{1} << 40;
  Expr outer(1);
  for (const ir::Axis& a : nest.outer) outer = outer * a.extent;
  int64_t most = 1;
  for (const ir::Phase& p : nest.phases) {
    Expr inner(1);
    for (const ir::Axis& a : p.inner) inner = inner * a.extent;
    most = std::max(most, bounded(inner, kMany));
  }
  int64_t n = bounded(outer, kMany);
  return n > kMany / most ? kMany : n * most;
}

class KernelWriter {
 public:
  KernelWriter(const ir::Kernel& kernel, const target::EmitOptions& options, const Variant& variant,
               const target::DeviceDescription& device)
      : kernel_(kernel), options_(options), variant_(variant), device_(device), k_(kernel) {}

  KernelSource write();

 private:
  void choose_kind();
  void plan_nests();
  void find_read_only();
  std::string signature();
  void locals();
  void statements(const std::vector<ir::Stmt>& list);
  void statement(const ir::Stmt& s);
  void loop_for(const ir::Stmt& s);
  void grid_barrier();
  std::string predicate(ir::BufferId b) const;
  bool barrier_before_write(const ir::Stmt& loop) const;
  void finish_shape();
  loop::ExprProgram program(const Expr& e) const;

  const ir::Kernel& kernel_;
  const target::EmitOptions& options_;
  Variant variant_;
  const target::DeviceDescription& device_;
  KernelContext k_;
  KernelSource out_;
  std::vector<const ir::Nest*> nests_;
  std::vector<NestPlan> plans_;
  size_t next_nest_ = 0;
};

// One thread where every nest is a scalar step, one block where all nests are small, the grid
// otherwise.
void KernelWriter::choose_kind() {
  LaunchShape& shape = out_.shape;
  int64_t most = 0;
  for (const ir::Nest* n : nests_) most = std::max(most, nest_points(*n));
  if (!has_control(kernel_.body)) {
    shape.kind = nests_.size() == 1 ? LaunchKind::exact : LaunchKind::loops;
  } else if (most <= kOneBlockPoints) {
    shape.kind = LaunchKind::block;
  } else {
    shape.kind = LaunchKind::cooperative;
  }
  k_.single_thread = shape.kind == LaunchKind::block && most <= 8;
  shape.block = k_.single_thread ? 1 : kBlock;
  if (shape.kind == LaunchKind::block && most > 8) {
    while (shape.block < kOneBlockThreads && shape.block < most) shape.block *= 2;
  }
  k_.exact = shape.kind == LaunchKind::exact;
}

void KernelWriter::plan_nests() {
  LaunchShape& shape = out_.shape;
  NestLimits limits;
  limits.max_lanes = variant_.vectors ? 16 : 1;
  limits.check_bounds = options_.check_bounds;
  if (shape.kind != LaunchKind::exact) limits.fixed_group = shape.block;
  if (k_.single_thread) limits.max_lanes = 1;
  limits.whole_block = shape.kind != LaunchKind::block;
  limits.whole_grid = shape.kind == LaunchKind::exact;
  limits.threads = int64_t{device_.processors} * kResidentThreads;
  limits.off = variant_.off;
  for (const ir::Nest* n : nests_) plans_.push_back(plan_nest(kernel_, *n, limits));
  for (const NestPlan& p : plans_) {
    if (p.mapping == Mapping::group && k_.single_thread) {
      k_.single_thread = false;
      shape.block = kBlock;
    }
  }
  if (k_.exact && plans_[0].mapping == Mapping::group && plans_[0].group > 32)
    shape.block = plans_[0].group;
  if (k_.exact && plans_[0].mapping == Mapping::thread && plans_[0].vectors > 1)
    shape.block = kBatchBlock;
  if (k_.exact && plans_[0].mapping == Mapping::chain) {
    shape.block = plans_[0].group;
    if (!plans_[0].lookback) {
      shape.kind = LaunchKind::cooperative;
      k_.exact = false;
    }
  }
  k_.block = shape.block;
}

// Is every load of the buffer at the coordinates of a store of its phase?
bool loads_what_it_stores(const NestPlan& plan, ir::BufferId b) {
  for (const PhasePlan& p : plan.phases) {
    const ir::Body& body = p.source->body;
    for (const ir::Node& n : body.nodes) {
      if (n.op != ir::ScalarOp::load || body.accesses[n.payload].buffer != b) continue;
      const std::vector<Expr>& coords = body.accesses[n.payload].coords;
      if (std::none_of(body.stores.begin(), body.stores.end(), [&](const ir::Store& s) {
            return body.accesses[s.access].coords == coords;
          }))
        return false;
    }
  }
  return true;
}

// Inputs that no store of the kernel can touch. An input may share an output's memory where both
// are accessed at the same offsets only; such an input keeps plain loads, and so do all inputs of
// kernels with several nests.
void KernelWriter::find_read_only() {
  if (plans_.size() != 1 || has_control(kernel_.body)) return;
  for (ir::BufferId b = 0; b < kernel_.buffers.size(); ++b) {
    if (kernel_.buffers[b].role == BufferRole::input) k_.read_only.insert(b);
  }
  for (const PhasePlan& p : plans_[0].phases) {
    for (const ir::Store& s : p.source->body.stores)
      k_.read_only.erase(p.source->body.accesses[s.access].buffer);
  }
  std::erase_if(k_.read_only, [&](ir::BufferId b) { return loads_what_it_stores(plans_[0], b); });
}

std::string KernelWriter::signature() {
  std::string parameters;
  auto add = [&](const std::string& p) { parameters += (parameters.empty() ? "" : ", ") + p; };
  for (ir::BufferId b = 0; b < kernel_.buffers.size(); ++b) {
    if (!is_local(kernel_.buffers[b])) add("void* b" + std::to_string(b));
  }
  for (size_t s = 0; s < kernel_.symbols.size(); ++s) add("i64 n" + std::to_string(s));
  add("u32* hd_barrier");
  add("u32* hd_fault");
  add("void* hd_parts");
  // Enough threads a multiprocessor where rows are kept in registers: loads must overlap work.
  int blocks = 1;
  if (k_.exact && (plans_[0].mapping == Mapping::group || plans_[0].lookback))
    blocks = std::clamp(kRowThreads / k_.block, 1, 16);
  if (k_.exact && plans_[0].mapping == Mapping::thread && plans_[0].vectors > 1)
    blocks = 2048 / k_.block;  // all that a multiprocessor holds
  k_.out.open();
  for (size_t s = 0; s < kernel_.symbols.size(); ++s) {
    k_.out.line("const idx e", s, " = (idx)n", s, "; (void)e", s, ";");
    k_.names.set(kernel_.symbols[s], "e" + std::to_string(s));
  }
  return base::cat("HD_KERNEL(", k_.block, ", ", blocks, ") ", out_.entry, "(", parameters,
                   ") {\n");
}

void KernelWriter::locals() {
  for (ir::BufferId b = 0; b < kernel_.buffers.size(); ++b) {
    const ir::Buffer& buffer = kernel_.buffers[b];
    if (buffer.role == BufferRole::scalar_local)
      k_.out.line(c_type(memory_type(buffer.dtype)), " L", b, " = {};");
  }
}

void KernelWriter::grid_barrier() {
  if (k_.single_thread) return;
  k_.out.line(out_.shape.kind == LaunchKind::cooperative ? "hd_grid_sync(hd_barrier);"
                                                         : "hd_sync();");
}

std::string KernelWriter::predicate(ir::BufferId b) const {
  const ir::Buffer& buffer = kernel_.buffers[b];
  if (buffer.role == BufferRole::scalar_local) return base::cat("L", b);
  return base::cat("(*(volatile u8*)b", b, " != 0)");
}

bool writes(const std::vector<ir::Stmt>& list, ir::BufferId b) {
  for (const ir::Stmt& s : list) {
    if (writes(s.first, b) || writes(s.second, b)) return true;
    if (s.kind != StmtKind::nest) continue;
    for (const ir::Phase& p : s.nest->phases) {
      for (const ir::Store& st : p.body.stores) {
        if (p.body.accesses[st.access].buffer == b) return true;
      }
    }
  }
  return false;
}

// A predicate in memory is read by all threads; a barrier must stand before it is written again.
bool KernelWriter::barrier_before_write(const ir::Stmt& loop) const {
  auto scan = [&](const std::vector<ir::Stmt>& list)
      -> int {  // 1: barrier first, -1: write first, 0: neither
    for (const ir::Stmt& s : list) {
      if (s.kind == StmtKind::barrier && s.barrier != ir::BarrierScope::none) return 1;
      if (writes({s}, loop.predicate)) return -1;
    }
    return 0;
  };
  int second = scan(loop.second);
  return second != 0 ? second > 0 : scan(loop.first) >= 0;
}

void KernelWriter::loop_for(const ir::Stmt& s) {
  std::string count = k_.names.text(s.count);
  if (s.has_count_buffer) {
    const ir::Buffer& b = kernel_.buffers[s.predicate];
    const char* type = c_type(memory_type(b.dtype));
    std::string value = b.role == BufferRole::scalar_local
                            ? base::cat("L", s.predicate)
                            : base::cat("hd_get<", type, ">(b", s.predicate, ", 0)");
    count = base::cat("hd_cast<i64>(", value, ")");
  }
  std::string var = base::cat("k", s.counter);
  k_.out.open();
  k_.out.line("const i64 count = (i64)", count, ";");
  k_.out.open("for (i64 ", var, " = 0; ", var, " < count; ++", var, ")");
  const ir::Buffer& counter = kernel_.buffers[s.counter];
  k_.out.line("L", s.counter, " = hd_cast<", c_type(memory_type(counter.dtype)), ">(", var, ");");
  statements(s.first);
  k_.out.close();
  k_.out.close();
}

void KernelWriter::statement(const ir::Stmt& s) {
  switch (s.kind) {
    case StmtKind::nest:
      emit_nest(k_, plans_[next_nest_++]);
      break;
    case StmtKind::barrier:
      if (s.barrier != ir::BarrierScope::none) grid_barrier();
      break;
    case StmtKind::for_loop:
      loop_for(s);
      break;
    case StmtKind::while_loop:
      k_.out.open("for (;;)");
      statements(s.first);
      k_.out.line("if (!", predicate(s.predicate), ") break;");
      if (kernel_.buffers[s.predicate].role != BufferRole::scalar_local && !barrier_before_write(s))
        grid_barrier();
      statements(s.second);
      k_.out.close();
      break;
    case StmtKind::if_else: {
      k_.out.line("const bool t", next_nest_, "_", s.predicate, " = ", predicate(s.predicate), ";");
      bool local = kernel_.buffers[s.predicate].role == BufferRole::scalar_local;
      if (!local && (writes(s.first, s.predicate) || writes(s.second, s.predicate))) grid_barrier();
      k_.out.open("if (t", next_nest_, "_", s.predicate, ")");
      statements(s.first);
      k_.out.close();
      if (!s.second.empty()) {
        k_.out.open("else");
        statements(s.second);
        k_.out.close();
      }
      break;
    }
    case StmtKind::swap:
      k_.out.line("{ void* t = b", s.a, "; b", s.a, " = b", s.b, "; b", s.b, " = t; }");
      break;
  }
}

void KernelWriter::statements(const std::vector<ir::Stmt>& list) {
  for (const ir::Stmt& s : list) {
    bool scope = s.kind == StmtKind::if_else;
    if (scope) k_.out.open();
    statement(s);
    if (scope) k_.out.close();
  }
}

loop::ExprProgram KernelWriter::program(const Expr& e) const {
  std::unordered_map<uint64_t, uint32_t> slots;
  for (size_t s = 0; s < kernel_.symbols.size(); ++s)
    slots[kernel_.symbols[s]->id] = static_cast<uint32_t>(s);
  return loop::ExprProgram(e, slots);
}

void KernelWriter::finish_shape() {
  LaunchShape& shape = out_.shape;
  bool aligned = false;
  for (const NestPlan& p : plans_) {
    Expr units = p.units();
    int64_t each = 1;
    if (p.mapping == Mapping::thread) {
      each = int64_t{k_.block} * p.lanes * p.vectors;
    } else if (p.mapping == Mapping::chain && !p.lookback) {
      each = int64_t{p.group} * p.lanes;
    } else if (p.mapping == Mapping::group && p.group <= 32) {
      each = std::max(1, k_.block / p.group);
    }
    shape.units.push_back(program(units));
    shape.units_per_block.push_back(each);
    for (const Expr& e : p.divisible) {
      shape.divisible.push_back(program(e));
      shape.divisor.push_back(p.lanes);
      out_.constant_vectors = false;
    }
    aligned = aligned || p.aligned;
  }
  for (const ir::Buffer& b : kernel_.buffers) {
    if (is_local(b)) continue;
    int bytes = memory_bytes(b.dtype);
    shape.alignment.push_back(aligned ? 16 : bytes);
  }
}

KernelSource KernelWriter::write() {
  out_.variant = variant_;
  out_.entry = base::cat("heddle_kernel_", variant_.wide ? "w" : "n", variant_.vectors ? "v" : "s");
  k_.check_bounds = options_.check_bounds;
  k_.off = variant_.off;
  collect_nests(kernel_.body, nests_);
  HD_CHECK(!nests_.empty(), "kernel ", kernel_.name, " has no nest");
  choose_kind();
  plan_nests();
  if (!options_.check_bounds) find_read_only();
  std::string head = signature();
  locals();
  statements(kernel_.body);
  k_.out.close();
  finish_shape();
  out_.shape.shared_bytes = k_.shared_bytes;
  HD_CHECK(k_.shared_bytes <= std::max<int64_t>(device_.shared_memory, 48 << 10), "kernel ",
           kernel_.name, " wants ", k_.shared_bytes, " bytes of shared memory, the device has ",
           device_.shared_memory);
  if (k_.shared_bytes > 0) head += "  HD_DYNAMIC_SHARED(hd_smem);\n";
  out_.text = head + k_.out.take() + "}\n";
  out_.checked = std::move(k_.checked);
  return std::move(out_);
}

// ---- ranges

struct Range {
  int64_t low, high;
};
constexpr int64_t kFar = int64_t{1} << 62;

Range clamp(__int128 low, __int128 high) {
  auto cut = [](__int128 v) {
    return v > kFar ? kFar : v < -kFar ? -kFar : static_cast<int64_t>(v);
  };
  return {cut(low), cut(high)};
}

// Bounds of every part of an expression; `fits` turns false where one leaves 32 bits.
class Ranges {
 public:
  Ranges(const ir::Kernel& kernel, std::span<const int64_t> low, std::span<const int64_t> high) {
    for (size_t k = 0; k < kernel.symbols.size(); ++k)
      known_[kernel.symbols[k]->id] = {low[k], high[k]};
  }
  bool fits = true;

  Range of(const Expr& e) {
    Range r = compute(e);
    // Half of the range: steps of grid loops and sums of two stay inside.
    if (r.low < -(int64_t{1} << 30) || r.high > (int64_t{1} << 30)) fits = false;
    return r;
  }
  void loop(const SymbolRef& var, const Expr& extent) {
    known_[var->id] = {0, std::max<int64_t>(0, of(extent).high - 1)};
  }

 private:
  Range compute(const Expr& e) {
    if (e.is_constant()) return {*e.constant(), *e.constant()};
    if (e.kind() == ExprKind::symbol) return symbol(e.symbol());
    Range r = of(e.operands()[0]);
    for (size_t k = 1; k < e.operands().size(); ++k) r = combine(e.kind(), r, of(e.operands()[k]));
    return r;
  }
  Range symbol(const SymbolRef& s) {
    auto it = known_.find(s->id);
    if (it != known_.end()) return it->second;
    if (s->extent != nullptr)
      return {s->lower, std::max<int64_t>(s->lower, of(*s->extent).high - 1)};
    return {s->lower, s->upper};
  }
  static Range combine(ExprKind kind, Range a, Range b) {
    using W = __int128;
    switch (kind) {
      case ExprKind::add:
        return clamp(W{a.low} + b.low, W{a.high} + b.high);
      case ExprKind::mul: {
        W p[] = {W{a.low} * b.low, W{a.low} * b.high, W{a.high} * b.low, W{a.high} * b.high};
        return clamp(*std::min_element(p, p + 4), *std::max_element(p, p + 4));
      }
      case ExprKind::min:
        return {std::min(a.low, b.low), std::min(a.high, b.high)};
      case ExprKind::max:
        return {std::max(a.low, b.low), std::max(a.high, b.high)};
      case ExprKind::mod:
        return b.low > 0 ? Range{0, b.high - 1} : Range{-kFar, kFar};
      default:
        return b.low > 0 ? Range{std::min<int64_t>(a.low, 0), std::max<int64_t>(a.high, 0)} : a;
    }
  }
  std::unordered_map<uint64_t, Range> known_;
};

}  // namespace

bool fits_32_bits(const ir::Kernel& kernel, std::span<const int64_t> low,
                  std::span<const int64_t> high) {
  Ranges ranges(kernel, low, high);
  std::vector<const ir::Nest*> nests;
  collect_nests(kernel.body, nests);
  for (const ir::Nest* nest : nests) {
    Expr points(1);
    for (const ir::Axis& a : nest->outer) {
      ranges.loop(a.var, a.extent);
      points = points * a.extent;
    }
    for (const ir::Phase& p : nest->phases) {
      Expr inner(1);
      for (const ir::Axis& a : p.inner) {
        ranges.loop(a.var, a.extent);
        inner = inner * a.extent;
      }
      ranges.of(points);
      ranges.of(inner);
      for (const Expr& e : p.body.exprs) ranges.of(e);
      for (const ir::Access& a : p.body.accesses) {
        for (const Expr& c : a.coords) ranges.of(c);
      }
    }
  }
  for (const ir::Buffer& b : kernel.buffers) {
    if (is_local(b)) continue;
    Expr n(1);
    for (const Expr& e : b.extents) n = n * e;
    ranges.of(n);
  }
  return ranges.fits;
}

KernelSource write_kernel(const ir::Kernel& kernel, const target::EmitOptions& options,
                          const Variant& variant, const target::DeviceDescription& device) {
  return KernelWriter(kernel, options, variant, device).write();
}

}  // namespace heddle::cuda
