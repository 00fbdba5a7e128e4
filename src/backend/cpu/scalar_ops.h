// The meaning of body nodes as LLVM instructions, on scalars and on vectors alike.
//
// Representation of a value of a DType: floats and integers as themselves, f16 and bf16 as i16 bit
// patterns, boolean as i1. In memory booleans are i8. Operands of one instruction have equal widths
// (see BodyEmitter::unify).
#pragma once

#include "backend/cpu/cpu_target.h"
#include "ir/body.h"

#include <llvm/IR/IRBuilder.h>

namespace heddle::cpu {

class ScalarOps {
 public:
  ScalarOps(llvm::IRBuilder<>& builder, const CpuTarget& target) : b_(builder), target_(target) {}

  llvm::Type* type(DType d) const;  // of a value
  llvm::Type* memory_type(
      DType d) const;  // of an element in memory (parts of complex types, bytes of storage types)
  llvm::Type* widen(llvm::Type* scalar, int width) const;
  static int width(llvm::Value* v);  // lanes; 1 for a scalar
  llvm::Value* splat(llvm::Value* v, int width) const;

  llvm::Constant* constant(DType d, uint64_t bits) const;
  llvm::Value* unary(ir::ScalarOp op, DType d, llvm::Value* a);
  llvm::Value* binary(ir::ScalarOp op, DType d, llvm::Value* a,
                      llvm::Value* b);  // d: of the operands
  llvm::Value* fma(DType d, llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* cast(DType from, DType to, llvm::Value* v);
  llvm::Value* bitcast(DType from, DType to, llvm::Value* v);
  llvm::Value* call(ir::LibraryFunction f, llvm::Value* a, llvm::Value* b);

  // From and to the form in memory.
  llvm::Value* from_memory(DType d, llvm::Value* v);
  llvm::Value* to_memory(DType d, llvm::Value* v);

  // Folds (all but the arg folds).
  llvm::Constant* identity(ir::ReduceOp op, DType d) const;
  llvm::Value* combine(ir::ReduceOp op, DType d, llvm::Value* a, llvm::Value* b);
  // Arg folds: does `v` at `v_index` replace `best` at `best_index`? Equal values: the smaller
  // index.
  llvm::Value* better(ir::ReduceOp op, DType d, llvm::Value* v, llvm::Value* best);

 private:
  llvm::Value* float_extreme(ir::ScalarOp op, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide(ir::ScalarOp op, DType d, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide_by_float(ir::ScalarOp op, DType d, llvm::Value* a, llvm::Value* b);
  llvm::Value* compare(ir::ScalarOp op, DType d, llvm::Value* a, llvm::Value* b);
  llvm::Value* boolean_binary(ir::ScalarOp op, llvm::Value* a, llvm::Value* b);
  llvm::Value* float_to_int(DType from, DType to, llvm::Value* v);
  llvm::Value* half_to_float(DType from, llvm::Value* v);
  llvm::Value* float_to_half(DType to, llvm::Value* v);
  llvm::Value* round_to_odd(llvm::Value* v);  // f64 -> f32
  llvm::Value* each_lane(const char* name, llvm::Type* result, llvm::Value* a, llvm::Value* b);
  llvm::Type* like(llvm::Type* scalar, llvm::Value* v) const { return widen(scalar, width(v)); }
  llvm::Value* int_like(llvm::Value* v, uint64_t bits) const;

  llvm::IRBuilder<>& b_;
  const CpuTarget& target_;
};

}  // namespace heddle::cpu
