// Graphs that have a bit of everything that the graph level knows: for the tests of text form,
// hash, verifier, fuzzers.
#pragma once

#include <heddle/graph.h>

#include <memory>
#include <string>
#include <vector>

namespace heddle::test {

std::vector<Graph> sample_graphs();

}  // namespace heddle::test
