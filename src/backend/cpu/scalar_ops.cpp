#include "backend/cpu/scalar_ops.h"

#include "base/check.h"
#include "ir/fold.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <cmath>
#include <limits>

namespace heddle::cpu {

using ir::ReduceOp;
using ir::ScalarOp;
using llvm::Constant;
using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Type;
using llvm::Value;

Type* ScalarOps::type(DType d) const {
  if (d == DType::f64) return b_.getDoubleTy();
  if (d == DType::f32) return b_.getFloatTy();
  if (d == DType::boolean) return b_.getInt1Ty();
  HD_CHECK(is_integer(d) || d == DType::f16 || d == DType::bf16, "no scalars of type ", name(d));
  return b_.getIntNTy(static_cast<unsigned>(bit_width(d)));
}

Type* ScalarOps::memory_type(DType d) const {
  if (is_complex(d)) d = real_part(d);
  if (d == DType::boolean || is_storage_only(d)) return b_.getInt8Ty();
  return type(d);
}

Type* ScalarOps::widen(Type* scalar, int width) const {
  return width == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(width));
}

int ScalarOps::width(Value* v) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return vector ? static_cast<int>(vector->getNumElements()) : 1;
}

Value* ScalarOps::splat(Value* v, int width) const {
  return width == 1 || v->getType()->isVectorTy()
             ? v
             : b_.CreateVectorSplat(static_cast<unsigned>(width), v);
}

Value* ScalarOps::int_like(Value* v, uint64_t bits) const {
  return ConstantInt::get(v->getType(), bits);
}

Constant* ScalarOps::constant(DType d, uint64_t bits) const {
  Type* t = type(d);
  if (d == DType::boolean) return ConstantInt::get(t, bits != 0);
  if (t->isIntegerTy()) return ConstantInt::get(t, bits);
  auto* integer = ConstantInt::get(b_.getIntNTy(t->getPrimitiveSizeInBits()), bits);
  return llvm::ConstantExpr::getBitCast(integer, t);
}

// ----------------------------------------------------------------------------------------
// arithmetic

Value* ScalarOps::unary(ScalarOp op, DType d, Value* a) {
  if (op == ScalarOp::is_nan)
    return is_real_float(d) ? b_.CreateFCmpUNO(a, a) : ConstantInt::get(like(b_.getInt1Ty(), a), 0);
  if (op == ScalarOp::logical_not) {
    return is_real_float(d) ? b_.CreateFCmpOEQ(a, ConstantFP::get(a->getType(), 0.0))
                            : b_.CreateICmpEQ(a, int_like(a, 0));
  }
  if (d == DType::boolean) return op == ScalarOp::bit_not ? b_.CreateNot(a) : a;
  if (is_real_float(d)) {
    using llvm::Intrinsic::ID;
    switch (op) {
      case ScalarOp::neg:
        return b_.CreateFNeg(a);
      case ScalarOp::abs:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      case ScalarOp::sqrt:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
      case ScalarOp::inverse:
        return b_.CreateFDiv(ConstantFP::get(a->getType(), 1.0), a);
      case ScalarOp::floor:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
      case ScalarOp::ceil:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
      case ScalarOp::trunc:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
      case ScalarOp::rint:
        return b_.CreateUnaryIntrinsic(llvm::Intrinsic::nearbyint, a);
      default:
        break;
    }
  } else {
    switch (op) {
      case ScalarOp::neg:
        return b_.CreateNeg(a);
      case ScalarOp::abs:
        return is_signed_integer(d)
                   ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getInt1(false))
                   : a;
      case ScalarOp::bit_not:
        return b_.CreateNot(a);
      case ScalarOp::floor:
      case ScalarOp::ceil:
      case ScalarOp::trunc:
      case ScalarOp::rint:
        return a;
      default:
        break;
    }
  }
  base::check_failed(__FILE__, __LINE__, "unary operation", std::string(name(d)));
}

// Is it a constant, the same in all lanes, that is neither zero nor NaN?
static bool plain_number(Value* v) {
  auto* c = llvm::dyn_cast<Constant>(v);
  if (c != nullptr && c->getType()->isVectorTy()) c = c->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<ConstantFP>(c);
  return number != nullptr && !number->isZero() && !number->isNaN();
}

// NaN propagates: llvm.minimum and llvm.maximum, which also order -0 < +0. With `_num`, a NaN is
// replaced by the other. Beside a plain number one comparison does: the machine's minimum, which
// takes its second operand for NaN.
Value* ScalarOps::float_extreme(ScalarOp op, Value* a, Value* b) {
  bool larger = op == ScalarOp::max || op == ScalarOp::max_num;
  bool number = op == ScalarOp::min_num || op == ScalarOp::max_num;
  if (plain_number(a)) std::swap(a, b);
  if (plain_number(b)) {
    Value *first = number ? a : b, *second = number ? b : a;
    Value* takes = larger ? b_.CreateFCmpOGT(first, second) : b_.CreateFCmpOLT(first, second);
    return b_.CreateSelect(takes, first, second);
  }
  if (number) {
    Value* a_nan = b_.CreateFCmpUNO(a, a);
    Value* b_nan = b_.CreateFCmpUNO(b, b);
    Value* left = b_.CreateSelect(a_nan, b, a);
    b = b_.CreateSelect(b_nan, a, b);
    a = left;
  }
  return b_.CreateBinaryIntrinsic(larger ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, a,
                                  b);
}

Value* ScalarOps::compare(ScalarOp op, DType d, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  bool f = is_real_float(d), s = is_signed_integer(d);
  P p = P::ICMP_EQ;
  switch (op) {
    case ScalarOp::eq:
      p = f ? P::FCMP_OEQ : P::ICMP_EQ;
      break;
    case ScalarOp::ne:
      p = f ? P::FCMP_UNE : P::ICMP_NE;
      break;
    case ScalarOp::lt:
      p = f ? P::FCMP_OLT : s ? P::ICMP_SLT : P::ICMP_ULT;
      break;
    case ScalarOp::le:
      p = f ? P::FCMP_OLE : s ? P::ICMP_SLE : P::ICMP_ULE;
      break;
    case ScalarOp::gt:
      p = f ? P::FCMP_OGT : s ? P::ICMP_SGT : P::ICMP_UGT;
      break;
    default:
      p = f ? P::FCMP_OGE : s ? P::ICMP_SGE : P::ICMP_UGE;
      break;
  }
  return b_.CreateCmp(p, a, b);
}

Value* ScalarOps::boolean_binary(ScalarOp op, Value* a, Value* b) {
  switch (op) {
    case ScalarOp::add:
    case ScalarOp::bit_or:
    case ScalarOp::max:
    case ScalarOp::max_num:
      return b_.CreateOr(a, b);
    case ScalarOp::mul:
    case ScalarOp::div:
    case ScalarOp::bit_and:
    case ScalarOp::min:
    case ScalarOp::min_num:
      return b_.CreateAnd(a, b);
    case ScalarOp::sub:
    case ScalarOp::bit_xor:
      return b_.CreateXor(a, b);
    case ScalarOp::rem:
      return int_like(a, 0);
    case ScalarOp::shl:
    case ScalarOp::shr:
      return a;  // the count modulo the width, 1, is 0
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "boolean operation", "");
}

// The quotient of integers of at most 32 bits, truncated, is exact in f64: |a / b - n| is at least
// 2^-32 for every integer n that it does not equal, and the rounding error of the division is below
// 2^-21 / |b|.
Value* ScalarOps::divide_by_float(ScalarOp op, DType d, Value* a, Value* b) {
  bool is_signed = is_signed_integer(d);
  Type* f = like(b_.getDoubleTy(), a);
  Type* i = like(b_.getInt64Ty(), a);
  Type* word = like(b_.getInt32Ty(), a);
  auto convert = [&](Value* v) {
    Value* wide = is_signed ? b_.CreateSExt(v, word) : b_.CreateZExt(v, word);
    return is_signed ? b_.CreateSIToFP(wide, f) : b_.CreateUIToFP(wide, f);
  };
  Value* zero = b_.CreateICmpEQ(b, int_like(b, 0));
  Value* safe = b_.CreateSelect(zero, int_like(b, 1), b);
  Value* q = b_.CreateFDiv(convert(a), convert(safe));
  Value* quotient = nullptr;
  if (bit_width(d) < 32) {
    quotient = b_.CreateTrunc(b_.CreateFPToSI(q, word), a->getType());
  } else if (is_signed) {
    // -2^31 / -1 = 2^31 wraps to -2^31, as the conversion's own result for out of range is.
    Value* wraps = b_.CreateFCmpOGE(q, ConstantFP::get(f, 2147483648.0));
    Value* small = b_.CreateSelect(wraps, ConstantFP::get(f, -2147483648.0), q);
    quotient = b_.CreateFPToSI(small, word);
  } else {
    quotient = b_.CreateFPToUI(q, word);
  }
  (void)i;
  if (op == ScalarOp::div) return b_.CreateSelect(zero, int_like(a, 0), quotient);
  return b_.CreateSelect(zero, int_like(a, 0), b_.CreateSub(a, b_.CreateMul(quotient, safe)));
}

Value* ScalarOps::divide(ScalarOp op, DType d, Value* a, Value* b) {
  if (width(a) > 1 && bit_width(d) <= 32 && !llvm::isa<Constant>(b))
    return divide_by_float(op, d, a, b);
  Value* unsafe = b_.CreateICmpEQ(b, int_like(b, 0));
  Value* zero = unsafe;
  Value* safe = b;
  if (is_signed_integer(d)) {
    // MIN / -1: wraps to MIN = -MIN, so dividing by -1 is negation.
    Value* minus_one = b_.CreateICmpEQ(b, int_like(b, ~uint64_t{0}));
    safe = b_.CreateSelect(b_.CreateOr(unsafe, minus_one), int_like(b, 1), b);
    Value* q = op == ScalarOp::div ? b_.CreateSDiv(a, safe) : b_.CreateSRem(a, safe);
    Value* special = op == ScalarOp::div ? b_.CreateNeg(a) : int_like(a, 0);
    q = b_.CreateSelect(minus_one, special, q);
    return b_.CreateSelect(zero, int_like(a, 0), q);
  }
  safe = b_.CreateSelect(unsafe, int_like(b, 1), b);
  Value* q = op == ScalarOp::div ? b_.CreateUDiv(a, safe) : b_.CreateURem(a, safe);
  return b_.CreateSelect(zero, int_like(a, 0), q);
}

Value* ScalarOps::binary(ScalarOp op, DType d, Value* a, Value* b) {
  if (op >= ScalarOp::eq && op <= ScalarOp::ge) return compare(op, d, a, b);
  if (d == DType::boolean) return boolean_binary(op, a, b);
  if (is_real_float(d)) {
    switch (op) {
      case ScalarOp::add:
        return b_.CreateFAdd(a, b);
      case ScalarOp::sub:
        return b_.CreateFSub(a, b);
      case ScalarOp::mul:
        return b_.CreateFMul(a, b);
      case ScalarOp::div:
        return b_.CreateFDiv(a, b);
      case ScalarOp::rem:
        return each_lane(d == DType::f64 ? "fmod" : "fmodf", type(d), a, b);
      default:
        return float_extreme(op, a, b);
    }
  }
  bool is_signed = is_signed_integer(d);
  namespace I = llvm::Intrinsic;
  Value* count = nullptr;
  if (op == ScalarOp::shl || op == ScalarOp::shr)
    count = b_.CreateAnd(b, int_like(b, static_cast<uint64_t>(bit_width(d)) - 1));
  switch (op) {
    case ScalarOp::add:
      return b_.CreateAdd(a, b);
    case ScalarOp::sub:
      return b_.CreateSub(a, b);
    case ScalarOp::mul:
      return b_.CreateMul(a, b);
    case ScalarOp::div:
    case ScalarOp::rem:
      return divide(op, d, a, b);
    case ScalarOp::min:
    case ScalarOp::min_num:
      return b_.CreateBinaryIntrinsic(is_signed ? I::smin : I::umin, a, b);
    case ScalarOp::max:
    case ScalarOp::max_num:
      return b_.CreateBinaryIntrinsic(is_signed ? I::smax : I::umax, a, b);
    case ScalarOp::bit_and:
      return b_.CreateAnd(a, b);
    case ScalarOp::bit_or:
      return b_.CreateOr(a, b);
    case ScalarOp::bit_xor:
      return b_.CreateXor(a, b);
    case ScalarOp::shl:
      return b_.CreateShl(a, count);
    case ScalarOp::shr:
      return is_signed ? b_.CreateAShr(a, count) : b_.CreateLShr(a, count);
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "binary operation", std::string(name(d)));
}

Value* ScalarOps::fma(DType d, Value* a, Value* b, Value* c) {
  if (!is_real_float(d)) return binary(ScalarOp::add, d, binary(ScalarOp::mul, d, a, b), c);
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

// ----------------------------------------------------------------------------------------
// conversions

// Half bits -> f32, exact. Without hardware: shift exponent and mantissa into place and rescale by
// 2^112 (Giesen's method; exact for subnormals because nothing is flushed).
Value* ScalarOps::half_to_float(DType from, Value* v) {
  Type* word = like(b_.getInt32Ty(), v);
  Type* f = like(b_.getFloatTy(), v);
  if (from == DType::bf16) return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(v, word), 16), f);
  if (target_.fma) return b_.CreateFPExt(b_.CreateBitCast(v, like(b_.getHalfTy(), v)), f);
  Value* bits = b_.CreateZExt(v, word);
  Value* magnitude = b_.CreateShl(b_.CreateAnd(bits, int_like(bits, 0x7fff)), 13);
  Value* scaled = b_.CreateFMul(b_.CreateBitCast(magnitude, f), ConstantFP::get(f, 0x1p112));
  Value* out = b_.CreateBitCast(scaled, word);
  Value* special = b_.CreateICmpUGE(magnitude, int_like(bits, 0x0f800000));
  Value* with_max = b_.CreateOr(magnitude, int_like(bits, 0x7f800000));
  out = b_.CreateSelect(special, with_max, out);
  Value* sign = b_.CreateShl(b_.CreateAnd(bits, int_like(bits, 0x8000)), 16);
  return b_.CreateBitCast(b_.CreateOr(out, sign), f);
}

// f32 -> half bits, nearest even.
Value* ScalarOps::float_to_half(DType to, Value* v) {
  Type* word = like(b_.getInt32Ty(), v);
  Type* half = like(b_.getInt16Ty(), v);
  Type* f = like(b_.getFloatTy(), v);
  Value* bits = b_.CreateBitCast(v, word);
  Value* nan = b_.CreateFCmpUNO(v, v);
  if (to == DType::bf16) {
    Value* odd = b_.CreateAnd(b_.CreateLShr(bits, 16), int_like(bits, 1));
    Value* rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, int_like(bits, 0x7fff)));
    Value* quiet = b_.CreateOr(bits, int_like(bits, 0x400000));
    return b_.CreateTrunc(b_.CreateLShr(b_.CreateSelect(nan, quiet, rounded), 16), half);
  }
  if (target_.fma) return b_.CreateBitCast(b_.CreateFPTrunc(v, like(b_.getHalfTy(), v)), half);
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, 16), int_like(bits, 0x8000));
  Value* magnitude = b_.CreateAnd(bits, int_like(bits, 0x7fffffff));
  // Normal results: round to 10 bits of mantissa in integers, rebias by 112.
  Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, 13), int_like(bits, 1));
  Value* normal = b_.CreateAdd(magnitude, b_.CreateAdd(odd, int_like(bits, 0xfffU - (112U << 23))));
  normal = b_.CreateLShr(normal, 13);
  // Subnormal results: adding 0.5 aligns the last bit that stays, the adder rounds.
  Value* aligned = b_.CreateFAdd(b_.CreateBitCast(magnitude, f), ConstantFP::get(f, 0.5));
  Value* tiny = b_.CreateSub(b_.CreateBitCast(aligned, word), int_like(bits, 0x3f000000));
  Value* out =
      b_.CreateSelect(b_.CreateICmpULT(magnitude, int_like(bits, 113U << 23)), tiny, normal);
  Value* big = b_.CreateICmpUGE(magnitude, int_like(bits, 0x477ff000));  // rounds to 2^16
  out = b_.CreateSelect(big, int_like(bits, 0x7c00), out);
  out = b_.CreateSelect(nan, int_like(bits, 0x7e00), out);
  return b_.CreateTrunc(b_.CreateOr(out, sign), half);
}

// Rounding to odd keeps what a second rounding to fewer bits must know (Boldo and Melquiond 2008).
Value* ScalarOps::round_to_odd(Value* v) {
  Type* f = like(b_.getFloatTy(), v);
  Type* word = like(b_.getInt32Ty(), v);
  Value* nearest = b_.CreateFPTrunc(v, f);
  Value* back = b_.CreateFPExt(nearest, v->getType());
  Value* inexact = b_.CreateFCmpONE(back, v);
  Value* above = b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, back),
                                  b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v));
  Value* bits = b_.CreateBitCast(nearest, word);
  Value* truncated = b_.CreateSub(bits, b_.CreateZExt(above, word));
  Value* odd = b_.CreateOr(truncated, int_like(bits, 1));
  return b_.CreateBitCast(b_.CreateSelect(inexact, odd, bits), f);
}

Value* ScalarOps::float_to_int(DType from, DType to, Value* v) {
  DType target = bit_width(to) < 32 ? DType::i32 : to;
  bool is_signed = is_signed_integer(target);
  int bits = bit_width(target);
  Type* f = v->getType();
  Type* out = like(type(target), v);
  double high = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  double low = is_signed ? -high : 0.0;
  uint64_t max = is_signed ? (uint64_t{1} << (bits - 1)) - 1 : ~uint64_t{0} >> (64 - bits);
  Value* too_big = b_.CreateFCmpOGE(v, ConstantFP::get(f, high));
  Value* in_low = b_.CreateFCmpOGE(v, ConstantFP::get(f, low));  // false for NaN
  Value* inside = b_.CreateAnd(in_low, b_.CreateNot(too_big));
  Value* safe = b_.CreateSelect(inside, v, ConstantFP::get(f, 0.0));
  Value* result = is_signed ? b_.CreateFPToSI(safe, out) : b_.CreateFPToUI(safe, out);
  result = b_.CreateSelect(too_big, ConstantInt::get(out, max), result);
  if (is_signed) {
    Value* too_small = b_.CreateFCmpOLT(v, ConstantFP::get(f, low));
    result = b_.CreateSelect(too_small, ConstantInt::get(out, uint64_t{1} << (bits - 1)), result);
  }
  (void)from;
  return target == to ? result : b_.CreateTrunc(result, like(type(to), v));
}

Value* ScalarOps::cast(DType from, DType to, Value* v) {
  if (from == to) return v;
  auto is_half = [](DType d) { return d == DType::f16 || d == DType::bf16; };
  if (is_half(from)) return cast(DType::f32, to, half_to_float(from, v));
  if (is_half(to)) {
    if (from == DType::f64) return float_to_half(to, round_to_odd(v));
    return float_to_half(to, cast(from, DType::f32, v));
  }
  Type* out = like(type(to), v);
  bool from_float = is_real_float(from), to_float = is_real_float(to);
  if (to == DType::boolean) {
    return from_float ? b_.CreateFCmpUNE(v, ConstantFP::get(v->getType(), 0.0))
                      : b_.CreateICmpNE(v, int_like(v, 0));
  }
  if (from_float && to_float)
    return to == DType::f64 ? b_.CreateFPExt(v, out) : b_.CreateFPTrunc(v, out);
  if (from_float) return float_to_int(from, to, v);
  bool is_signed = is_signed_integer(from);
  if (to_float) return is_signed ? b_.CreateSIToFP(v, out) : b_.CreateUIToFP(v, out);
  return is_signed ? b_.CreateSExtOrTrunc(v, out) : b_.CreateZExtOrTrunc(v, out);
}

Value* ScalarOps::bitcast(DType from, DType to, Value* v) {
  // Booleans are bytes of 0 or 1.
  if (from == DType::boolean) v = b_.CreateZExt(v, like(b_.getInt8Ty(), v));
  if (to == DType::boolean) return b_.CreateICmpNE(v, int_like(v, 0));
  return b_.CreateBitCast(v, like(type(to), v));
}

Value* ScalarOps::from_memory(DType d, Value* v) {
  return d == DType::boolean ? b_.CreateICmpNE(v, int_like(v, 0)) : v;
}

Value* ScalarOps::to_memory(DType d, Value* v) {
  return d == DType::boolean ? b_.CreateZExt(v, like(b_.getInt8Ty(), v)) : v;
}

// ---------------------------------------------------------------------------------------- calls

Value* ScalarOps::each_lane(const char* name, Type* result, Value* a, Value* b) {
  std::vector<Type*> types(b ? 2 : 1, result);
  llvm::Module* module = b_.GetInsertBlock()->getModule();
  auto function = module->getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  auto one = [&](Value* x, Value* y) -> Value* {
    std::vector<Value*> operands{x};
    if (y) operands.push_back(y);
    auto* c = b_.CreateCall(function, operands);
    c->setDoesNotAccessMemory();
    c->setDoesNotThrow();
    return c;
  };
  int lanes = width(a);
  if (lanes == 1) return one(a, b);
  Value* out = llvm::PoisonValue::get(like(result, a));
  for (int k = 0; k < lanes; ++k) {
    auto lane = static_cast<uint64_t>(k);
    Value* y = b ? b_.CreateExtractElement(b, lane) : nullptr;
    out = b_.CreateInsertElement(out, one(b_.CreateExtractElement(a, lane), y), lane);
  }
  return out;
}

Value* ScalarOps::call(ir::LibraryFunction f, Value* a, Value* b) {
  static constexpr const char* kNames[] = {"exp", "log", "tanh", "erf", "pow", "sin", "cos"};
  bool two = f == ir::LibraryFunction::pow;
  return each_lane(kNames[static_cast<int>(f)], b_.getDoubleTy(), a, two ? b : nullptr);
}

// ---------------------------------------------------------------------------------------- folds

namespace {

// Bits of the largest (or smallest) value of an integer type.
uint64_t integer_limit(DType d, bool largest) {
  int bits = bit_width(d);
  uint64_t all = ~uint64_t{0} >> (64 - bits);
  if (is_unsigned_integer(d)) return largest ? all : 0;
  uint64_t sign = uint64_t{1} << (bits - 1);
  return largest ? sign - 1 : sign;
}

}  // namespace

Constant* ScalarOps::identity(ReduceOp op, DType d) const {
  Type* t = type(d);
  bool f = is_real_float(d);
  switch (op) {
    case ReduceOp::sum:  // -0 + x is x for every x
      return f ? ConstantFP::get(t, -0.0) : ConstantInt::get(t, 0);
    case ReduceOp::product:
      return f ? ConstantFP::get(t, 1.0) : ConstantInt::get(t, 1);
    case ReduceOp::all:
      return ConstantInt::get(t, d == DType::boolean ? 1 : 1);
    case ReduceOp::max:
    case ReduceOp::max_num:
    case ReduceOp::argmax:
      if (f) return ConstantFP::getInfinity(t, true);
      return ConstantInt::get(t, d == DType::boolean ? 0 : integer_limit(d, false));
    case ReduceOp::min:
    case ReduceOp::min_num:
    case ReduceOp::argmin:
      if (f) return ConstantFP::getInfinity(t, false);
      return ConstantInt::get(t, d == DType::boolean ? 1 : integer_limit(d, true));
    default:
      return Constant::getNullValue(t);
  }
}

Value* ScalarOps::combine(ReduceOp op, DType d, Value* a, Value* b) {
  std::optional<ScalarOp> step = ir::step_of(op);
  return step ? binary(*step, d, a, b) : b;
}

Value* ScalarOps::better(ReduceOp op, DType d, Value* v, Value* best) {
  bool larger = op == ReduceOp::argmax;
  if (!is_real_float(d)) return compare(larger ? ScalarOp::gt : ScalarOp::lt, d, v, best);
  Value* wins = larger ? b_.CreateFCmpUGT(v, best) : b_.CreateFCmpULT(v, best);
  return b_.CreateAnd(wins, b_.CreateFCmpORD(best, best));
}

}  // namespace heddle::cpu
