// Each defect changes kernels just before they are compiled, or layouts before they are used, in
// the narrow circumstances in which a real mistake of a scheduler, a planner or a cache would show.
// None of them leaves its buffers.
#include "defects.h"

#include "plan/test_hooks.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace heddle::test {
namespace {

using ir::Node;
using ir::NodeId;
using ir::ScalarOp;
using plan::test_hooks;

// ---- changing kernels

void each_statement(std::vector<ir::Stmt>& list, const std::function<void(ir::Stmt&)>& f) {
  for (ir::Stmt& s : list) {
    f(s);
    each_statement(s.first, f);
    each_statement(s.second, f);
  }
}

void each_nest(ir::Kernel& kernel, const std::function<void(ir::Nest&)>& f) {
  each_statement(kernel.body, [&](ir::Stmt& s) {
    if (!s.nest) return;
    auto copy = std::make_shared<ir::Nest>(*s.nest);
    f(*copy);
    s.nest = copy;
  });
}

void plant_in_nests(void (*change)(ir::Kernel&, ir::Nest&)) {
  test_hooks().kernel = [change](ir::Kernel& k) {
    each_nest(k, [&](ir::Nest& n) { change(k, n); });
  };
}
void plant_in_phases(void (*change)(ir::Kernel&, ir::Phase&)) {
  test_hooks().kernel = [change](ir::Kernel& k) {
    each_nest(k, [&](ir::Nest& n) {
      for (ir::Phase& p : n.phases) change(k, p);
    });
  };
}

Node make_node(ScalarOp op, DType type, NodeId a, NodeId b = ir::kNoNode, uint64_t bits = 0) {
  Node n;
  n.op = op;
  n.type = type;
  n.a = a;
  n.b = b;
  n.bits = bits;
  return n;
}

NodeId append(ir::Body& body, const Node& n) {
  body.nodes.push_back(n);
  return static_cast<NodeId>(body.nodes.size() - 1);
}

// Inserts before node `at`; ids from there on grow by one.
void insert(ir::Phase& p, NodeId at, const Node& n) {
  auto moved = [at](NodeId& id) {
    if (id != ir::kNoNode && id >= at) ++id;
  };
  for (Node& x : p.body.nodes) moved(x.a), moved(x.b), moved(x.c);
  for (ir::Store& s : p.body.stores) moved(s.value), moved(s.mask);
  for (ir::Reduction& r : p.reductions) moved(r.value);
  p.body.nodes.insert(p.body.nodes.begin() + at, n);
}

bool in_memory(const ir::Kernel& k, const ir::Access& access) {
  ir::BufferRole role = k.buffers[access.buffer].role;
  return role != ir::BufferRole::row_local && role != ir::BufferRole::scalar_local;
}

bool constant(const ir::Body& body, NodeId n) { return body.nodes[n].op == ScalarOp::constant; }

// ---- defects

// An operand that a fold reads: its first axis is read one further on (the last line twice).
void wrong_index(ir::Kernel& k, ir::Phase& p) {
  if (p.reductions.empty()) return;
  for (const Node& n : p.body.nodes) {
    if (n.op != ScalarOp::load || n.a != ir::kNoNode) continue;
    ir::Access& access = p.body.accesses[n.payload];
    if (access.coords.size() < 3 || access.coords[0].is_constant() || !in_memory(k, access))
      continue;
    const Expr& extent = k.buffers[access.buffer].extents[0];
    access.coords[0] = min(access.coords[0] + Expr(1), extent - Expr(1));
    return;
  }
}

// a - b or a / b behind a fold, exchanged.
void swapped_operand(ir::Kernel& /*k*/, ir::Phase& p) {
  if (p.body.rows.empty()) return;
  for (Node& n : p.body.nodes) {
    bool ordered = n.op == ScalarOp::sub || n.op == ScalarOp::div;
    if (!ordered || constant(p.body, n.a) || constant(p.body, n.b)) continue;
    std::swap(n.a, n.b);
    return;
  }
}

// A maximum that starts from 0.
void wrong_identity(ir::Kernel& /*k*/, ir::Phase& p) {
  for (ir::Reduction& r : p.reductions) {
    if (r.op != ir::ReduceOp::max || !is_real_float(r.type)) continue;
    DType type = p.body.nodes[r.value].type;
    NodeId zero = append(p.body, make_node(ScalarOp::constant, type, ir::kNoNode));
    r.value = append(p.body, make_node(ScalarOp::max, type, r.value, zero));
  }
}

// A fold over several axes that ends one early on the slowest.
void short_fold(ir::Kernel& /*k*/, ir::Phase& p) {
  if (p.reductions.empty() || p.inner.size() < 2) return;
  ir::Axis& axis = p.inner[0];
  if (axis.kind == ir::AxisKind::reduced)
    axis.extent = max(axis.extent - Expr(1), min(axis.extent, Expr(1)));
}

// A last axis whose remainder after vectors of eight is left out.
void lost_tail(ir::Kernel& k, ir::Nest& n) {
  if (n.phases.size() != 1 || !n.phases[0].reductions.empty() || n.outer.size() < 2) return;
  for (const ir::Buffer& b : k.buffers) {
    if (b.role == ir::BufferRole::scalar_local)
      return;  // not in loops: nothing but the tail is lost
  }
  Expr& e = n.outer.back().extent;
  e = max(min(e, Expr(7)), e / Expr(8) * Expr(8));
}

// Padding that repeats the edge in place of its value.
void lost_mask(ir::Kernel& k, ir::Phase& p) {
  for (Node& n : p.body.nodes) {
    if (n.op != ScalarOp::load || n.a == ir::kNoNode) continue;
    ir::Access access = p.body.accesses[n.payload];
    if (!in_memory(k, access) || access.coords.size() != 3) continue;
    for (size_t d = 0; d < 3; ++d) {
      const Expr& extent = k.buffers[access.buffer].extents[d];
      if (extent.lower() < 1) return;
      access.coords[d] = max(min(access.coords[d], extent - Expr(1)), Expr(0));
    }
    n.payload = static_cast<uint32_t>(p.body.accesses.size());
    p.body.accesses.push_back(access);
    n.a = n.b = ir::kNoNode;
    return;
  }
}

// Conversions to integers that round to nearest.
void cast_rounds(ir::Kernel& /*k*/, ir::Phase& p) {
  for (NodeId id = 0; id < p.body.nodes.size(); ++id) {
    Node n = p.body.nodes[id];
    if (n.op != ScalarOp::cast || !is_integer(n.type)) continue;
    DType from = p.body.nodes[n.a].type;
    if (from != f32 && from != f64) continue;
    insert(p, id, make_node(ScalarOp::rint, from, n.a));
    ++id;
    p.body.nodes[id].a = id - 1;
  }
}

// Conversions to bf16 that cut the mantissa.
void cast_truncates(ir::Kernel& /*k*/, ir::Phase& p) {
  for (NodeId id = 0; id < p.body.nodes.size(); ++id) {
    Node n = p.body.nodes[id];
    if (n.op != ScalarOp::cast || n.type != bf16 || p.body.nodes[n.a].type != f32) continue;
    auto before = [&](ScalarOp op, DType type, NodeId a, NodeId b, uint64_t bits) {
      insert(p, id, make_node(op, type, a, b, bits));
      return id++;
    };
    NodeId mask = before(ScalarOp::constant, u32, ir::kNoNode, ir::kNoNode, uint64_t{0xffff0000U});
    NodeId bits = before(ScalarOp::bitcast, u32, n.a, ir::kNoNode, 0);
    NodeId cut = before(ScalarOp::bit_and, u32, bits, mask, 0);
    NodeId whole = before(ScalarOp::bitcast, f32, cut, ir::kNoNode, 0);
    p.body.nodes[id].a = whole;
  }
}

// A cache of kernels whose key leaves out the constants.
void stale_key() {
  auto first = std::make_shared<std::map<std::string, ir::Kernel>>();
  test_hooks().kernel = [first](ir::Kernel& k) {
    ir::Kernel bare = k;
    each_nest(bare, [](ir::Nest& n) {
      for (ir::Phase& p : n.phases) {
        for (Node& x : p.body.nodes) {
          if (x.op == ScalarOp::constant && x.type == f32) x.bits = 0;
        }
      }
    });
    k = first->try_emplace(ir::canonical_text(bare), k).first->second;
  };
}

void lost_swap() {
  test_hooks().kernel = [](ir::Kernel& k) {
    each_statement(k.body, [](ir::Stmt& s) {
      if (s.kind == ir::StmtKind::swap) s.b = s.a;
    });
  };
}

void lost_barrier() {
  test_hooks().kernel = [](ir::Kernel& k) {
    bool done = false;
    each_statement(k.body, [&](ir::Stmt& s) {
      if (s.kind != ir::StmtKind::barrier || done) return;
      s.barrier = ir::BarrierScope::none;
      done = true;
    });
  };
}

void short_loop() {
  test_hooks().kernel = [](ir::Kernel& k) {
    each_statement(k.body, [](ir::Stmt& s) {
      if (s.kind == ir::StmtKind::for_loop && !s.has_count_buffer)
        s.count = max(s.count - Expr(1), Expr(0));
    });
  };
}

plan::SlotId root_of(const plan::Plan& plan, plan::SlotId id) {
  while (plan.slots[id].shares != plan::kNone) id = plan.slots[id].shares;
  return id;
}

// Liveness that ends one step early: a buffer takes the place of one that the same step still
// reads.
void early_death() {
  test_hooks().layout = [](const plan::Plan& plan, plan::Layout& layout) {
    for (plan::SlotId b = 0; b < plan.slots.size(); ++b) {
      const plan::Slot& late = plan.slots[b];
      if (layout.offset[b] < 0 || late.shares != plan::kNone || late.pinned) continue;
      for (plan::SlotId a = 0; a < plan.slots.size(); ++a) {
        const plan::Slot& dying = plan.slots[a];
        bool same = a == b || layout.offset[a] < 0 || dying.shares != plan::kNone || dying.pinned;
        if (same || dying.end != late.begin || layout.bytes[b] > layout.bytes[a]) continue;
        for (plan::SlotId s = 0; s < plan.slots.size(); ++s) {
          if (root_of(plan, s) == b) layout.offset[s] = layout.offset[a];
        }
        return;
      }
    }
  };
}

// Sizes given to kernels stay those of an executable's first run.
void stale_size() {
  struct First {
    std::shared_ptr<const ir::Graph> graph;  // keeps the address that is the key
    std::vector<int64_t> symbols;
  };
  auto seen = std::make_shared<std::map<const ir::Graph*, First>>();
  test_hooks().layout = [seen](const plan::Plan& plan, plan::Layout& layout) {
    if (seen->size() > 64) seen->clear();
    First& first =
        seen->try_emplace(plan.graph.get(), First{plan.graph, layout.step_symbols}).first->second;
    layout.step_symbols = first.symbols;
  };
}

}  // namespace

const std::vector<Defect>& defects() {
  static const std::vector<Defect> list = {
      {.name = "wrong-index",
       .what = "a fold reads its operand one line too far",
       .quick = true,
       .plant = [] { plant_in_phases(wrong_index); }},
      {.name = "swapped-operand",
       .what = "a subtraction or division behind a fold has its operands exchanged",
       .quick = true,
       .plant = [] { plant_in_phases(swapped_operand); }},
      {.name = "wrong-identity",
       .what = "a maximum starts from 0",
       .plant = [] { plant_in_phases(wrong_identity); }},
      {.name = "short-fold",
       .what = "a fold over several axes leaves out the last step of the slowest",
       .quick = true,
       .plant = [] { plant_in_phases(short_fold); }},
      {.name = "lost-tail",
       .what = "the remainder after vectors of eight is not computed",
       .quick = true,
       .plant = [] { plant_in_nests(lost_tail); }},
      {.name = "lost-mask",
       .what = "padding repeats the edge",
       .plant = [] { plant_in_phases(lost_mask); }},
      {.name = "cast-rounds",
       .what = "conversions to integers round to nearest",
       .quick = true,
       .plant = [] { plant_in_phases(cast_rounds); }},
      {.name = "cast-truncates",
       .what = "conversions to bf16 do not round",
       .quick = true,
       .plant = [] { plant_in_phases(cast_truncates); }},
      {.name = "stale-key",
       .what = "the key of the kernel cache leaves out constants",
       .quick = true,
       .plant = stale_key},
      {.name = "lost-swap",
       .what = "a loop does not exchange the two buffers of a carried value",
       .quick = true,
       .plant = lost_swap},
      {.name = "lost-barrier",
       .what = "the first barrier of a kernel is missing",
       .quick = true,
       .ordered = true,
       .plant = lost_barrier},
      {.name = "short-loop",
       .what = "a counted loop ends one iteration early",
       .quick = true,
       .plant = short_loop},
      {.name = "early-death",
       .what = "a buffer takes the place of one that its own step still reads",
       .quick = true,
       .plant = early_death},
      {.name = "stale-size",
       .what = "kernels are given the sizes of an executable's first run",
       .quick = true,
       .plant = stale_size},
  };
  return list;
}

void remove_defects() { test_hooks() = {}; }

}  // namespace heddle::test
