// Bodies as text: the order in which nodes are written, and quotients without branches.
#include "backend/cuda/kernel_context.h"

namespace heddle::cuda {

using ir::kNoNode;
using ir::NodeId;
using ir::ScalarOp;

namespace {

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
