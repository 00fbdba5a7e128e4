// Random graphs: fused, unfused, with loops as single kernels, with rows cut into tiny blocks,
// against the judge.
#include "support/random_graph.h"
#include "loop/run_scheduled.h"
#include "ops/judge.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

TEST(RandomGraphs, AgreeWithTheJudge) {
  uint64_t first = test_seed(1), n = test_count(60);
  for (uint64_t seed = first; seed < first + n; ++seed) {
    RandomGraph random = random_graph(seed);
    Verdict verdict = judge_random_graph(random);
    std::shared_ptr<ir::Graph> g = prepare(random.graph, random.feeds, random.targets);
    for (int mode = 0; mode < 4; ++mode) {
      ScheduledRun r;
      try {
        r = run_scheduled(
            *g, random.values,
            {.fusion = mode != 1, .fuse_loops = mode >= 2, .block = mode == 3 ? 8 : 0});
      } catch (const Error& e) {
        FAIL() << "seed " << seed << ", mode " << mode << ": " << e.what() << "\n" << ir::print(*g);
      }
      std::vector<Array> results;
      for (const ops::HostTensor& t : r.results) results.push_back(to_array(t));
      std::string difference = compare_with(verdict, results);
      ASSERT_EQ(difference, "") << "seed " << seed << ", mode " << mode << "\n"
                                << ir::print(*g) << "\n"
                                << r.text;
    }
  }
}

}  // namespace
}  // namespace heddle::test
