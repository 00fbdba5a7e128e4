#include "backend/cpu/fold.h"

#include "ir/fold.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace heddle::cpu {

using ir::ReduceOp;
using llvm::Value;

namespace {
// Does one instruction take the larger of two, -0 below +0, where neither is NaN?
bool ranges(const EmitContext& e, const ir::Reduction& r, int lanes) {
  bool extreme = r.op == ReduceOp::max || r.op == ReduceOp::min;
  return extreme && r.type == DType::f32 && lanes == 16 && e.target.wide();
}

Value* range(EmitContext& e, ReduceOp op, Value* a, Value* c) {
  constexpr int kMinimum = 4, kMaximum = 5, kRoundAsSet = 4;  // the sign is that of the result
  auto& b = e.b;
  return b.CreateIntrinsic(a->getType(), llvm::Intrinsic::x86_avx512_mask_range_ps_512,
                           {a, c, b.getInt32(op == ReduceOp::max ? kMaximum : kMinimum), a,
                            b.getInt16(0xffff), b.getInt32(kRoundAsSet)});
}
}  // namespace

Accumulator::Accumulator(EmitContext& e, const ir::Reduction& r, int lanes)
    : e_(e), r_(r), lanes_(lanes) {
  value_ = e.local(e.ops.widen(e.ops.type(r.type), lanes), "acc");
  if (is_arg(r.op)) index_ = e.local(e.ops.widen(e.b.getInt64Ty(), lanes), "at");
  if (ranges(e, r, lanes)) numbers_ = e.local(e.ops.widen(e.b.getInt1Ty(), lanes), "numbers");
  reset();
}

FoldValue Accumulator::identity(EmitContext& e, const ir::Reduction& r, int lanes) {
  FoldValue out;
  out.value = e.ops.splat(e.ops.identity(r.op, r.type), lanes);
  if (is_arg(r.op)) out.index = e.ops.splat(e.b.getInt64(~uint64_t{0}), lanes);
  return out;
}

void Accumulator::reset() {
  FoldValue none = identity(e_, r_, lanes_);
  e_.b.CreateStore(none.value, value_);
  if (index_) e_.b.CreateStore(none.index, index_);
  if (numbers_)
    e_.b.CreateStore(llvm::Constant::getAllOnesValue(numbers_->getAllocatedType()), numbers_);
}

FoldValue Accumulator::get() const {
  FoldValue out;
  out.value = e_.b.CreateLoad(value_->getAllocatedType(), value_);
  if (numbers_) {
    Value* numbers = e_.b.CreateLoad(numbers_->getAllocatedType(), numbers_);
    out.value =
        e_.b.CreateSelect(numbers, out.value, llvm::ConstantFP::getNaN(value_->getAllocatedType()));
  }
  if (index_) out.index = e_.b.CreateLoad(index_->getAllocatedType(), index_);
  return out;
}

void Accumulator::add(Value* value, Value* index, bool magnitude) {
  auto& b = e_.b;
  value = e_.ops.splat(value, lanes_);
  FoldValue now = get();
  if (index_ == nullptr && magnitude && r_.op == ReduceOp::max && is_real_float(r_.type)) {
    // Floats without a sign are ordered as integers, NaN above all; the identity is negative.
    llvm::Type* word =
        value->getType()->getWithNewType(b.getIntNTy(value->getType()->getScalarSizeInBits()));
    Value* most = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b.CreateBitCast(now.value, word),
                                          b.CreateBitCast(value, word));
    b.CreateStore(b.CreateBitCast(most, value->getType()), value_);
    return;
  }
  if (numbers_) {
    Value* before = b.CreateLoad(value_->getAllocatedType(), value_);
    b.CreateStore(range(e_, r_.op, before, value), value_);
    Value* numbers = b.CreateLoad(numbers_->getAllocatedType(), numbers_);
    b.CreateStore(b.CreateAnd(numbers, b.CreateFCmpORD(value, value)), numbers_);
    return;
  }
  if (index_ == nullptr) {
    b.CreateStore(e_.ops.combine(r_.op, r_.type, now.value, value), value_);
    return;
  }
  index = e_.ops.splat(index, lanes_);
  Value* none = llvm::Constant::getAllOnesValue(now.index->getType());
  Value* take =
      b.CreateOr(e_.ops.better(r_.op, r_.type, value, now.value), b.CreateICmpEQ(now.index, none));
  b.CreateStore(b.CreateSelect(take, value, now.value), value_);
  b.CreateStore(b.CreateSelect(take, index, now.index), index_);
}

FoldValue Accumulator::combine(EmitContext& e, const ir::Reduction& r, const FoldValue& a,
                               const FoldValue& c) {
  FoldValue out;
  if (!is_arg(r.op)) {
    out.value = e.ops.combine(r.op, r.type, a.value, c.value);
    return out;
  }
  auto& b = e.b;
  Value* better = e.ops.better(r.op, r.type, c.value, a.value);
  Value* worse = e.ops.better(r.op, r.type, a.value, c.value);
  Value* sooner = b.CreateAnd(b.CreateNot(worse), b.CreateICmpULT(c.index, a.index));
  Value* take = b.CreateOr(better, sooner);
  // A lane without an element has the worst value: it may equal a real one, never its index.
  out.value = b.CreateSelect(take, c.value, a.value);
  out.index = b.CreateSelect(take, c.index, a.index);
  return out;
}

void Accumulator::merge(const FoldValue& other) {
  FoldValue out = combine(e_, r_, get(), other);
  e_.b.CreateStore(out.value, value_);
  if (index_) e_.b.CreateStore(out.index, index_);
  if (numbers_) e_.b.CreateStore(e_.b.CreateFCmpORD(out.value, out.value), numbers_);
}

FoldValue Accumulator::across_lanes(EmitContext& e, const ir::Reduction& r, FoldValue v) {
  auto& b = e.b;
  for (int lanes = ScalarOps::width(v.value); lanes > 1; lanes /= 2) {
    std::vector<int> low, high;
    for (int l = 0; l < lanes / 2; ++l) low.push_back(l), high.push_back(l + lanes / 2);
    auto half = [&](const std::vector<int>& picks) {
      auto pick = [&](Value* x) -> Value* {
        if (x == nullptr) return nullptr;
        if (lanes == 2) return b.CreateExtractElement(x, static_cast<uint64_t>(picks[0]));
        return b.CreateShuffleVector(x, picks);
      };
      return FoldValue{pick(v.value), pick(v.index)};
    };
    v = combine(e, r, half(low), half(high));
  }
  return v;
}

FoldValue Accumulator::finish(EmitContext& e, const ir::Reduction& r, FoldValue v,
                              bool maybe_empty) {
  auto& b = e.b;
  if (!maybe_empty) return v;
  if (r.op == ReduceOp::sum && is_real_float(r.type))
    v.value = b.CreateFAdd(v.value, llvm::ConstantFP::get(v.value->getType(), 0.0));
  if (v.index != nullptr) {
    Value* none = b.CreateICmpEQ(v.index, llvm::Constant::getAllOnesValue(v.index->getType()));
    v.index = b.CreateSelect(none, llvm::Constant::getNullValue(v.index->getType()), v.index);
  }
  return v;
}

}  // namespace heddle::cpu
