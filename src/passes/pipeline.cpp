// The order of the passes. The verifier runs after each.
#include "base/check.h"
#include "base/env.h"
#include "passes/passes.h"

#include <cstdio>

namespace heddle::passes {

namespace {

struct Step {
  const char* name;
  std::function<GraphRef(const ir::Graph&)> run;
};

void dump(const char* step, const ir::Graph& graph) {
  if (!base::env_has("HEDDLE_DUMP", "graph")) return;
  std::fprintf(stderr, "// graph %s\n%s", step, ir::print(graph).c_str());
}

}  // namespace

GraphRef optimize(const ir::Graph& graph,
                  const std::function<bool(const ir::Graph&, ir::OpId)>& keep) {
  const Step steps[] = {
      {"inline_calls", inline_calls},
      {"fold_constants", fold_constants},
      {"simplify", simplify},
      {"eliminate_common", eliminate_common},
      {"eliminate_dead", eliminate_dead},
      {"decompose", [&](const ir::Graph& g) { return decompose(g, keep); }},
      {"fold_constants again", fold_constants},
      {"simplify again", simplify},
      {"eliminate_common again", eliminate_common},
      {"eliminate_dead again", eliminate_dead},
  };
  dump("as given", graph);
  GraphRef result;
  for (const Step& step : steps) {
    result = step.run(result ? *result : graph);
    std::string broken = ir::verify(*result);
    HD_CHECK(broken.empty(), "pass ", step.name, ": ", broken);
    dump(("after " + std::string(step.name)).c_str(), *result);
  }
  return result;
}

}  // namespace heddle::passes
