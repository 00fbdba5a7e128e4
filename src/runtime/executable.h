// What an Executable holds, and one run of it.
#pragma once

#include "plan/instance.h"
#include "plan/plan.h"
#include "runtime/devices.h"
#include "runtime/pending.h"
#include "runtime/queue.h"
#include "runtime/variables.h"

#include <heddle/graph.h>

#include <atomic>
#include <memory>
#include <vector>

namespace heddle {

struct Executable::Impl {
  std::shared_ptr<target::Device> device;
  runtime::DeviceContext* context = nullptr;
  CompileOptions options;
  std::shared_ptr<const plan::Plan> plan;  // the judge's has a signature only
  std::shared_ptr<const ir::Graph>
      reference;          // what the judge evaluates: on its device, and for validation
  bool on_host = false;   // the device's memory is the host's
  bool judged = false;    // runs on the judge
  bool validate = false;  // HEDDLE_VALIDATE=reference
  plan::Resources resources;
  std::vector<std::shared_ptr<const runtime::DeviceBuffer>> constants, variables;
  std::shared_ptr<runtime::VariableState> state;  // null without variables
  bool writes = false;                            // has an assign
  std::string tuning;  // what CompileOptions::autotune chose; empty: it was not asked
  int64_t bytes = 0;   // held while the executable lives, for bounded caches

  // Feeds of the last run that had to be copied from the memory of another device.
  mutable std::atomic<int64_t> copied_feeds{0}, copied_bytes{0};
  mutable plan::LayoutCache layouts;
  mutable plan::InstancePool instances;
  std::shared_ptr<const plan::Layout> fixed;  // plans without symbols
};

namespace runtime {

// Compiles what computes the targets. `state`: of the graph on this device.
std::shared_ptr<const Executable::Impl> compile(const std::shared_ptr<ir::Graph>& graph,
                                                const CompileSpec& spec, const Device& device,
                                                CompileOptions options,
                                                const std::shared_ptr<VariableState>& state);

// One run: checked and bound when made, started on a stream, finished when the stream's work is
// done.
class Run {
 public:
  // Checks feeds and given outputs; `outputs` empty: allocates them. Throws GraphError or
  // DeviceError.
  Run(std::shared_ptr<const Executable::Impl> impl, std::vector<Array> inputs,
      std::vector<Array> outputs);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const std::vector<Array>& outputs() const { return outputs_; }
  // For asynchronous runs: marks what `own` will write; gives the runs that it follows.
  std::vector<Predecessor> begin(const CompletionRef& own) const;
  // For others: waits for those runs, before; forgets those whose results are written over, after.
  void wait_for_writers() const;
  void wrote() const;
  void start(target::Stream& stream);
  void finish();
  // In a queue: the next run on the stream may use what this one has prepared.
  bool on_host() const { return impl_->on_host; }
  void share_instance() { shared_ = true; }
  // Cannot be given to the stream behind runs that are not done: whatever is more than kernels and
  // calls on packed memory of the device.
  bool alone() const;
  // Of the device, besides what runs in flight on the stream have.
  int64_t ahead_bytes(const target::Stream& stream) const;
  int64_t held_bytes() const;  // of feeds, results and the arena

 private:
  void check_outputs();
  void decide_staging();
  void start_judge();
  void start_plan(target::Stream& stream);
  void execute(target::Stream& stream);
  void drop_instance(target::Stream& stream);
  void take_instance(target::Stream& stream);

  std::shared_ptr<const Executable::Impl> impl_;
  std::vector<Array> inputs_, outputs_;
  std::vector<Array> staged_inputs_,
      staged_outputs_;  // packed, on the device; invalid where not needed
  std::shared_ptr<const plan::Layout> layout_;
  plan::Instance* instance_ = nullptr;
  std::unique_ptr<plan::Instance> own_;  // null: instance_ is the pool's, in flight
  bool entered_ = false, shared_ = false;
};

// The warm path on host devices: sizes that ran last, packed feeds, nothing staged. Nothing is
// formatted, and nothing but fresh results is allocated. False: take the general way.
bool run_fast(const Executable::Impl& impl, const std::vector<Array>& inputs,
              const std::vector<Array>& outputs);
bool run_fast(const Executable::Impl& impl, const std::vector<Array>& inputs,
              std::vector<Array>* fresh);

// Copies between packed and strided memory of one device, on its stream.
void pack_on_device(const Array& from, const Array& to, target::Device& device,
                    target::Stream& stream);

// Runs the steps of the top level one by one and compares with the judge; DeviceError at the first
// difference.
void run_validated(const Executable::Impl& impl, plan::Instance& instance,
                   const std::vector<Array>& packed_inputs, target::Stream& stream);

// Array <-> tensor of the judge.
ops::HostTensor to_host_tensor(const Array& array);
void from_host_tensor(const ops::HostTensor& tensor, const Array& to);

}  // namespace runtime
}  // namespace heddle
