#include "backend/cpu/control_emitter.h"

#include "backend/cpu/jit.h"
#include "backend/cpu/nest_emitter.h"
#include "base/check.h"

namespace heddle::cpu {

using ir::BufferRole;
using ir::Stmt;
using ir::StmtKind;
using llvm::Value;

namespace {

class ControlEmitter {
 public:
  ControlEmitter(EmitContext& e) : e_(e), layout_(e.kernel, row_slots(e.kernel.body)) {}
  void emit();

 private:
  static int row_slots(const std::vector<Stmt>& list);
  void prologue();
  void statements(const std::vector<Stmt>& list);
  size_t nests(const std::vector<Stmt>& list, size_t at);
  void for_loop(const Stmt& s);
  void while_loop(const Stmt& s);
  void if_else(const Stmt& s);
  void turn();
  Value* flag(ir::BufferId id);
  void swap(const Stmt& s);
  void restore();
  void collect_swaps(const std::vector<Stmt>& list);

  EmitContext& e_;
  FrameLayout layout_;
  FunctionState state_;
  std::vector<Value*> passed_;             // addresses as the caller passed them
  std::vector<llvm::AllocaInst*> places_;  // current addresses of buffers that are swapped
  std::vector<bool> swapped_;
  int nests_ = 0;
  int depth_ = 0;  // of loops
};

int ControlEmitter::row_slots(const std::vector<Stmt>& list) {
  int most = 0;
  for (const Stmt& s : list) {
    if (s.nest) most = std::max(most, NestEmitter::row_slots(*s.nest));
    most = std::max({most, row_slots(s.first), row_slots(s.second)});
  }
  return most;
}

void ControlEmitter::collect_swaps(const std::vector<Stmt>& list) {
  for (const Stmt& s : list) {
    if (s.kind == StmtKind::swap) swapped_[s.a] = swapped_[s.b] = true;
    collect_swaps(s.first);
    collect_swaps(s.second);
  }
}

void ControlEmitter::prologue() {
  auto& b = e_.b;
  llvm::Function* f = e_.create_function(kKernelSymbol, b.getVoidTy(),
                                         {b.getPtrTy(), b.getPtrTy(), b.getPtrTy()}, true);
  state_.function = f;
  state_.context = f->getArg(0);
  e_.f = &state_;
  e_.make_scopes(state_);
  auto* zeros = llvm::ArrayType::get(b.getInt8Ty(), 64);
  auto* nothing =
      new llvm::GlobalVariable(*e_.module, zeros, true, llvm::GlobalValue::InternalLinkage,
                               llvm::Constant::getNullValue(zeros), "nothing");
  nothing->setAlignment(llvm::Align(64));
  state_.nothing = nothing;
  e_.block("entry");
  llvm::BasicBlock* start = e_.block("start");
  b.SetInsertPoint(start);
  auto* frame =
      e_.local(llvm::ArrayType::get(b.getInt64Ty(), static_cast<uint64_t>(layout_.size)), "frame");
  state_.frame = frame;
  b.CreateStore(e_.i64(0), b.CreateConstGEP1_64(b.getInt64Ty(), frame,
                                                static_cast<uint64_t>(layout_.backwards)));
  for (size_t k = 0; k < e_.kernel.symbols.size(); ++k) {
    Value* value =
        b.CreateLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), f->getArg(2), k));
    state_.symbols.set(*e_.kernel.symbols[k], value);
    b.CreateStore(value, b.CreateConstGEP1_64(b.getInt64Ty(), frame,
                                              static_cast<uint64_t>(layout_.symbols) + k));
  }
  swapped_.resize(e_.kernel.buffers.size());
  places_.resize(e_.kernel.buffers.size());
  collect_swaps(e_.kernel.body);
  uint64_t argument = 0;
  for (size_t k = 0; k < e_.kernel.buffers.size(); ++k) {
    const ir::Buffer& buffer = e_.kernel.buffers[k];
    Value* address = nullptr;
    if (buffer.role == BufferRole::scalar_local) {
      auto* place = e_.local(e_.ops.memory_type(buffer.dtype), "scalar");
      b.CreateStore(llvm::Constant::getNullValue(place->getAllocatedType()), place);
      address = place;
    } else if (buffer.role != BufferRole::row_local) {
      address =
          b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), f->getArg(1), argument++));
      if (swapped_[k]) {
        places_[k] = e_.local(b.getPtrTy(), "place");
        b.CreateStore(address, places_[k]);
      }
    }
    passed_.push_back(address);
  }
  state_.buffers = passed_;
}

Value* ControlEmitter::flag(ir::BufferId id) {
  Value* address = places_[id] ? e_.b.CreateLoad(e_.b.getPtrTy(), places_[id]) : passed_[id];
  Value* byte = e_.b.CreateLoad(e_.b.getInt8Ty(), address);
  return e_.b.CreateICmpNE(byte, e_.b.getInt8(0));
}

void ControlEmitter::for_loop(const Stmt& s) {
  auto& b = e_.b;
  Value* count = nullptr;
  if (s.has_count_buffer) {
    DType d = e_.kernel.buffers[s.predicate].dtype;
    Value* address = places_[s.predicate] ? b.CreateLoad(b.getPtrTy(), places_[s.predicate])
                                          : passed_[s.predicate];
    Value* raw = b.CreateLoad(e_.ops.memory_type(d), address);
    count = e_.ops.cast(d, DType::i64, e_.ops.from_memory(d, raw));
  } else {
    count = e_.expr(s.count, state_.symbols);
  }
  DType d = e_.kernel.buffers[s.counter].dtype;
  e_.loop(e_.i64(0), count, 1, [&](Value* i) {
    b.CreateStore(e_.ops.to_memory(d, e_.ops.cast(DType::i64, d, i)), passed_[s.counter]);
    statements(s.first);
    turn();
  });
}

// The next iteration sweeps the other way.
void ControlEmitter::turn() {
  auto& b = e_.b;
  Value* at =
      b.CreateConstGEP1_64(b.getInt64Ty(), state_.frame, static_cast<uint64_t>(layout_.backwards));
  b.CreateStore(b.CreateXor(b.CreateLoad(b.getInt64Ty(), at), e_.i64(1)), at);
}

void ControlEmitter::while_loop(const Stmt& s) {
  auto& b = e_.b;
  llvm::BasicBlock *before = e_.block("before"), *after = e_.block("while"),
                   *done = e_.block("done");
  b.CreateBr(before);
  b.SetInsertPoint(before);
  statements(s.first);
  b.CreateCondBr(flag(s.predicate), after, done);
  b.SetInsertPoint(after);
  statements(s.second);
  turn();
  b.CreateBr(before);
  b.SetInsertPoint(done);
}

void ControlEmitter::if_else(const Stmt& s) {
  auto& b = e_.b;
  llvm::BasicBlock *yes = e_.block("if"), *no = e_.block("else"), *after = e_.block("endif");
  b.CreateCondBr(flag(s.predicate), yes, no);
  b.SetInsertPoint(yes);
  statements(s.first);
  b.CreateBr(after);
  b.SetInsertPoint(no);
  statements(s.second);
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

void ControlEmitter::swap(const Stmt& s) {
  auto& b = e_.b;
  Value* x = b.CreateLoad(b.getPtrTy(), places_[s.a]);
  Value* y = b.CreateLoad(b.getPtrTy(), places_[s.b]);
  b.CreateStore(y, places_[s.a]);
  b.CreateStore(x, places_[s.b]);
}

// The nest at `at`, or two with a barrier between them; returns how many statements that were.
size_t ControlEmitter::nests(const std::vector<Stmt>& list, size_t at) {
  AddressScope addresses(state_);
  for (size_t k = 0; k < places_.size(); ++k) {
    if (places_[k]) state_.buffers[k] = e_.b.CreateLoad(e_.b.getPtrTy(), places_[k]);
  }
  NestEmitter nest(e_, *list[at].nest, layout_, nests_++, depth_ > 0);
  if (nest.blocks() && at + 2 < list.size() && list[at + 1].kind == StmtKind::barrier &&
      list[at + 2].kind == StmtKind::nest) {
    NestEmitter next(e_, *list[at + 2].nest, layout_, nests_, depth_ > 0);
    if (nest.strips_with(next)) {
      ++nests_;
      nest.emit_strips(next);
      return 3;
    }
  }
  nest.emit();
  return 1;
}

void ControlEmitter::statements(const std::vector<Stmt>& list) {
  for (size_t at = 0; at < list.size(); ++at) {
    const Stmt& s = list[at];
    switch (s.kind) {
      case StmtKind::nest:
        at += nests(list, at) - 1;
        break;
      case StmtKind::barrier:
        break;  // a fork returns when all its work is done
      case StmtKind::for_loop:
        ++depth_;
        for_loop(s);
        --depth_;
        break;
      case StmtKind::while_loop:
        ++depth_;
        while_loop(s);
        --depth_;
        break;
      case StmtKind::if_else:
        if_else(s);
        break;
      case StmtKind::swap:
        swap(s);
        break;
    }
  }
}

// Contents go back to where the caller expects them.
void ControlEmitter::restore() {
  auto& b = e_.b;
  std::vector<size_t> moved;
  for (size_t k = 0; k < places_.size(); ++k) {
    if (places_[k]) moved.push_back(k);
  }
  if (moved.empty()) return;
  auto* table = llvm::ArrayType::get(b.getInt64Ty(), moved.size());
  auto *now = e_.local(table, "now"), *passed = e_.local(table, "passed"),
       *bytes = e_.local(table, "bytes");
  for (size_t i = 0; i < moved.size(); ++i) {
    const ir::Buffer& buffer = e_.kernel.buffers[moved[i]];
    auto at = [&](Value* base) { return b.CreateConstGEP1_64(b.getInt64Ty(), base, i); };
    b.CreateStore(b.CreateLoad(b.getPtrTy(), places_[moved[i]]), at(now));
    b.CreateStore(passed_[moved[i]], at(passed));
    Value* size = b.CreateMul(e_.expr(element_count(buffer.extents), state_.symbols),
                              e_.i64(bit_width(buffer.dtype) / 8));
    // Scratch is dead now: its contents need not survive.
    if (buffer.role == BufferRole::scratch) size = b.CreateNeg(size);
    b.CreateStore(size, at(bytes));
  }
  auto* type = llvm::FunctionType::get(
      b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy(), b.getPtrTy(), b.getInt64Ty()},
      false);
  b.CreateCall(type, e_.service(kRestore),
               {state_.context, now, passed, bytes, e_.i64(static_cast<int64_t>(moved.size()))});
}

void ControlEmitter::emit() {
  prologue();
  statements(e_.kernel.body);
  restore();
  e_.b.CreateRetVoid();
  llvm::BasicBlock& entry = state_.function->getEntryBlock();
  e_.b.SetInsertPoint(&entry);
  e_.b.CreateBr(entry.getNextNode());
}

}  // namespace

void emit_kernel(const ir::Kernel& kernel, const CpuTarget& target, bool check_bounds,
                 const std::function<void(llvm::Module&)>& use) {
  EmitContext e(kernel, target, check_bounds);
  ControlEmitter(e).emit();
  use(*e.module);
}

}  // namespace heddle::cpu
