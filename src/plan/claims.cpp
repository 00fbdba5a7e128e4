#include "plan/claims.h"

#include "base/check.h"
#include "base/env.h"
#include "plan/test_hooks.h"

namespace heddle::plan {

std::optional<ChosenClaim> ClaimChooser::offer(const ir::Graph& graph, ir::OpId op,
                                               std::vector<std::string>* reasons) const {
  if (!options_.claims) return std::nullopt;
  auto refuse = [&](const target::Claim& claim, const std::string& why) {
    if (reasons != nullptr) reasons->push_back(base::cat(claim.name, ": ", why));
  };
  for (const target::Claim& claim : target_.claims) {
    if (claim.op != graph.op(op).name) continue;
    target::ClaimResult result = claim.offer(graph, op);
    if (const auto* refusal = std::get_if<target::Refusal>(&result)) {
      refuse(claim, refusal->reason);
      continue;
    }
    auto& offer = std::get<target::ClaimOffer>(result);
    if (!offer.too_small.empty() && !test_hooks().claim_every_size) {
      refuse(claim, offer.too_small);
      continue;
    }
    if (options_.deterministic && !offer.deterministic) {
      refuse(claim, "it cannot promise the same bits for each run");
      continue;
    }
    ChosenClaim chosen{claim.name, std::move(offer), {op}};
    chosen.ops.insert(chosen.offer.absorbed.begin(), chosen.offer.absorbed.end());
    return chosen;
  }
  return std::nullopt;
}

std::map<ir::OpId, ChosenClaim> ClaimChooser::choose(const ir::Graph& graph) const {
  std::map<ir::OpId, ChosenClaim> chosen;
  std::set<ir::OpId> taken;
  auto visit = [&](auto&& self, ir::RegionId region) -> void {
    for (ir::OpId id : graph.region(region).ops) {
      const ir::Op& op = graph.op(id);
      for (ir::RegionId r : op.regions) self(self, r);
      if (taken.contains(id)) continue;
      std::vector<std::string> reasons;
      std::optional<ChosenClaim> claim = offer(graph, id, &reasons);
      if (claim) {
        for (ir::OpId member : claim->ops) {
          if (!taken.contains(member)) continue;
          reasons.push_back(
              base::cat(claim->name, ": another claim took an operation that it absorbs"));
          claim.reset();
          break;
        }
      }
      for (const std::string& reason : reasons)
        notes_->push_back(base::cat(op.name, ": refused by ", reason));
      if (!claim) continue;
      notes_->push_back(base::cat(op.name, ": ", claim->name, " (", claim->offer.call->describe(),
                                  ", absorbs ", claim->ops.size() - 1, ")"));
      taken.insert(claim->ops.begin(), claim->ops.end());
      chosen.emplace(id, std::move(*claim));
    }
  };
  visit(visit, ir::kTopRegion);
  for (const std::string& note : *notes_) base::verbose("claims", note);
  return chosen;
}

}  // namespace heddle::plan
