#include "backend/cpu/emit_context.h"

#include "base/check.h"

#include <algorithm>

namespace heddle::cpu {

using llvm::BasicBlock;
using llvm::Value;

EmitContext::EmitContext(const ir::Kernel& k, const CpuTarget& t, bool check)
    : kernel(k),
      target(t),
      check_bounds(check),
      module(std::make_unique<llvm::Module>("kernel", context)),
      b(context),
      ops(b, target) {}

llvm::AllocaInst* EmitContext::local(llvm::Type* type, const char* name) {
  BasicBlock& entry = f->function->getEntryBlock();
  llvm::IRBuilder<> at(&entry, entry.begin());
  auto* a = at.CreateAlloca(type, nullptr, name);
  a->setAlignment(llvm::Align(64));
  return a;
}

BasicBlock* EmitContext::block(const char* name) {
  return BasicBlock::Create(context, name, f->function);
}

void EmitContext::loop(Value* lo, Value* hi, int64_t step,
                       const std::function<void(Value*)>& body) {
  BasicBlock* before = b.GetInsertBlock();
  BasicBlock* inside = block("loop");
  BasicBlock* after = block("done");
  // Of step s: while i + s <= hi.
  Value* last = step == 1 ? hi : b.CreateSub(hi, i64(step - 1));
  b.CreateCondBr(b.CreateICmpSLT(lo, last), inside, after);
  b.SetInsertPoint(inside);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2, "i");
  i->addIncoming(lo, before);
  body(i);
  Value* next = b.CreateNSWAdd(i, i64(step));
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, last), inside, after);
  b.SetInsertPoint(after);
}

void EmitContext::when(Value* condition, const std::function<void()>& then) {
  BasicBlock* yes = block("then");
  BasicBlock* after = block("after");
  b.CreateCondBr(condition, yes, after);
  b.SetInsertPoint(yes);
  then();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

llvm::Function* EmitContext::create_function(const std::string& name, llvm::Type* result,
                                             std::vector<llvm::Type*> types, bool exported) {
  auto* type = llvm::FunctionType::get(result, types, false);
  auto linkage = exported ? llvm::Function::ExternalLinkage : llvm::Function::InternalLinkage;
  auto* function = llvm::Function::Create(type, linkage, name, *module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  // Loads may be moved out of loops that run no iteration only where that is safe, so nothing more
  // is promised here.
  function->addFnAttr("prefer-vector-width", std::to_string(target.vector_bytes * 8));
  function->addFnAttr("min-legal-vector-width", std::to_string(target.vector_bytes * 8));
  function->addFnAttr("target-cpu", target.arch);
  return function;
}

Value* EmitContext::service(int index) {
  Value* at = b.CreateConstGEP1_64(b.getPtrTy(), f->context, static_cast<uint64_t>(index));
  return b.CreateLoad(b.getPtrTy(), at);
}

// Buffers do not overlap, except that an output may take the place of an input that is read at the
// same point only.
void EmitContext::make_scopes(FunctionState& state) {
  llvm::MDBuilder md(context);
  llvm::MDNode* domain = md.createAnonymousAliasScopeDomain("buffers");
  std::vector<llvm::Metadata*> scopes;
  for (const ir::Buffer& buffer : kernel.buffers)
    scopes.push_back(md.createAnonymousAliasScope(domain, buffer.name));
  for (size_t k = 0; k < scopes.size(); ++k) {
    std::vector<llvm::Metadata*> rest = scopes;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(k));
    state.scopes.push_back(llvm::MDNode::get(context, scopes[k]));
    state.others.push_back(llvm::MDNode::get(context, rest));
  }
}

void EmitContext::annotate(llvm::Instruction* access, ir::BufferId buffer) {
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, f->scopes[buffer]);
  access->setMetadata(llvm::LLVMContext::MD_noalias, f->others[buffer]);
}

// ----------------------------------------------------------------------------------------
// expressions

void EmitContext::unify(Value*& a, Value*& b2) {
  int lanes = std::max(ScalarOps::width(a), ScalarOps::width(b2));
  a = ops.splat(a, lanes);
  b2 = ops.splat(b2, lanes);
}

Value* EmitContext::symbol_value(const Symbol& s, const Env& env, const Symbol* v, int lanes) {
  Value* value = env.find(s.id);
  HD_CHECK(value != nullptr, kernel.name, ": symbol '", s.name, "' has no value here");
  if (v == nullptr || s.id != v->id || lanes == 1) return value;
  std::vector<llvm::Constant*> steps;
  for (int k = 0; k < lanes; ++k) steps.push_back(b.getInt64(static_cast<uint64_t>(k)));
  return b.CreateAdd(ops.splat(value, lanes), llvm::ConstantVector::get(steps));
}

// Floor-based quotient; a divisor of 0 (never meant) gives a quotient instead of a trap.
Value* EmitContext::floor_division(const Expr& e, Value* a, Value* n) {
  const Expr& dividend = e.operands()[0];
  const Expr& divisor = e.operands()[1];
  if (divisor.lower() < 1)
    n = b.CreateSelect(b.CreateICmpEQ(n, llvm::ConstantInt::get(n->getType(), 0)),
                       llvm::ConstantInt::get(n->getType(), 1), n);
  if (dividend.lower() >= 0 && divisor.lower() >= 0) {
    if (dividend.upper() <= INT32_MAX && divisor.upper() <= INT32_MAX) {
      llvm::Type* word = ops.widen(b.getInt32Ty(), ScalarOps::width(a));
      Value* q = b.CreateUDiv(b.CreateTrunc(a, word), b.CreateTrunc(n, word));
      return b.CreateZExt(q, a->getType());
    }
    return b.CreateUDiv(a, n);
  }
  Value* q = b.CreateSDiv(a, n);
  Value* r = b.CreateSub(a, b.CreateMul(q, n));
  Value* zero = llvm::ConstantInt::get(a->getType(), 0);
  Value* differs = b.CreateICmpSLT(b.CreateXor(r, n), zero);
  Value* down = b.CreateAnd(b.CreateICmpNE(r, zero), differs);
  return b.CreateSub(q, b.CreateZExt(down, a->getType()));
}

Value* EmitContext::expr(const Expr& e, const Env& env, const Symbol* v, int lanes) {
  switch (e.kind()) {
    case ExprKind::constant:
      return i64(*e.constant());
    case ExprKind::symbol:
      return symbol_value(*e.symbol(), env, v, lanes);
    case ExprKind::add:
    case ExprKind::mul: {
      Value* out = nullptr;
      // Uniform operands first: their part of the computation leaves the loop.
      std::vector<const Expr*> order;
      for (const Expr& t : e.operands()) order.push_back(&t);
      if (v != nullptr)
        std::stable_partition(order.begin(), order.end(),
                              [&](const Expr* t) { return !uses(*t, *v); });
      for (const Expr* t : order) {
        Value* x = expr(*t, env, v, lanes);
        if (out == nullptr) {
          out = x;
          continue;
        }
        unify(out, x);
        out = e.kind() == ExprKind::add ? b.CreateAdd(out, x) : b.CreateMul(out, x);
      }
      return out;
    }
    case ExprKind::floordiv:
    case ExprKind::mod: {
      Value* a = expr(e.operands()[0], env, v, lanes);
      Value* n = expr(e.operands()[1], env, v, lanes);
      unify(a, n);
      Value* q = floor_division(e, a, n);
      return e.kind() == ExprKind::floordiv ? q : b.CreateSub(a, b.CreateMul(q, n));
    }
    case ExprKind::min:
    case ExprKind::max: {
      Value* a = expr(e.operands()[0], env, v, lanes);
      Value* c = expr(e.operands()[1], env, v, lanes);
      unify(a, c);
      auto id = e.kind() == ExprKind::min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax;
      return b.CreateBinaryIntrinsic(id, a, c);
    }
  }
  base::check_failed(__FILE__, __LINE__, "expression kind", e.to_string());
}

}  // namespace heddle::cpu
