// Elements in memory, and folds, of the interpreter; its arithmetic is ir/scalar.h.
#pragma once

#include "ir/scalar.h"

#include <cstring>

namespace heddle::loop {

using ir::canonical;
using ir::eval_binary;
using ir::eval_call;
using ir::eval_cast;
using ir::eval_fma;
using ir::eval_unary;
using ir::get;
using ir::put;
using ir::Scalar;
using ir::with_type;

// The type of a buffer's element in memory: parts of complex types, bytes of packed storage types.
inline DType element_type(DType d) {
  if (is_complex(d)) return real_part(d);
  return is_storage_only(d) ? DType::u8 : d;
}
inline int element_bytes(DType d) { return bit_width(element_type(d)) / 8; }

inline Scalar load_element(DType d, const std::byte* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(element_bytes(d)));
  return canonical(element_type(d), bits);
}
inline void store_element(DType d, std::byte* at, Scalar s) {
  std::memcpy(at, &s.bits, static_cast<size_t>(element_bytes(d)));
}

// ---- folds

// The neutral element of a fold in `type` (of argmax and argmin: of the value).
Scalar identity_of(ir::ReduceOp op, DType type);

// A running fold. Sums and products of f32 are carried in f64 and rounded once at the end.
class Fold {
 public:
  Fold() = default;
  Fold(ir::ReduceOp op, DType type)
      : op_(op), type_(type), value_(identity_of(op, type)), wide_(op == ir::ReduceOp::product) {}
  void add(Scalar v, int64_t index);
  Scalar value() const;
  int64_t index() const { return index_; }

 private:
  bool widened() const {
    return type_ == DType::f32 && (op_ == ir::ReduceOp::sum || op_ == ir::ReduceOp::product);
  }
  ir::ReduceOp op_ = ir::ReduceOp::sum;
  DType type_ = DType::f32;
  Scalar value_;
  int64_t index_ = 0;
  bool started_ = false;
  double wide_ = 0;
};

}  // namespace heddle::loop
