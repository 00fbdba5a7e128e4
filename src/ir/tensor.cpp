#include <heddle/error.h>
#include <heddle/tensor.h>

#include "base/check.h"
#include "ir/graph.h"

#include <algorithm>

namespace heddle {

namespace {
void require_valid(const Tensor& tensor) {
  if (!tensor.valid()) throw GraphError("an empty Tensor was used: it belongs to no graph");
  if (tensor.id() >= tensor.graph()->value_count()) {
    throw GraphError(base::cat("there is no tensor ", tensor.id(),
                               " in this graph, which has only ", tensor.graph()->value_count()));
  }
}
}  // namespace

Tensor::Tensor(std::shared_ptr<ir::Graph> graph, uint32_t value)
    : graph_(std::move(graph)), value_(value) {
  if (graph_ && value_ >= graph_->value_count()) {
    throw GraphError(base::cat("Tensor: there is no tensor ", value_,
                               " in this graph, which has only ", graph_->value_count()));
  }
}

const Type& Tensor::type() const {
  require_valid(*this);
  return graph_->value(value_).type;
}

const Shape& Tensor::shape() const {
  const Type& t = type();
  if (!t.shape) {
    const std::string& name = graph_->value(value_).name;
    throw GraphError(base::cat("shape of tensor ", name.empty() ? "" : "'" + name + "' ",
                               "is not known before compile() is told the fed types"));
  }
  return *t.shape;
}

Tensor Tensor::named(std::string name) const {
  require_valid(*this);
  auto building = graph_->lock();
  ir::Value& value = graph_->value(value_);
  if (value.op != ir::kNone) {
    std::vector<std::string>& locations = graph_->op(value.op).locations;
    if (std::find(locations.begin(), locations.end(), name) == locations.end()) {
      locations.push_back(name);
    }
  }
  value.name = std::move(name);
  return *this;
}

Operation::Operation(std::shared_ptr<ir::Graph> graph, uint32_t op)
    : graph_(std::move(graph)), op_(op) {
  if (graph_ && op_ >= graph_->op_count()) {
    throw GraphError(base::cat("Operation: there is no operation ", op_,
                               " in this graph, which has only ", graph_->op_count()));
  }
}

Operation::Operation(const Tensor& tensor) : graph_(tensor.graph()) {
  require_valid(tensor);
  op_ = graph_->value(tensor.id()).op;
  if (op_ == ir::kNone) {
    throw GraphError("a region's argument is no operation that one could wait for");
  }
}

}  // namespace heddle
