// Graphs whose kernels the CUDA backend must run: known ones and random ones.
#pragma once

#include "loop/run_scheduled.h"
#include "ops/host_tensor.h"

#include <heddle/heddle.h>

#include <functional>
#include <string>
#include <vector>

namespace heddle::test {

struct GraphCase {
  std::string name;
  Graph graph;
  Tensors feeds, targets;
  std::vector<ops::HostTensor> values;
  bool exact = false;  // the same bits as from the interpreter
};
// Softmax, layer norm, LRN, stencils, sums along all axes, cumulative sums, gathers, loops, a
// training step. `size` scales them.
std::vector<GraphCase> graph_cases(int64_t size);

// Windows along all axes, with every border, of several types and sizes; rows found through an
// index; divisions by what a row shares: where one thread makes several points, or takes a shorter
// way.
std::vector<GraphCase> shared_work_cases(int64_t scale);
// Rows that the blocks of a grid scan together.
std::vector<GraphCase> long_scan_cases();

using Execute = std::function<void(const ir::Kernel&, const target::KernelArgs&)>;
// Runs the case's kernels with `execute` and with the interpreter, loops as single kernels; empty,
// or the difference.
std::string run_case(const GraphCase& c, const Execute& execute);
// Random graphs against the judge.
std::string run_random(uint64_t seed, const Execute& execute);

}  // namespace heddle::test
