// Statements of a kernel in order: what memory holds, and what was touched since the last barrier.
#include "loop/prove.h"

#include "base/check.h"
#include "base/env.h"
#include "loop/named_blocks.h"
#include "loop/prove_nest.h"

#include <algorithm>
#include <atomic>
#include <memory>

namespace heddle::loop {

using ir::Access;
using ir::BufferId;
using ir::BufferRole;
using ir::Node;
using ir::ScalarOp;
using ir::Stmt;
using ir::StmtKind;

namespace {

// What was surely written to a buffer.
struct Content {
  bool some = false, whole = false;
  Stores stores;
  friend bool operator==(const Content&, const Content&) = default;
};

struct State {
  std::vector<Content> content;      // by buffer
  std::set<BufferId> read, written;  // memory, since the last grid barrier
  friend bool operator==(const State&, const State&) = default;
};

// After one of two ways.
State either(const State& a, const State& b) {
  State r = a;
  r.read.insert(b.read.begin(), b.read.end());
  r.written.insert(b.written.begin(), b.written.end());
  for (size_t k = 0; k < r.content.size(); ++k) {
    Content& c = r.content[k];
    const Content& o = b.content[k];
    c.some = c.some && o.some;
    c.whole = c.whole && o.whole;
    std::erase_if(c.stores, [&](const auto& s) {
      return std::find(o.stores.begin(), o.stores.end(), s) == o.stores.end();
    });
  }
  return r;
}

void exchange(std::set<BufferId>& set, BufferId a, BufferId b) {
  bool has_a = set.erase(a) > 0, has_b = set.erase(b) > 0;
  if (has_a) set.insert(b);
  if (has_b) set.insert(a);
}

class Prover {
 public:
  explicit Prover(const ir::Kernel& kernel) : kernel_(kernel) {}
  Proof run();

 private:
  bool local(BufferId b) const {
    BufferRole r = kernel_.buffers[b].role;
    return r == BufferRole::scalar_local || r == BufferRole::row_local;
  }
  void statements(const std::vector<Stmt>& list, State& s);
  void nest(const ir::Nest& n, State& s);
  void barriers(const ir::Nest& n, State& s);
  void reads(const NestProver& prover, const ir::Nest& n, const State& s);
  void element(const NestProver& prover, size_t phase, const Access& a, ir::NodeId mask,
               const Stores& own, size_t shared, const State& s);
  void test(BufferId b, const State& s);
  void for_loop(const Stmt& st, State& s);
  void while_loop(const Stmt& st, State& s);
  void add(Content& c, const std::shared_ptr<const Written>& w, const std::vector<Expr>& extents);
  std::shared_ptr<const Written> written(const ir::Nest& n, const ir::Phase& p,
                                         const ir::Store& store);
  std::shared_ptr<const Written> by_rows(const std::shared_ptr<const Written>& w, const Stmt& st);

  const ir::Kernel& kernel_;
  Findings findings_;
  Around around_;
  std::map<const ir::Store*, std::shared_ptr<const Written>> made_;
  std::map<std::pair<const Written*, const Stmt*>, std::shared_ptr<const Written>> rows_;
  std::map<uint64_t, BufferId> counters_;  // symbols that are a loop's counter
};

Proof Prover::run() {
  State s;
  s.content.resize(kernel_.buffers.size());
  for (size_t k = 0; k < kernel_.buffers.size(); ++k) {
    if (kernel_.buffers[k].role == BufferRole::input) s.content[k] = {true, true, {}};
  }
  statements(kernel_.body, s);
  for (size_t k = 0; k < kernel_.buffers.size(); ++k) {
    const ir::Buffer& b = kernel_.buffers[k];
    bool empty =
        std::any_of(b.extents.begin(), b.extents.end(), [](const Expr& e) { return e.is(0); });
    if (b.role != BufferRole::output || s.content[k].whole || empty) continue;
    if (!s.content[k].some) {
      findings_.broken("output: '", b.name, "' is not written on every way");
    } else {
      findings_.open("output: '", b.name, "' is not shown to be written as a whole");
    }
  }
  return findings_.take();
}

void Prover::statements(const std::vector<Stmt>& list, State& s) {
  for (const Stmt& st : list) {
    switch (st.kind) {
      case StmtKind::nest:
        nest(*st.nest, s);
        break;
      case StmtKind::barrier:
        if (st.barrier != ir::BarrierScope::grid) break;
        s.read.clear();
        s.written.clear();
        break;
      case StmtKind::swap:
        std::swap(s.content[st.a], s.content[st.b]);
        exchange(s.read, st.a, st.b);
        exchange(s.written, st.a, st.b);
        break;
      case StmtKind::if_else: {
        test(st.predicate, s);
        State other = s;
        statements(st.first, s);
        statements(st.second, other);
        s = either(s, other);
        break;
      }
      case StmtKind::for_loop:
        for_loop(st, s);
        break;
      case StmtKind::while_loop:
        while_loop(st, s);
        break;
    }
  }
}

void Prover::test(BufferId b, const State& s) {
  if (!s.content[b].some)
    findings_.broken("dominance: '", kernel_.buffers[b].name, "' is tested before it is written");
}

// A store of row k in iteration k is, after the loop, one with the iterations as an axis.
std::shared_ptr<const Written> Prover::by_rows(const std::shared_ptr<const Written>& w,
                                               const Stmt& st) {
  if (st.has_count_buffer || w->coords.empty() || w->coords[0].kind() != ExprKind::symbol)
    return nullptr;
  const SymbolRef& row = w->coords[0].symbol();
  auto it = counters_.find(row->id);
  if (it == counters_.end() || it->second != st.counter) return nullptr;
  auto [made, fresh] = rows_.try_emplace({w.get(), &st});
  if (fresh) {
    Written all = *w;
    all.axes.insert(all.axes.begin(), {row, st.count});
    made->second = std::make_shared<const Written>(std::move(all));
  }
  return made->second;
}

void Prover::for_loop(const Stmt& st, State& s) {
  Around before = around_;
  if (st.has_count_buffer) {
    test(st.predicate, s);
    around_.iterations[st.counter] =
        Expr(make_symbol(SymbolKind::indirect, "iteration", 0, INT64_MAX));
  } else {
    around_.iterations[st.counter] = Expr(make_loop_symbol("iteration", st.count));
    around_.facts.push_back(st.count - Expr(1));
  }
  State entry = s, head = s, end;
  for (;;) {
    end = head;
    end.content[st.counter] = {true, true, {}};
    statements(st.first, end);
    State next = either(head, end);
    if (next == head) break;
    head = next;
  }
  around_ = before;
  bool runs = !st.has_count_buffer && is_less_equal(1, st.count) == Ordering::yes;
  s = runs ? end : either(entry, end);
  for (size_t k = 0; k < s.content.size(); ++k) {
    for (const auto& w : end.content[k].stores) {
      if (std::shared_ptr<const Written> all = by_rows(w, st))
        add(s.content[k], all, kernel_.buffers[k].extents);
    }
  }
}

void Prover::while_loop(const Stmt& st, State& s) {
  State head = s;
  for (;;) {
    s = head;
    statements(st.first, s);
    test(st.predicate, s);
    State end = s;
    statements(st.second, end);
    State next = either(head, end);
    if (next == head) return;
    head = next;
  }
}

void Prover::add(Content& c, const std::shared_ptr<const Written>& w,
                 const std::vector<Expr>& extents) {
  c.some = true;
  if (std::find(c.stores.begin(), c.stores.end(), w) != c.stores.end()) return;
  c.stores.push_back(w);
  c.whole = c.whole || fill(c.stores, extents);
}

std::shared_ptr<const Written> Prover::written(const ir::Nest& n, const ir::Phase& p,
                                               const ir::Store& store) {
  auto [it, fresh] = made_.try_emplace(&store);
  if (fresh) {
    Written w{{}, p.body.accesses[store.access].coords};
    for (const auto* list : {&n.outer, &p.inner}) {
      for (const ir::Axis& a : *list) w.axes.push_back({a.var, a.extent});
    }
    it->second = std::make_shared<const Written>(std::move(w));
  }
  return it->second;
}

void Prover::nest(const ir::Nest& n, State& s) {
  for (const ir::Phase& p : n.phases) {
    for (const Node& node : p.body.nodes) {
      if (node.op != ScalarOp::bind) continue;
      const Node& from = p.body.nodes[node.a];
      if (from.op != ScalarOp::load) continue;
      BufferId b = p.body.accesses[from.payload].buffer;
      if (around_.iterations.contains(b)) counters_[p.body.symbols[node.payload]->id] = b;
    }
  }
  NestProver prover(kernel_, n, around_, findings_);
  prover.run();
  barriers(n, s);
  reads(prover, n, s);
  for (const ir::Phase& p : n.phases) {
    for (const ir::Store& store : p.body.stores) {
      BufferId b = p.body.accesses[store.access].buffer;
      if (store.mask != ir::kNoNode || store.kind != ir::StoreKind::set) continue;
      if (kernel_.buffers[b].role != BufferRole::row_local)
        add(s.content[b], written(n, p, store), kernel_.buffers[b].extents);
    }
  }
}

// Nests run side by side up to the next barrier.
void Prover::barriers(const ir::Nest& n, State& s) {
  std::set<BufferId> read, written;
  for (const ir::Phase& p : n.phases) {
    for (const Node& node : p.body.nodes) {
      if (node.op == ScalarOp::load) read.insert(p.body.accesses[node.payload].buffer);
    }
    for (const ir::Store& store : p.body.stores)
      written.insert(p.body.accesses[store.access].buffer);
  }
  for (auto* set : {&read, &written}) std::erase_if(*set, [&](BufferId b) { return local(b); });
  for (BufferId b : written) {
    if (s.read.contains(b) || s.written.contains(b))
      findings_.broken("barrier: '", kernel_.buffers[b].name,
                       "' is written with no barrier since another nest touched it");
  }
  for (BufferId b : read) {
    if (s.written.contains(b))
      findings_.broken("barrier: '", kernel_.buffers[b].name,
                       "' is read with no barrier since another nest wrote it");
  }
  s.read.insert(read.begin(), read.end());
  s.written.insert(written.begin(), written.end());
}

void Prover::reads(const NestProver& prover, const ir::Nest& n, const State& s) {
  std::map<BufferId, Stores> own;
  for (size_t p = 0; p < n.phases.size(); ++p) {
    const ir::Body& body = n.phases[p].body;
    for (const Node& node : body.nodes) {
      if (node.op != ScalarOp::load) continue;
      const Access& a = body.accesses[node.payload];
      element(prover, p, a, node.a, own[a.buffer], n.outer.size(), s);
    }
    for (const ir::Store& store : body.stores) {
      const Access& a = body.accesses[store.access];
      if (store.kind == ir::StoreKind::add)
        element(prover, p, a, store.mask, own[a.buffer], n.outer.size(), s);
    }
    for (const ir::Store& store : body.stores) {
      if (store.mask == ir::kNoNode && store.kind == ir::StoreKind::set)
        own[body.accesses[store.access].buffer].push_back(written(n, n.phases[p], store));
    }
  }
}

// Was an element that is read written before, by an earlier phase at the same point or by an
// earlier nest?
void Prover::element(const NestProver& prover, size_t phase, const Access& a, ir::NodeId mask,
                     const Stores& own, size_t shared, const State& s) {
  const Content& before = s.content[a.buffer];
  if (before.whole) return;
  if (!before.some && own.empty()) {
    findings_.broken("dominance: ", prover.at(a), " is read before it is written");
    return;
  }
  Facts facts = prover.facts(phase, mask);
  auto covered = [&](const Stores& list, size_t axes) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& w) { return writes(*w, axes, a.coords, facts); });
  };
  if (!covered(own, shared) && !covered(before.stores, 0))
    findings_.open("dominance: ", prover.at(a), " is not shown to be written before it is read");
}

std::atomic<bool> proving{false};

}  // namespace

Proof prove(const ir::Kernel& kernel) {
  ir::Kernel named = with_named_blocks(kernel);
  return Prover(named).run();
}

void prove_every_kernel(bool on) { proving = on; }

void prove_scheduled(const ir::Kernel& kernel) {
  bool wanted = proving || base::env_has("HEDDLE_VALIDATE", "kernels") ||
                base::env_has("HEDDLE_VALIDATE", "reference");
  if (!wanted) return;
  Proof proof = prove(kernel);
  for (const std::string& what : proof.open)
    base::verbose("proofs", base::cat(kernel.name, ": ", what));
  HD_CHECK(proof.broken.empty(), "scheduled kernel ", kernel.name, ": ", proof.broken[0], "\n",
           ir::print(kernel));
}

}  // namespace heddle::loop
