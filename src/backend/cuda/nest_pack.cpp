// Neighbouring accesses of one body as vectors.
#include "backend/cuda/nest_plan.h"

#include <map>

namespace heddle::cuda {

namespace {

// e = rest + c.
std::pair<Expr, int64_t> split_constant(const Expr& e) {
  if (auto c = e.constant()) return {Expr(0), *c};
  if (e.kind() == ExprKind::add) {
    for (const Expr& t : e.operands()) {
      if (auto c = t.constant()) return {e - t, *c};
    }
  }
  return {e, 0};
}

// Accesses of one buffer under one condition, whose offsets differ by numbers.
struct Family {
  ir::BufferId buffer;
  ir::NodeId mask, other;
  Expr rest;
  std::map<int64_t, uint32_t> items;  // by the number
};

class Families {
 public:
  void add(ir::BufferId buffer, ir::NodeId mask, ir::NodeId other, const Expr& offset,
           uint32_t item) {
    auto [rest, c] = split_constant(offset);
    for (Family& f : all_) {
      if (f.buffer == buffer && f.mask == mask && f.other == other && f.rest == rest) {
        f.items.emplace(c, item);
        return;
      }
    }
    all_.push_back({buffer, mask, other, rest, {{c, item}}});
  }
  std::vector<std::vector<uint32_t>> packs(int n) const {
    std::vector<std::vector<uint32_t>> out;
    for (const Family& f : all_) {
      for (auto it = f.items.begin(); it != f.items.end();) {
        std::vector<uint32_t> pack;
        for (int k = 0; k < n; ++k) {
          auto next = f.items.find(it->first + k);
          if (next == f.items.end()) break;
          pack.push_back(next->second);
        }
        std::vector<Expr> conditions;
        bool whole = pack.size() == static_cast<size_t>(n) &&
                     is_multiple(f.rest + Expr(it->first), n, conditions) && conditions.empty();
        if (whole) out.push_back(pack);
        for (int k = 0; k < (whole ? n : 1); ++k) ++it;
      }
    }
    return out;
  }

 private:
  std::vector<Family> all_;
};

}  // namespace

void find_packs(const ir::Kernel& kernel, NestPlan& nest, int n) {
  for (PhasePlan& p : nest.phases) {
    const ir::Body& body = p.source->body;
    Families loads, stores;
    for (ir::NodeId k = 0; k < body.nodes.size(); ++k) {
      const ir::Node& x = body.nodes[k];
      if (x.op != ir::ScalarOp::load) continue;
      ir::BufferId b = body.accesses[x.payload].buffer;
      if (!is_local(kernel.buffers[b])) loads.add(b, x.a, x.b, p.offsets[x.payload], k);
    }
    for (uint32_t k = 0; k < body.stores.size(); ++k) {
      const ir::Store& s = body.stores[k];
      ir::BufferId b = body.accesses[s.access].buffer;
      stores.add(b, s.mask, ir::kNoNode, p.offsets[s.access], k);
    }
    p.load_packs = loads.packs(n);
    p.store_packs = stores.packs(n);
    nest.aligned = nest.aligned || !p.load_packs.empty() || !p.store_packs.empty();
  }
}

}  // namespace heddle::cuda
