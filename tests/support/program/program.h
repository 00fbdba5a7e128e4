// Random programs from the registry: every operation, with every attribute that its entry says it
// takes, in graphs with views, loops, branches, calls, variables and gradients.
#pragma once

#include "ops/host_tensor.h"
#include "support/program/tape.h"

#include <heddle/heddle.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::test {

// A program runs at one set of sizes, a symbolic one at two.
using Feeds = std::vector<ops::HostTensor>;

struct RandomProgram {
  Graph graph;
  Tensors feeds, targets;
  std::vector<Operation> effects;  // assigns
  std::vector<Feeds> values;       // one a set of sizes
  bool symbolic = false, has_loops = false, has_branches = false, has_variables = false;
  int gradients = 0;  // highest order that is among the targets' makers
  int operations = 0;
  // "op", "op attribute=value", "op after op", "op in region", ...: what the program contains.
  std::vector<std::string> coverage;
};

// Everything follows from the tape.
RandomProgram random_program(Tape& tape);

}  // namespace heddle::test
