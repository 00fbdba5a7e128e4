#include "backend/cpu/body_emitter.h"

#include "base/check.h"

namespace heddle::cpu {

using ir::Node;
using ir::NodeId;
using ir::ScalarOp;
using llvm::Value;

namespace {
constexpr int64_t kLine = 64;  // bytes, of a cache
}  // namespace

BodyEmitter::BodyEmitter(EmitContext& e, BodySite site) : e_(e), site_(std::move(site)) {
  values_.resize(site_.body->nodes.size());
}

void BodyEmitter::run() {
  for (NodeId id = 0; id < site_.body->nodes.size(); ++id) {
    if (divide(id)) continue;
    for (size_t k = 0; k < site_.instances.size(); ++k) values_[id].push_back(node(id, k));
  }
  for (size_t s = 0; s < site_.body->stores.size(); ++s) {
    if (store_pair(s)) {
      ++s;
    } else {
      store(s);
    }
  }
}

Value* BodyEmitter::node(NodeId id, size_t k) {
  const Node& n = site_.body->nodes[id];
  if (site_.form->known[id]) return e_.ops.constant(n.type, *site_.form->known[id]);
  auto operand = [&](NodeId o) { return o == ir::kNoNode ? nullptr : values_[o][k]; };
  Value *a = operand(n.a), *b = operand(n.b), *c = operand(n.c);
  switch (n.op) {
    case ScalarOp::constant:
      return e_.ops.constant(n.type, n.bits);
    case ScalarOp::index:
      return e_.expr(site_.form->exprs[n.payload], *site_.instances[k], site_.v.get(), site_.lanes);
    case ScalarOp::load:
      return load(n, k);
    case ScalarOp::bind:
      return bind(n, k);
    case ScalarOp::row:
      return site_.row(site_.body->rows[n.payload], k);
    case ScalarOp::scan:
      return site_.scan(id, a, k);
    case ScalarOp::select:
      return select(n, k);
    default:
      break;
  }
  int lanes = 1;
  for (Value* x : {a, b, c}) {
    if (x != nullptr) lanes = std::max(lanes, ScalarOps::width(x));
  }
  for (Value** x : {&a, &b, &c}) {
    if (*x != nullptr) *x = e_.ops.splat(*x, lanes);
  }
  DType type = site_.body->nodes[n.a].type;
  switch (n.op) {
    case ScalarOp::fma:
      return e_.ops.fma(n.type, a, b, c);
    case ScalarOp::cast:
      return e_.ops.cast(type, n.type, a);
    case ScalarOp::bitcast:
      return e_.ops.bitcast(type, n.type, a);
    case ScalarOp::call:
      return e_.ops.call(static_cast<ir::LibraryFunction>(n.payload), a, b);
    default:
      break;
  }
  if (b == nullptr) return e_.ops.unary(n.op, type, a);
  if (type == DType::boolean) {
    if (Value* simple = logic(n, a, b)) return simple;
  }
  return e_.ops.binary(n.op, type, a, b);
}

// Of vectors by numbers that all lanes share, where the processor divides slowly? (With 8 lanes
// nothing is gained.)
bool BodyEmitter::shares_divisor(NodeId id) const {
  const Node& n = site_.body->nodes[id];
  if (n.op != ScalarOp::div || n.type != DType::f32 || site_.lanes == 1 || !e_.target.wide() ||
      site_.form->known[id])
    return false;
  for (size_t k = 0; k < site_.instances.size(); ++k) {
    Value* divisor = values_[n.b][k];
    if (ScalarOps::width(values_[n.a][k]) == 1 || ScalarOps::width(divisor) > 1 ||
        llvm::isa<llvm::Constant>(divisor))
      return false;
  }
  return true;
}

// Through the reciprocal r: q = a r, then q + (a - b q) r. That is the IEEE quotient where r is
// rounded to nearest and nothing under- or overflows (Markstein 2000; tried for every significand
// b with the a whose quotients lie closest to the middle between two floats). A division of 16
// floats takes the processor 16 cycles, this and its tests four.
Value* BodyEmitter::quick_quotient(const Divisor& b, Value* a, Value*& far) {
  auto& builder = e_.b;
  Value* first = builder.CreateFMul(a, b.inverse);
  Value* excess = e_.ops.fma(DType::f32, b.number, first, builder.CreateFNeg(a));
  Value* q = e_.ops.fma(DType::f32, builder.CreateFNeg(excess), b.inverse, first);
  // Dividends below 2^-60 but zeros, of which q has the sign. What overflows ends as NaN.
  constexpr uint64_t kLeast = uint64_t{127 - 60} << 24;  // the bits without their sign, twice
  llvm::Type* word = a->getType()->getWithNewType(builder.getInt32Ty());
  Value* twice = builder.CreateShl(builder.CreateBitCast(a, word), 1);
  Value* before = builder.CreateAdd(twice, llvm::Constant::getAllOnesValue(word));
  Value* tiny = builder.CreateICmpULT(before, llvm::ConstantInt::get(word, kLeast - 1));
  Value* here = builder.CreateOr(tiny, builder.CreateFCmpUNO(q, q));
  far = far == nullptr ? here : builder.CreateOr(far, here);
  return q;
}

// All instances with one test: where it fails they are divided.
bool BodyEmitter::divide(NodeId id) {
  if (!shares_divisor(id)) return false;
  auto& b = e_.b;
  const Node& n = site_.body->nodes[id];
  const Values &dividends = values_[n.a], &divisors = values_[n.b];
  Value *plain = b.getTrue(), *far = nullptr;
  std::vector<Divisor> shared;
  Values quick, slow;
  for (size_t k = 0; k < dividends.size(); ++k) {
    Value* divisor = divisors[k];
    if (k > 0 && divisor == divisors[k - 1]) {
      shared.push_back(shared.back());
    } else {
      auto constant = [&](double v) { return llvm::ConstantFP::get(divisor->getType(), v); };
      Value* inside = b.CreateAnd(b.CreateFCmpOGE(divisor, constant(0x1p-60)),
                                  b.CreateFCmpOLE(divisor, constant(0x1p60)));
      plain = b.CreateAnd(plain, inside);
      shared.push_back({e_.ops.splat(divisor, site_.lanes),
                        e_.ops.splat(b.CreateFDiv(constant(1), divisor), site_.lanes)});
    }
    quick.push_back(quick_quotient(shared[k], dividends[k], far));
  }
  Value* again = b.CreateOr(b.CreateNot(plain), b.CreateOrReduce(far));
  llvm::BasicBlock *before = b.GetInsertBlock(), *divided = e_.block("divided"),
                   *after = e_.block("quotients");
  b.CreateCondBr(again, divided, after, llvm::MDBuilder(e_.context).createBranchWeights(1, 1000));
  b.SetInsertPoint(divided);
  for (size_t k = 0; k < dividends.size(); ++k)
    slow.push_back(b.CreateFDiv(dividends[k], shared[k].number));
  b.CreateBr(after);
  b.SetInsertPoint(after);
  for (size_t k = 0; k < quick.size(); ++k) {
    llvm::PHINode* q = b.CreatePHI(quick[k]->getType(), 2);
    q->addIncoming(quick[k], before);
    q->addIncoming(slow[k], divided);
    values_[id].push_back(q);
  }
  return true;
}

namespace {
// 0 or 1 where a boolean value is one constant in all lanes.
std::optional<bool> constant_bool(Value* v) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  if (constant == nullptr || v->getType()->getScalarSizeInBits() != 1) return std::nullopt;
  if (constant->isNullValue()) return false;
  if (constant->isAllOnesValue()) return true;
  return std::nullopt;
}
}  // namespace

// Masks that are known in this range disappear before they reach a load.
Value* BodyEmitter::logic(const Node& n, Value* a, Value* b) {
  if (n.op != ScalarOp::bit_and && n.op != ScalarOp::bit_or) return nullptr;
  bool absorbing = n.op == ScalarOp::bit_or;
  for (auto [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
    if (auto known = constant_bool(x)) return *known == absorbing ? x : y;
  }
  return nullptr;
}

Value* BodyEmitter::select(const Node& n, size_t k) {
  Value *p = values_[n.a][k], *a = values_[n.b][k], *b = values_[n.c][k];
  if (auto known = constant_bool(p)) return *known ? a : b;
  int lanes = std::max({ScalarOps::width(p), ScalarOps::width(a), ScalarOps::width(b)});
  a = e_.ops.splat(a, lanes), b = e_.ops.splat(b, lanes);
  return e_.b.CreateSelect(p, a, b);  // the predicate may stay a scalar
}

Value* BodyEmitter::bind(const Node& n, size_t k) {
  Value* value = values_[n.a][k];
  const Symbol& s = *site_.body->symbols[n.payload];
  if (e_.check_bounds) {
    auto& b = e_.b;
    Value* high = e_.i64(s.upper);
    if (s.extent)
      high =
          b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, high,
                                  b.CreateSub(e_.expr(*s.extent, *site_.instances[k]), e_.i64(1)));
    Value* bad = b.CreateOr(b.CreateICmpSLT(value, e_.i64(s.lower)), b.CreateICmpSGT(value, high));
    e_.when(bad, [&] {
      b.CreateCall(llvm::FunctionType::get(b.getVoidTy(),
                                           {b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty(),
                                            b.getInt64Ty(), b.getInt64Ty()},
                                           false),
                   e_.service(kFail), {e_.f->context, e_.i64(-1), e_.i64(0), value, high});
    });
  }
  site_.instances[k]->set(s, value);
  return value;
}

// ----------------------------------------------------------------------------------------
// addresses

bool BodyEmitter::vectored_symbols(const Expr& e, const Env& env) const {
  std::vector<SymbolRef> symbols;
  collect_symbols(e, symbols);
  for (const SymbolRef& s : symbols) {
    Value* value = env.find(s->id);
    if (value != nullptr && value->getType()->isVectorTy()) return true;
  }
  return false;
}

// The address as a chain of steps, outermost loop first, so that each prefix leaves the loops that
// it does not depend on and the last step is the processor's base + scaled index + displacement.
void BodyEmitter::point_at(Address& a, const Expr& offset, size_t k) {
  auto& b = e_.b;
  const Env& env = *site_.instances[k];
  Expr rest = offset;
  std::vector<std::pair<SymbolRef, Expr>> steps;
  for (size_t i = site_.order.size(); i-- > 0;) {
    const SymbolRef& s = site_.order[i];
    if (!uses(rest, *s)) continue;
    auto affine = affine_in(rest, s);
    if (!affine) break;
    steps.emplace_back(s, affine->first);
    rest = affine->second;
  }
  int64_t displacement = 0;
  if (rest.kind() == ExprKind::add) {
    for (const Expr& t : rest.operands()) displacement += t.constant_or(0);
    rest = rest - Expr(displacement);
  }
  Value* pointer = b.CreateGEP(a.element, e_.f->buffers[a.buffer], e_.expr(rest, env));
  for (size_t i = steps.size(); i-- > 0;) {
    const auto& [s, coefficient] = steps[i];
    bool along = site_.v && s->id == site_.v->id;
    Value* position = along ? site_.first : env.find(s->id);
    if (along) displacement += coefficient.constant_or(0) * static_cast<int64_t>(k) * site_.step;
    if (along && !coefficient.is_constant()) position = env.find(s->id);
    if (!coefficient.is(1)) position = b.CreateMul(position, e_.expr(coefficient, env));
    pointer = b.CreateGEP(a.element, pointer, position);
  }
  if (displacement != 0) pointer = b.CreateGEP(a.element, pointer, e_.i64(displacement));
  a.pointer = pointer;
}

BodyEmitter::Address BodyEmitter::address(uint32_t access, size_t k) {
  Address a;
  a.buffer = site_.body->accesses[access].buffer;
  const ir::Buffer& buffer = e_.kernel.buffers[a.buffer];
  a.element = e_.ops.memory_type(buffer.dtype);
  const Env& env = *site_.instances[k];
  const Expr& offset = site_.form->offsets[access];
  if (buffer.role == ir::BufferRole::row_local && site_.private_lanes > 1) {
    // Lanes of a point group lie side by side.
    point_at(a, offset * Expr(site_.private_lanes) + Expr(static_cast<int64_t>(k) * site_.lanes),
             k);
    a.pattern = site_.lanes > 1 ? Pattern::contiguous : Pattern::uniform;
    return a;
  }
  bool vectored = vectored_symbols(offset, env);
  if (!vectored && (site_.lanes == 1 || site_.v == nullptr || !uses(offset, *site_.v))) {
    point_at(a, offset, k);
    return a;
  }
  if (!vectored) {
    auto affine = affine_in(offset, site_.v);
    if (affine && affine->first.constant()) {
      a.stride = *affine->first.constant();
      a.pattern = a.stride == 1 ? Pattern::contiguous : Pattern::strided;
      point_at(a, offset, k);
      return a;
    }
  }
  a.pattern = Pattern::scattered;
  a.offsets = e_.ops.splat(e_.expr(offset, env, site_.v.get(), site_.lanes), site_.lanes);
  return a;
}

Value* BodyEmitter::at(const Address& a, int64_t elements) {
  return elements == 0 ? a.pointer : e_.b.CreateGEP(a.element, a.pointer, e_.i64(elements));
}

Value* BodyEmitter::lane_pointer(const Address& a, int lane) {
  if (a.pattern == Pattern::scattered) {
    Value* offset = e_.b.CreateExtractElement(a.offsets, static_cast<uint64_t>(lane));
    return e_.b.CreateGEP(a.element, e_.f->buffers[a.buffer], offset);
  }
  int64_t step = a.pattern == Pattern::contiguous ? 1
                 : a.pattern == Pattern::strided  ? a.stride
                                                  : 0;
  return at(a, step * lane);
}

// Bounds checking runs one point at a time: reports and clears `ok` for an access outside its
// buffer.
void BodyEmitter::check(uint32_t access, size_t k, Value* mask, Value*& ok) {
  auto& b = e_.b;
  const ir::Access& a = site_.body->accesses[access];
  const ir::Buffer& buffer = e_.kernel.buffers[a.buffer];
  const Env& env = *site_.instances[k];
  for (size_t d = 0; d < a.coords.size(); ++d) {
    Value* c = e_.expr(a.coords[d], env);
    Value* extent = e_.expr(buffer.extents[d], env);
    Value* bad = b.CreateICmpUGE(c, extent);
    if (mask != nullptr) bad = b.CreateAnd(bad, mask);
    e_.when(bad, [&] {
      b.CreateCall(llvm::FunctionType::get(b.getVoidTy(),
                                           {b.getPtrTy(), b.getInt64Ty(), b.getInt64Ty(),
                                            b.getInt64Ty(), b.getInt64Ty()},
                                           false),
                   e_.service(kFail),
                   {e_.f->context, e_.i64(a.buffer), e_.i64(static_cast<int64_t>(d)), c, extent});
    });
    ok = b.CreateAnd(ok, b.CreateNot(bad));
  }
}

bool BodyEmitter::hardware_mask(llvm::Type* element) const {
  return element->getPrimitiveSizeInBits() >= 32 ? e_.target.masked_words : e_.target.masked_small;
}

// ---------------------------------------------------------------------------------------- loads

Value* BodyEmitter::load(const Node& n, size_t k) {
  Value* mask = n.a == ir::kNoNode ? nullptr : values_[n.a][k];
  Value* other = n.a == ir::kNoNode ? nullptr : values_[n.b][k];
  if (mask != nullptr) {
    if (auto known = constant_bool(mask)) {
      if (!*known) return other;
      mask = nullptr;
    }
  }
  DType dtype = e_.kernel.buffers[site_.body->accesses[n.payload].buffer].dtype;
  if (e_.check_bounds) {
    Value* ok = mask != nullptr ? mask : e_.b.getTrue();
    check(n.payload, k, mask, ok);
    if (mask == nullptr) other = llvm::Constant::getNullValue(e_.ops.type(n.type));
    mask = ok;
  }
  if (mask == nullptr && tiled(n.payload)) {
    if (k == 0) load_tile(n.payload);
    return e_.ops.from_memory(dtype, tiles_[n.payload][k]);
  }
  if (mask == nullptr) {
    if (Value* joined = load_runs(n.payload, k)) return e_.ops.from_memory(dtype, joined);
  }
  Address a = address(n.payload, k);
  if (a.pattern == Pattern::contiguous && prefetches(n.payload, k))
    fetch(a.pointer, site_.prefetch[n.payload]);
  if (mask == nullptr) return e_.ops.from_memory(dtype, load_plain(a));
  Value* stored_other = e_.ops.to_memory(dtype, other);
  return e_.ops.from_memory(dtype, load_masked(a, mask, stored_other));
}

// Once a cache line: of vectors side by side, and of accesses that follow each other through a
// buffer.
bool BodyEmitter::prefetches(uint32_t access, size_t k) {
  if (site_.prefetch.empty() || site_.prefetch[access].bytes == 0) return false;
  ir::BufferId buffer = site_.body->accesses[access].buffer;
  int64_t bytes = site_.step * bit_width(e_.kernel.buffers[buffer].dtype) / 8;
  auto at = static_cast<int64_t>(k) * bytes;
  if (k > 0 && at / kLine == (at - bytes) / kLine) return false;
  for (const ir::Node& n : site_.body->nodes) {
    if (n.op != ScalarOp::load || site_.body->accesses[n.payload].buffer != buffer) continue;
    auto ahead = (site_.form->offsets[n.payload] - site_.form->offsets[access]).constant();
    if (ahead && (*ahead > 0 || (*ahead == 0 && n.payload < access))) return false;
  }
  return true;
}

void BodyEmitter::fetch(Value* pointer, const Prefetch& p) {
  auto& b = e_.b;
  Value* ahead = b.CreateConstGEP1_64(b.getInt8Ty(), pointer, static_cast<uint64_t>(p.bytes));
  b.CreateIntrinsic(llvm::Intrinsic::prefetch, {b.getPtrTy()},
                    {ahead, b.getInt32(0), b.getInt32(p.nearest ? 3 : 2), b.getInt32(1)});
}

Value* BodyEmitter::load_plain(const Address& a) {
  auto& b = e_.b;
  if (a.pattern == Pattern::strided) return load_strided(a);
  if (a.pattern == Pattern::scattered) return load_lanes(a, nullptr);
  Value* pointer = a.pointer;
  llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
  llvm::Type* type = a.element;
  if (a.pattern == Pattern::contiguous) {
    type = e_.ops.widen(type, site_.lanes);
  }
  auto* value = b.CreateAlignedLoad(type, pointer, align);
  e_.annotate(value, a.buffer);
  return value;
}

// Is the access contiguous along the tile's other axis and not along v?
bool BodyEmitter::tiled(uint32_t access) const {
  if (!site_.tile || site_.lanes == 1) return false;
  const Expr& offset = site_.form->offsets[access];
  if (vectored_symbols(offset, *site_.instances[0])) return false;
  auto along = affine_in(offset, site_.v), across = affine_in(offset, site_.tile);
  return along && across && across->first.is(1) && !along->first.is(1) && !along->first.is(0) &&
         !uses(along->first, *site_.tile);
}

// Reads a square with one vector a lane and transposes it in registers: log2(lanes) rounds that
// exchange blocks.
void BodyEmitter::load_tile(uint32_t access) {
  auto& b = e_.b;
  Address a;
  a.buffer = site_.body->accesses[access].buffer;
  a.element = e_.ops.memory_type(e_.kernel.buffers[a.buffer].dtype);
  const Expr& offset = site_.form->offsets[access];
  point_at(a, offset, 0);
  Value* step = e_.expr(affine_in(offset, site_.v)->first, *site_.instances[0]);
  auto lanes = static_cast<size_t>(site_.lanes);
  int64_t bytes = site_.lanes * static_cast<int64_t>(a.element->getPrimitiveSizeInBits() / 8);
  Values rows;
  llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
  for (size_t l = 0; l < lanes; ++l) {
    Value* pointer =
        b.CreateGEP(a.element, a.pointer, b.CreateMul(step, e_.i64(static_cast<int64_t>(l))));
    auto* row = b.CreateAlignedLoad(e_.ops.widen(a.element, site_.lanes), pointer, align);
    e_.annotate(row, a.buffer);
    if (site_.next_tile) fetch(pointer, {std::max(kLine, bytes), true});
    rows.push_back(row);
  }
  for (size_t d = lanes / 2; d > 0; d /= 2) {
    std::vector<int> low(lanes), high(lanes);
    for (size_t l = 0; l < lanes; ++l) {
      bool upper = (l & d) != 0;
      low[l] = static_cast<int>(upper ? lanes + l - d : l);
      high[l] = static_cast<int>(upper ? lanes + l : l + d);
    }
    for (size_t r = 0; r < lanes; ++r) {
      if ((r & d) != 0) continue;
      Value *x = rows[r], *y = rows[r + d];
      rows[r] = b.CreateShuffleVector(x, y, low);
      rows[r + d] = b.CreateShuffleVector(x, y, high);
    }
  }
  tiles_[access] = std::move(rows);
}

// Small constant strides: whole vectors, then shuffles. The last vector ends with the last element
// that is wanted, so that nothing outside the buffer is read.
Value* BodyEmitter::load_strided(const Address& a) {
  auto& b = e_.b;
  int64_t c = a.stride;
  int lanes = site_.lanes;
  if (c != -1 && (c < 2 || c > 4)) return load_lanes(a, nullptr);
  llvm::Type* type = e_.ops.widen(a.element, lanes);
  llvm::Align align(a.element->getPrimitiveSizeInBits() / 8);
  auto block = [&](int64_t first) {
    auto* x = b.CreateAlignedLoad(type, at(a, first), align);
    e_.annotate(x, a.buffer);
    return x;
  };
  std::vector<int> picks(static_cast<size_t>(lanes));
  if (c == -1) {
    for (int l = 0; l < lanes; ++l) picks[static_cast<size_t>(l)] = lanes - 1 - l;
    return b.CreateShuffleVector(block(1 - lanes), picks);
  }
  Value* out = block(0);
  for (int64_t part = 0; part < c; ++part) {
    bool last = part == c - 1;
    int64_t first = last ? c * (lanes - 1) - (lanes - 1) : part * lanes;
    Value* x = part == 0 ? out : block(first);
    for (int l = 0; l < lanes; ++l) {
      int64_t at = c * l;
      bool here = at >= part * lanes && (last || at < (part + 1) * lanes);
      int kept = part == 0 ? -1 : l;  // of the parts before
      picks[static_cast<size_t>(l)] =
          here ? static_cast<int>(at - first) + (part == 0 ? 0 : lanes) : kept;
    }
    out = part == 0 ? b.CreateShuffleVector(x, picks) : b.CreateShuffleVector(out, x, picks);
  }
  return out;
}

// At a known position of the vector axis, as at a row's ends, a periodic or reflected index is a
// few runs of neighbours: one masked load each. Null: this access is not of that kind.
Value* BodyEmitter::load_runs(uint32_t access, size_t k) {
  if (site_.lanes == 1 || site_.v == nullptr) return nullptr;
  const Expr& offset = site_.form->offsets[access];
  const Env& env = *site_.instances[k];
  auto* position = llvm::dyn_cast_or_null<llvm::ConstantInt>(env.find(site_.v->id));
  if (position == nullptr || !uses(offset, *site_.v) || affine_in(offset, site_.v) ||
      vectored_symbols(offset, env))
    return nullptr;
  Address a;
  a.buffer = site_.body->accesses[access].buffer;
  const ir::Buffer& buffer = e_.kernel.buffers[a.buffer];
  a.element = e_.ops.memory_type(buffer.dtype);
  if (!hardware_mask(a.element) || buffer.role == ir::BufferRole::row_local) return nullptr;

  struct Run {
    Expr offset;  // of its first lane
    int first, end;
  };
  std::vector<Run> runs;
  for (int l = 0; l < site_.lanes; ++l) {
    Expr here = substitute(offset, site_.v, Expr(position->getSExtValue() + l));
    if (!runs.empty() && (here - runs.back().offset).is(l - runs.back().first)) {
      runs.back().end = l + 1;
    } else {
      runs.push_back({std::move(here), l, l + 1});
    }
  }
  constexpr size_t kMostRuns = 4;  // beyond, lanes one by one are as good
  if (runs.size() > kMostRuns) return nullptr;

  auto& b = e_.b;
  llvm::Type* type = e_.ops.widen(a.element, site_.lanes);
  llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
  Value* out = llvm::Constant::getNullValue(type);
  for (const Run& run : runs) {
    point_at(a, run.offset - Expr(run.first), k);
    llvm::SmallVector<llvm::Constant*, 16> mask;
    for (int l = 0; l < site_.lanes; ++l) mask.push_back(b.getInt1(l >= run.first && l < run.end));
    auto* part = b.CreateMaskedLoad(type, a.pointer, align, llvm::ConstantVector::get(mask), out);
    e_.annotate(part, a.buffer);
    out = part;
  }
  return out;
}

Value* BodyEmitter::load_lanes(const Address& a, Value* mask) {
  auto& b = e_.b;
  Value* out = llvm::PoisonValue::get(e_.ops.widen(a.element, site_.lanes));
  llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
  for (int l = 0; l < site_.lanes; ++l) {
    Value* pointer = lane_pointer(a, l);
    if (mask != nullptr) {
      Value* on = ScalarOps::width(mask) > 1
                      ? b.CreateExtractElement(mask, static_cast<uint64_t>(l))
                      : mask;
      pointer = b.CreateSelect(on, pointer, e_.f->nothing);
    }
    auto* x = b.CreateAlignedLoad(a.element, pointer, align);
    if (mask == nullptr) e_.annotate(x, a.buffer);
    out = b.CreateInsertElement(out, x, static_cast<uint64_t>(l));
  }
  return out;
}

// Reads nothing where the mask is false: the address is replaced by that of zeros, or the hardware
// masks.
Value* BodyEmitter::load_masked(const Address& a, Value* mask, Value* other) {
  auto& b = e_.b;
  bool vector_mask = ScalarOps::width(mask) > 1;
  llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
  Value* value = nullptr;
  if (a.pattern == Pattern::contiguous && vector_mask && hardware_mask(a.element)) {
    llvm::Type* type = e_.ops.widen(a.element, site_.lanes);
    auto* masked =
        b.CreateMaskedLoad(type, a.pointer, align, mask, e_.ops.splat(other, site_.lanes));
    e_.annotate(masked, a.buffer);
    return masked;
  }
  if (a.pattern == Pattern::uniform || (a.pattern == Pattern::contiguous && !vector_mask)) {
    // One address for all lanes: read it if any lane wants it.
    Value* wanted = vector_mask ? b.CreateOrReduce(mask) : mask;
    Value* pointer = b.CreateSelect(wanted, a.pointer, e_.f->nothing);
    int lanes = a.pattern == Pattern::uniform ? 1 : site_.lanes;
    value = b.CreateAlignedLoad(e_.ops.widen(a.element, lanes), pointer, align);
    // Where nothing was to be read, zeros were.
    auto* constant = llvm::dyn_cast<llvm::Constant>(other);
    if (!vector_mask && constant != nullptr && constant->isNullValue()) return value;
  } else {
    value = load_lanes(a, mask);
  }
  int lanes = std::max({ScalarOps::width(value), ScalarOps::width(other), ScalarOps::width(mask)});
  return b.CreateSelect(e_.ops.splat(mask, lanes), e_.ops.splat(value, lanes),
                        e_.ops.splat(other, lanes));
}

}  // namespace heddle::cpu
