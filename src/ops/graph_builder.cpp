// The part of Graph that makes sources and looks at the graph; compiling and running are in api/.
#include "base/check.h"
#include "base/floating_point.h"
#include "ops/support.h"

#include <heddle/graph.h>
#include <heddle/ops.h>

namespace heddle {

using base::cat;

Graph::Graph() : impl_(std::make_shared<ir::Graph>(ops::op_table())) {}

Graph::Graph(std::shared_ptr<ir::Graph> impl) : impl_(std::move(impl)) {}

namespace {

void check_outside_blocks(const ir::Graph& graph, const char* op) {
  if (graph.insertion_region() != ir::kTopRegion)
    throw GraphError(cat(op, ": made inside a block, expected outside of every block"));
}

ir::LiteralRef literal_from(const Array& data, const char* op) {
  if (!data.valid()) throw GraphError(cat(op, ": data is an empty Array"));
  return ir::make_literal(data.dtype(), data.shape(), data.to_bytes());
}

// A scalar literal broadcast to `shape`.
Tensor filled(const std::shared_ptr<ir::Graph>& graph, ops::HostTensor value, const Shape& shape) {
  round_to_dtype(value);
  Tensor scalar = graph->tensor(ops::add_constant(*graph, ops::to_literal(value)));
  return shape.empty() ? scalar : broadcast_to(scalar, shape);
}

void check_constant_dtype(DType dtype) {
  if (bit_width(dtype) == 0) throw GraphError("constant: dtype is unknown, expected a known one");
}

}  // namespace

Tensor Graph::placeholder(DType dtype, Shape shape, std::string name) {
  return placeholder(Type{dtype, std::move(shape)}, std::move(name));
}

Tensor Graph::placeholder(Type type, std::string name) {
  check_outside_blocks(*impl_, "placeholder");
  Tensor t = ops::apply_all("placeholder", {}, {{"type", std::move(type)}}, {}, impl_)[0];
  return name.empty() ? t : t.named(std::move(name));
}

Tensor Graph::constant(const Array& data) {
  return impl_->tensor(ops::add_constant(*impl_, literal_from(data, "constant")));
}

Tensor Graph::constant(double value, DType dtype, const Shape& shape) {
  base::StandardFloatingPoint mode;
  check_constant_dtype(dtype);
  ops::HostTensor t(dtype, {});
  if (dtype == DType::boolean) {
    t.i[0] = value != 0;
  } else if (!t.i.empty()) {
    if (!ops::representable(value, dtype))
      throw GraphError(cat("constant: ", value, " is not a value of ", name(dtype)));
    t.i[0] = ops::whole_number(value);
  } else {
    ops::fill(t, value);
  }
  return filled(impl_, std::move(t), shape);
}

Tensor Graph::constant(int64_t value, DType dtype, const Shape& shape) {
  check_constant_dtype(dtype);
  ops::HostTensor t(dtype, {});
  if (dtype == DType::boolean)
    t.i[0] = value != 0;
  else if (!t.i.empty())
    t.i[0] = value;
  else
    ops::fill(t, static_cast<double>(value));
  round_to_dtype(t);
  // All 64 bits of u64 can be said in an int64_t; elsewhere a number out of range is a mistake.
  if (is_integer(dtype) && dtype != u64 && t.i[0] != value)
    throw GraphError(cat("constant: ", value, " is not a value of ", name(dtype)));
  return filled(impl_, std::move(t), shape);
}

Tensor Graph::variable(const Array& initial, std::string name) {
  check_outside_blocks(*impl_, "variable");
  auto building = impl_->lock();
  auto id = static_cast<int64_t>(impl_->op_count());
  ir::Attrs attrs{{"initial", literal_from(initial, "variable")}, {"id", id}};
  Tensor t = ops::apply_all("variable", {}, std::move(attrs), {}, impl_)[0];
  return name.empty() ? t : t.named(std::move(name));
}

std::vector<Tensor> Graph::placeholders() const {
  std::vector<Tensor> out;
  for (ir::ValueId v : impl_->placeholders()) out.push_back(impl_->tensor(v));
  return out;
}

Tensor Graph::find(std::string_view name) const {
  auto building = impl_->lock();
  std::optional<ir::ValueId> found;
  for (ir::ValueId v = 0; v < impl_->value_count(); ++v) {
    const ir::Value& value = impl_->value(v);
    if (value.name != name || value.region != ir::kTopRegion) continue;
    if (found) {
      throw GraphError(cat("find: two tensors are named '", name, "', %", *found, " and %", v,
                           ": give them names of their own"));
    }
    found = v;
  }
  if (!found) throw GraphError(cat("find: there is no tensor named '", name, "' in the graph"));
  return impl_->tensor(*found);
}

std::vector<Tensor> Graph::targets() const {
  std::vector<Tensor> out;
  auto building = impl_->lock();
  for (ir::ValueId v : impl_->region(ir::kTopRegion).results) out.push_back(impl_->tensor(v));
  return out;
}

std::vector<Operation> Graph::operations() const {
  std::vector<Operation> out;
  auto building = impl_->lock();
  for (ir::OpId op : impl_->region(ir::kTopRegion).ops)
    if (impl_->effect_of(op) == ir::Effect::write) out.emplace_back(impl_, op);
  return out;
}

std::string Graph::to_text() const {
  base::StandardFloatingPoint mode;
  auto building = impl_->lock();
  return ir::print(*impl_);
}

Graph Graph::from_text(std::string_view text) {
  base::StandardFloatingPoint mode;
  return Graph(ir::parse(text, ops::op_table()));
}

uint64_t Graph::structural_hash() const {
  auto building = impl_->lock();
  return ir::structural_hash(*impl_);
}

void Graph::verify() const {
  auto building = impl_->lock();
  std::string broken = ir::verify(*impl_);
  if (!broken.empty()) throw InternalError(broken);
}

}  // namespace heddle
