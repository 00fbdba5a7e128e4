// Variables, control dependencies, branches and loops. Blocks may use tensors from outside.
#pragma once

#include <heddle/tensor.h>

#include <functional>
#include <optional>
#include <string>

namespace heddle {

class Graph;

Tensor read_variable(const Tensor& variable);
// Runs only as a target operation or a dependency. Program order holds among effects on one
// variable.
Operation assign(const Tensor& variable, const Tensor& value);
// Every op made in `body` runs after `operations`.
Tensors with_dependencies(const std::vector<Operation>& operations,
                          const std::function<Tensors()>& body);
Tensor with_dependencies(const std::vector<Operation>& operations,
                         const std::function<Tensor()>& body);

// predicate: a boolean scalar. Both blocks give the same number of tensors with equal types.
Tensors cond(const Tensor& predicate, const std::function<Tensors()>& then_block,
             const std::function<Tensors()>& else_block);
Tensor cond(const Tensor& predicate, const std::function<Tensor()>& then_block,
            const std::function<Tensor()>& else_block);

// The general loop: `before` gets the carried values and gives (predicate, values for `after` or,
// when false, the results); `after` gives the next carried values. Types of carried values never
// change.
struct LoopResult {
  Tensor predicate;
  Tensors values;
};
struct WhileOptions {
  std::optional<int64_t> max_iterations = {};  // a bound: the loop ends there; needed for gradients
  std::string name = {};
};
Tensors while_loop_general(const Tensors& initial,
                           const std::function<LoopResult(const Tensors&)>& before,
                           const std::function<Tensors(const Tensors&)>& after,
                           const WhileOptions& options = {});
// While `condition` holds: values = body(values).
Tensors while_loop(const Tensors& initial, const std::function<Tensor(const Tensors&)>& condition,
                   const std::function<Tensors(const Tensors&)>& body,
                   const WhileOptions& options = {});
// body(i, values) for i = 0 .. count-1, or lower, lower + step, ... below (step < 0: above) upper.
// i is an i64 scalar where the count is an extent; else it has the type of the count, or the common
// type of the bounds, which are scalars of any integer type.
Tensors for_loop(const Expr& count, const Tensors& initial,
                 const std::function<Tensors(const Tensor&, const Tensors&)>& body);
Tensors for_loop(const Tensor& count, const Tensors& initial,
                 const std::function<Tensors(const Tensor&, const Tensors&)>& body);
Tensors for_loop(const Tensor& lower, const Tensor& upper, const Tensor& step,
                 const Tensors& initial,
                 const std::function<Tensors(const Tensor&, const Tensors&)>& body);
// Loops without carried values run for the effects of their bodies (assigns). The result is a
// target operation, or a dependency of what reads the variables afterwards.
//
//   Operation train = for_loop(graph, 100, [&](const Tensor& i) { assign(w, w - step(i)); });
//   graph.run({}, {}, {train});
Operation for_loop(const Graph& graph, const Expr& count,
                   const std::function<void(const Tensor& i)>& body);
Operation for_loop(const Tensor& count, const std::function<void(const Tensor& i)>& body);
Operation for_loop(const Tensor& lower, const Tensor& upper, const Tensor& step,
                   const std::function<void(const Tensor& i)>& body);
Operation while_loop(const Graph& graph, const std::function<Tensor()>& condition,
                     const std::function<void()>& body, const WhileOptions& options = {});
// For each i: (values, outputs) = body(values, slices xs[i]); outputs are stacked along a new axis
// 0.
struct ScanResult {
  Tensors carried, stacked;
};
ScanResult scan(
    const Tensors& initial, const Tensors& xs,
    const std::function<ScanResult(const Tensors& values, const Tensors& slices)>& body);
// Calls another graph (its placeholders, in order, are the parameters; `targets` the results): the
// part of the callee that computes them is copied. It may not read or write variables (GraphError),
// whose state belongs to the callee: pass the state as an argument, and the new one as a target.
Tensors call(const Graph& callee, const Tensors& targets, const Tensors& arguments);

}  // namespace heddle
