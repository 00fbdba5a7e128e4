// Which operations go to libraries.
#pragma once

#include "plan/plan.h"

#include <map>
#include <set>

namespace heddle::plan {

struct ChosenClaim {
  std::string name;
  target::ClaimOffer offer;
  std::set<ir::OpId> ops;  // root and absorbed
};

// Asks each op's claims, best first. Refusals and choices go to `notes`.
class ClaimChooser {
 public:
  ClaimChooser(const Target& target, const CompileOptions& options, std::vector<std::string>* notes)
      : target_(target), options_(options), notes_(notes) {}
  // The first acceptable offer; refusals are appended to `reasons`.
  std::optional<ChosenClaim> offer(const ir::Graph& graph, ir::OpId op,
                                   std::vector<std::string>* reasons) const;
  // All claims of a graph, by root; no op belongs to two.
  std::map<ir::OpId, ChosenClaim> choose(const ir::Graph& graph) const;

 private:
  const Target& target_;
  const CompileOptions& options_;
  std::vector<std::string>* notes_;
};

}  // namespace heddle::plan
