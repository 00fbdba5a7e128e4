// The meaning of every scalar operation on bit patterns, for constant folding and tests. The
// interpreter has its own copy (loop/scalar_eval.h); the two must say the same.
#pragma once

#include "ir/body.h"

#include <heddle/dtype.h>

#include <cstdint>

namespace heddle::ir {

// The low bits of `bits` that belong to `type` (boolean: 0 or 1).
uint64_t narrow_bits(DType type, uint64_t bits);

// Unary, binary, ternary, cast and bitcast nodes: operands and result as bit patterns; `type` is
// the node's, `operand` the first operand's (for select: the predicate's).
uint64_t eval_scalar(ScalarOp op, DType type, DType operand, uint64_t a, uint64_t b, uint64_t c);
uint64_t eval_call(LibraryFunction f, uint64_t a, uint64_t b);

// Neutral element of a fold, and one step of it. argmax and argmin are folds of pairs and handled
// by their users.
uint64_t reduce_identity(ReduceOp op, DType type);
uint64_t reduce_step(ReduceOp op, DType type, uint64_t accumulator, uint64_t value);
// argmax, argmin: does `value` replace `best`? Later elements win only if strictly better; the
// first NaN wins and stays.
bool arg_replaces(ReduceOp op, DType type, uint64_t best, uint64_t value);

double bits_to_double(DType type, uint64_t bits);  // any scalar type, rounded for 64-bit integers

}  // namespace heddle::ir
