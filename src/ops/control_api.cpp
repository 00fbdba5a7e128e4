// The public builders of control flow: they open regions, run the user's blocks in them, and add
// the op.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/graph.h>
#include <heddle/ops.h>

namespace heddle {

using base::cat;
using ops::build_region;

namespace {

using GraphRef = std::shared_ptr<ir::Graph>;

std::vector<Type> types_of(const Tensors& xs, const std::string& op, const std::string& argument) {
  std::vector<Type> out;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (!xs[i].valid()) throw GraphError(cat(op, ": ", argument, "[", i, "] is an empty Tensor"));
    out.push_back(xs[i].type());
  }
  return out;
}

Tensor checked_one(const Tensors& results, const char* op) {
  if (results.size() != 1)
    throw GraphError(cat(op, ": expected one result, given ", results.size()));
  return results[0];
}

}  // namespace

Tensors with_dependencies(const std::vector<Operation>& operations,
                          const std::function<Tensors()>& body) {
  if (!body) throw GraphError("with_dependencies: body is an empty function");
  if (operations.empty()) return body();
  std::vector<ir::OpId> ids;
  const GraphRef& graph = operations[0].graph();
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].graph() == nullptr)
      throw GraphError(cat("with_dependencies: operations[", i, "] is an empty Operation"));
    if (operations[i].graph() != graph)
      throw GraphError(cat("with_dependencies: operations[", i, "] belongs to another graph"));
    ids.push_back(operations[i].id());
  }
  graph->push_dependencies(std::move(ids));
  struct Pop {
    ir::Graph& graph;
    ~Pop() { graph.pop_dependencies(); }
  } pop{*graph};
  return body();
}

Tensor with_dependencies(const std::vector<Operation>& operations,
                         const std::function<Tensor()>& body) {
  if (!body) throw GraphError("with_dependencies: body is an empty function");
  std::function<Tensors()> list = [&] { return Tensors{body()}; };
  return with_dependencies(operations, list)[0];
}

Tensors cond(const Tensor& predicate, const std::function<Tensors()>& then_block,
             const std::function<Tensors()>& else_block) {
  if (!predicate.valid()) throw GraphError("cond: predicate is an empty Tensor");
  const GraphRef& graph = predicate.graph();
  auto block = [&](const std::function<Tensors()>& f, const char* name) {
    if (!f) throw GraphError(cat("cond: ", name, " is an empty function"));
    return build_region(graph, {}, "cond", name, [&](const Tensors&) { return f(); });
  };
  ir::RegionId first = block(then_block, "then_block");
  ir::RegionId second = block(else_block, "else_block");
  return ops::apply_all("cond", {predicate}, {}, {first, second});
}

Tensor cond(const Tensor& predicate, const std::function<Tensor()>& then_block,
            const std::function<Tensor()>& else_block) {
  auto list = [](const std::function<Tensor()>& f) -> std::function<Tensors()> {
    if (!f) return {};
    return [&f] { return Tensors{f()}; };
  };
  return checked_one(cond(predicate, list(then_block), list(else_block)), "cond");
}

namespace {

Tensors while_region(const GraphRef& graph, const Tensors& initial,
                     const std::function<LoopResult(const Tensors&)>& before,
                     const std::function<Tensors(const Tensors&)>& after,
                     const WhileOptions& options) {
  const char* op = "while_loop";
  if (options.max_iterations && *options.max_iterations < 0)
    throw GraphError(
        cat("while_loop: max_iterations is ", *options.max_iterations, ", expected at least 0"));
  if (!before) throw GraphError("while_loop: before is an empty function");
  std::vector<Type> value_types;
  auto run_before = [&](const Tensors& carried) {
    LoopResult r = before(carried);
    Tensors all{r.predicate};
    all.insert(all.end(), r.values.begin(), r.values.end());
    value_types = types_of(r.values, op, "values");
    return all;
  };
  ir::RegionId first =
      build_region(graph, types_of(initial, op, "initial"), op, "before", run_before);
  ir::RegionId second = build_region(graph, value_types, op, "after", after);
  ir::Attrs attrs{{"max_iterations", options.max_iterations.value_or(-1)}};
  auto building = graph->lock();
  Tensors results = ops::apply_all(op, initial, std::move(attrs), {first, second}, graph);
  if (!options.name.empty())
    graph->op(static_cast<ir::OpId>(graph->op_count() - 1)).locations.push_back(options.name);
  return results;
}

}  // namespace

Tensors while_loop_general(const Tensors& initial,
                           const std::function<LoopResult(const Tensors&)>& before,
                           const std::function<Tensors(const Tensors&)>& after,
                           const WhileOptions& options) {
  return while_region(ops::graph_of(initial, "while_loop"), initial, before, after, options);
}

Tensors while_loop(const Tensors& initial, const std::function<Tensor(const Tensors&)>& condition,
                   const std::function<Tensors(const Tensors&)>& body,
                   const WhileOptions& options) {
  if (!condition) throw GraphError("while_loop: condition is an empty function");
  return while_loop_general(
      initial, [&](const Tensors& v) { return LoopResult{condition(v), v}; }, body, options);
}

namespace {

using ForBody = std::function<Tensors(const Tensor&, const Tensors&)>;

// `counter`: the type in which the body sees the number of the iteration.
Tensors for_region(const GraphRef& graph, const std::optional<Expr>& count,
                   const Tensor& count_value, DType counter, const Tensors& initial,
                   const ForBody& body) {
  const char* op = "for_loop";
  if (!body) throw GraphError("for_loop: body is an empty function");
  std::vector<Type> types = types_of(initial, op, "initial");
  types.insert(types.begin(), type(i64, {}));
  ir::RegionId region = build_region(graph, types, op, "body", [&](const Tensors& arguments) {
    Tensor k = counter == i64 ? arguments[0] : cast(arguments[0], counter);
    return body(k, Tensors(arguments.begin() + 1, arguments.end()));
  });
  Tensors operands = initial;
  ir::Attrs attrs;
  if (count)
    attrs.set("count", std::vector<Expr>{*count});
  else
    operands.push_back(count_value);
  return ops::apply_all(op, operands, std::move(attrs), {region}, graph);
}

// The expression of a scalar whose value is known to the graph.
std::optional<Expr> known_scalar(const Tensor& t) {
  const ir::Value& v = t.graph()->value(t.id());
  if (v.elements && v.elements->size() == 1) return (*v.elements)[0];
  return std::nullopt;
}

Tensor as_counter(const Tensor& t, const char* argument) {
  if (!t.valid()) throw GraphError(cat("for_loop: ", argument, " is an empty Tensor"));
  if (t.type().known() && (!is_integer(t.dtype()) || t.rank() != 0))
    throw GraphError(cat("for_loop: ", argument, " is ", to_string(t.type()),
                         ", expected a scalar of an integer type"));
  return t.dtype() == i64 ? t : cast(t, i64);
}

Expr not_negative(const Expr& count) { return max(count, Expr(0)); }

}  // namespace

Tensors for_loop(const Expr& count, const Tensors& initial, const ForBody& body) {
  if (initial.empty()) {
    throw GraphError(
        "for_loop: initial is empty and the count is a number, so the graph is not known: use "
        "for_loop(graph, count, body)");
  }
  return for_region(ops::graph_of(initial, "for_loop"), not_negative(count), {}, i64, initial,
                    body);
}

Tensors for_loop(const Tensor& count, const Tensors& initial, const ForBody& body) {
  Tensor n = as_counter(count, "count");
  DType counter = is_integer(count.dtype()) ? count.dtype() : i64;
  if (std::optional<Expr> e = known_scalar(n))
    return for_region(n.graph(), not_negative(*e), {}, counter, initial, body);
  return for_region(n.graph(), std::nullopt, n, counter, initial, body);
}

Tensors for_loop(const Tensor& lower, const Tensor& upper, const Tensor& step,
                 const Tensors& initial, const ForBody& body) {
  if (!body) throw GraphError("for_loop: body is an empty function");
  Tensor from = as_counter(lower, "lower");
  Tensor to = as_counter(upper, "upper");
  Tensor by = as_counter(step, "step");
  DType counter = lower.dtype();
  for (DType d : {upper.dtype(), step.dtype()})
    if (is_integer(d) && is_integer(counter)) counter = promote(counter, d);
  if (!is_integer(counter)) counter = i64;
  // ceil((upper - lower) / step) for either sign of the step; none for step 0, as x / 0 is 0.
  Tensor count = constant_like(from, 0) - (from - to) / by;
  return for_loop(count, initial, [&](const Tensor& k, const Tensors& v) {
    Tensor i = from + k * by;
    return body(counter == i64 ? i : cast(i, counter), v);
  });
}

namespace {

// The operation that `build` adds last, a loop without results.
Operation last_operation(const GraphRef& graph, const std::function<void()>& build) {
  auto building = graph->lock();
  build();
  return {graph, static_cast<uint32_t>(graph->op_count() - 1)};
}

ForBody without_values(const std::function<void(const Tensor&)>& body) {
  if (!body) throw GraphError("for_loop: body is an empty function");
  return [&body](const Tensor& i, const Tensors&) {
    body(i);
    return Tensors{};
  };
}

}  // namespace

Operation for_loop(const Graph& graph, const Expr& count,
                   const std::function<void(const Tensor&)>& body) {
  return last_operation(graph.impl(), [&] {
    for_region(graph.impl(), not_negative(count), {}, i64, {}, without_values(body));
  });
}

Operation for_loop(const Tensor& count, const std::function<void(const Tensor&)>& body) {
  if (!count.valid()) throw GraphError("for_loop: count is an empty Tensor");
  return last_operation(count.graph(), [&] { for_loop(count, {}, without_values(body)); });
}

Operation for_loop(const Tensor& lower, const Tensor& upper, const Tensor& step,
                   const std::function<void(const Tensor&)>& body) {
  if (!lower.valid()) throw GraphError("for_loop: lower is an empty Tensor");
  return last_operation(lower.graph(),
                        [&] { for_loop(lower, upper, step, {}, without_values(body)); });
}

Operation while_loop(const Graph& graph, const std::function<Tensor()>& condition,
                     const std::function<void()>& body, const WhileOptions& options) {
  if (!condition) throw GraphError("while_loop: condition is an empty function");
  if (!body) throw GraphError("while_loop: body is an empty function");
  return last_operation(graph.impl(), [&] {
    while_region(
        graph.impl(), {}, [&](const Tensors&) { return LoopResult{condition(), {}}; },
        [&](const Tensors&) {
          body();
          return Tensors{};
        },
        options);
  });
}

ScanResult scan(
    const Tensors& initial, const Tensors& xs,
    const std::function<ScanResult(const Tensors& values, const Tensors& slices)>& body) {
  if (!body) throw GraphError("scan: body is an empty function");
  if (xs.empty()) throw GraphError("scan: xs is empty, expected at least one tensor");
  const GraphRef& graph = ops::graph_of(xs, "scan");
  std::vector<Type> types = types_of(initial, "scan", "initial");
  types.insert(types.begin(), type(i64, {}));
  for (size_t i = 0; i < xs.size(); ++i) {
    const Type& t = ops::known_type(xs[i], "scan", cat("xs[", i, "]"));
    if (t.rank() == 0)
      throw GraphError(
          cat("scan: xs[", i, "] is the scalar ", to_string(t), ", expected rank 1 or more"));
    types.push_back({t.dtype, Shape(t.shape->begin() + 1, t.shape->end())});
  }
  size_t carried = initial.size();
  size_t stacked = 0;
  ir::RegionId region = build_region(graph, types, "scan", "body", [&](const Tensors& arguments) {
    auto first = arguments.begin() + 1;
    auto split = first + static_cast<std::ptrdiff_t>(carried);
    ScanResult r = body(Tensors(first, split), Tensors(split, arguments.end()));
    if (r.carried.size() != carried)
      throw GraphError(
          cat("scan: body gives ", r.carried.size(), " carried values, expected ", carried));
    stacked = r.stacked.size();
    Tensors all = r.carried;
    all.insert(all.end(), r.stacked.begin(), r.stacked.end());
    return all;
  });
  Tensors operands = initial;
  operands.insert(operands.end(), xs.begin(), xs.end());
  ir::Attrs attrs{{"count", std::vector<Expr>{xs[0].shape()[0]}},
                  {"slices", static_cast<int64_t>(xs.size())},
                  {"stacked", static_cast<int64_t>(stacked)}};
  Tensors results = ops::apply_all("scan", operands, std::move(attrs), {region});
  auto split = results.begin() + static_cast<std::ptrdiff_t>(carried);
  return {Tensors(results.begin(), split), Tensors(split, results.end())};
}

Tensors call(const Graph& callee, const Tensors& targets, const Tensors& arguments) {
  const GraphRef& graph = ops::graph_of(arguments, "call");
  std::vector<Type> types = types_of(arguments, "call", "arguments");
  std::vector<ir::ValueId> parameters = callee.impl()->placeholders();
  if (parameters.size() != arguments.size())
    throw GraphError(cat("call: given ", arguments.size(), " arguments, expected ",
                         parameters.size(), " for the placeholders of the callee"));
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> feeds;
  for (size_t i = 0; i < parameters.size(); ++i) feeds.emplace_back(parameters[i], types[i]);
  std::vector<ir::ValueId> wanted;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].graph() != callee.impl())
      throw GraphError(cat("call: targets[", i, "] is not a tensor of the callee"));
    wanted.push_back(targets[i].id());
  }
  ir::Extracted function = ir::extract(*callee.impl(), feeds, wanted, {});
  for (size_t id = 0; id < function.graph->op_count(); ++id)
    if (ops::role_of(function.graph->op(static_cast<ir::OpId>(id))) == ops::Role::variable)
      throw GraphError(
          "call: the callee has a variable, expected none: pass its state as an argument");
  ir::RegionId region = build_region(graph, types, "call", "callee", [&](const Tensors& bound) {
    std::vector<ir::ValueId> ids;
    for (const Tensor& t : bound) ids.push_back(t.id());
    Tensors results;
    for (ir::ValueId v : ir::Cloner(*function.graph, *graph).inline_region(ir::kTopRegion, ids))
      results.push_back(graph->tensor(v));
    return results;
  });
  return ops::apply_all("call", arguments, {}, {region});
}

}  // namespace heddle
