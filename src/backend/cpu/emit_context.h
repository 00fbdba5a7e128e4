// What the parts of the emitter share: the module, the builder, and the state of the function that
// is being written.
#pragma once

#include "backend/cpu/cpu_target.h"
#include "backend/cpu/scalar_ops.h"
#include "ir/kernel.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::cpu {

// Values of integer symbols: i64, or vectors of them for indices that differ between lanes.
class Env {
 public:
  Env() = default;
  explicit Env(const Env* parent) : parent_(parent) {}
  void set(const Symbol& s, llvm::Value* v) { values_[s.id] = v; }
  llvm::Value* find(uint64_t id) const {
    for (const Env* e = this; e != nullptr; e = e->parent_) {
      if (auto it = e->values_.find(id); it != e->values_.end()) return it->second;
    }
    return nullptr;
  }

 private:
  const Env* parent_ = nullptr;
  std::unordered_map<uint64_t, llvm::Value*> values_;
};

// The function that is being written.
struct FunctionState {
  llvm::Function* function = nullptr;
  llvm::Value* context = nullptr;     // RunContext*
  llvm::Value* frame = nullptr;       // slots shared with forked functions (8 bytes each)
  std::vector<llvm::Value*> buffers;  // address of each buffer's first element; null: not set yet
  std::vector<llvm::MDNode*> scopes, others;  // alias.scope and noalias of each buffer
  Env symbols;                                // extents
  llvm::Value* nothing = nullptr;             // 64 zero bytes, read where a mask is false
};

// What is set in the table of buffers' addresses during one of these is gone afterwards: such
// values are made in one block of the function, and blocks that are written later need not come
// after it.
class AddressScope {
 public:
  explicit AddressScope(FunctionState& f) : f_(f), before_(f.buffers) {}
  ~AddressScope() { f_.buffers = std::move(before_); }
  AddressScope(const AddressScope&) = delete;
  AddressScope& operator=(const AddressScope&) = delete;

 private:
  FunctionState& f_;
  std::vector<llvm::Value*> before_;
};

class EmitContext {
 public:
  EmitContext(const ir::Kernel& kernel, const CpuTarget& target, bool check_bounds);

  const ir::Kernel& kernel;
  const CpuTarget& target;
  bool check_bounds;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  llvm::IRBuilder<> b;
  ScalarOps ops;
  FunctionState* f = nullptr;

  llvm::Value* i64(int64_t v) { return b.getInt64(static_cast<uint64_t>(v)); }
  llvm::AllocaInst* local(llvm::Type* type, const char* name);  // in the entry block
  llvm::BasicBlock* block(const char* name);
  // for (i = lo; i < hi; i += step) body(i)
  void loop(llvm::Value* lo, llvm::Value* hi, int64_t step,
            const std::function<void(llvm::Value*)>& body);
  void when(llvm::Value* condition, const std::function<void()>& then);
  llvm::Function* create_function(const std::string& name, llvm::Type* result,
                                  std::vector<llvm::Type*> types, bool exported);
  // A function pointer of RunContext, by index.
  llvm::Value* service(int index);
  void make_scopes(FunctionState& state);
  void annotate(llvm::Instruction* access, ir::BufferId buffer);

  // Integer expressions. `lanes` and `v`: where v occurs, the value is a vector v, v + 1, ...
  llvm::Value* expr(const Expr& e, const Env& env, const Symbol* v = nullptr, int lanes = 1);

 private:
  llvm::Value* symbol_value(const Symbol& s, const Env& env, const Symbol* v, int lanes);
  llvm::Value* floor_division(const Expr& e, llvm::Value* a, llvm::Value* n);
  void unify(llvm::Value*& a, llvm::Value*& b);
};

// Function pointers at the start of RunContext, in this order.
enum Service : int { kFork = 0, kScratch = 1, kFail = 2, kRestore = 3 };

}  // namespace heddle::cpu
