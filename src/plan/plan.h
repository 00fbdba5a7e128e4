// Plans: steps over buffers whose places are decided before anything runs. One plan serves every
// size of its symbols.
//
// Invariants: a step touches only slots that are alive at its number; slots whose intervals overlap
// never share arena bytes unless one shares the other's storage on purpose; carried values of loops
// keep their places; nothing in a plan changes after build().
#pragma once

#include "ir/graph.h"
#include "ir/kernel.h"
#include "ops/opdef.h"
#include "target/host_kernel.h"
#include "target/target.h"

#include <heddle/graph.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle::plan {

using SlotId = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;

enum class Place : uint8_t {
  arena,
  input,     // a feed's memory
  output,    // a result's memory, given by the runtime
  constant,  // in the device's store of constants
  variable,  // persistent state
  view,      // one row of another slot, set by the loop that owns it
};

// A buffer of a plan: packed row-major memory on the plan's device.
struct Slot {
  DType dtype = DType::unknown;
  Shape shape;
  Expr bytes;
  Place place = Place::arena;
  uint32_t index = kNone;  // of the input, output, constant or variable
  uint32_t workspace_of =
      kNone;  // a workspace: the index of the library call, which is asked for the bytes at binding
  uint32_t begin = kNone, end = 0;  // first and last step number that touches it
  std::vector<uint32_t> home;       // loops (by step number) inside which it lives, outermost first
  SlotId shares = kNone;            // lives in that slot's bytes (in-place)
  bool pinned = false;              // carried by a loop: never shared in place
  ir::ValueId value = ir::kNone;    // for messages and validation
};

enum class StepKind : uint8_t { kernel, call, copy, fill, cond, while_loop, for_loop };

struct SlotPair {
  SlotId a = kNone, b = kNone;
};

struct Step {
  StepKind kind = StepKind::kernel;
  uint32_t number = 0;          // position in the order of the whole plan
  uint32_t device = 0;          // index in Plan::devices
  uint32_t kernel = kNone;      // Plan::kernels
  uint32_t call = kNone;        // Plan::calls
  std::vector<SlotId> buffers;  // kernel, call: arguments; copy: {to, from}; fill: {to}
  SlotId workspace = kNone;     // call
  std::vector<SymbolRef> symbols;
  uint8_t byte = 0;                                    // fill
  std::vector<std::pair<ir::ValueId, SlotId>> values;  // what holds after this step, for validation
  std::vector<std::string> locations;

  // Control. cond: *predicate ? first : second. while_loop: { first; if (!*predicate) break;
  // second; advance; }. for_loop: count times { first; advance; }.
  std::vector<Step> first, second;
  SlotId predicate = kNone;
  SlotId counter = kNone;         // i64, kept by the loop where something reads it
  std::optional<Expr> count;      // for_loop; while_loop: at most so often
  SlotId count_slot = kNone;      // for_loop: i64, where count is absent
  std::vector<SlotPair> rows;     // view a is row k of b; host-driven loops only
  std::vector<SlotPair> advance;  // carried value a becomes b (all at once); distinct arena slots
  bool on_device = false;         // predicate, counter and rows are handled by steps on the device
  std::vector<Step> prologue, test;  // on_device for_loop: before the first test; the test itself

  uint32_t arg_begin = 0, symbol_begin = 0,
           count_index = kNone;  // in the flat arrays of instances and layouts
  bool moving = false;  // its arguments may change while the plan runs: gathered at each execution
};

struct PlanKernel {
  std::shared_ptr<const ir::Kernel> kernel;
  std::shared_ptr<const target::CompiledKernel> compiled;
  std::vector<std::string> notes;
};

struct PlanCall {
  std::string claim;
  std::shared_ptr<const target::LibraryCall> call;
  bool recordable = true;
  std::vector<SymbolRef> symbols;
};

struct Input {
  Type type;
  std::string name;
  SlotId slot = kNone;
};
struct Output {
  Type type;
  SlotId slot = kNone;
};
struct Variable {
  int64_t id = 0;  // of the graph's variable
  std::string name;
  ir::LiteralRef initial;
  bool written = false;
  SlotId slot = kNone;
};

struct Plan {
  std::shared_ptr<const ir::Graph> graph;  // optimised
  std::vector<std::string> devices;        // names; steps refer to them
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<ir::LiteralRef> constants;
  std::vector<SlotId> constant_slots;
  std::vector<Variable> variables;
  std::vector<Slot> slots;
  std::vector<PlanKernel> kernels;
  std::vector<PlanCall> calls;
  std::vector<Step> steps;
  std::vector<SymbolRef> symbols;              // bound by the feeds; the order of a layout's values
  std::vector<ops::Requirement> requirements;  // of the feeds' sizes
  std::vector<std::string> notes;              // claims and loops: what was decided and why
  std::string no_recording;   // why the plan cannot become a device graph; empty: it can
  bool device_loops = false;  // has loops that only a device graph runs without the host
  uint32_t arg_count = 0, symbol_count = 0, count_count = 0;
  int kernel_steps = 0;
};

// The device that a plan is built for.
struct Target {
  const target::DeviceDescription* description = nullptr;
  std::string name;
  target::Emitter* emitter = nullptr;
  std::span<const target::Claim> claims;
  bool host_memory = true;
  bool can_record = false;  // streams record device graphs with control flow
};

// `extracted`: the top region's arguments are the feeds, its results the targets. Runs the passes,
// schedules, compiles.
std::shared_ptr<const Plan> build(const ir::Graph& extracted, const Target& target,
                                  const CompileOptions& options);

// Inputs, outputs and symbols of a plan from the top region, without anything that runs. The
// symbols are those that the feeds' extents determine.
void set_signature(const ir::Graph& graph, Plan& plan);

std::string describe(const Plan& plan);

}  // namespace heddle::plan
