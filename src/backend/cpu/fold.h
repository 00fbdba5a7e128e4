// Accumulators of reductions in emitted code.
#pragma once

#include "backend/cpu/emit_context.h"

namespace heddle::cpu {

// A value, and for arg folds its index (UINT64_MAX: no element yet).
struct FoldValue {
  llvm::Value* value = nullptr;
  llvm::Value* index = nullptr;
};

class Accumulator {
 public:
  Accumulator(EmitContext& e, const ir::Reduction& r, int lanes);
  void reset();
  // Folds the element `value` at flat index `index` (later than all before it).
  // `magnitude`: the element has no sign.
  void add(llvm::Value* value, llvm::Value* index, bool magnitude = false);
  void merge(const FoldValue& other);
  FoldValue get() const;
  bool arg() const { return index_ != nullptr; }

  static FoldValue identity(EmitContext& e, const ir::Reduction& r, int lanes);
  // a comes before b unless indices say otherwise.
  static FoldValue combine(EmitContext& e, const ir::Reduction& r, const FoldValue& a,
                           const FoldValue& b);
  static FoldValue across_lanes(EmitContext& e, const ir::Reduction& r, FoldValue v);
  // The result that rows see: index 0 and sum +0 for nothing at all (`maybe_empty`).
  static FoldValue finish(EmitContext& e, const ir::Reduction& r, FoldValue v, bool maybe_empty);

 private:
  EmitContext& e_;
  const ir::Reduction& r_;
  int lanes_;
  llvm::AllocaInst* value_ = nullptr;
  llvm::AllocaInst* index_ = nullptr;
  llvm::AllocaInst* numbers_ = nullptr;  // lanes that have met no NaN
};

}  // namespace heddle::cpu
