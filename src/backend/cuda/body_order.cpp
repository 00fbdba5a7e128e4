// Bodies as text: the order in which nodes are written, and quotients without branches.
#include "backend/cuda/kernel_context.h"

#include <algorithm>

namespace heddle::cuda {

using ir::kNoNode;
using ir::NodeId;
using ir::ScalarOp;

namespace {

constexpr int64_t kMaxPreloads = 96;  // registers
constexpr int kPreloadThreads = 512;  // that a multiprocessor holds nevertheless

bool is_cheap(ScalarOp op) {
  return op != ScalarOp::div && op != ScalarOp::rem && op != ScalarOp::sqrt &&
         op != ScalarOp::call && op != ScalarOp::fma && op != ScalarOp::scan;
}

}  // namespace

// A compiler does not move loads over the branches of what stands before them: they come first.
void BodyEmitter::find_early() {
  const ir::Body& b = body();
  early_.assign(b.nodes.size(), false);
  if (k_.check_bounds) return;
  std::vector<bool> cheap(b.nodes.size(), false);
  std::map<uint64_t, NodeId> binds;
  auto needs = [&](NodeId n) {  // operands, and the nodes of indices that are computed
    const ir::Node& x = b.nodes[n];
    std::vector<NodeId> out;
    for (NodeId o : {x.a, x.b, x.c}) {
      if (o != kNoNode) out.push_back(o);
    }
    std::vector<SymbolRef> symbols;
    if (x.op == ScalarOp::load) collect_symbols(phase_.offsets[x.payload], symbols);
    if (x.op == ScalarOp::index) collect_symbols(phase_.exprs[x.payload], symbols);
    for (const SymbolRef& s : symbols) {
      auto it = binds.find(s->id);
      if (it != binds.end()) out.push_back(it->second);
    }
    return out;
  };
  for (NodeId n = 0; n < b.nodes.size(); ++n) {
    const ir::Node& x = b.nodes[n];
    cheap[n] = is_cheap(x.op);
    for (NodeId o : needs(n)) cheap[n] = cheap[n] && cheap[o];
    if (x.op == ScalarOp::bind) binds[b.symbols[x.payload]->id] = n;
  }
  for (NodeId n = static_cast<NodeId>(b.nodes.size()); n-- > 0;) {
    early_[n] = early_[n] || (b.nodes[n].op == ScalarOp::load && cheap[n]);
    if (!early_[n]) continue;
    for (NodeId o : needs(n)) early_[o] = true;
  }
}

bool BodyEmitter::preloads(NodeId n) const {
  const ir::Node& x = node(n);
  return early_[n] && x.op == ScalarOp::load && phase_.varying[n] &&
         !is_local(k_.kernel.buffers[body().accesses[x.payload].buffer]);
}

bool BodyEmitter::use_preloads(int64_t trips) {
  if (nest_.lanes != 1 || trips < 2 || segments_ > 1 || k_.check_bounds) return false;
  const ir::Body& b = body();
  if (std::all_of(b.stores.begin(), b.stores.end(), [&](const ir::Store& s) {
        return is_local(k_.kernel.buffers[b.accesses[s.access].buffer]);
      }))
    return false;
  int64_t words = 0;
  for (NodeId n = 0; n < b.nodes.size(); ++n) {
    if (!preloads(n)) continue;
    auto pack = in_pack_.find(n);
    if (pack != in_pack_.end() && b.nodes[n].a != kNoNode) return false;
    bool narrow = memory_bytes(b.nodes[n].type) < 4;
    if (pack == in_pack_.end() || pack->second.second == 0 || !narrow)
      words += std::max(1, memory_bytes(b.nodes[n].type) / 4);
  }
  if (words == 0 || words * trips > kMaxPreloads) return false;
  std::set<size_t> packs;
  for (NodeId n = 0; n < b.nodes.size(); ++n) {
    if (!preloads(n)) continue;
    auto pack = in_pack_.find(n);
    if (pack == in_pack_.end()) {
      k_.out.line(c_type(b.nodes[n].type), " m", n, "[", trips, "];");
    } else if (packs.insert(pack->second.first).second) {
      const std::vector<uint32_t>& nodes = phase_.load_packs[pack->second.first];
      ir::BufferId buffer = b.accesses[b.nodes[n].payload].buffer;
      auto bytes = static_cast<size_t>(memory_bytes(k_.kernel.buffers[buffer].dtype));
      k_.out.line("hd_pack<", bytes * nodes.size(), "> h", pack->second.first, "[", trips, "];");
    }
  }
  k_.min_blocks = std::max(k_.min_blocks, kPreloadThreads / k_.block);
  return true;
}

void BodyEmitter::preload() {
  name_lane("b");
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    if (early_[n] && !phase_.varying[n]) emit_node(n);
  }
  open_lanes();
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    if (!early_[n] || !phase_.varying[n]) continue;
    if (!preloads(n)) {
      emit_node(n);
    } else if (auto pack = in_pack_.find(n); pack == in_pack_.end()) {
      k_.out.line("m", n, "[", at_.trip, "] = ", load_text(n), ";");
    } else if (written_packs_.count(pack->second.first) == 0) {
      emit_load_pack(pack->second.first);
      k_.out.line("h", pack->second.first, "[", at_.trip, "] = g", pack->second.first, ";");
    }
  }
  close_lanes();
  written_packs_.clear();
  preloaded_ = true;
}

bool BodyEmitter::use_quick() {
  if (segments_ > 1 || k_.check_bounds || (k_.off & kDivide) != 0) return false;
  for (NodeId n = 0; n < body().nodes.size(); ++n) {
    const ir::Node& x = node(n);
    if (x.op != ScalarOp::div || x.type != DType::f32 || !phase_.varying[n] || phase_.varying[x.b])
      continue;
    quick_.insert(n);
    if (phase_.varying[x.a]) array_[x.a] = true;  // redo_slow() looks at it again
  }
  return !quick_.empty();
}

// Dividends of +0 are common, and right. A test for them would cost too much at each point: `slow`
// is asked again without them.
void BodyEmitter::redo_slow() {
  std::set<NodeId> divisors, dividends;
  for (NodeId n : quick_) {
    divisors.insert(node(n).b);
    dividends.insert(node(n).a);
  }
  k_.out.open("if (slow)");
  k_.out.line("slow = false;");
  for (NodeId o : divisors) k_.out.line("slow |= hd_far(", ref(o), ");");
  open_lanes();
  for (NodeId o : dividends) k_.out.line("slow |= hd_far_dividend(", ref(o), ");");
  close_lanes();
  k_.out.close();
  quick_.clear();
  k_.out.open("if (slow)");
  open_lanes();
  lanes(0);
  close_lanes();
  k_.out.close();
}

}  // namespace heddle::cuda
