// The folds of nests (ReduceOp, ir/body.h) in terms of scalar operations.
#pragma once

#include "ir/body.h"

#include <optional>

namespace heddle::ir {

// The operation that a fold repeats: sum -> add. None for argmax, argmin and value.
std::optional<ScalarOp> step_of(ReduceOp op);

// Folds that keep an element's index beside its value.
constexpr bool is_arg(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }

}  // namespace heddle::ir
