#include "loop/scalar_eval.h"

#include "ir/fold.h"

namespace heddle::loop {

Scalar identity_of(ir::ReduceOp op, DType type) {
  using ir::ReduceOp;
  if (op == ReduceOp::value) return {};
  return with_type(type, [&](auto zero) -> Scalar {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    switch (op) {
      case ReduceOp::product:
      case ReduceOp::all:
        return put(static_cast<T>(1));
      case ReduceOp::max:
      case ReduceOp::max_num:
      case ReduceOp::argmax:
        return put(Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest());
      case ReduceOp::min:
      case ReduceOp::min_num:
      case ReduceOp::argmin:
        return put(Limits::has_infinity ? Limits::infinity() : Limits::max());
      default:
        return put(T{});
    }
  });
}

namespace {

// Does `v` replace `best` in an arg fold? The first NaN wins over everything, else the first
// extreme value.
bool better(ir::ReduceOp op, DType type, Scalar v, Scalar best) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    T a = get<T>(v), b = get<T>(best);
    if (b != b) return false;
    if (a != a) return true;
    return op == ir::ReduceOp::argmax ? a > b : a < b;
  });
}

Scalar combine(ir::ReduceOp op, DType type, Scalar a, Scalar b) {
  std::optional<ir::ScalarOp> step = ir::step_of(op);
  return step ? eval_binary(*step, type, a, b) : b;
}

}  // namespace

void Fold::add(Scalar v, int64_t index) {
  using ir::ReduceOp;
  if (ir::is_arg(op_)) {
    // An element equal to the identity (-inf) still takes the place of "nothing yet".
    if (!started_ || better(op_, type_, v, value_)) {
      value_ = v;
      index_ = index;
    }
  } else if (widened()) {
    double x = static_cast<double>(get<float>(v));
    wide_ = op_ == ReduceOp::sum ? (started_ ? wide_ + x : x) : wide_ * x;
  } else if (op_ == ReduceOp::sum || op_ == ReduceOp::value) {
    value_ = started_ && op_ == ReduceOp::sum ? combine(op_, type_, value_, v) : v;
  } else {
    value_ = combine(op_, type_, value_, v);
  }
  started_ = true;
}

Scalar Fold::value() const {
  if (widened()) return put(static_cast<float>(wide_));
  return value_;
}

}  // namespace heddle::loop
