#include "loop/interpret.h"

#include "base/check.h"
#include "loop/program.h"
#include "target/host_kernel.h"

#include <algorithm>

namespace heddle::loop {

namespace {

using ir::BufferId;
using ir::NodeId;

// Who touched an element last, since which barrier.
struct Touch {
  uint32_t epoch = 0, nest = 0, point = 0;
  bool many = false;  // other points too
  bool by_other(const Touch& t) const {
    return epoch == t.epoch && (many || nest != t.nest || point != t.point);
  }
};
struct Shadow {
  Touch written, read;
};

struct Storage {
  std::byte* data = nullptr;
  std::vector<Shadow> shadow;  // one an element, where races are checked
  std::vector<int64_t> extents;
  int64_t elements = 0;
  int bytes = 0;
};

using Rows = std::vector<std::vector<Fold>>;  // [phase][reduction] of the outer point that runs

// One run of a kernel.
class Machine {
 public:
  Machine(const KernelProgram& program, const target::KernelArgs& args,
          const InterpretOptions& options);
  void run() { run_stmts(program_.body); }

 private:
  void run_stmts(const std::vector<StmtProgram>& list);
  void run_for(const StmtProgram& s);
  void run_nest(const NestProgram& nest);
  void run_phase(const PhaseProgram& phase, const Rows& rows, std::vector<Fold>& folds);
  Scalar run_node(const PhaseProgram& phase, const ir::Node& n, const Rows& rows);
  void run_store(const PhaseProgram& phase, const ir::Store& store);
  std::byte* address(const AccessProgram& access, bool write);
  void touch(const AccessProgram& access, size_t element, bool write);
  [[noreturn]] void out_of_bounds(const AccessProgram& access);
  bool flag(BufferId b) const { return *storage_[b].data != std::byte{0}; }

  const KernelProgram& program_;
  bool check_bounds_, check_races_;
  Touch now_{1, 0, 0, false};  // epoch, nest and outer point that run
  std::vector<int64_t> slots_;
  std::vector<Storage> storage_;
  std::vector<std::vector<std::byte>> locals_;
  std::vector<Scalar> values_;  // of the nodes of the point that runs
  std::vector<Fold> scans_;
};

Machine::Machine(const KernelProgram& program, const target::KernelArgs& args,
                 const InterpretOptions& options)
    : program_(program),
      check_bounds_(options.check_bounds),
      check_races_(options.check_races),
      slots_(program.slot_count, 0) {
  HD_CHECK(args.symbols.size() == program.argument_slots.size(), program.name,
           ": number of symbols");
  for (size_t k = 0; k < args.symbols.size(); ++k)
    slots_[program.argument_slots[k]] = args.symbols[k];
  size_t argument = 0;
  for (const BufferProgram& b : program.buffers) {
    Storage s;
    s.bytes = element_bytes(b.dtype);
    s.elements = 1;
    for (const ExprProgram& e : b.extent_programs) {
      s.extents.push_back(e.eval(slots_));
      s.elements *= s.extents.back();
    }
    if (b.local()) {
      locals_.emplace_back(static_cast<size_t>(std::max<int64_t>(s.elements, 1) * s.bytes));
      s.data = locals_.back().data();
    } else {
      HD_CHECK(argument < args.buffers.size(), program.name, ": number of buffers");
      s.data = static_cast<std::byte*>(args.buffers[argument++]);
      if (check_races_) s.shadow.resize(static_cast<size_t>(std::max<int64_t>(s.elements, 0)));
    }
    storage_.push_back(std::move(s));
  }
  HD_CHECK(argument == args.buffers.size(), program.name, ": number of buffers");
}

void Machine::run_stmts(const std::vector<StmtProgram>& list) {
  for (const StmtProgram& s : list) {
    switch (s.kind) {
      case ir::StmtKind::nest:
        run_nest(program_.nests[s.nest]);
        break;
      case ir::StmtKind::barrier:
        if (s.barrier == ir::BarrierScope::grid) ++now_.epoch;
        break;
      case ir::StmtKind::for_loop:
        run_for(s);
        break;
      case ir::StmtKind::while_loop:
        for (;;) {
          run_stmts(s.first);
          if (!flag(s.predicate)) break;
          run_stmts(s.second);
        }
        break;
      case ir::StmtKind::if_else:
        run_stmts(flag(s.predicate) ? s.first : s.second);
        break;
      case ir::StmtKind::swap:
        std::swap(storage_[s.a], storage_[s.b]);
        break;
    }
  }
}

void Machine::run_for(const StmtProgram& s) {
  int64_t count = 0;
  if (s.has_count_buffer) {
    DType type = program_.buffers[s.predicate].dtype;
    count =
        get<int64_t>(eval_cast(type, DType::i64, load_element(type, storage_[s.predicate].data)));
  } else {
    count = s.count.eval(slots_);
  }
  DType type = program_.buffers[s.counter].dtype;
  for (int64_t k = 0; k < count; ++k) {
    store_element(type, storage_[s.counter].data, eval_cast(DType::i64, type, put(k)));
    run_stmts(s.first);
  }
}

// Calls f at each point of the axes, the last fastest; extents may depend on the axes before.
template <class F>
void for_points(const std::vector<AxisProgram>& axes, size_t k, std::vector<int64_t>& slots,
                const F& f) {
  if (k == axes.size()) {
    f();
    return;
  }
  int64_t extent = axes[k].extent.eval(slots);
  for (int64_t v = 0; v < extent; ++v) {
    slots[axes[k].slot] = v;
    for_points(axes, k + 1, slots, f);
  }
}

void Machine::run_nest(const NestProgram& nest) {
  std::vector<std::vector<Fold>> rows(nest.phases.size());
  ++now_.nest;
  now_.point = 0;
  for_points(nest.outer, 0, slots_, [&] {
    ++now_.point;
    for (size_t p = 0; p < nest.phases.size(); ++p) {
      rows[p].clear();
      for (const ir::Reduction& r : nest.phases[p].reductions) rows[p].emplace_back(r.op, r.type);
      run_phase(nest.phases[p], rows, rows[p]);
    }
  });
}

void Machine::run_phase(const PhaseProgram& phase, const Rows& rows, std::vector<Fold>& folds) {
  if (values_.size() < phase.nodes.size()) values_.resize(phase.nodes.size());
  int64_t flat = 0;
  for_points(phase.inner, 0, slots_, [&] {
    if (phase.scanned && slots_[phase.inner.back().slot] == 0) {
      scans_.clear();
      for (const PhaseProgram::Scan& scan : phase.scans) scans_.emplace_back(scan.op, scan.type);
    }
    for (size_t k = 0; k < phase.nodes.size(); ++k)
      values_[k] = run_node(phase, phase.nodes[k], rows);
    for (size_t k = 0; k < folds.size(); ++k)
      folds[k].add(values_[phase.reductions[k].value], flat);
    for (const ir::Store& s : phase.stores) run_store(phase, s);
    ++flat;
  });
}

Scalar Machine::run_node(const PhaseProgram& phase, const ir::Node& n, const Rows& rows) {
  using ir::ScalarOp;
  auto operand = [&](NodeId id) { return values_[id]; };
  switch (n.op) {
    case ScalarOp::constant:
      return {n.bits};
    case ScalarOp::index:
      return put(phase.exprs[n.payload].eval(slots_));
    case ScalarOp::load: {
      if (n.a != ir::kNoNode && operand(n.a).bits == 0) return operand(n.b);
      const AccessProgram& access = phase.accesses[n.payload];
      return load_element(program_.buffers[access.buffer].dtype, address(access, false));
    }
    case ScalarOp::bind: {
      auto v = get<int64_t>(operand(n.a));
      if (check_bounds_) {
        HD_CHECK(v >= phase.lower[n.payload] && v <= phase.upper[n.payload], program_.name,
                 ": bound index ", v, " is outside ", phase.lower[n.payload], "..",
                 phase.upper[n.payload]);
      }
      slots_[phase.bind_slots[n.payload]] = v;
      return operand(n.a);
    }
    case ScalarOp::row: {
      const ir::RowRef& ref = phase.rows[n.payload];
      const Fold& fold = rows[ref.phase][ref.reduction];
      return ref.component == 1 ? put(fold.index()) : fold.value();
    }
    case ScalarOp::scan: {
      Fold& fold = scans_[n.payload];
      fold.add(operand(n.a), 0);
      return fold.value();
    }
    case ScalarOp::fma:
      return eval_fma(n.type, operand(n.a), operand(n.b), operand(n.c));
    case ScalarOp::select:
      return operand(n.a).bits != 0 ? operand(n.b) : operand(n.c);
    case ScalarOp::cast:
      return eval_cast(phase.nodes[n.a].type, n.type, operand(n.a));
    case ScalarOp::bitcast:
      return canonical(n.type, operand(n.a).bits);
    case ScalarOp::call:
      return eval_call(static_cast<ir::LibraryFunction>(n.payload), operand(n.a),
                       n.b == ir::kNoNode ? Scalar{} : operand(n.b));
    default:
      break;
  }
  DType type = phase.nodes[n.a].type;
  return n.b == ir::kNoNode ? eval_unary(n.op, type, operand(n.a))
                            : eval_binary(n.op, type, operand(n.a), operand(n.b));
}

void Machine::run_store(const PhaseProgram& phase, const ir::Store& store) {
  if (store.mask != ir::kNoNode && values_[store.mask].bits == 0) return;
  const AccessProgram& access = phase.accesses[store.access];
  DType memory = element_type(program_.buffers[access.buffer].dtype);
  DType type = phase.nodes[store.value].type;
  Scalar v = values_[store.value];
  std::byte* at = address(access, true);
  if (store.kind == ir::StoreKind::add) {
    Scalar sum = eval_cast(memory, compute_type(memory), load_element(memory, at));
    v = eval_binary(ir::ScalarOp::add, compute_type(memory), sum,
                    eval_cast(type, compute_type(memory), v));
    type = compute_type(memory);
  }
  store_element(memory, at, eval_cast(type, memory, v));
}

std::byte* Machine::address(const AccessProgram& access, bool write) {
  const Storage& s = storage_[access.buffer];
  int64_t flat = 0;
  bool inside = access.coords.size() == s.extents.size();
  for (size_t k = 0; k < access.coords.size() && inside; ++k) {
    int64_t c = access.coords[k].eval(slots_);
    flat = flat * s.extents[k] + c;
    if (check_bounds_ && (c < 0 || c >= s.extents[k])) inside = false;
  }
  if (!inside) out_of_bounds(access);
  if (!s.shadow.empty()) touch(access, static_cast<size_t>(flat), write);
  return s.data + flat * s.bytes;
}

void Machine::touch(const AccessProgram& access, size_t element, bool write) {
  Shadow& s = storage_[access.buffer].shadow[element];
  if (s.written.by_other(now_) || (write && s.read.by_other(now_))) {
    throw InternalError(base::cat(program_.name, ": race in buffer '",
                                  program_.buffers[access.buffer].name, "', element ", element,
                                  write ? ", written" : ", read",
                                  " with no barrier since another part of the kernel touched it"));
  }
  Touch& mine = write ? s.written : s.read;
  bool many = mine.by_other(now_);
  mine = now_;
  mine.many = many;
}

void Machine::out_of_bounds(const AccessProgram& access) {
  std::string text = program_.name + ": access outside buffer '" +
                     program_.buffers[access.buffer].name + "': coordinates [";
  for (size_t k = 0; k < access.coords.size(); ++k) {
    text += (k ? "," : "") + std::to_string(access.coords[k].eval(slots_));
  }
  text += "], extents [";
  for (size_t k = 0; k < storage_[access.buffer].extents.size(); ++k) {
    text += (k ? "," : "") + std::to_string(storage_[access.buffer].extents[k]);
  }
  throw InternalError(text + "]");
}

class InterpretedKernel : public target::HostKernel {
 public:
  InterpretedKernel(const ir::Kernel& kernel, bool checks)
      : program_(kernel), text_(ir::print(kernel)), checks_(checks) {}
  std::string code() const override { return text_; }
  int64_t code_bytes() const override { return static_cast<int64_t>(text_.size()); }
  void run(const target::KernelArgs& args, int /*threads*/) const override {
    Machine(program_, args, {.check_bounds = checks_, .check_races = checks_}).run();
  }

 private:
  KernelProgram program_;
  std::string text_;
  bool checks_;
};

class InterpreterEmitter : public target::Emitter {
 public:
  std::shared_ptr<const target::CompiledKernel> compile(
      const ir::Kernel& kernel, const target::EmitOptions& options) override {
    return std::make_shared<InterpretedKernel>(kernel, options.check_bounds);
  }
};

}  // namespace

void interpret(const ir::Kernel& kernel, const target::KernelArgs& args,
               const InterpretOptions& options) {
  KernelProgram program(kernel);
  Machine(program, args, options).run();
}

std::unique_ptr<target::Emitter> make_interpreter_emitter() {
  return std::make_unique<InterpreterEmitter>();
}

}  // namespace heddle::loop
