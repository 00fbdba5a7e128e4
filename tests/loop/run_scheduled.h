// Runs a scheduled graph by the interpreter of kernels, with control flow driven from here.
#pragma once

#include "loop/schedule.h"
#include "ops/host_tensor.h"

#include <heddle/heddle.h>

#include <functional>
#include <string>
#include <vector>

namespace heddle::test {

struct ScheduledRun {
  std::vector<ops::HostTensor> results;
  int kernels = 0;       // of the top region
  int loop_kernels = 0;  // control operations that became one kernel
  std::string text;      // the kernels, and why they are as they are
};
struct ScheduledOptions {
  bool fusion = true;
  bool fuse_loops = false;
  const target::DeviceDescription* device = nullptr;
  // Runs a kernel on host memory in place of the interpreter.
  std::function<void(const ir::Kernel&, const target::KernelArgs&)> execute;
  int64_t block = 0;  // see loop::ScheduleOptions
};
// `graph`: an extracted one.
ScheduledRun run_scheduled(const ir::Graph& graph, const std::vector<ops::HostTensor>& feeds,
                           const ScheduledOptions& options = {});

// The targets as an optimised graph of their own.
std::shared_ptr<ir::Graph> prepare(const Graph& graph, const Tensors& feeds,
                                   const Tensors& targets);

// The targets of f's placeholders, by every way of scheduling and (`on_device`) on the test device,
// with extents known and open (equal ones are one symbol): expects the judge's values, and returns
// them.
using BuildTargets = std::function<Tensors(const Tensors& xs)>;
std::vector<ops::HostTensor> check_schedules(const std::vector<ops::HostTensor>& values,
                                             const BuildTargets& f, bool on_device = true);

}  // namespace heddle::test
