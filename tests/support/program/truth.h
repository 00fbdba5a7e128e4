// What a program's results may be: the reference evaluator without roundings, and how far roundings
// of every kind move it.
#pragma once

#include "support/program/program.h"

#include <heddle/heddle.h>

#include <memory>
#include <string>
#include <vector>

namespace heddle::test {

// What the targets and effects need of a graph; the top region's arguments are the feeds.
std::shared_ptr<ir::Graph> needed_part(const Graph& graph, const Tensors& feeds,
                                       const Tensors& targets,
                                       const std::vector<Operation>& effects);

// Values of targets in several evaluations, the first of which is exact.
struct Evaluations {
  std::vector<std::vector<ops::HostTensor>> all;
  const std::vector<ops::HostTensor>& exact() const { return all[0]; }
};
// `count`: evaluations besides the exact and the rounded one, each with noise of some roundings;
// half of them of the decomposed graph. `runs`: times that the program runs, one after the other,
// on the same variables; the values are those of the last run. `amplitude`: of the noise, in
// roundings.
Evaluations evaluate_program(const Graph& graph, const Tensors& feeds, const Feeds& values,
                             const Tensors& targets, const std::vector<Operation>& effects,
                             int count, int runs = 1, double amplitude = 4);

// The largest difference from the exact values over a tensor; infinity where special values or
// integers differ.
double spread(const Evaluations& e, size_t target);
// Are the values near enough to each other that a comparison with them tells something?
bool is_stable(const Evaluations& e, size_t target);
double largest_finite(const ops::HostTensor& t);

struct Expected {
  std::vector<ops::HostTensor> exact;
  std::vector<double> allowed;
};
Expected expected_values(const Evaluations& e);
// Empty, or the first difference, with its target.
std::string compare(const Expected& expected, const std::vector<Array>& results);

}  // namespace heddle::test
