#include "ir/fold.h"

namespace heddle::ir {

std::optional<ScalarOp> step_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return ScalarOp::add;
    case ReduceOp::product:
      return ScalarOp::mul;
    case ReduceOp::max:
      return ScalarOp::max;
    case ReduceOp::min:
      return ScalarOp::min;
    case ReduceOp::max_num:
      return ScalarOp::max_num;
    case ReduceOp::min_num:
      return ScalarOp::min_num;
    case ReduceOp::any:
      return ScalarOp::bit_or;
    case ReduceOp::all:
      return ScalarOp::bit_and;
    default:
      return std::nullopt;
  }
}

}  // namespace heddle::ir
