// Graph passes, each graph -> graph; the pipeline is a list of named steps with the verifier after
// each.
#pragma once

#include "ir/graph.h"

#include <functional>
#include <memory>
#include <set>
#include <string>

namespace heddle::passes {

using GraphRef = std::shared_ptr<ir::Graph>;

GraphRef fold_constants(
    const ir::Graph& graph);  // small constants only, by the judge's rules rounded to dtype
GraphRef simplify(const ir::Graph& graph);  // exact identities only: x*1, double transposes,
                                            // reshape chains, cast chains
GraphRef eliminate_common(
    const ir::Graph& graph);  // pure ops, equal operands and attributes, regions included
GraphRef eliminate_dead(const ir::Graph& graph);
// Composites become primitives, but for those in `keep` (claimed).
GraphRef decompose(const ir::Graph& graph,
                   const std::function<bool(const ir::Graph&, ir::OpId)>& keep);
GraphRef inline_calls(const ir::Graph& graph);

// The whole pipeline in order; HEDDLE_DUMP=graph prints after each step; `keep` as in decompose.
GraphRef optimize(const ir::Graph& graph,
                  const std::function<bool(const ir::Graph&, ir::OpId)>& keep);

}  // namespace heddle::passes
