// Nests as text: a thread, or a group of threads, an outer point.
#include "backend/cuda/nest_emitter.h"

#include <algorithm>

namespace heddle::cuda {

using ir::AxisKind;
using ir::BufferRole;
using ir::ReduceOp;

namespace {

constexpr int64_t kMaxTrips = 16;      // of unrolled row loops
constexpr int64_t kMaxRegisters = 64;  // values a thread keeps of a row

uint64_t infinity(DType d, bool negative) {
  if (d == DType::f64) return negative ? 0xfff0000000000000ull : 0x7ff0000000000000ull;
  return negative ? 0xff800000ull : 0x7f800000ull;
}
// The least or the greatest value of a type, as bits.
uint64_t extreme(DType d, bool least) {
  if (is_real_float(d)) return infinity(d, least);
  if (d == DType::boolean) return least ? 0 : 1;
  int width = bit_width(d);
  uint64_t all = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  if (is_unsigned_integer(d)) return least ? 0 : all;
  uint64_t top = uint64_t{1} << (width - 1);
  return least ? top : all ^ top;
}
}  // namespace

const char* fold_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "hd_sum";
    case ReduceOp::product:
      return "hd_product";
    case ReduceOp::max:
      return "hd_maximum";
    case ReduceOp::min:
      return "hd_minimum";
    case ReduceOp::max_num:
      return "hd_maximum_num";
    case ReduceOp::min_num:
      return "hd_minimum_num";
    case ReduceOp::any:
      return "hd_any";
    case ReduceOp::all:
      return "hd_all";
    case ReduceOp::argmax:
      return "hd_argmax";
    case ReduceOp::argmin:
      return "hd_argmin";
    case ReduceOp::value:
      break;
  }
  return "";
}

uint64_t identity_bits(ReduceOp op, DType d) {
  switch (op) {
    case ReduceOp::sum:
      return d == DType::f64 ? 0x8000000000000000ull : d == DType::f32 ? 0x80000000ull : 0;
    case ReduceOp::product:
      return d == DType::f64 ? 0x3ff0000000000000ull : d == DType::f32 ? 0x3f800000ull : 1;
    case ReduceOp::all:
      return 1;
    case ReduceOp::max:
    case ReduceOp::max_num:
    case ReduceOp::argmax:
      return extreme(d, true);
    case ReduceOp::min:
    case ReduceOp::min_num:
    case ReduceOp::argmin:
      return extreme(d, false);
    default:
      return 0;
  }
}

void NestEmitter::name_axes() {
  for (size_t k = 0; k < nest_.outer.size(); ++k)
    k_.names.set(nest_.outer[k].var, base::cat("o", k));
  for (const PhasePlan& p : nest_.phases) {
    for (size_t k = 0; k < p.inner.size(); ++k) k_.names.set(p.inner[k].var, base::cat("i", k));
  }
}

// Coordinates from a flat point; the last axis is counted in vectors where `lanes`.
void NestEmitter::decode_outer(const std::string& point, bool lanes) {
  if (nest_.outer.empty()) return;
  size_t last = nest_.outer.size() - 1;
  std::string rest = point;
  for (size_t k = last + 1; k-- > 0;) {
    std::string name = base::cat("o", k);
    std::string extent = k_.names.text(nest_.outer[k].extent);
    bool vectors = lanes && k == last;
    if (vectors && nest_.lanes > 1) extent = base::cat("hd_udiv(", extent, ", ", nest_.lanes, ")");
    std::string digit = k == 0 ? rest : base::cat("hd_umod(", rest, ", ", extent, ")");
    if (vectors) {
      k_.out.line("const idx ", name, "b = ", digit,
                  nest_.lanes > 1 ? base::cat(" * ", nest_.lanes) : "", ";");
      if (nest_.lanes == 1) k_.out.line("const idx ", name, " = ", name, "b; (void)", name, ";");
    } else {
      k_.out.line("const idx ", name, " = ", digit, ";");
    }
    if (k > 0) {
      k_.out.line("const idx q", k, " = hd_udiv(", rest, ", ", extent, ");");
      rest = base::cat("q", k);
    }
  }
}

std::vector<NestEmitter::Fold> NestEmitter::make_folds(size_t p, bool lane_results) {
  std::vector<Fold> folds;
  const ir::Phase& phase = *nest_.phases[p].source;
  for (size_t r = 0; r < phase.reductions.size(); ++r) {
    Fold f;
    f.r = &phase.reductions[r];
    f.result = base::cat("r", p, "_", r);
    f.acc = lane_results ? f.result : base::cat("acc", p, "_", r);
    f.type = is_arg(f.r->op) ? base::cat("hd_at<", c_type(f.r->type), ">") : c_type(f.r->type);
    if (f.r->op == ReduceOp::value) {
      k_.out.line(f.type, " ", f.result, lane_results ? base::cat("[", nest_.lanes, "]") : "", ";");
    } else {
      k_.out.line(f.type, " ", f.acc, "[", nest_.lanes, "];");
      k_.out.line("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) ", f.acc,
                  "[l] = ", identity(*f.r), ";");
    }
    int64_t n = bounded(total(nest_.phases[p].inner), 1 << 30);
    f.blocked = lane_results && f.r->op == ReduceOp::sum && f.r->type == DType::f32 && n > 128;
    if (f.blocked) {
      k_.out.line("float ", f.acc, "h[", nest_.lanes, "]; int ", f.acc, "n = 0;");
      k_.out.line("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) ", f.acc, "h[l] = -0.f;");
    }
    folds.push_back(f);
  }
  return folds;
}

void NestEmitter::fold_lane(BodyEmitter& body, std::vector<Fold>& folds, const std::string& flat) {
  for (const Fold& f : folds) {
    std::string value = base::cat("hd_cast<", c_type(f.r->type), ">(", body.ref(f.r->value), ")");
    if (f.r->op == ReduceOp::value) {
      k_.out.line(f.acc, "[l] = ", value, ";");
    } else if (is_arg(f.r->op)) {
      k_.out.line(f.acc, "[l] = ", fold_name(f.r->op), "::f(", f.acc, "[l], ", f.type, "{", value,
                  ", (i64)(", flat, ")});");
    } else {
      k_.out.line(f.acc, "[l] = ", fold_name(f.r->op), "::f(", f.acc, "[l], ", value, ");");
    }
  }
}

// An empty float sum is +0.
void NestEmitter::finish_fold(const Fold& f, size_t p, const std::string& lane,
                              const std::string& count) {
  if (f.blocked) k_.out.line(f.result, lane, " = ", f.acc, "h", lane, " + ", f.result, lane, ";");
  if (f.r->op != ReduceOp::sum || !is_real_float(f.r->type)) return;
  if (total(nest_.phases[p].inner).lower() > 0) return;
  k_.out.line("if (", count, " <= 0) ", f.result, lane, " = 0;");
}

// ---- a thread makes its outer points alone

void NestEmitter::thread_nest() {
  for (const LoopAxis& a : nest_.outer) {
    for (const LoopAxis& b : nest_.outer)
      HD_CHECK(!uses(a.extent, *b.var), "extent of an outer axis names another");
  }
  if (nest_.vectors > 1) {
    thread_vectors();
    return;
  }
  std::string n = k_.names.text(nest_.points());
  if (nest_.lanes > 1) n = base::cat("hd_udiv(", n, ", ", nest_.lanes, ")");
  if (k_.single_thread || nest_.replicated) {
    k_.out.open("for (idx p = 0; p < ", n, "; ++p)");
  } else if (k_.exact) {
    k_.out.line("const idx p = (idx)blockIdx.x * ", k_.block, " + (idx)threadIdx.x;");
    k_.out.open("if (p < ", n, ")");
  } else {
    k_.out.open("for (idx p = (idx)blockIdx.x * ", k_.block, " + (idx)threadIdx.x; p < ", n,
                "; p += (idx)gridDim.x * ", k_.block, ")");
  }
  decode_outer("p", true);
  plan_locals();
  declare_row_storage();
  for (size_t p = 0; p < nest_.phases.size(); ++p) thread_phase(p);
  k_.out.close();
}

void NestEmitter::thread_phase(size_t p) {
  const PhasePlan& phase = nest_.phases[p];
  std::vector<Fold> folds = make_folds(p, true);
  k_.out.open();
  if (!phase.inner.empty()) {
    k_.out.line("idx f = 0; (void)f;");
  }
  for (ir::NodeId n = 0; n < phase.source->body.nodes.size(); ++n) {
    const ir::Node& x = phase.source->body.nodes[n];
    if (x.op == ir::ScalarOp::scan) k_.out.line(c_type(x.type), " c", n, "[", nest_.lanes, "];");
  }
  thread_loops(p, 0, folds);
  for (const Fold& f : folds) {
    if (!f.blocked && (f.r->op != ReduceOp::sum || !is_real_float(f.r->type))) continue;
    k_.out.open("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l)");
    finish_fold(f, p, "[l]", "f");
    k_.out.close();
  }
  k_.out.close();
}

void NestEmitter::thread_loops(size_t p, size_t axis, std::vector<Fold>& folds) {
  const PhasePlan& phase = nest_.phases[p];
  if (axis == phase.inner.size()) {
    thread_point(p, folds);
    return;
  }
  const LoopAxis& a = phase.inner[axis];
  if (a.kind == AxisKind::scan) {
    for (ir::NodeId n = 0; n < phase.source->body.nodes.size(); ++n) {
      const ir::Node& x = phase.source->body.nodes[n];
      if (x.op != ir::ScalarOp::scan) continue;
      ir::Reduction r{phase.source->body.scans[x.payload].op, x.a, x.type};
      k_.out.line("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) c", n,
                  "[l] = ", identity(r), ";");
    }
  }
  int64_t n = a.extent.constant_or(0);
  bool last = axis + 1 == phase.inner.size();
  const char* unroll = n > 0 && n <= 8                             ? "HD_UNROLL "
                       : last && !phase.source->reductions.empty() ? "HD_UNROLL8 "
                                                                   : "";
  k_.out.open(unroll, "for (idx i", axis, " = 0; i", axis, " < ", k_.names.text(a.extent), "; ++i",
              axis, ")");
  thread_loops(p, axis + 1, folds);
  k_.out.close();
}

void NestEmitter::thread_point(size_t p, std::vector<Fold>& folds) {
  const PhasePlan& phase = nest_.phases[p];
  PointText at;
  at.flat = phase.inner.empty() ? "0" : "f";
  at.trip = "f";
  if (!nest_.outer.empty()) at.lane_name = base::cat("o", nest_.outer.size() - 1);
  if (nest_.replicated && !k_.single_thread) at.store_guard = leader();
  BodyEmitter body(k_, nest_, phase, at, nullptr, p, locals_);
  body.prefix();
  body.declare_arrays();
  for (int s = 0; s < body.segments(); ++s) {
    for (ir::NodeId n : body.scans(s)) {
      const char* op = fold_name(phase.source->body.scans[phase.source->body.nodes[n].payload].op);
      const ir::Node& x = phase.source->body.nodes[n];
      body.open_lanes();
      k_.out.line("c", n, "[l] = ", op, "::f(c", n, "[l], ", body.ref(x.a), "); a", n, "[l] = c", n,
                  "[l];");
      body.close_lanes();
    }
    body.open_lanes();
    body.lanes(s);
    if (s + 1 == body.segments()) fold_lane(body, folds, "f");
    body.close_lanes();
  }
  for (const Fold& f : folds) {
    if (!f.blocked) continue;
    k_.out.open("if ((++", f.acc, "n & 31) == 0)");
    k_.out.line("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) { ", f.acc,
                "h[l] += ", f.acc, "[l]; ", f.acc, "[l] = -0.f; }");
    k_.out.close();
  }
  body.stores();
  if (!phase.inner.empty()) k_.out.line("++f;");
}

// ---- a group of threads makes an outer point

std::optional<int64_t> NestEmitter::static_trips(size_t p) const {
  auto n = total(nest_.phases[p].inner).constant();
  if (!n || scanned(p)) return std::nullopt;
  int64_t step = int64_t{nest_.group} * nest_.lanes;
  int64_t trips = (*n + step - 1) / step;
  if (trips > kMaxTrips || trips * nest_.lanes > kMaxRegisters) return std::nullopt;
  return trips;
}

void NestEmitter::plan_locals() {
  locals_.clear();
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    for (const ir::Access& a : nest_.phases[p].source->body.accesses) {
      if (k_.kernel.buffers[a.buffer].role != BufferRole::row_local) continue;
      bool fits = nest_.mapping == Mapping::thread ? total(nest_.phases[p].inner).is_constant()
                                                   : static_trips(p).has_value();
      LocalPlace place = fits ? LocalPlace::registers : LocalPlace::memory;
      auto [it, fresh] = locals_.emplace(a.buffer, place);
      if (!fresh && place == LocalPlace::memory) it->second = place;
    }
  }
}

// A load that appears in several phases at the same inner position stays in registers.
void NestEmitter::plan_caches() {
  size_t count = nest_.phases.size();
  caches_.names.assign(count, {});
  caches_.first.assign(count, {});
  if (nest_.mapping != Mapping::group || k_.check_bounds) return;
  std::set<ir::BufferId> stored;
  for (const PhasePlan& p : nest_.phases) {
    for (const ir::Store& s : p.source->body.stores)
      stored.insert(p.source->body.accesses[s.access].buffer);
  }
  struct Entry {
    ir::BufferId buffer;
    Expr offset, extent;
    size_t phase;
    uint32_t access;
    std::string name;
  };
  std::vector<Entry> seen;
  SymbolRef position;  // stands for the inner axis of every phase
  int64_t used = 0;
  int caches = 0;
  for (size_t p = 0; p < count; ++p) {
    const PhasePlan& phase = nest_.phases[p];
    auto trips = static_trips(p);
    if (!trips || phase.inner.size() != 1) continue;
    for (const ir::Node& n : phase.source->body.nodes) {
      if (n.op != ir::ScalarOp::load || n.a != ir::kNoNode) continue;
      ir::BufferId b = phase.source->body.accesses[n.payload].buffer;
      AccessForm form = phase.forms[n.payload];
      bool lanes =
          form == AccessForm::vector || (form == AccessForm::scattered && nest_.lanes == 1);
      if (!lanes || stored.count(b) != 0) continue;
      std::vector<SymbolRef> symbols;
      collect_symbols(phase.offsets[n.payload], symbols);
      bool indirect = std::any_of(symbols.begin(), symbols.end(), [](const SymbolRef& s) {
        return s->kind == SymbolKind::indirect;
      });
      if (indirect) continue;
      if (!position) position = phase.inner[0].var;
      Expr offset = substitute(phase.offsets[n.payload], phase.inner[0].var, Expr(position));
      bool found = false;
      for (Entry& e : seen) {
        if (e.buffer != b || !(e.offset == offset) || !(e.extent == phase.inner[0].extent) ||
            e.phase == p)
          continue;
        if (e.name.empty()) {
          int64_t words =
              *trips * std::max(1, memory_bytes(k_.kernel.buffers[b].dtype) * nest_.lanes / 4);
          if (used + words > kMaxRegisters) break;
          used += words;
          e.name = base::cat("cache", caches++);
          k_.out.line("hd_pack<", memory_bytes(k_.kernel.buffers[b].dtype) * nest_.lanes, "> ",
                      e.name, "[", *trips, "];");
          caches_.names[e.phase][e.access] = e.name;
          caches_.first[e.phase][e.access] = true;
        }
        caches_.names[p][n.payload] = e.name;
        caches_.first[p][n.payload] = false;
        found = true;
        break;
      }
      if (!found) seen.push_back({b, offset, phase.inner[0].extent, p, n.payload, ""});
    }
  }
}

void NestEmitter::declare_row_storage() {
  int64_t offset = 0;
  for (const auto& [b, place] : locals_) {
    const ir::Buffer& buffer = k_.kernel.buffers[b];
    const char* type = c_type(memory_type(buffer.dtype));
    int64_t elements = 1;
    for (const PhasePlan& p : nest_.phases) {
      for (const ir::Access& a : p.source->body.accesses) {
        if (a.buffer == b) elements = std::max(elements, bounded(total(p.inner), int64_t{1} << 40));
      }
    }
    HD_CHECK(place == LocalPlace::registers || nest_.mapping == Mapping::group, "row_local ",
             buffer.name, " of unknown size in a serial nest");
    if (place == LocalPlace::registers) {
      int64_t step = nest_.mapping == Mapping::group ? int64_t{nest_.group} * nest_.lanes : 1;
      k_.out.line(type, " R", b, "[", (elements + step - 1) / step, "][", nest_.lanes, "];");
      continue;
    }
    int64_t bytes = (elements * memory_bytes(buffer.dtype) + 15) / 16 * 16;
    std::string row =
        rows_per_block() > 1 ? base::cat(" + threadIdx.x / ", nest_.group, " * ", bytes) : "";
    k_.out.line(type, "* R", b, " = (", type, "*)(hd_smem + ", offset, row, ");");
    offset += bytes * rows_per_block();
  }
  k_.shared_bytes = std::max(k_.shared_bytes, offset);
}

void NestEmitter::group_nest() {
  int rows = rows_per_block(), t = nest_.group;
  k_.out.line("const idx rows = ", k_.names.text(nest_.points()), ";");
  k_.out.line("const int lane = (int)threadIdx.x & ", t - 1, "; (void)lane;");
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    const ir::Phase& phase = *nest_.phases[p].source;
    if (t <= 32) break;
    for (size_t r = 0; r < phase.reductions.size(); ++r) {
      const ir::Reduction& red = phase.reductions[r];
      if (red.op == ReduceOp::value) continue;
      std::string type =
          is_arg(red.op) ? base::cat("hd_at<", c_type(red.type), ">") : c_type(red.type);
      k_.out.line("HD_SHARED ", type, " s", p, "_", r, "[", t / 32, "];");
      needs_trailing_sync_ = true;
    }
    for (ir::NodeId n = 0; n < phase.body.nodes.size(); ++n) {
      if (phase.body.nodes[n].op == ir::ScalarOp::scan)
        k_.out.line("HD_SHARED ", c_type(phase.body.nodes[n].type), " w", p, "_", n, "[", t / 32,
                    "];");
    }
  }
  if (nest_.replicated) {
    k_.out.open("for (idx q = 0; q < rows; ++q)");
  } else if (k_.exact) {
    k_.out.line("const idx q = (idx)blockIdx.x * ", rows, ";");
    k_.out.open();
  } else {
    k_.out.open("for (idx q = (idx)blockIdx.x * ", rows, "; q < rows; q += (idx)gridDim.x * ", rows,
                ")");
  }
  if (rows > 1) {
    k_.out.line("idx row = q + (idx)threadIdx.x / ", t, ";");
    k_.out.line("const bool live = row < rows;");
    k_.out.line("if (!live) row = rows - 1;");
  } else {
    k_.out.line("const idx row = q; (void)row;");
  }
  decode_outer("row", false);
  plan_locals();
  declare_row_storage();
  plan_caches();
  for (size_t p = 0; p < nest_.phases.size(); ++p) group_phase(p);
  bool memory = std::any_of(locals_.begin(), locals_.end(),
                            [](const auto& l) { return l.second == LocalPlace::memory; });
  if (!k_.exact && (needs_trailing_sync_ || memory)) k_.out.line("hd_sync();");
  k_.out.close();
}

// Does the phase read what other threads of the group wrote in earlier phases?
bool NestEmitter::needs_sync(size_t p) const {
  std::set<ir::BufferId> stored;
  for (size_t e = 0; e < p; ++e) {
    const ir::Body& b = nest_.phases[e].source->body;
    for (const ir::Store& s : b.stores) stored.insert(b.accesses[s.access].buffer);
  }
  const ir::Body& b = nest_.phases[p].source->body;
  for (const ir::Access& a : b.accesses) {
    const ir::Buffer& buffer = k_.kernel.buffers[a.buffer];
    if (stored.count(a.buffer) == 0 || buffer.role == BufferRole::scalar_local) continue;
    if (buffer.role == BufferRole::row_local && locals_.at(a.buffer) == LocalPlace::registers)
      continue;
    return true;
  }
  return false;
}

void NestEmitter::group_phase(size_t p) {
  const PhasePlan& phase = nest_.phases[p];
  if (needs_sync(p)) k_.out.line("hd_sync();");
  if (phase.inner.empty()) {
    group_plain(p);
    return;
  }
  for (const ir::Reduction& r : phase.source->reductions)
    HD_CHECK(r.op != ReduceOp::value, "value of an inner point");
  for (size_t r = 0; r < phase.source->reductions.size(); ++r) {
    const ir::Reduction& red = phase.source->reductions[r];
    std::string type =
        is_arg(red.op) ? base::cat("hd_at<", c_type(red.type), ">") : c_type(red.type);
    k_.out.line(type, " r", p, "_", r, ";");
  }
  k_.out.open();
  std::vector<Fold> folds = make_folds(p, false);
  if (scanned(p)) {
    group_scan(p, folds);
  } else {
    group_loop(p, folds);
  }
  group_fold(p, folds);
  k_.out.close();
}

// A phase without inner axes: all threads compute, one stores.
void NestEmitter::group_plain(size_t p) {
  const PhasePlan& phase = nest_.phases[p];
  const ir::Phase& source = *phase.source;
  for (size_t r = 0; r < source.reductions.size(); ++r) {
    const ir::Reduction& red = source.reductions[r];
    std::string type =
        is_arg(red.op) ? base::cat("hd_at<", c_type(red.type), ">") : c_type(red.type);
    k_.out.line(type, " r", p, "_", r, ";");
  }
  k_.out.open();
  PointText at;
  at.flat = at.trip = "0";
  at.store_guard = rows_per_block() > 1 ? "lane == 0 && live" : "lane == 0";
  if (nest_.replicated && !k_.single_thread) at.store_guard += " && " + leader();
  BodyEmitter body(k_, nest_, phase, at, nullptr, p, locals_);
  body.prefix();
  for (size_t r = 0; r < source.reductions.size(); ++r) {
    const ir::Reduction& red = source.reductions[r];
    std::string value = base::cat("hd_cast<", c_type(red.type), ">(", body.ref(red.value), ")");
    if (is_arg(red.op)) value = base::cat("hd_at<", c_type(red.type), ">{", value, ", 0}");
    k_.out.line("r", p, "_", r, " = ", value, ";");
  }
  body.stores();
  k_.out.close();
}

// Inner coordinates from `i`, which counts vectors.
void NestEmitter::decode_inner(size_t p) {
  const PhasePlan& phase = nest_.phases[p];
  size_t last = phase.inner.size() - 1;
  std::string rest = "i";
  for (size_t k = last + 1; k-- > 0;) {
    std::string extent = k_.names.text(phase.inner[k].extent);
    if (k == last && nest_.lanes > 1)
      extent = base::cat("hd_udiv(", extent, ", ", nest_.lanes, ")");
    std::string digit = k == 0 ? rest : base::cat("hd_umod(", rest, ", ", extent, ")");
    if (k == last) {
      k_.out.line("const idx i", k, "b = ", digit,
                  nest_.lanes > 1 ? base::cat(" * ", nest_.lanes) : "", ";");
    } else {
      k_.out.line("const idx i", k, " = ", digit, ";");
    }
    if (k > 0) {
      k_.out.line("const idx j", k, " = hd_udiv(", rest, ", ", extent, ");");
      rest = base::cat("j", k);
    }
  }
}

void NestEmitter::group_loop(size_t p, std::vector<Fold>& folds) {
  const PhasePlan& phase = nest_.phases[p];
  std::string n = inner_total(p);
  if (nest_.lanes > 1) n = base::cat("hd_udiv(", n, ", ", nest_.lanes, ")");
  auto trips = static_trips(p);
  bool closed_if = false;
  if (trips) {
    int64_t vectors = *total(phase.inner).constant() / nest_.lanes;
    k_.out.open("HD_UNROLL for (int t = 0; t < ", *trips, "; ++t)");
    k_.out.line("const idx i = (idx)t * ", nest_.group, " + lane;");
    if (vectors != *trips * nest_.group) {
      k_.out.open("if (i < ", vectors, ")");
      closed_if = true;
    }
  } else {
    k_.out.open("HD_UNROLL4 for (idx i = lane; i < ", n, "; i += ", nest_.group, ")");
  }
  decode_inner(p);
  PointText at;
  at.flat = nest_.lanes > 1 ? base::cat("i * ", nest_.lanes) : "i";
  at.trip = "t";
  at.lane_name = base::cat("i", phase.inner.size() - 1);
  at.store_guard = rows_per_block() > 1 ? "live" : "";
  if (nest_.replicated && !k_.single_thread)
    at.store_guard += (at.store_guard.empty() ? "" : " && ") + leader();
  BodyEmitter body(k_, nest_, phase, at, trips ? &caches_ : nullptr, p, locals_);
  bool quick = folds.empty() && body.use_quick();
  body.prefix();
  body.declare_arrays();
  body.open_lanes();
  body.lanes(0);
  fold_lane(body, folds, at.flat + " + l");
  body.close_lanes();
  if (quick) body.redo_slow();
  body.stores();
  if (closed_if) k_.out.close();
  k_.out.close();
}

void NestEmitter::group_fold(size_t p, std::vector<Fold>& folds) {
  int t = nest_.group, warp = std::min(t, 32);
  for (const Fold& f : folds) {
    std::string op = fold_name(f.r->op);
    k_.out.line("HD_UNROLL for (int l = 1; l < ", nest_.lanes, "; ++l) ", f.acc, "[0] = ", op,
                "::f(", f.acc, "[0], ", f.acc, "[l]);");
    k_.out.line(f.result, " = hd_warp_fold<", op, ", ", warp, ">(", f.acc, "[0]);");
  }
  if (t > 32 && !folds.empty()) {
    k_.out.open("if ((threadIdx.x & 31) == 0)");
    for (const Fold& f : folds)
      k_.out.line("s", f.result.substr(1), "[threadIdx.x / 32] = ", f.result, ";");
    k_.out.close();
    k_.out.line("hd_sync();");
    for (const Fold& f : folds)
      k_.out.line(f.result, " = hd_fold_warps<", fold_name(f.r->op), ", ", t / 32, ">(s",
                  f.result.substr(1), ");");
  }
  for (const Fold& f : folds) finish_fold(f, p, "", inner_total(p));
}

void NestEmitter::scan_node(size_t p, BodyEmitter& body, ir::NodeId n) {
  const ir::Body& b = nest_.phases[p].source->body;
  const ir::Node& x = b.nodes[n];
  ir::Reduction r{b.scans[x.payload].op, x.a, x.type};
  std::string op = fold_name(r.op), type = c_type(x.type), none = identity(r);
  int lanes = nest_.lanes;
  k_.out.open("HD_UNROLL for (int l = 0; l < ", lanes, "; ++l)");
  k_.out.line("const ", type, " v = in ? ", body.ref(x.a), " : ", none, ";");
  k_.out.line("a", n, "[l] = l == 0 ? v : ", op, "::f(a", n, "[l == 0 ? 0 : l - 1], v);");
  k_.out.close();
  std::string shared =
      nest_.group > 32 ? base::cat("w", p, "_", n) : base::cat("(", type, "*)nullptr");
  k_.out.line(type, " all", n, ";");
  k_.out.line("const ", type, " before", n, " = ", op, "::f(carry", n, ", hd_group_scan<", op, ", ",
              nest_.group, ">(a", n, "[", lanes - 1, "], ", none, ", ", shared, ", &all", n, "));");
  k_.out.line("HD_UNROLL for (int l = 0; l < ", lanes, "; ++l) a", n, "[l] = ", op, "::f(before", n,
              ", a", n, "[l]);");
  k_.out.line("carry", n, " = ", op, "::f(carry", n, ", all", n, ");");
}

// Tiles of group x lanes elements along the scan axis; the carry goes from tile to tile.
void NestEmitter::group_scan(size_t p, std::vector<Fold>& folds) {
  const PhasePlan& phase = nest_.phases[p];
  const ir::Body& b = phase.source->body;
  size_t last = phase.inner.size() - 1;
  for (size_t k = 0; k < last; ++k) {
    k_.out.open("for (idx i", k, " = 0; i", k, " < ", k_.names.text(phase.inner[k].extent), "; ++i",
                k, ")");
  }
  std::string n = k_.names.text(phase.inner[last].extent);
  Expr row(0);
  for (size_t k = 0; k < last; ++k) row = row * phase.inner[k].extent + Expr(phase.inner[k].var);
  std::string base_flat = k_.names.text(row * phase.inner[last].extent);
  for (ir::NodeId id = 0; id < b.nodes.size(); ++id) {
    if (b.nodes[id].op != ir::ScalarOp::scan) continue;
    ir::Reduction r{b.scans[b.nodes[id].payload].op, b.nodes[id].a, b.nodes[id].type};
    k_.out.line(c_type(r.type), " carry", id, " = ", identity(r), ";");
  }
  k_.out.open("for (idx tile = 0; tile < ", n, "; tile += ", nest_.group * nest_.lanes, ")");
  std::string name = base::cat("i", last);
  k_.out.line("const bool in = tile + lane * ", nest_.lanes, " < ", n, ";");
  k_.out.line("const idx ", name, "b = in ? tile + lane * ", nest_.lanes, " : 0;");
  PointText at;
  at.flat = base::cat("(", base_flat, " + ", name, "b)");
  at.trip = "0";
  at.lane_name = name;
  at.store_guard = rows_per_block() > 1 ? "in && live" : "in";
  at.local_guard = "in";  // lanes past the end of the row compute at its first points
  if (nest_.replicated && !k_.single_thread) at.store_guard += " && " + leader();
  BodyEmitter body(k_, nest_, phase, at, nullptr, p, locals_);
  body.prefix();
  body.declare_arrays();
  for (int s = 0; s < body.segments(); ++s) {
    for (ir::NodeId id : body.scans(s)) scan_node(p, body, id);
    body.open_lanes();
    body.lanes(s);
    if (s + 1 == body.segments() && !folds.empty()) {
      k_.out.open("if (in)");
      fold_lane(body, folds, at.flat + " + l");
      k_.out.close();
    }
    body.close_lanes();
  }
  body.stores();
  k_.out.close();
  for (size_t k = 0; k < last; ++k) k_.out.close();
}

void emit_nest(KernelContext& k, const NestPlan& nest) { NestEmitter(k, nest).emit(); }

}  // namespace heddle::cuda
