// Evaluates whole graphs by the judges of their operations: the independent truth of every test.
#pragma once

#include "ir/graph.h"
#include "ops/host_tensor.h"

#include <map>
#include <vector>

namespace heddle::ops {

struct JudgeOptions {
  bool round = true;  // false: keep f64 results of float ops unrounded (for error bounds)
  // Above 0, with round == false: floats that have more than a few digits, feeds included, are
  // moved by up to so many roundings of their dtype, at random. Tells how errors grow.
  double noise = 0;
  uint64_t noise_seed = 1;
  int64_t max_iterations = INT64_MAX;  // a loop that runs longer is a DeviceError
  // Every value of the top region is kept here, for validation of plans.
  std::map<ir::ValueId, HostTensor>* values = nullptr;
};
// `graph` is an extracted one: the top region's arguments are the feeds. Variables: state by their
// attribute "id", updated in place.
std::vector<HostTensor> judge(const ir::Graph& graph, const std::vector<HostTensor>& feeds,
                              std::map<int64_t, HostTensor>* variables = nullptr,
                              const JudgeOptions& options = {});

}  // namespace heddle::ops
