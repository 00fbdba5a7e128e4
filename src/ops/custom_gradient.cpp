// A function with a gradient of the user's own. Both are built at once, as the two regions of one
// op.
#include "base/check.h"
#include "ir/describe.h"
#include "ops/support.h"

#include <heddle/ops.h>

namespace heddle::ops {
namespace {

using base::cat;
using ir::InferredResult;

std::vector<Type> types_of(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  std::vector<Type> out;
  for (ir::ValueId v : values) out.push_back(graph.value(v).type);
  return out;
}

// forward takes the inputs; backward the inputs, the outputs, and the upstream gradients of these.
std::vector<Type> region_arguments(const InferContext& c, int which) {
  std::vector<Type> types = types_of(c.graph, c.operands);
  if (which == 0) return types;
  std::vector<Type> outputs = types_of(c.graph, c.graph.region(c.regions[0]).results);
  for (int twice = 0; twice < 2; ++twice) types.insert(types.end(), outputs.begin(), outputs.end());
  return types;
}

void check_arguments(const InferContext& c, int which, const char* block) {
  std::vector<Type> expected = region_arguments(c, which);
  std::vector<Type> given =
      types_of(c.graph, c.graph.region(c.regions[static_cast<size_t>(which)]).arguments);
  if (given.size() != expected.size())
    c.fail(cat(block, " takes ", given.size(), " tensors, expected ", expected.size()));
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].known() && expected[i].known() && given[i] != expected[i])
      c.fail(cat(block, " takes ", to_string(given[i]), " as argument ", i, ", expected ",
                 to_string(expected[i])));
}

std::vector<InferredResult> infer(const InferContext& c) {
  if (c.regions.size() != 2) c.fail(cat("has ", c.regions.size(), " regions, expected 2"));
  check_arguments(c, 0, "forward");
  check_arguments(c, 1, "backward");
  const auto& inputs = c.attrs.get<std::vector<int64_t>>("inputs");
  const std::vector<ir::ValueId>& gradients = c.graph.region(c.regions[1]).results;
  if (gradients.size() != inputs.size())
    c.fail(cat("backward gives ", gradients.size(), " gradients, expected ", inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] < 0 || inputs[i] >= static_cast<int64_t>(c.operands.size()) ||
        (i > 0 && inputs[i] <= inputs[i - 1]))
      c.fail(cat("inputs ", list(inputs), " do not name inputs in order"));
    const Type& given = c.graph.value(gradients[i]).type;
    const Type& expected = c.type(static_cast<size_t>(inputs[i]));
    if (given.known() && expected.known() && given != expected)
      c.fail(cat("backward gives ", to_string(given), " as the gradient of input ", inputs[i],
                 ", expected ", to_string(expected)));
  }
  std::vector<InferredResult> out;
  for (const Type& t : types_of(c.graph, c.graph.region(c.regions[0]).results))
    out.push_back({t, std::nullopt});
  return out;
}

Tensors gradient(const GradientContext& c) {
  const auto& graph = c.in.empty() ? c.out[0].graph() : c.in[0].graph();
  if (!c.wanted_captures.empty() && !c.op.attrs.get<bool>("constant_captures")) {
    throw GraphError(
        cat("custom_gradient: forward captures ", ir::describe(*graph, c.wanted_captures[0]),
            ", which depends on what is differentiated, and backward gives no gradient "
            "of it: make it one of the inputs, or set constant_captures"));
  }
  std::vector<ir::ValueId> arguments;
  for (const Tensor& t : c.in) arguments.push_back(t.id());
  for (const Tensor& t : c.out) arguments.push_back(t.id());
  for (size_t i = 0; i < c.out.size(); ++i)
    arguments.push_back((c.upstream[i].valid() ? c.upstream[i] : zeros_like(c.out[i])).id());
  Tensors out(c.in.size());
  std::vector<ir::ValueId> results =
      ir::Cloner(*graph, *graph).inline_region(c.op.regions[1], arguments);
  const auto& inputs = c.op.attrs.get<std::vector<int64_t>>("inputs");
  for (size_t i = 0; i < inputs.size(); ++i)
    out[static_cast<size_t>(inputs[i])] = graph->tensor(results[i]);
  return out;
}

const Register entry({
    .name = "custom_gradient",
    .kind = Kind::structural,
    .doc = "The results of the first region. Its gradient is the second region, which takes the "
           "inputs, the outputs and "
           "the upstream gradients. A captured value that depends on what is differentiated is an "
           "error, or a constant with constant_captures.",
    .operands = {{.name = "inputs", .dtypes = kAnyStored, .variadic = true}},
    .attrs = {{"inputs", "those that the second region gives gradients of, in order",
               std::vector<int64_t>{}},
              {"constant_captures", "captured values get no gradient", false}},
    .results = -1,
    .infer = infer,
    .infer_open = true,
    .judge =
        [](const JudgeContext& c) {
          std::vector<HostTensor> arguments;
          for (const HostTensor* t : c.in) arguments.push_back(*t);
          return c.run_region(0, arguments);
        },
    .gradient = gradient,
    .control =
        [](const ir::Graph& graph, ir::OpId id) {
          ControlInfo info{.form = Form::call};
          info.first = graph.op(id).regions[0];
          info.initial = graph.op(id).operands;
          return info;
        },
    .region_arguments = region_arguments,
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

using base::cat;

Tensors custom_gradient(
    const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward,
    const std::function<Tensors(const Tensors&, const Tensors&, const Tensors&)>& backward,
    const CustomGradientOptions& options) {
  const char* op = "custom_gradient";
  if (!backward) throw GraphError("custom_gradient: backward is an empty function");
  const auto& graph = ops::graph_of(inputs, op);
  std::vector<Type> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].valid())
      throw GraphError(cat("custom_gradient: inputs[", i, "] is an empty Tensor"));
    types.push_back(inputs[i].type());
  }
  ir::RegionId first = ops::build_region(graph, types, op, "forward", forward);
  size_t outputs = graph->region(first).results.size();
  for (int twice = 0; twice < 2; ++twice)
    for (ir::ValueId v : graph->region(first).results) types.push_back(graph->value(v).type);
  std::vector<int64_t> given;
  ir::RegionId second =
      ops::build_region(graph, types, op, "backward", [&](const Tensors& arguments) {
        auto out = arguments.begin() + static_cast<std::ptrdiff_t>(inputs.size());
        auto up = out + static_cast<std::ptrdiff_t>(outputs);
        Tensors gradients = backward({arguments.begin(), out}, {out, up}, {up, arguments.end()});
        if (gradients.size() != inputs.size())
          throw GraphError(cat("custom_gradient: backward gives ", gradients.size(),
                               " gradients, expected one for each of ", inputs.size(), " inputs"));
        Tensors results;
        for (size_t i = 0; i < gradients.size(); ++i) {
          if (!gradients[i].valid()) continue;
          given.push_back(static_cast<int64_t>(i));
          results.push_back(gradients[i]);
        }
        return results;
      });
  return ops::apply_all(op, inputs,
                        {{"inputs", given}, {"constant_captures", options.constant_captures}},
                        {first, second});
}

}  // namespace heddle
