// Random graphs with their feeds: what the fuzzer and the scheduler's tests run. Everything follows
// from the seed.
#pragma once

#include "ops/host_tensor.h"

#include <heddle/heddle.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::test {

struct RandomGraphOptions {
  int min_steps = 6, max_steps = 14;  // a step adds one to eight operations
  double row_programs = 0.35;         // share of graphs with reduce -> broadcast -> reduce chains
  double regions = 0.2;               // share with cond, for, while
  double symbolic = 0.33;             // share whose extents are symbols
  bool floats_only = false;           // for gradient tests
};

struct RandomGraph {
  Graph graph;
  Tensors feeds, targets;
  std::vector<ops::HostTensor> values;  // one a feed
  std::vector<ops::HostTensor> larger;  // symbolic graphs: values at larger sizes
  std::vector<size_t> exact;            // targets without rounding errors: every bit must be right
  int operations = 0;                   // in the targets' cone, regions included
  bool row_program = false, has_regions = false, symbolic = false;
};

RandomGraph random_graph(uint64_t seed, const RandomGraphOptions& options = {});

// What a right result may look like: judged once in f64 without rounding and once with every result
// rounded. The gap between the two, as the largest over a tensor, says how much rounding errors
// grow in this graph.
struct Verdict {
  std::vector<ops::HostTensor> exact;
  std::vector<double> allowed;  // absolute, one a target
};
Verdict judge_random_graph(const RandomGraph& random, const std::vector<ops::HostTensor>& values);
inline Verdict judge_random_graph(const RandomGraph& random) {
  return judge_random_graph(random, random.values);
}
// Empty or the first difference of results that are floats (within allowed) or integers (exact).
std::string compare_with(const Verdict& verdict, const std::vector<Array>& results);

}  // namespace heddle::test
