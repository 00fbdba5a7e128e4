// Merges equal pure operations. An operation inside a region may be replaced by one of an enclosing
// region before it.
#include "base/hash.h"
#include "ops/opdef.h"
#include "passes/passes.h"

#include <algorithm>
#include <unordered_map>

namespace heddle::passes {

namespace {

using ir::OpId;
using ir::RegionId;
using ir::ValueId;

class Merger {
 public:
  std::vector<ValueId> add(ir::RewriteContext& c, OpId id) {
    const ir::Op& op = c.in.op(id);
    std::vector<ValueId> operands;
    for (ValueId v : op.operands) operands.push_back(c.mapped(v));
    if (op.def->commutative && operands.size() == 2 && operands[1] < operands[0] &&
        c.out.value(operands[0]).type == c.out.value(operands[1]).type) {
      std::swap(operands[0], operands[1]);
    }
    std::vector<RegionId> regions;
    for (RegionId r : op.regions) regions.push_back(c.copy_region(r));
    std::vector<OpId>& candidates = made_[key(c.out, op, operands, regions)];
    for (OpId candidate : candidates) {
      if (stands_for(c.out, candidate, op, operands, regions)) return c.out.op(candidate).results;
    }
    OpId copy = c.out.add_op(*op.def, std::move(operands), op.attrs, std::move(regions));
    candidates.push_back(copy);
    return c.out.op(copy).results;
  }

 private:
  static uint64_t key(const ir::Graph& out, const ir::Op& op, const std::vector<ValueId>& operands,
                      const std::vector<RegionId>& regions) {
    uint64_t h = base::hash_string(op.name, op.attrs.hash());
    for (ValueId v : operands) h = base::mix(h, v);
    for (RegionId r : regions) h = base::mix(h, ir::region_hash(out, r));
    return h;
  }

  static bool stands_for(const ir::Graph& out, OpId candidate, const ir::Op& op,
                         const std::vector<ValueId>& operands,
                         const std::vector<RegionId>& regions) {
    const ir::Op& other = out.op(candidate);
    // Data and views cost a kernel nothing; taken from outside a loop they would have to be stored.
    bool free = op.def->role == ops::Role::constant || op.def->kind == ops::Kind::view;
    bool visible = free ? other.parent == out.insertion_region()
                        : out.encloses(other.parent, out.insertion_region());
    return visible && other.def == op.def && other.operands == operands &&
           other.attrs == op.attrs &&
           std::equal(regions.begin(), regions.end(), other.regions.begin(), other.regions.end(),
                      [&](RegionId a, RegionId b) { return ir::regions_equal(out, a, b); });
  }

  std::unordered_map<uint64_t, std::vector<OpId>> made_;
};

}  // namespace

GraphRef eliminate_common(const ir::Graph& graph) {
  Merger merger;
  return ir::rewrite(graph,
                     [&](ir::RewriteContext& c, OpId id) -> std::optional<std::vector<ValueId>> {
                       const ir::Op& op = c.in.op(id);
                       if (c.in.effect_of(id) != ops::Effect::none || op.results.empty())
                         return std::nullopt;
                       if (op.def->role == ops::Role::placeholder) return std::nullopt;
                       return merger.add(c, id);
                     });
}

}  // namespace heddle::passes
