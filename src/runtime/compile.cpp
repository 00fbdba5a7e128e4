#include "base/check.h"
#include "base/env.h"
#include "base/floating_point.h"
#include "passes/passes.h"
#include "runtime/autotune.h"
#include "runtime/executable.h"
#include "target/counters.h"

#include <heddle/error.h>

namespace heddle::runtime {

namespace {

void apply_switches(CompileOptions& options) {
  if (base::env_has("HEDDLE_FUSION", "off")) options.fusion = false;
  if (base::env_has("HEDDLE_CHECK", "bounds")) options.check_bounds = true;
  std::optional<std::string> loops = base::env("HEDDLE_LOOPS");
  if (!loops || loops->empty()) return;
  if (*loops == "host") {
    options.loops = LoopRecording::host;
  } else if (*loops == "device_graph") {
    options.loops = LoopRecording::device_graph;
  } else if (*loops == "single_kernel") {
    options.loops = LoopRecording::single_kernel;
  } else if (*loops != "automatic") {
    throw GraphError(base::cat("HEDDLE_LOOPS is ", *loops,
                               ", expected host, device_graph, single_kernel or automatic"));
  }
}

std::shared_ptr<ir::Graph> extract(const std::shared_ptr<ir::Graph>& graph,
                                   const CompileSpec& spec) {
  auto check = [&](const std::shared_ptr<ir::Graph>& owner, const char* what, size_t i) {
    if (owner == nullptr)
      throw GraphError(base::cat("compile: ", what, " ", i, " is an empty handle"));
    if (owner != graph)
      throw GraphError(base::cat("compile: ", what, " ", i, " belongs to another graph"));
  };
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> feeds;
  std::vector<ir::ValueId> targets;
  std::vector<ir::OpId> operations;
  if (spec.targets.empty() && spec.operations.empty())
    throw GraphError("compile: there is nothing to compute: give targets or operations");
  for (size_t i = 0; i < spec.feeds.size(); ++i) {
    check(spec.feeds[i].tensor.graph(), "feed", i);
    feeds.emplace_back(spec.feeds[i].tensor.id(), spec.feeds[i].type);
  }
  for (size_t i = 0; i < spec.targets.size(); ++i) {
    check(spec.targets[i].graph(), "target", i);
    targets.push_back(spec.targets[i].id());
  }
  for (size_t i = 0; i < spec.operations.size(); ++i) {
    check(spec.operations[i].graph(), "operation", i);
    operations.push_back(spec.operations[i].id());
  }
  std::shared_ptr<ir::Graph> extracted = ir::extract(*graph, feeds, targets, operations).graph;
  for (size_t i = 0; i < spec.feeds.size(); ++i) {
    const Type& type = extracted->value(extracted->region(ir::kTopRegion).arguments[i]).type;
    if (!type.known()) {
      throw GraphError(base::cat("compile: the type of feed ", i, " is still open (",
                                 to_string(type),
                                 "): give it, as in {tensor, hd::type(hd::f32, {1, 3})}"));
    }
  }
  return extracted;
}

bool can_record(DeviceContext& context) {
  StreamLease stream(context);
  return stream->can_record();
}

void load_resources(Executable::Impl& impl) {
  StreamLease stream(*impl.context);
  impl.resources.device = impl.device;
  impl.resources.arenas = &impl.context->arenas();
  for (const ir::LiteralRef& literal : impl.plan->constants) {
    impl.constants.push_back(impl.context->constants().get(literal, *stream));
    impl.resources.constants.push_back(impl.constants.back()->data());
    impl.bytes += impl.constants.back()->bytes();
  }
  for (const plan::Variable& variable : impl.plan->variables) {
    impl.variables.push_back(impl.state->get(variable, *stream));
    impl.resources.variables.push_back(impl.variables.back()->data());
    impl.writes = impl.writes || variable.written;
  }
  if (impl.plan->variables.empty()) impl.state = nullptr;
  for (const plan::PlanKernel& kernel : impl.plan->kernels)
    impl.bytes += kernel.compiled->code_bytes();
}

std::shared_ptr<Executable::Impl> compile_plain(const std::shared_ptr<ir::Graph>& extracted,
                                                const Device& device, const CompileOptions& options,
                                                const std::shared_ptr<VariableState>& state) {
  auto impl = std::make_shared<Executable::Impl>();
  impl->device = device.impl();
  impl->context = &context_of(impl->device);
  impl->options = options;
  impl->state = state;
  impl->on_host = impl->device->host_memory();
  impl->bytes = 4096;
  impl->judged = impl->device->description().kind == "judge";
  if (impl->judged) {
    auto signature = std::make_shared<plan::Plan>();
    signature->graph = extracted;
    signature->requirements = ops::requirements(*extracted);
    signature->devices = {impl->device->name()};
    plan::set_signature(*extracted, *signature);
    impl->plan = signature;
    impl->reference = extracted;
    impl->writes = true;
    target::runtime_counters().graph_compiles.fetch_add(1, std::memory_order_relaxed);
  } else {
    plan::Target target;
    target.description = &impl->device->description();
    target.name = impl->device->name();
    target.emitter = &impl->device->emitter();
    target.claims = impl->device->claims();
    target.host_memory = impl->device->host_memory();
    target.can_record = can_record(*impl->context);
    impl->plan = plan::build(*extracted, target, options);
    impl->validate = base::env_has("HEDDLE_VALIDATE", "reference");
    load_resources(*impl);
  }
  if (impl->plan->symbols.empty()) {
    impl->fixed = plan::make_layout(*impl->plan, {});
  }
  return impl;
}

}  // namespace

std::shared_ptr<const Executable::Impl> compile(const std::shared_ptr<ir::Graph>& graph,
                                                const CompileSpec& spec, const Device& device,
                                                CompileOptions options,
                                                const std::shared_ptr<VariableState>& state) {
  base::StandardFloatingPoint mode;
  apply_switches(options);
  std::shared_ptr<ir::Graph> extracted = extract(graph, spec);
  auto plain = [&](const CompileOptions& o) { return compile_plain(extracted, device, o, state); };
  return options.autotune ? autotune(options, plain) : plain(options);
}

}  // namespace heddle::runtime
