// Reverse mode over a graph: gradients are built as further ops at the insertion point.
#pragma once

#include "ops/opdef.h"

#include <heddle/tensor.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

namespace heddle::autodiff {

using GraphRef = std::shared_ptr<ir::Graph>;
using ir::ValueId;

// Only real and complex floats have gradients; an open dtype may turn out to be one.
bool carries_gradient(const Type& type);

// Sum of what flows into each value.
class Contributions {
 public:
  explicit Contributions(GraphRef graph) : graph_(std::move(graph)) {}
  // Summed down to the value's shape and made of its dtype; ignores an invalid tensor.
  void add(ValueId value, const Tensor& gradient);
  Tensor sum(ValueId value);  // invalid: nothing flows there

 private:
  GraphRef graph_;
  std::map<ValueId, Tensors> parts_;
};

// Gradients of `xs` from the seeds of `ys` (invalid: none), invalid where nothing flows. With
// `stop` nothing is looked at beyond the xs, else an x may be computed from another.
Tensors reverse(const GraphRef& graph, const std::vector<ValueId>& ys, const Tensors& seeds,
                const std::vector<ValueId>& xs, bool stop);

// What an operation with regions uses: its operands and what its regions capture, each once.
std::vector<ValueId> used_values(const ir::Graph& graph, ir::OpId op);

// The gradient of an operation with regions, by its ControlInfo. `wanted`: the values of
// used_values() that depend on an x.
void control_gradient(const GraphRef& graph, ir::OpId op, const Tensors& upstream,
                      const std::set<ValueId>& wanted, Contributions& into);

}  // namespace heddle::autodiff
