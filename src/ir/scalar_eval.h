// Scalar operations (ir/scalar.h) on the bit patterns of constants, for constant folding and tests.
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

double bits_to_double(DType type, uint64_t bits);  // any scalar type, rounded for 64-bit integers

}  // namespace heddle::ir
