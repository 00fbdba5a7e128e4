// Bodies as text: each node a variable; what differs between lanes is written in loops over the
// lanes.
#include "backend/cuda/kernel_context.h"
#include "ir/fold.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace heddle::cuda {

using ir::kNoNode;
using ir::NodeId;
using ir::ScalarOp;

const char* c_type(DType d) {
  switch (d) {
    case DType::f64:
      return "double";
    case DType::f32:
      return "float";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i8:
      return "i8";
    case DType::i16:
      return "i16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::u16:
      return "u16";
    case DType::u32:
      return "u32";
    case DType::u64:
      return "u64";
    case DType::boolean:
      return "bool";
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "scalar type", std::string(name(d)));
}

std::string c_constant(DType d, uint64_t bits) {
  char text[64];
  switch (d) {
    case DType::f32: {
      float v = std::bit_cast<float>(static_cast<uint32_t>(bits));
      if (!std::isfinite(v)) return base::cat("hd_bits_f32(", static_cast<uint32_t>(bits), "u)");
      std::snprintf(text, sizeof text, "%af", static_cast<double>(v));
      return text;
    }
    case DType::f64: {
      auto v = std::bit_cast<double>(bits);
      if (!std::isfinite(v)) return base::cat("hd_bits_f64(", bits, "ull)");
      std::snprintf(text, sizeof text, "%a", v);
      return text;
    }
    case DType::f16:
    case DType::bf16:
      return base::cat("hd_from(hd_tag<", c_type(d), ">(), ", bits & 0xffff, "u)");
    case DType::boolean:
      return (bits & 1) != 0 ? "true" : "false";
    default:
      return base::cat("(", c_type(d), ")", bits, "ull");
  }
}

namespace {

const char* unary_name(ScalarOp op) {
  switch (op) {
    case ScalarOp::neg:
      return "hd_neg";
    case ScalarOp::abs:
      return "hd_abs";
    case ScalarOp::sqrt:
      return "hd_sqrt";
    case ScalarOp::inverse:
      return "hd_inverse";
    case ScalarOp::floor:
      return "hd_floor";
    case ScalarOp::ceil:
      return "hd_ceil";
    case ScalarOp::trunc:
      return "hd_trunc";
    case ScalarOp::rint:
      return "hd_rint";
    case ScalarOp::bit_not:
      return "hd_not";
    case ScalarOp::logical_not:
      return "!";
    case ScalarOp::is_nan:
      return "hd_is_nan";
    default:
      return nullptr;
  }
}

const char* binary_name(ScalarOp op) {
  switch (op) {
    case ScalarOp::add:
      return "hd_add";
    case ScalarOp::sub:
      return "hd_sub";
    case ScalarOp::mul:
      return "hd_mul";
    case ScalarOp::div:
      return "hd_div";
    case ScalarOp::rem:
      return "hd_rem";
    case ScalarOp::min:
      return "hd_min";
    case ScalarOp::max:
      return "hd_max";
    case ScalarOp::min_num:
      return "hd_min_num";
    case ScalarOp::max_num:
      return "hd_max_num";
    case ScalarOp::bit_and:
      return "hd_and";
    case ScalarOp::bit_or:
      return "hd_or";
    case ScalarOp::bit_xor:
      return "hd_xor";
    case ScalarOp::shl:
      return "hd_shl";
    case ScalarOp::shr:
      return "hd_shr";
    default:
      return nullptr;
  }
}

const char* comparison(ScalarOp op) {
  switch (op) {
    case ScalarOp::eq:
      return " == ";
    case ScalarOp::ne:
      return " != ";
    case ScalarOp::lt:
      return " < ";
    case ScalarOp::le:
      return " <= ";
    case ScalarOp::gt:
      return " > ";
    case ScalarOp::ge:
      return " >= ";
    default:
      return nullptr;
  }
}

const char* library_name(uint32_t f) {
  constexpr const char* kNames[] = {"exp", "log", "tanh", "erf", "pow", "sin", "cos"};
  HD_CHECK(f < std::size(kNames));
  return kNames[f];
}

const char* word_type(int bytes) {
  return bytes == 8 ? "u64" : bytes == 4 ? "u32" : bytes == 2 ? "u16" : "u8";
}

}  // namespace

BodyEmitter::BodyEmitter(KernelContext& k, const NestPlan& nest, const PhasePlan& phase,
                         const PointText& at, const RowCaches* caches, size_t phase_index,
                         const std::map<ir::BufferId, LocalPlace>& locals)
    : k_(k),
      nest_(nest),
      phase_(phase),
      at_(at),
      caches_(caches),
      phase_index_(phase_index),
      locals_(locals) {
  find_levels();
  find_early();
  for (size_t pack = 0; pack < phase.load_packs.size(); ++pack) {
    for (size_t j = 0; j < phase.load_packs[pack].size(); ++j)
      in_pack_[phase.load_packs[pack][j]] = {pack, j};
  }
}

void BodyEmitter::find_levels() {
  const ir::Body& b = body();
  level_.assign(b.nodes.size(), 0);
  array_.assign(b.nodes.size(), false);
  auto level = [&](NodeId n) { return n == kNoNode ? 0 : level_[n]; };
  std::map<uint64_t, NodeId> binds;
  auto symbol_level = [&](const Expr& e) {
    std::vector<SymbolRef> symbols;
    collect_symbols(e, symbols);
    int l = 0;
    for (const SymbolRef& s : symbols) {
      auto it = binds.find(s->id);
      if (it != binds.end()) l = std::max(l, level_[it->second]);
    }
    return l;
  };
  for (NodeId n = 0; n < b.nodes.size(); ++n) {
    const ir::Node& x = b.nodes[n];
    int l = std::max({level(x.a), level(x.b), level(x.c)});
    if (x.op == ScalarOp::load) l = std::max(l, symbol_level(phase_.offsets[x.payload]));
    if (x.op == ScalarOp::index) l = std::max(l, symbol_level(phase_.exprs[x.payload]));
    if (x.op == ScalarOp::bind) binds[b.symbols[x.payload]->id] = n;
    if (x.op == ScalarOp::scan) ++l;
    level_[n] = l;
    segments_ = std::max(segments_, l + 1);
  }
  auto keep = [&](NodeId n) {
    if (n != kNoNode && phase_.varying[n]) array_[n] = true;
  };
  for (NodeId n = 0; n < b.nodes.size(); ++n) {
    const ir::Node& x = b.nodes[n];
    for (NodeId o : {x.a, x.b, x.c}) {
      if (o != kNoNode && (level_[o] != level_[n] || x.op == ScalarOp::scan)) keep(o);
    }
    if (x.op == ScalarOp::scan) keep(n);
    if (x.op == ScalarOp::bind) keep(x.a);
  }
  for (const ir::Store& s : b.stores) {
    keep(stored_value(s));
    keep(s.mask);
  }
  for (const ir::Reduction& r : phase_.source->reductions) {
    if (level_[r.value] + 1 < segments_) keep(r.value);
  }
}

// What a store writes: a half that was widened only to be stored goes as it is.
NodeId BodyEmitter::stored_value(const ir::Store& s) const {
  const ir::Node& x = node(s.value);
  const ir::Buffer& b = k_.kernel.buffers[body().accesses[s.access].buffer];
  if (b.dtype != DType::f16 && b.dtype != DType::bf16) return s.value;
  NodeId wide = x.op == ScalarOp::cast && x.type == b.dtype ? x.a : s.value;
  const ir::Node& w = node(wide);
  return w.op == ScalarOp::cast && w.type == DType::f32 && node(w.a).type == b.dtype ? w.a
                                                                                     : s.value;
}

std::vector<NodeId> BodyEmitter::scans(int level) const {
  std::vector<NodeId> out;
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    if (node(n).op == ScalarOp::scan && level_[n] == level) out.push_back(n);
  }
  return out;
}

bool BodyEmitter::packed(NodeId n) const {
  const ir::Node& x = node(n);
  if (x.op != ScalarOp::load || k_.check_bounds) return false;
  AccessForm f = phase_.forms[x.payload];
  if (f == AccessForm::vector) return true;
  return f == AccessForm::scattered && caches_ != nullptr &&
         caches_->names[phase_index_].count(x.payload) != 0;
}

std::string BodyEmitter::ref(NodeId n) const {
  if (!phase_.varying[n]) return base::cat("v", n);
  if (packed(n)) return base::cat("hd_lane<", c_type(node(n).type), ">(p", n, ".w, l)");
  return array_[n] ? base::cat("a", n, "[l]") : base::cat("v", n);
}

std::string BodyEmitter::pointer(uint32_t access) const {
  ir::BufferId b = body().accesses[access].buffer;
  return base::cat("(const ", word_type(memory_bytes(k_.kernel.buffers[b].dtype)), "*)",
                   k_.buffer(b), " + ", k_.names.text(phase_.offsets[access]));
}

std::string BodyEmitter::local_text(ir::BufferId b) const {
  const ir::Buffer& buffer = k_.kernel.buffers[b];
  if (buffer.role == ir::BufferRole::scalar_local) return base::cat("L", b);
  auto it = locals_.find(b);
  HD_CHECK(it != locals_.end(), "row_local ", buffer.name, " has no place");
  if (it->second == LocalPlace::registers) return base::cat("R", b, "[", at_.trip, "][l]");
  return base::cat("R", b, "[", at_.flat, nest_.mapping == Mapping::group ? " + l" : "", "]");
}

std::string BodyEmitter::inside_text(uint32_t access) {
  const ir::Access& a = body().accesses[access];
  const ir::Buffer& b = k_.kernel.buffers[a.buffer];
  auto id = k_.checked.size();
  k_.checked.push_back({b.name, false});
  std::string out = "(";
  const std::vector<Expr>& coords = phase_.coords[access];
  for (size_t k = 0; k < coords.size(); ++k) {
    out += base::cat(k ? " && " : "", "hd_inside(hd_fault, ", id, "u, ", k, "u, ",
                     k_.names.text(coords[k]), ", ", k_.names.text(b.extents[k]), ")");
  }
  return coords.empty() ? "true" : out + ")";
}

std::string BodyEmitter::load_text(NodeId n) {
  const ir::Node& x = node(n);
  if (auto it = in_pack_.find(n); it != in_pack_.end())
    return base::cat("hd_lane<", c_type(x.type), ">(g", it->second.first, ".w, ", it->second.second,
                     ")");
  if (auto staged = at_.staged.find(x.payload); staged != at_.staged.end()) return staged->second;
  ir::BufferId b = body().accesses[x.payload].buffer;
  const ir::Buffer& buffer = k_.kernel.buffers[b];
  std::string load;
  if (is_local(buffer)) {
    load = local_text(b);
  } else {
    load = base::cat(k_.read_only.count(b) != 0 ? "hd_get_const<" : "hd_get<",
                     c_type(memory_type(buffer.dtype)), ">(", k_.buffer(b), ", ",
                     k_.names.text(phase_.offsets[x.payload]), ")");
    if (k_.check_bounds) {
      load = base::cat("(", inside_text(x.payload), " ? ", load, " : ", c_constant(x.type, 0), ")");
    }
  }
  return x.a == kNoNode ? load : base::cat(ref(x.a), " ? ", load, " : ", ref(x.b));
}

std::string BodyEmitter::row_text(const ir::Node& n) const {
  const ir::RowRef& r = body().rows[n.payload];
  std::string v = base::cat("r", r.phase, "_", r.reduction);
  if (nest_.mapping == Mapping::thread) v += nest_.outer.empty() ? "[0]" : "[l]";
  ir::ReduceOp op = nest_.source->phases[r.phase].reductions[r.reduction].op;
  bool arg = ir::is_arg(op);
  if (!arg) return v;
  return r.component == 0 ? v + ".v" : base::cat("(", v, ".at < 0 ? (i64)0 : ", v, ".at)");
}

std::string BodyEmitter::value_text(NodeId n) {
  const ir::Node& x = node(n);
  const char* type = c_type(x.type);
  switch (x.op) {
    case ScalarOp::constant:
      return c_constant(x.type, x.bits);
    case ScalarOp::index:
      return base::cat("(i64)", k_.names.text(phase_.exprs[x.payload]));
    case ScalarOp::load:
      return load_text(n);
    case ScalarOp::bind:
      return ref(x.a);
    case ScalarOp::row:
      return row_text(x);
    case ScalarOp::fma:
      return base::cat("hd_fma(", ref(x.a), ", ", ref(x.b), ", ", ref(x.c), ")");
    case ScalarOp::select:
      return base::cat(ref(x.a), " ? ", ref(x.b), " : ", ref(x.c));
    case ScalarOp::cast:
      return base::cat("hd_cast<", type, ">(", ref(x.a), ")");
    case ScalarOp::bitcast:
      return base::cat("hd_bitcast<", type, ">(", ref(x.a), ")");
    case ScalarOp::call:
      return x.b == kNoNode
                 ? base::cat(library_name(x.payload), "(", ref(x.a), ")")
                 : base::cat(library_name(x.payload), "(", ref(x.a), ", ", ref(x.b), ")");
    case ScalarOp::shl:
    case ScalarOp::shr:
      if (x.type == DType::boolean) return ref(x.a);
      break;
    default:
      break;
  }
  if (quick_.count(n) != 0)
    return base::cat("hd_quotient(", ref(x.a), ", ", ref(x.b), ", u", x.b, ")");
  if (const char* sign = comparison(x.op)) return base::cat(ref(x.a), sign, ref(x.b));
  if (const char* f = binary_name(x.op)) return base::cat(f, "(", ref(x.a), ", ", ref(x.b), ")");
  const char* f = unary_name(x.op);
  HD_CHECK(f != nullptr, "scalar operation ", static_cast<int>(x.op));
  return x.op == ScalarOp::logical_not ? base::cat("!hd_cast<bool>(", ref(x.a), ")")
                                       : base::cat(f, "(", ref(x.a), ")");
}

void BodyEmitter::emit_pack(NodeId n) {
  const ir::Node& x = node(n);
  ir::BufferId b = body().accesses[x.payload].buffer;
  int bytes = memory_bytes(k_.kernel.buffers[b].dtype) * nest_.lanes;
  auto cache = caches_ == nullptr ? std::map<uint32_t, std::string>::const_iterator{}
                                  : caches_->names[phase_index_].find(x.payload);
  bool cached = caches_ != nullptr && cache != caches_->names[phase_index_].end();
  if (cached && !caches_->first[phase_index_].at(x.payload)) {
    k_.out.line("const hd_pack<", bytes, "> p", n, " = ", cache->second, "[", at_.trip, "];");
    return;
  }
  std::string load = base::cat(k_.read_only.count(b) != 0 ? "hd_load_const<" : "hd_load<", bytes,
                               ">(", pointer(x.payload), ")");
  if (x.a == kNoNode) {
    k_.out.line("const hd_pack<", bytes, "> p", n, " = ", load, ";");
  } else {
    k_.out.line("hd_pack<", bytes, "> p", n, ";");
    k_.out.line("if (", ref(x.a), ") p", n, " = ", load, ";");
    k_.out.line("else HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) hd_set_lane(p", n,
                ".w, l, ", ref(x.b), ");");
  }
  if (cached) k_.out.line(cache->second, "[", at_.trip, "] = p", n, ";");
}

// The vector that several load nodes are elements of.
void BodyEmitter::emit_load_pack(size_t pack) {
  if (!written_packs_.insert(pack).second) return;
  const std::vector<uint32_t>& nodes = phase_.load_packs[pack];
  const ir::Node& x = node(nodes[0]);
  ir::BufferId b = body().accesses[x.payload].buffer;
  int n = static_cast<int>(nodes.size());
  int bytes = memory_bytes(k_.kernel.buffers[b].dtype) * n;
  std::string load = base::cat(k_.read_only.count(b) != 0 ? "hd_load_const<" : "hd_load<", bytes,
                               ">(", pointer(x.payload), ")");
  if (x.a == kNoNode) {
    k_.out.line("const hd_pack<", bytes, "> g", pack, " = ", load, ";");
    return;
  }
  k_.out.line("hd_pack<", bytes, "> g", pack, ";");
  k_.out.line("if (", ref(x.a), ") g", pack, " = ", load, ";");
  k_.out.line("else HD_UNROLL for (int k = 0; k < ", n, "; ++k) hd_set_lane(g", pack, ".w, k, ",
              ref(x.b), ");");
}

void BodyEmitter::emit_node(NodeId n) {
  const ir::Node& x = node(n);
  if (auto it = in_pack_.find(n); it != in_pack_.end()) emit_load_pack(it->second.first);
  if (quick_.count(n) != 0) k_.out.line("slow |= hd_far(", ref(x.a), ");");
  std::string text = value_text(n);
  if (array_[n] && phase_.varying[n]) {
    k_.out.line("a", n, "[l] = ", text, ";");
  } else {
    k_.out.line("const ", c_type(x.type), " v", n, " = ", text, ";");
  }
  if (x.op != ScalarOp::bind) return;
  const SymbolRef& s = body().symbols[x.payload];
  std::string name = base::cat("x", x.payload, "_", phase_index_);
  k_.names.set(s, name);
  std::string value = ref(n);
  if (k_.check_bounds) {
    auto id = k_.checked.size();
    k_.checked.push_back({s->name, true});
    // How many values it may have, as far as 64 bits count: its bounds may be open.
    int64_t count = 0;
    bool open = __builtin_sub_overflow(s->upper, s->lower, &count) || count == INT64_MAX;
    count = open ? INT64_MAX : count + 1;
    k_.out.line("const idx ", name, " = hd_inside(hd_fault, ", id, "u, 0u, ", value, " - (i64)",
                s->lower, "LL, ", count, "LL) ? (idx)", value, " : (idx)", s->lower, "LL;");
  } else {
    k_.out.line("const idx ", name, " = (idx)", value, ";");
  }
}

void BodyEmitter::name_lane(const char* suffix) {
  if (at_.lane_name.empty()) return;
  bool outer = nest_.mapping == Mapping::thread || nest_.mapping == Mapping::tile;
  const std::vector<LoopAxis>& axes = outer ? nest_.outer : phase_.inner;
  k_.names.set(axes.back().var, at_.lane_name + suffix);
}

void BodyEmitter::prefix() {
  name_lane("b");
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    if (packed(n)) {
      emit_pack(n);
    } else if (!phase_.varying[n]) {
      emit_node(n);
    }
  }
  if (quick_.empty()) return;
  std::set<NodeId> divisors;
  for (NodeId n : quick_) divisors.insert(node(n).b);
  k_.out.line("bool slow = false;");
  for (NodeId n : divisors) {
    k_.out.line("const float u", n, " = hd_reciprocal(", ref(n), ");");
    k_.out.line("slow |= hd_far(", ref(n), ");");
  }
}

void BodyEmitter::whole() {
  prefix();
  declare_arrays();
  open_lanes();
  lanes(0);
  close_lanes();
  stores();
}

void BodyEmitter::load_caches() {
  name_lane("b");
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    if (packed(n)) emit_pack(n);
  }
}

void BodyEmitter::declare_arrays() {
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    if (array_[n] && phase_.varying[n] && !packed(n))
      k_.out.line(c_type(node(n).type), " a", n, "[", nest_.lanes, "];");
  }
}

void BodyEmitter::open_lanes() {
  if (nest_.lanes > 1) {
    k_.out.open("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l)");
  } else {
    k_.out.open();
    k_.out.line("const int l = 0;");
  }
  if (!at_.lane_name.empty()) {
    k_.out.line("const idx ", at_.lane_name, " = ", at_.lane_name, "b + l; (void)", at_.lane_name,
                ";");
    name_lane("");
  }
  // Indices of earlier segments.
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    const ir::Node& x = node(n);
    if (x.op != ScalarOp::bind || !phase_.varying[n] || level_[n] >= current_) continue;
    std::string name = base::cat("x", x.payload, "_", phase_index_);
    k_.out.line("const idx ", name, " = (idx)", ref(x.a), "; (void)", name, ";");
    k_.names.set(body().symbols[x.payload], name);
  }
}

void BodyEmitter::close_lanes() {
  k_.out.close();
  name_lane("b");
}

void BodyEmitter::lanes(int s) {
  current_ = s;
  for (bool early : {true, false}) {
    for (NodeId n = 0; n < body().nodes.size(); ++n) {
      if (early_[n] != early || !phase_.varying[n] || packed(n) || level_[n] != s ||
          node(n).op == ScalarOp::scan)
        continue;
      emit_node(n);
    }
  }
}

void BodyEmitter::emit_vector_store(const ir::Store& s) {
  ir::BufferId b = body().accesses[s.access].buffer;
  DType memory = memory_type(k_.kernel.buffers[b].dtype);
  int bytes = memory_bytes(memory) * nest_.lanes;
  k_.out.open();
  k_.out.line("hd_pack<", bytes, "> o;");
  k_.out.line("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) hd_set_lane(o.w, l, hd_cast<",
              c_type(memory), ">(", ref(stored_value(s)), "));");
  std::string store = base::cat(store_function(), bytes, ">((void*)(", pointer(s.access), "), o);");
  if (s.mask != kNoNode) store = base::cat("if (", ref(s.mask), ") ", store);
  k_.out.line(store);
  k_.out.close();
}

void BodyEmitter::emit_store_pack(const std::vector<uint32_t>& pack) {
  const ir::Store& first = body().stores[pack[0]];
  DType memory = memory_type(k_.kernel.buffers[body().accesses[first.access].buffer].dtype);
  int bytes = memory_bytes(memory) * static_cast<int>(pack.size());
  open_lanes();
  k_.out.line("hd_pack<", bytes, "> o;");
  for (size_t k = 0; k < pack.size(); ++k)
    k_.out.line("hd_set_lane(o.w, ", k, ", hd_cast<", c_type(memory), ">(",
                ref(stored_value(body().stores[pack[k]])), "));");
  std::string store =
      base::cat(store_function(), bytes, ">((void*)(", pointer(first.access), "), o);");
  if (first.mask != kNoNode) store = base::cat("if (", ref(first.mask), ") ", store);
  k_.out.line(store);
  close_lanes();
}

void BodyEmitter::emit_store(const ir::Store& s) {
  ir::BufferId b = body().accesses[s.access].buffer;
  const ir::Buffer& buffer = k_.kernel.buffers[b];
  DType memory = memory_type(buffer.dtype);
  std::string store;
  if (is_local(buffer)) {
    store =
        base::cat(local_text(b), " = hd_cast<", c_type(memory), ">(", ref(stored_value(s)), ");");
  } else {
    std::string offset = k_.names.text(phase_.offsets[s.access]);
    std::string value = ref(stored_value(s));
    if (s.kind == ir::StoreKind::add) {
      const char* wide = c_type(compute_type(memory));
      value = base::cat("hd_add(hd_cast<", wide, ">(hd_get<", c_type(memory), ">(", k_.buffer(b),
                        ", ", offset, ")), hd_cast<", wide, ">(", value, "))");
    }
    store = base::cat(nest_.streams ? "hd_put_stream<" : "hd_put<", c_type(memory), ">(",
                      k_.buffer(b), ", ", offset, ", hd_cast<", c_type(memory), ">(", value, "));");
  }
  std::string guard = s.mask == kNoNode ? "" : ref(s.mask);
  if (k_.check_bounds && !is_local(buffer))
    guard += (guard.empty() ? "" : " && ") + inside_text(s.access);
  k_.out.line(guard.empty() ? store : base::cat("if (", guard, ") ", store));
}

void BodyEmitter::stores() {
  current_ = segments_;
  std::set<uint32_t> done;
  for (const std::vector<uint32_t>& pack : phase_.store_packs) {
    done.insert(pack.begin(), pack.end());
    if (!at_.store_guard.empty()) k_.out.open("if (", at_.store_guard, ")");
    emit_store_pack(pack);
    if (!at_.store_guard.empty()) k_.out.close();
  }
  for (uint32_t k = 0; k < body().stores.size(); ++k) {
    if (done.count(k) != 0) continue;
    const ir::Store& s = body().stores[k];
    const ir::Buffer& buffer = k_.kernel.buffers[body().accesses[s.access].buffer];
    const std::string& guard = is_local(buffer) ? at_.local_guard : at_.store_guard;
    if (!guard.empty()) k_.out.open("if (", guard, ")");
    AccessForm form = phase_.forms[s.access];
    bool lane = form == AccessForm::scattered || buffer.role == ir::BufferRole::row_local ||
                (s.mask != kNoNode && phase_.varying[s.mask]) || phase_.varying[stored_value(s)];
    if (form == AccessForm::vector) {
      emit_vector_store(s);
    } else if (lane) {
      open_lanes();
      emit_store(s);
      close_lanes();
    } else {
      emit_store(s);
    }
    if (!guard.empty()) k_.out.close();
  }
}

}  // namespace heddle::cuda
