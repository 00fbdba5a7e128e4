// From a region of graph operations to kernels: inlining, grouping by index expressions, phases,
// splitting. Knows no operation by name: only the rules that each OpDef carries.
#pragma once

#include "ir/graph.h"
#include "ir/kernel.h"
#include "target/target.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

namespace heddle::loop {

struct ScheduleOptions {
  bool fusion = true;                                 // false: one op a kernel
  const target::DeviceDescription* device = nullptr;  // for thresholds; may be null
  int64_t block =
      0;  // > 0: rows are cut into blocks of so many elements, for tests with small ones
};

// A kernel whose non-local buffers are bound to graph values (kNone: private scratch, sized by the
// kernel's extents).
struct BoundKernel {
  ir::Kernel kernel;
  std::vector<ir::ValueId> bindings;  // one for each non-local buffer, in the kernel's order
  std::vector<std::string> notes;     // why things were (not) fused
};
// An opaque op (claimed, structural, variable access) keeps its place as an OpId.
using Item = std::variant<BoundKernel, ir::OpId>;

struct RegionSchedule {
  std::vector<Item> items;  // in execution order
  // Region results, arguments, constants and results of opaque ops live in buffers of their own
  // value id. A result that is only another name of a buffer (an argument, a constant, an opaque
  // result, a reshape of one): result -> that value.
  std::vector<std::pair<ir::ValueId, ir::ValueId>> aliases;
};

// `opaque`: ops that must not become kernels. Values that opaque ops or nested regions read are
// stored.
RegionSchedule schedule_region(const ir::Graph& graph, ir::RegionId region,
                               const std::set<ir::OpId>& opaque, const ScheduleOptions& options);

// A whole control op (cond, while, for, scan with its nested control) as one kernel: barriers
// between nests, carried values swapped or copied in place. Bound to the op's operands, captures
// and results. Refused with a reason where a nested op is opaque or the body is not a few small
// kernels.
std::variant<BoundKernel, target::Refusal> fuse_control(const ir::Graph& graph, ir::OpId op,
                                                        const std::set<ir::OpId>& opaque,
                                                        const ScheduleOptions& options);

}  // namespace heddle::loop
