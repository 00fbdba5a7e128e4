// Tensor: a handle to a value of a graph. Operation: a handle to a node.
#pragma once

#include <heddle/type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

namespace ir {
class Graph;
}

// A symbolic value of a graph; cheap to copy; keeps its graph alive. Ops are free functions over it
// (<heddle/ops.h>).
class Tensor {
 public:
  Tensor() = default;
  // GraphError where the graph has no such value.
  Tensor(std::shared_ptr<ir::Graph> graph, uint32_t value);

  bool valid() const { return graph_ != nullptr; }
  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const;  // GraphError where the rank is unknown
  int rank() const { return type().rank(); }
  // Adds a user's name to the value (in printing, describe() and errors); returns the tensor
  // itself.
  Tensor named(std::string name) const;

  const std::shared_ptr<ir::Graph>& graph() const { return graph_; }
  uint32_t id() const { return value_; }
  // The same value of the same graph? (`a == b` compares elements, see <heddle/ops/elementwise.h>.)
  bool is(const Tensor& other) const { return graph_ == other.graph_ && value_ == other.value_; }

 private:
  std::shared_ptr<ir::Graph> graph_;
  uint32_t value_ = 0;
};
using Tensors = std::vector<Tensor>;

// A node without a tensor result that one waits for, such as an assign.
class Operation {
 public:
  Operation() = default;
  // GraphError where the graph has no such operation.
  Operation(std::shared_ptr<ir::Graph> graph, uint32_t op);
  // The node that produces `tensor`.
  Operation(const Tensor& tensor);  // NOLINT(google-explicit-constructor)
  const std::shared_ptr<ir::Graph>& graph() const { return graph_; }
  uint32_t id() const { return op_; }

 private:
  std::shared_ptr<ir::Graph> graph_;
  uint32_t op_ = 0;
};

}  // namespace heddle
