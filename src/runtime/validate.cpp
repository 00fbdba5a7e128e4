// HEDDLE_VALIDATE=reference: the steps of a plan one by one against the judge.
#include "base/check.h"
#include "ir/describe.h"
#include "ops/judge.h"
#include "runtime/executable.h"
#include "runtime/storage.h"

#include <heddle/error.h>

#include <algorithm>
#include <cmath>

namespace heddle::runtime {

namespace {

// Relative rounding error of one operation.
double unit_roundoff(DType dtype) { return ops::epsilon(dtype) / 2; }

double magnitude(const ops::HostTensor& t, size_t i) {
  if (!t.f.empty()) return std::abs(t.f[i]);
  if (!t.c.empty()) return std::abs(t.c[i]);
  return std::abs(static_cast<double>(t.i[i]));
}

double difference(const ops::HostTensor& a, const ops::HostTensor& b, size_t i) {
  if (!a.i.empty())
    return a.i[i] == b.i[i]
               ? 0
               : std::abs(static_cast<double>(a.i[i]) - static_cast<double>(b.i[i])) + 1;
  if (!a.c.empty()) return a.c[i] == b.c[i] ? 0 : std::abs(a.c[i] - b.c[i]);
  if (a.f[i] == b.f[i] || (std::isnan(a.f[i]) && std::isnan(b.f[i]))) return 0;
  return std::abs(a.f[i] - b.f[i]);
}

// What roundings grow to in this value: the largest difference between its evaluations with every
// result rounded and with none. It is large where terms cancel or a division amplifies.
double growth(const ops::HostTensor& rounded, const ops::HostTensor& exact) {
  double largest = 0;
  for (size_t i = 0; i < static_cast<size_t>(rounded.size()); ++i) {
    double d = difference(rounded, exact, i);
    if (std::isfinite(d)) largest = std::max(largest, d);
  }
  return largest;
}

// Errors of a chain of operations and of a sum of `length` terms are bounded by multiples of the
// roundoff of the largest magnitudes that take part; the values that came before carry theirs
// along.
double tolerance(const ops::HostTensor& expected, double length, uint32_t step) {
  double sum = 0;
  for (size_t i = 0; i < static_cast<size_t>(expected.size()); ++i) {
    double m = magnitude(expected, i);
    if (std::isfinite(m)) sum += m * m;
  }
  double scale = std::sqrt(sum / std::max<double>(static_cast<double>(expected.size()), 1));
  return unit_roundoff(expected.dtype) * scale * (64 + 4 * length) * (1 + step);
}

// A value as the reference evaluator has it, with and without rounding.
struct Expected {
  const ops::HostTensor &rounded, &exact;
};

// Operation, type, the user's name, names that passes have merged, and the number in
// HEDDLE_DUMP=graph.
std::string described(const ir::Graph& graph, ir::ValueId value) {
  const ir::Value& v = graph.value(value);
  bool produced = v.op != ir::kNone;
  std::string text = base::cat("the result of ", produced ? graph.op(v.op).name : "a block", " ");
  if (!v.name.empty()) text += base::cat("'", v.name, "' ");
  if (produced) {
    for (const std::string& location : graph.op(v.op).locations)
      if (location != v.name) text += base::cat("'", location, "' ");
  }
  return text + base::cat(to_string(v.type), " (", ir::printed_number(graph, value),
                          " of the last graph that HEDDLE_DUMP=graph prints)");
}

void compare(const plan::Plan& plan, const plan::Step& step, ir::ValueId value,
             const Expected& reference, const ops::HostTensor& got, double length) {
  const ops::HostTensor& expected = reference.rounded;
  double allowed = tolerance(expected, length, step.number);
  if (is_floating(expected.dtype)) allowed += 32 * growth(expected, reference.exact);
  double relative = unit_roundoff(expected.dtype) * (64 + 4 * length) * (1 + step.number);
  for (size_t i = 0; i < static_cast<size_t>(expected.size()); ++i) {
    double d = difference(expected, got, i);
    if (d <= allowed + relative * magnitude(expected, i)) continue;
    std::string what = step.kind == plan::StepKind::kernel ? plan.kernels[step.kernel].kernel->name
                       : step.kind == plan::StepKind::call ? plan.calls[step.call].claim
                                                           : "control flow";
    throw DeviceError(base::cat("validation: ", described(*plan.graph, value), " at element ", i,
                                " differs by ", d, ", allowed ",
                                allowed + relative * magnitude(expected, i), ", after step ",
                                step.number, " (", what, ")"));
  }
}

// Terms that one result of the step folds, at most. Of a library call: the inner extent of a
// product of its two largest inputs (m x k times k x n gives m x n), which also bounds convolutions
// and reductions.
double reduction_length(const plan::Plan& plan, const plan::Step& step, const plan::Layout& layout,
                        int64_t elements) {
  double results = static_cast<double>(std::max<int64_t>(elements, 1));
  if (step.kind == plan::StepKind::kernel) {
    std::optional<int64_t> points = ir::cost(*plan.kernels[step.kernel].kernel).points.constant();
    return points ? static_cast<double>(*points) / results : 256;
  }
  if (step.kind != plan::StepKind::call) return 256;
  double first = 1, second = 1;
  for (plan::SlotId slot : step.buffers) {
    double size = 8.0 * static_cast<double>(layout.bytes[slot]) / bit_width(plan.slots[slot].dtype);
    bool output = std::any_of(step.values.begin(), step.values.end(),
                              [&](const auto& v) { return v.second == slot; });
    if (output) continue;
    second = std::max(second, std::min(first, size));
    first = std::max(first, size);
  }
  return std::max(std::sqrt(first * second / results), first / results);
}

}  // namespace

void run_validated(const Executable::Impl& impl, plan::Instance& instance,
                   const std::vector<Array>& packed_inputs, target::Stream& stream) {
  const plan::Plan& plan = *impl.plan;
  std::vector<ops::HostTensor> feeds;
  for (const Array& a : packed_inputs) feeds.push_back(to_host_tensor(a));
  auto read = [&](const void* from, DType dtype, const std::vector<int64_t>& shape) {
    std::vector<std::byte> bytes(static_cast<size_t>(byte_size(dtype, ops::element_count(shape))));
    if (!bytes.empty()) stream.copy_to_host(bytes.data(), from, static_cast<int64_t>(bytes.size()));
    return ops::from_bytes(dtype, shape, bytes);
  };
  std::map<int64_t, ops::HostTensor> variables;
  for (size_t i = 0; i < plan.variables.size(); ++i) {
    const ir::Literal& initial = *plan.variables[i].initial;
    variables[plan.variables[i].id] =
        read(impl.resources.variables[i], initial.dtype, initial.shape);
  }
  std::map<ir::ValueId, ops::HostTensor> values, exact_values;
  ops::JudgeOptions options, exact;
  options.values = &values;
  exact.values = &exact_values;
  exact.round = false;
  std::map<int64_t, ops::HostTensor> exact_variables = variables;
  ops::judge(*plan.graph, feeds, &variables, options);
  ops::judge(*plan.graph, feeds, &exact_variables, exact);
  for (const plan::Step& step : plan.steps) {
    instance.execute_step(step, stream);
    stream.synchronize();
    for (const auto& [value, slot] : step.values) {
      auto it = values.find(value);
      if (it == values.end()) continue;
      ops::HostTensor got = read(instance.pointer(slot), it->second.dtype, it->second.shape);
      compare(plan, step, value, {it->second, exact_values.at(value)}, got,
              reduction_length(plan, step, instance.layout(), got.size()));
    }
  }
}

}  // namespace heddle::runtime
