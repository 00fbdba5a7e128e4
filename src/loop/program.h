// A kernel flattened for interpretation: symbols and rows are slots of arrays, index expressions
// are postfix programs.
#pragma once

#include "ir/kernel.h"
#include "loop/scalar_eval.h"

#include <unordered_map>
#include <vector>

namespace heddle::loop {

// An integer expression over slots.
class ExprProgram {
 public:
  struct Step {
    ExprKind kind = ExprKind::constant;
    int64_t value = 0;  // constant; slot of a symbol; number of operands of add and mul
  };
  ExprProgram() = default;
  ExprProgram(const Expr& e, const std::unordered_map<uint64_t, uint32_t>& slots);
  int64_t eval(const std::vector<int64_t>& slots) const;

 private:
  void flatten(const Expr& e, const std::unordered_map<uint64_t, uint32_t>& slots);
  std::vector<Step> steps_;
};

struct AccessProgram {
  ir::BufferId buffer = 0;
  std::vector<ExprProgram> coords;
};
struct AxisProgram {
  uint32_t slot = 0;
  ExprProgram extent;
  ir::AxisKind kind = ir::AxisKind::mapped;
};
struct PhaseProgram {
  std::vector<AxisProgram> inner;
  std::vector<ir::Node> nodes;  // constants in canonical form
  std::vector<ExprProgram> exprs;
  std::vector<AccessProgram> accesses;
  std::vector<uint32_t> bind_slots;   // of Body::symbols
  std::vector<int64_t> lower, upper;  // their bounds
  std::vector<ir::RowRef> rows;
  struct Scan {
    ir::ReduceOp op = ir::ReduceOp::sum;
    DType type = DType::unknown;
  };
  std::vector<Scan> scans;  // one a scan node, whose payload is its place here
  std::vector<ir::Store> stores;
  std::vector<ir::Reduction> reductions;
  bool scanned = false;  // the last inner axis is a scan axis
};
struct NestProgram {
  std::vector<AxisProgram> outer;
  std::vector<PhaseProgram> phases;
};
struct StmtProgram {
  ir::StmtKind kind = ir::StmtKind::nest;
  ir::BarrierScope barrier = ir::BarrierScope::none;
  uint32_t nest = 0;
  std::vector<StmtProgram> first, second;
  ir::BufferId predicate = 0, counter = 0, a = 0, b = 0;
  ExprProgram count;
  bool has_count_buffer = false;
};
struct BufferProgram {
  std::string name;
  DType dtype = DType::unknown;
  ir::BufferRole role = ir::BufferRole::input;
  std::vector<Expr> extents;
  std::vector<ExprProgram> extent_programs;
  bool local() const {
    return role == ir::BufferRole::scalar_local || role == ir::BufferRole::row_local;
  }
};

struct KernelProgram {
  explicit KernelProgram(const ir::Kernel& kernel);

  std::string name;
  std::vector<BufferProgram> buffers;
  std::vector<uint32_t> argument_slots;  // of Kernel::symbols
  uint32_t slot_count = 0;
  std::vector<NestProgram> nests;
  std::vector<StmtProgram> body;

 private:
  uint32_t slot(const SymbolRef& symbol);
  AxisProgram axis(const ir::Axis& a);
  PhaseProgram phase(const ir::Phase& p);
  std::vector<StmtProgram> stmts(const std::vector<ir::Stmt>& list);
  std::unordered_map<uint64_t, uint32_t> slots_;
};

}  // namespace heddle::loop
