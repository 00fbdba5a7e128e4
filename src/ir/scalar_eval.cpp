#include "ir/scalar_eval.h"

#include "ir/scalar.h"

namespace heddle::ir {

uint64_t narrow_bits(DType type, uint64_t bits) {
  if (type == bool_) return bits != 0 ? 1 : 0;
  int width = bit_width(type);
  return width >= 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

double bits_to_double(DType type, uint64_t bits) {
  return get<double>(eval_cast(type, f64, canonical(type, bits)));
}

uint64_t eval_scalar(ScalarOp op, DType type, DType operand, uint64_t a, uint64_t b, uint64_t c) {
  Scalar x = canonical(operand, a);
  auto result = [&]() -> Scalar {
    switch (op) {
      case ScalarOp::select:
        return {a != 0 ? b : c};
      case ScalarOp::bitcast:
        return {a};
      case ScalarOp::cast:
        return eval_cast(operand, type, x);
      case ScalarOp::fma:
        return eval_fma(type, x, canonical(type, b), canonical(type, c));
      default:
        return op < ScalarOp::add ? eval_unary(op, operand, x)
                                  : eval_binary(op, operand, x, canonical(operand, b));
    }
  };
  return narrow_bits(type, result().bits);
}

uint64_t eval_call(LibraryFunction f, uint64_t a, uint64_t b) {
  return eval_call(f, Scalar{a}, Scalar{b}).bits;
}

}  // namespace heddle::ir
