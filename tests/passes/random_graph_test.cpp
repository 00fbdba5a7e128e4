// Passes on random graphs: the judge's bits stay, the verifier holds, the text form round-trips.
#include "support/random_graph.h"
#include "ir/graph.h"
#include "ops/judge.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

std::shared_ptr<ir::Graph> extracted(const test::RandomGraph& random) {
  ir::FeedList feeds;
  for (const Tensor& t : random.feeds) feeds.emplace_back(t.id(), std::nullopt);
  std::vector<ir::ValueId> targets;
  for (const Tensor& t : random.targets) targets.push_back(t.id());
  return ir::extract(*random.graph.impl(), feeds, targets, {}).graph;
}

std::vector<std::vector<std::byte>> judged(const ir::Graph& graph,
                                           const test::RandomGraph& random) {
  std::vector<std::vector<std::byte>> results;
  for (const ops::HostTensor& t : ops::judge(graph, random.values))
    results.push_back(ops::to_bytes(t));
  return results;
}

TEST(RandomGraphs, ExactPassesKeepEveryBit) {
  struct Pass {
    const char* name;
    passes::GraphRef (*run)(const ir::Graph&);
  };
  const Pass passes[] = {{"inline_calls", passes::inline_calls},
                         {"fold_constants", passes::fold_constants},
                         {"simplify", passes::simplify},
                         {"eliminate_common", passes::eliminate_common},
                         {"eliminate_dead", passes::eliminate_dead}};
  uint64_t seed = test::test_seed(100);
  for (uint64_t i = 0; i < 150; ++i) {
    test::RandomGraph random = test::random_graph(seed + i);
    auto graph = extracted(random);
    auto expected = judged(*graph, random);
    for (const Pass& pass : passes) {
      graph = pass.run(*graph);
      ASSERT_EQ(ir::verify(*graph), "") << pass.name << ", HEDDLE_SEED=" << seed + i;
      ASSERT_EQ(judged(*graph, random), expected)
          << pass.name << ", HEDDLE_SEED=" << seed + i << "\n"
          << ir::print(*graph);
    }
  }
}

TEST(RandomGraphs, RoundTripAsText) {
  uint64_t seed = test::test_seed(500);
  for (uint64_t i = 0; i < 100; ++i) {
    auto graph = extracted(test::random_graph(seed + i));
    auto optimized = passes::optimize(*graph, [](const ir::Graph&, ir::OpId) { return false; });
    for (const auto& g : {graph, optimized}) {
      std::string text = ir::print(*g);
      auto back = ir::parse(text, ops::op_table());
      ASSERT_EQ(ir::print(*back), text) << "HEDDLE_SEED=" << seed + i;
      ASSERT_TRUE(ir::structurally_equal(*g, *back)) << text;
      ASSERT_EQ(ir::structural_hash(*g), ir::structural_hash(*back)) << text;
    }
  }
}

}  // namespace
}  // namespace heddle
