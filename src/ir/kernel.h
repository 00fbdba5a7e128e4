// The kernel level: loop nests in sequence or under structured control, with barriers. One kernel
// is one launch.
//
// Nest: for every point of the mapped `outer` axes (independent, any order, in parallel) the phases
// run one after another. A phase iterates over its `inner` axes and folds its reductions, whose
// results later phases read as `row` nodes. So an elementwise kernel is one phase without inner
// axes; a sum is a phase that folds and a phase that stores; a softmax row is three phases; a
// Jacobi step with its residual is a nest without outer axes whose one phase stores the new state
// and folds the norm. Reductions too long for one worker are split by the scheduler into two nests
// with a grid barrier between.
#pragma once

#include "ir/body.h"

#include <memory>
#include <string>
#include <vector>

namespace heddle::ir {

enum class BufferRole : uint8_t {
  input,
  output,        // written; may also be read after it was written
  scratch,       // device memory that the plan provides; dead after the kernel
  scalar_local,  // one element in registers of the control thread (every thread computes it alike)
  row_local,  // extents = a phase's inner axes; private to an outer point, accessed at the phase's
              // own inner coordinates only: registers, shared memory or a small buffer of the
              // worker
};
struct Buffer {
  std::string name;
  DType dtype =
      DType::unknown;         // sub-byte and FP8 storage appears as u8 bytes with extents in bytes
  std::vector<Expr> extents;  // packed row-major; complex has a last axis of 2 parts
  BufferRole role = BufferRole::input;
};

enum class AxisKind : uint8_t {
  mapped,     // outer axes; inner axes of phases that only store
  reduced,    // folded in a fixed order that does not depend on the number of threads
  scan,       // in order, one axis, the last inner axis; `scan` nodes carry along it
  scattered,  // in order, stores of kind add or set with indirect coordinates
};
struct Axis {
  SymbolRef var;
  Expr extent;
  AxisKind kind = AxisKind::mapped;
};

struct Reduction {
  ReduceOp op = ReduceOp::sum;
  NodeId value = kNoNode;
  DType type = DType::unknown;  // accumulator: f32 for half types, the integer's own type, boolean
  // Of argmax and argmin: see ScanSpec; counts up over the inner axes in row-major order.
  std::optional<Expr> position = {};
};
struct Phase {
  std::vector<Axis> inner;
  Body body;
  std::vector<Reduction> reductions;
};
struct Nest {
  std::vector<Axis> outer;
  std::vector<Phase> phases;
  std::vector<std::string> locations;
};

enum class StmtKind : uint8_t { nest, barrier, for_loop, while_loop, if_else, swap };
enum class BarrierScope : uint8_t { none, block, grid };

struct Stmt {
  StmtKind kind = StmtKind::nest;
  std::shared_ptr<const Nest> nest;
  BarrierScope barrier = BarrierScope::none;
  // while_loop: { first; if (!*predicate) break; second; }; if_else: *predicate ? first : second;
  // for_loop: for (*counter = 0 .. count-1) first; count from `count`, or from the scalar buffer
  // `predicate` if has_count_buffer.
  std::vector<Stmt> first, second;
  BufferId predicate = 0;  // boolean scalar buffer (scalar_local, scratch or output)
  BufferId counter = 0;    // for_loop: i64 scalar_local
  Expr count;
  bool has_count_buffer = false;
  BufferId
      a = 0,
      b = 0;  // swap: exchanges two buffers' storage (equal dtype and extents; scratch or output)
};

struct Kernel {
  std::string name;
  std::vector<Buffer>
      buffers;  // arguments (input, output, scratch) in order of passing; locals anywhere
  std::vector<SymbolRef> symbols;  // extents passed as i64, in order
  std::vector<Stmt> body;
};

std::string print(const Kernel& kernel);
// Empty, or the first broken invariant in a sentence that names its rule.
std::string verify(const Kernel& kernel);
// By structure; symbols numbered by first occurrence, names and locations ignored.
uint64_t structural_hash(const Kernel& kernel);
bool structurally_equal(const Kernel& a, const Kernel& b);
// Unique text of the structure (symbols and buffers numbered): key material of on-disk caches.
std::string canonical_text(const Kernel& kernel);

// Operations and bytes of one run, as expressions of the symbols: the cost model's and describe()'s
// figures.
struct KernelCost {
  Expr points, bytes_read, bytes_written;
  int64_t ops_per_point = 0;
};
KernelCost cost(const Kernel& kernel);

}  // namespace heddle::ir
