#include "runtime/autotune.h"

#include "base/check.h"
#include "runtime/disk_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

namespace heddle::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmRuns = 2;
constexpr int kLeastRuns = 3, kMostRuns = 50;
constexpr auto kTime = std::chrono::milliseconds(20);  // for each candidate
// Another candidate must be faster by so much: less is noise.
constexpr double kGain = 0.95;

// Why a plan cannot be timed on feeds of zeros; empty: it can.
std::string obstacle(const Executable::Impl& impl) {
  if (impl.judged) return "the judge has nothing to choose";
  if (!impl.fixed) return "its sizes are open";
  if (!impl.plan->variables.empty()) return "it has variables";
  for (ir::OpId id : impl.plan->graph->region(ir::kTopRegion).ops) {
    if (!impl.plan->graph->op(id).regions.empty())
      return "it has control flow, which may not end on feeds of zeros";
  }
  return "";
}

std::vector<CompileOptions> candidates(const CompileOptions& options,
                                       const Executable::Impl& impl) {
  std::vector<CompileOptions> all{options};
  if (options.claims && !impl.plan->calls.empty()) {
    all.push_back(options);
    all.back().claims = false;
  }
  if (options.threads == 0 && impl.on_host && impl.device->description().processors > 1) {
    for (size_t k = 0, n = all.size(); k < n; ++k) {
      all.push_back(all[k]);
      all.back().threads = 1;
    }
  }
  return all;
}

// Microseconds of the fastest run; infinite where there is no memory to try it.
double time(const std::shared_ptr<const Executable::Impl>& impl) try {
  Executable executable(impl);
  Device device(impl->device);
  std::vector<Array> inputs, outputs;
  for (size_t i = 0; i < impl->plan->inputs.size(); ++i)
    inputs.push_back(
        Array::zeros(impl->plan->inputs[i].type.dtype, impl->fixed->input_shapes[i]).to(device));
  for (size_t i = 0; i < impl->plan->outputs.size(); ++i)
    outputs.push_back(
        Array::empty(impl->plan->outputs[i].type.dtype, impl->fixed->output_shapes[i], device));
  for (int k = 0; k < kWarmRuns; ++k) executable.run_into(inputs, outputs);
  double best = std::numeric_limits<double>::infinity();
  auto end = Clock::now() + kTime;
  for (int k = 0; k < kMostRuns && (k < kLeastRuns || Clock::now() < end); ++k) {
    auto start = Clock::now();
    executable.run_into(inputs, outputs);
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return best;
} catch (const DeviceError&) {
  return std::numeric_limits<double>::infinity();
}

// Everything that the choice may depend on.
std::string key_of(const Executable::Impl& impl, const CompileOptions& options) {
  const target::DeviceDescription& device = impl.device->description();
  std::string key = base::cat("tune-1 ", target::core_build_id(), " ", device.kind, " ",
                              device.arch, " ", device.processors, "\n");
  for (const auto& [name, value] : device.features) key += base::cat(name, " ", value, "\n");
  key += base::cat(options.threads, options.fusion, options.deterministic, options.check_bounds,
                   options.claims, static_cast<int>(options.loops), "\n");
  for (const plan::PlanKernel& kernel : impl.plan->kernels)
    key += ir::canonical_text(*kernel.kernel);
  for (const plan::PlanCall& call : impl.plan->calls) key += call.call->describe() + "\n";
  for (int64_t bytes : impl.fixed->bytes) key += base::cat(bytes, " ");
  return key;
}

std::string show(const CompileOptions& options) {
  return base::cat(options.claims ? "library calls allowed" : "kernels only", ", ",
                   options.threads == 0 ? "threads by the work" : "one thread");
}

}  // namespace

std::shared_ptr<Executable::Impl> autotune(const CompileOptions& options,
                                           const CompileFunction& compile) {
  std::shared_ptr<Executable::Impl> best = compile(options);
  if (std::string why = obstacle(*best); !why.empty()) {
    best->tuning = base::cat("not tuned: ", why);
    return best;
  }
  std::vector<CompileOptions> all = candidates(options, *best);
  DiskCache memory("tune");
  std::string key = key_of(*best, options);
  if (auto found = memory.find(key); found && found->size() == 1) {
    auto index = static_cast<size_t>(found->front() - '0');
    if (index < all.size()) {
      if (index > 0) best = compile(all[index]);
      best->tuning = base::cat("tuned: ", show(all[index]), " (remembered)");
      return best;
    }
  }
  size_t chosen = 0;
  double fastest = time(best);
  if (fastest == std::numeric_limits<double>::infinity()) {
    best->tuning = "not tuned: the device has no memory to try it";
    return best;
  }
  std::string times = base::cat(show(options), " ", fastest, " us");
  for (size_t k = 1; k < all.size(); ++k) {
    std::shared_ptr<Executable::Impl> other = compile(all[k]);
    double us = time(other);
    times += base::cat("; ", show(all[k]), " ", us, " us");
    if (us >= fastest * kGain) continue;
    best = std::move(other);
    fastest = us;
    chosen = k;
  }
  memory.put(key, std::string(1, static_cast<char>('0' + chosen)));
  best->tuning = base::cat("tuned: ", show(all[chosen]), " (timed: ", times, ")");
  return best;
}

}  // namespace heddle::runtime
