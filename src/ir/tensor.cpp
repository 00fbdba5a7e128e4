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

Operation::Operation(const Tensor& tensor) : graph_(tensor.graph()) {
  require_valid(tensor);
  op_ = graph_->value(tensor.id()).op;
  if (op_ == ir::kNone) {
    throw GraphError("a region's argument is no operation that one could wait for");
  }
}

}  // namespace heddle
