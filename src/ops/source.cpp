// Where values come from: placeholders, constants, variables; and reading and assigning variables.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops/control.h>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::LiteralRef;

Type literal_type(const LiteralRef& literal) {
  Type t{literal->dtype, Shape{}};
  for (int64_t n : literal->shape) t.shape->push_back(n);
  return t;
}

const LiteralRef& checked_literal(const InferContext& c, std::string_view attr) {
  const auto& literal = c.attrs.get<LiteralRef>(attr);
  if (literal == nullptr) c.fail(cat(attr, " has no data"));
  if (literal->shape.size() > kMaxRank)
    c.fail(cat(attr, " has rank ", literal->shape.size(), ", expected at most ", kMaxRank));
  return literal;
}

std::vector<ir::InferredResult> infer_constant(const InferContext& c) {
  const LiteralRef& literal = checked_literal(c, "value");
  ir::InferredResult result{literal_type(literal), std::nullopt};
  // u64 elements above the range of an Expr stay unknown.
  if (may_know_elements(result.type)) {
    std::vector<Expr> elements;
    bool fits = true;
    for (int64_t v : from_literal(*literal).i) {
      fits = fits && (literal->dtype != u64 || v >= 0);
      elements.push_back(v);
    }
    if (fits) result.elements = std::move(elements);
  }
  return {result};
}

const Register constant_entry({
    .name = "constant",
    .kind = Kind::source,
    .doc = "Data that is part of the graph.",
    .attrs = {{"value", "the data", std::nullopt, attr_type<LiteralRef>}},
    .infer = infer_constant,
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      return {from_literal(*c.attrs.get<LiteralRef>("value"))};
    },
    .no_gradient = true,
    .role = Role::constant,
});

std::vector<ir::InferredResult> infer_placeholder(const InferContext& c) {
  const Type& t = c.attrs.get<Type>("type");
  if (t.dtype != DType::unknown && bit_width(t.dtype) == 0)
    c.fail(cat("dtype ", static_cast<int>(t.dtype), " is no element type"));
  if (t.rank() > kMaxRank) c.fail(cat("rank ", t.rank(), ", expected at most ", kMaxRank));
  if (t.shape)
    for (size_t k = 0; k < t.shape->size(); ++k)
      if ((*t.shape)[k].upper() < 0)
        c.fail(cat("extent ", (*t.shape)[k].to_string(), " of axis ", k, ", expected at least 0"));
  return {{t, std::nullopt}};
}

const Register placeholder_entry({
    .name = "placeholder",
    .kind = Kind::source,
    .doc =
        "A value that is fed at each run. Its dtype, shape or rank may be open until compilation.",
    .attrs = {{"type", "of the value", std::nullopt, attr_type<Type>}},
    .infer = infer_placeholder,
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      throw GraphError(
          cat("placeholder: no value was fed for ", to_string(c.attrs.get<Type>("type"))));
    },
    .no_gradient = true,
    .role = Role::placeholder,
});

const Register variable_entry({
    .name = "variable",
    .kind = Kind::source,
    .doc = "A value that persists between runs, one for each device. The result is its state when "
           "the run starts.",
    .attrs = {{"initial", "the first value", std::nullopt, attr_type<LiteralRef>},
              {"id", "tells the variables of a graph apart", std::nullopt, attr_type<int64_t>}},
    .infer = [](const InferContext& c) -> std::vector<ir::InferredResult> {
      return {{literal_type(checked_literal(c, "initial")), std::nullopt}};
    },
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      return {from_literal(*c.attrs.get<LiteralRef>("initial"))};
    },
    .no_gradient = true,
    .effect = Effect::read,
    .role = Role::variable,
});

void check_variable(const InferContext& c) {
  ir::OpId op = c.graph.value(c.operands[0]).op;
  if (op == ir::kNone || role_of(c.graph.op(op)) != Role::variable)
    c.fail("variable is not the result of Graph::variable");
}

const Register read_entry({
    .name = "read",
    .kind = Kind::source,
    .doc = "The state of a variable at this place of the program.",
    .operands = {{"variable", kAnyStored}},
    .infer = [](const InferContext& c) -> std::vector<ir::InferredResult> {
      check_variable(c);
      return {{c.type(0), std::nullopt}};
    },
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> { return {c.variable(0)}; },
    .gradient = [](const GradientContext& c) -> Tensors { return {c.upstream[0]}; },
    .effect = Effect::read,
    .role = Role::read,
});

const Register assign_entry({
    .name = "assign",
    .kind = Kind::source,
    .doc = "Makes `value` the state of a variable.",
    .operands = {{"variable", kAnyStored}, {"value", kAnyStored}},
    .results = 0,
    .infer = [](const InferContext& c) -> std::vector<ir::InferredResult> {
      check_variable(c);
      if (c.type(0) != c.type(1))
        c.fail(cat("value is ", to_string(c.type(1)), ", expected ", to_string(c.type(0)),
                   " as the variable"));
      return {};
    },
    .judge = [](const JudgeContext& c) -> std::vector<HostTensor> {
      c.variable(0) = *c.in[1];
      return {};
    },
    .no_gradient = true,
    .effect = Effect::write,
    .role = Role::assign,
});

}  // namespace

Role role_of(const ir::Op& op) { return op.def->role; }

const ir::LiteralRef& literal_of(const ir::Op& op) {
  return op.attrs.get<LiteralRef>(role_of(op) == Role::variable ? "initial" : "value");
}

ir::OpId variable_of(const ir::Graph& graph, ir::OpId op) {
  return graph.value(graph.op(op).operands[0]).op;
}

}  // namespace heddle::ops

namespace heddle {

Tensor read_variable(const Tensor& variable) { return ops::apply("read", {variable}); }

Operation assign(const Tensor& variable, const Tensor& value) {
  const auto& graph = ops::graph_of({variable, value}, "assign");
  auto building = graph->lock();
  auto before = static_cast<uint32_t>(graph->op_count());
  ops::apply_all("assign", {variable, value});
  return {graph, before};
}

}  // namespace heddle
