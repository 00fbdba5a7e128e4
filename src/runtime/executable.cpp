// The public face of executables, but for compiling.
#include "runtime/executable.h"

#include "base/check.h"
#include "base/floating_point.h"
#include "target/counters.h"

#include <heddle/error.h>

namespace heddle {

namespace {

using runtime::Job;
using runtime::Run;

const std::shared_ptr<const Executable::Impl>& checked(
    const std::shared_ptr<const Executable::Impl>& impl) {
  if (!impl) throw GraphError("Executable: empty handle (it was never compiled)");
  return impl;
}

const std::shared_ptr<Queue::State>& queue_of(const Executable::Impl& impl,
                                              const RunOptions& options) {
  if (options.queue == nullptr) return impl.context->default_queue();
  const std::shared_ptr<Queue::State>& state = options.queue->state();
  if (state->context.device() != impl.device) {
    throw GraphError(base::cat("run: the queue belongs to ", state->context.device()->name(),
                               ", the executable to ", impl.device->name()));
  }
  return state;
}

// Waits on this thread where nothing else orders the run.
void run_sync(const std::shared_ptr<const Executable::Impl>& impl, Run& run,
              const RunOptions& options) {
  for (const auto& [event, value] : options.wait_for) {
    event.state()->wait_value(value);
    event.wait(value);  // takes the error of what should have signalled
  }
  auto work = [&](target::Stream& stream) {
    run.start(stream);
    stream.synchronize();
    run.finish();
    run.wrote();
  };
  try {
    run.wait_for_writers();
    if (options.queue != nullptr) {
      queue_of(*impl, options)->run_now(work);
    } else {
      impl->context->wait_default_queue();
      runtime::StreamLease stream(*impl->context);
      work(*stream);
    }
  } catch (...) {
    for (const auto& [event, value] : options.signal)
      event.state()->signal(value, std::current_exception());
    throw;
  }
  for (const auto& [event, value] : options.signal) event.state()->signal(value, nullptr);
}

// Nothing orders the run but the call itself.
bool is_plain(const Executable::Impl& impl, const RunOptions& options) {
  return options.queue == nullptr && options.wait_for.empty() && options.signal.empty() &&
         impl.context->default_queue_idle();
}

Job make_job(const std::shared_ptr<Run>& run) {
  Job job;
  job.start = [run](target::Stream& stream) { run->start(stream); };
  job.finish = [run](std::exception_ptr) { run->finish(); };
  job.begin = [run](const runtime::CompletionRef& own) { return run->begin(own); };
  if (!run->on_host()) {
    run->share_instance();
    job.ahead_bytes = [run](const target::Stream& stream) { return run->ahead_bytes(stream); };
    job.alone = run->alone();
    job.held_bytes = run->held_bytes();
  }
  return job;
}

}  // namespace

std::vector<Array> Executable::run(const std::vector<Array>& inputs,
                                   const RunOptions& options) const {
  base::StandardFloatingPoint mode;
  checked(impl_);
  std::vector<Array> outputs;
  if (is_plain(*impl_, options) && runtime::run_fast(*impl_, inputs, &outputs)) return outputs;
  Run run(impl_, inputs, {});
  run_sync(impl_, run, options);
  return run.outputs();
}

void Executable::run_into(const std::vector<Array>& inputs, const std::vector<Array>& outputs,
                          const RunOptions& options) const {
  base::StandardFloatingPoint mode;
  checked(impl_);
  if (is_plain(*impl_, options) && runtime::run_fast(*impl_, inputs, outputs)) return;
  Run run(impl_, inputs, outputs);
  run_sync(impl_, run, options);
}

std::vector<Array> Executable::run_async(const std::vector<Array>& inputs,
                                         const RunOptions& options) const {
  base::StandardFloatingPoint mode;
  auto run = std::make_shared<Run>(checked(impl_), inputs, std::vector<Array>());
  std::vector<Array> outputs = run->outputs();
  Job job = make_job(run);
  job.wait_for = options.wait_for;
  job.signal = options.signal;
  if (options.completion) {
    job.awaited = true;
    job.finish = [run, outputs, completion = options.completion](std::exception_ptr error) {
      run->finish();
      completion(error ? std::vector<Array>() : outputs, error);
    };
  }
  run.reset();
  queue_of(*impl_, options)->submit(std::move(job));
  return outputs;
}

void Executable::encode(CommandBuffer& buffer, const std::vector<Array>& inputs,
                        const std::vector<Array>& outputs) const {
  auto run = std::make_shared<Run>(checked(impl_), inputs, outputs);
  CommandBuffer::State& state = *buffer.state();
  if (state.queue->context.device() != impl_->device) {
    throw GraphError(base::cat("encode: the command buffer belongs to ",
                               state.queue->context.device()->name(), ", the executable to ",
                               impl_->device->name()));
  }
  std::lock_guard lock(state.mutex);
  if (state.committed) throw GraphError("encode: the command buffer was committed before");
  state.jobs.push_back(make_job(run));
}

std::vector<Type> Executable::input_types() const {
  std::vector<Type> types;
  for (const plan::Input& input : checked(impl_)->plan->inputs) types.push_back(input.type);
  return types;
}

std::vector<Type> Executable::output_types() const {
  std::vector<Type> types;
  for (const plan::Output& output : checked(impl_)->plan->outputs) types.push_back(output.type);
  return types;
}

std::vector<Type> Executable::output_types(const std::vector<Type>& inputs) const {
  const plan::Plan& plan = *checked(impl_)->plan;
  if (inputs.size() != plan.inputs.size()) {
    throw GraphError(
        base::cat("output_types: ", plan.inputs.size(), " types expected, given ", inputs.size()));
  }
  std::map<uint64_t, Expr> bound;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& declared = plan.inputs[i].type;
    if (inputs[i].dtype != declared.dtype || inputs[i].rank() != declared.rank()) {
      throw GraphError(base::cat("output_types: ", plan::feed_name(plan, i), " is ",
                                 to_string(inputs[i]), ", expected ", to_string(declared)));
    }
    for (size_t k = 0; k < declared.shape->size(); ++k) {
      const Expr& extent = (*declared.shape)[k];
      if (extent.kind() == ExprKind::symbol)
        bound.try_emplace(extent.symbol()->id, (*inputs[i].shape)[k]);
    }
  }
  auto map = [&](const SymbolRef& s) -> std::optional<Expr> {
    auto it = bound.find(s->id);
    return it != bound.end() ? std::optional(it->second) : std::nullopt;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t k = 0; k < inputs[i].shape->size(); ++k) {
      if (is_equal(substitute((*plan.inputs[i].type.shape)[k], map), (*inputs[i].shape)[k]) ==
          Ordering::no) {
        throw GraphError(base::cat("output_types: ", plan::feed_name(plan, i), " is ",
                                   to_string(inputs[i]), ", expected ",
                                   to_string(plan.inputs[i].type)));
      }
    }
  }
  std::vector<Type> types = output_types();
  for (Type& type : types) {
    for (Expr& extent : *type.shape) extent = substitute(extent, map);
  }
  return types;
}

std::string Executable::describe() const {
  if (checked(impl_)->judged)
    return "evaluated by the judge, operation by operation\n" + ir::print(*impl_->reference);
  std::string text = plan::describe(*impl_->plan);
  if (!impl_->tuning.empty()) text += impl_->tuning + "\n";
  if (int64_t feeds = impl_->copied_feeds.load(); feeds > 0) {
    text += base::cat("the last run copied ", feeds, " of ", impl_->plan->inputs.size(),
                      " feeds from other memory to ", impl_->device->name(), " (",
                      impl_->copied_bytes.load(), " bytes): feed arrays that live there, as ",
                      "Array::to gives them, to save that\n");
  }
  return text;
}

int Executable::kernel_count() const { return checked(impl_)->plan->kernel_steps; }

Device Executable::device() const { return Device(checked(impl_)->device); }

RuntimeCounters counters() {
  target::RuntimeCounters& c = target::runtime_counters();
  auto number = [](const std::atomic<uint64_t>& count) {
    return static_cast<int64_t>(count.load());
  };
  return {number(c.graph_compiles), number(c.kernel_requests), number(c.kernel_cache_hits),
          number(c.driver_calls), number(c.launches)};
}

}  // namespace heddle
