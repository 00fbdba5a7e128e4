// How messages call the values of a graph, and a failure that callers tell apart.
#pragma once

#include "ir/graph.h"

#include <heddle/error.h>

#include <string>

namespace heddle::ir {

// The user's name of a value in quotes, else its number and type.
std::string describe(const Graph& graph, ValueId value);
// The number of the value in print(graph): "%12"; "%?" where it is in no region.
std::string printed_number(const Graph& graph, ValueId value);

// evaluate() met a number beyond 64 bits. Of sizes it means that no memory can hold them.
class OverflowError : public GraphError {
 public:
  using GraphError::GraphError;
};

}  // namespace heddle::ir
