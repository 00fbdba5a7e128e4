#include "base/check.h"
#include "base/env.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "plan/builder.h"
#include "plan/verify.h"
#include "target/counters.h"

#include <cstdio>

namespace heddle::plan {

namespace {

// Can the scheduler or the plan handle this operation without a library?
bool has_rule(const ir::Op& op) {
  const ops::OpDef& def = *op.def;
  return def.scalar || def.element || def.reduce || def.scan || def.scatter ||
         ops::role_of(op) != ops::Role::none || !op.regions.empty();
}

template <class F>
void for_each_op(const ir::Graph& graph, ir::RegionId region, F&& f) {
  for (ir::OpId id : graph.region(region).ops) {
    f(id);
    for (ir::RegionId r : graph.op(id).regions) for_each_op(graph, r, f);
  }
}

// Claims, and the graph with every composite decomposed that no claim took in the end.
std::map<ir::OpId, ChosenClaim> choose_claims(std::shared_ptr<ir::Graph>& graph,
                                              const ClaimChooser& chooser,
                                              std::vector<std::string>& notes) {
  for (int round = 0;; ++round) {
    notes.clear();
    std::map<ir::OpId, ChosenClaim> claims = chooser.choose(*graph);
    std::set<ir::OpId> taken;
    for (const auto& [root, claim] : claims) taken.insert(claim.ops.begin(), claim.ops.end());
    bool left = false;
    for_each_op(*graph, ir::kTopRegion, [&](ir::OpId id) {
      left |= !taken.contains(id) && !has_rule(graph->op(id)) &&
              static_cast<bool>(graph->op(id).def->decompose);
    });
    if (!left) return claims;
    HD_CHECK(round < 8, "composites remain after decomposition");
    graph = passes::decompose(*graph,
                              [&](const ir::Graph&, ir::OpId id) { return taken.contains(id); });
  }
}

void check_supported(const ir::Graph& graph, const std::map<ir::OpId, ChosenClaim>& claims,
                     const ClaimChooser& chooser, const Target& target) {
  std::set<ir::OpId> taken;
  for (const auto& [root, claim] : claims) taken.insert(claim.ops.begin(), claim.ops.end());
  for_each_op(graph, ir::kTopRegion, [&](ir::OpId id) {
    const ir::Op& op = graph.op(id);
    if (taken.contains(id) || has_rule(op)) return;
    std::vector<std::string> reasons;
    chooser.offer(graph, id, &reasons);
    std::string text = base::cat(op.name, ": nothing on ", target.name, " computes it");
    for (const std::string& reason : reasons) text += "; " + reason;
    throw UnsupportedError(text);
  });
}

}  // namespace

std::shared_ptr<const Plan> build(const ir::Graph& extracted, const Target& target,
                                  const CompileOptions& options) {
  auto plan = std::make_shared<Plan>();
  plan->requirements = ops::requirements(extracted);
  plan->devices = {target.name};
  std::vector<std::string> claim_notes;
  ClaimChooser chooser(target, options, &claim_notes);
  auto keep = [&](const ir::Graph& graph, ir::OpId op) {
    return chooser.offer(graph, op, nullptr).has_value();
  };
  std::shared_ptr<ir::Graph> graph = passes::optimize(extracted, keep);
  std::map<ir::OpId, ChosenClaim> claims = choose_claims(graph, chooser, claim_notes);
  check_supported(*graph, claims, chooser, target);
  plan->graph = graph;
  plan->notes = std::move(claim_notes);
  if (options.loops == LoopRecording::device_graph && !target.can_record) {
    plan->notes.emplace_back("loops are driven by the host: the device does not record");
  }
  Builder(graph, std::move(claims), target, options, *plan).run();
  std::string broken = verify(*plan);
  HD_CHECK(broken.empty(), "plan: ", broken);
  target::runtime_counters().graph_compiles.fetch_add(1, std::memory_order_relaxed);
  if (base::env_has("HEDDLE_DUMP", "plan")) std::fprintf(stderr, "%s\n", describe(*plan).c_str());
  return plan;
}

}  // namespace heddle::plan
