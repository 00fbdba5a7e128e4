// Stores of the body emitter.
#include "backend/cpu/body_emitter.h"

#include "base/check.h"

namespace heddle::cpu {

using llvm::Value;

void BodyEmitter::store(size_t index) {
  for (size_t k = 0; k < site_.instances.size(); ++k) store_one(index, k);
}

void BodyEmitter::store_one(size_t index, size_t k) {
  auto& b = e_.b;
  const ir::Store& s = site_.body->stores[index];
  bool stream = !site_.stream.empty() && site_.stream[index];
  const ir::Access& access = site_.body->accesses[s.access];
  DType memory = e_.kernel.buffers[access.buffer].dtype;
  Value* mask = s.mask == ir::kNoNode ? nullptr : values_[s.mask][k];
  if (mask != nullptr) {
    if (auto* constant = llvm::dyn_cast<llvm::Constant>(mask)) {
      if (constant->isNullValue()) return;
      if (constant->isAllOnesValue()) mask = nullptr;
    }
  }
  Value* value = values_[s.value][k];
  if (s.kind == ir::StoreKind::set)
    value = e_.ops.to_memory(memory, e_.ops.cast(site_.body->nodes[s.value].type, memory, value));
  if (e_.check_bounds) {
    Value* ok = mask != nullptr ? mask : b.getTrue();
    check(s.access, k, mask, ok);
    mask = ok;
  }
  Address a = address(s.access, k);
  bool vector_mask = mask != nullptr && ScalarOps::width(mask) > 1;
  if (s.kind == ir::StoreKind::set && a.pattern == Pattern::contiguous &&
      (!vector_mask || hardware_mask(a.element))) {
    value = e_.ops.splat(value, site_.lanes);
    Value* pointer = a.pointer;
    uint64_t bytes = std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8);
    llvm::Align align(stream ? bytes * static_cast<uint64_t>(site_.lanes) : bytes);
    if (vector_mask) {
      e_.annotate(b.CreateMaskedStore(value, pointer, llvm::Align(bytes), mask), a.buffer);
      return;
    }
    auto plain = [&] {
      auto* instruction = b.CreateAlignedStore(value, pointer, align);
      e_.annotate(instruction, a.buffer);
      if (stream) {
        auto* one = llvm::ConstantAsMetadata::get(b.getInt32(1));
        instruction->setMetadata(llvm::LLVMContext::MD_nontemporal,
                                 llvm::MDNode::get(e_.context, one));
      }
    };
    mask == nullptr ? plain() : e_.when(mask, plain);
    return;
  }
  store_lanes(a, value, mask, s);
}

void BodyEmitter::store_lanes(const Address& a, Value* value, Value* mask, const ir::Store& s) {
  auto& b = e_.b;
  bool many = a.pattern != Pattern::uniform || ScalarOps::width(value) > 1 ||
              (mask != nullptr && ScalarOps::width(mask) > 1);
  int lanes = many ? site_.lanes : 1;
  for (int l = 0; l < lanes; ++l) {
    auto lane = static_cast<uint64_t>(l);
    Value* x = ScalarOps::width(value) > 1 ? b.CreateExtractElement(value, lane) : value;
    Value* pointer = lane_pointer(a, l);
    if (mask == nullptr) {
      store_lane(a, pointer, x, s);
    } else {
      Value* on = ScalarOps::width(mask) > 1 ? b.CreateExtractElement(mask, lane) : mask;
      e_.when(on, [&] { store_lane(a, pointer, x, s); });
    }
  }
}

void BodyEmitter::store_lane(const Address& a, Value* pointer, Value* value, const ir::Store& s) {
  auto& b = e_.b;
  llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
  DType memory = e_.kernel.buffers[a.buffer].dtype;
  if (s.kind == ir::StoreKind::add) {
    DType compute = compute_type(memory);
    auto* old = b.CreateAlignedLoad(a.element, pointer, align);
    e_.annotate(old, a.buffer);
    Value* sum = e_.ops.cast(memory, compute, e_.ops.from_memory(memory, old));
    Value* x = e_.ops.cast(site_.body->nodes[s.value].type, compute, value);
    sum = e_.ops.binary(ir::ScalarOp::add, compute, sum, x);
    value = e_.ops.to_memory(memory, e_.ops.cast(compute, memory, sum));
  }
  e_.annotate(b.CreateAlignedStore(value, pointer, align), a.buffer);
}

// Two stores that interleave (the parts of complex elements): two whole vectors.
bool BodyEmitter::store_pair(size_t index) {
  if (index + 1 >= site_.body->stores.size() || site_.lanes == 1 || site_.v == nullptr)
    return false;
  const ir::Store &s = site_.body->stores[index], &t = site_.body->stores[index + 1];
  const auto& accesses = site_.body->accesses;
  const Expr &first = site_.form->offsets[s.access], &second = site_.form->offsets[t.access];
  ir::BufferId buffer = accesses[s.access].buffer;
  if (s.kind != ir::StoreKind::set || t.kind != ir::StoreKind::set || s.mask != ir::kNoNode ||
      t.mask != ir::kNoNode || accesses[t.access].buffer != buffer || !(second - first).is(1))
    return false;
  if (e_.kernel.buffers[buffer].role == ir::BufferRole::row_local) return false;
  auto& b = e_.b;
  DType memory = e_.kernel.buffers[buffer].dtype;
  int lanes = site_.lanes;
  std::vector<int> low, high;
  for (int l = 0; l < lanes; ++l) {
    low.push_back(l / 2 + (l % 2) * lanes);
    high.push_back(lanes / 2 + l / 2 + (l % 2) * lanes);
  }
  for (size_t k = 0; k < site_.instances.size(); ++k) {
    Address a = address(s.access, k);
    if (a.pattern != Pattern::strided || a.stride != 2) return false;
    auto stored = [&](const ir::Store& x) {
      Value* v = e_.ops.cast(site_.body->nodes[x.value].type, memory, values_[x.value][k]);
      return e_.ops.splat(e_.ops.to_memory(memory, v), lanes);
    };
    Value *re = stored(s), *im = stored(t);
    llvm::Align align(std::max<uint64_t>(1, a.element->getPrimitiveSizeInBits() / 8));
    e_.annotate(b.CreateAlignedStore(b.CreateShuffleVector(re, im, low), a.pointer, align), buffer);
    e_.annotate(b.CreateAlignedStore(b.CreateShuffleVector(re, im, high), at(a, lanes), align),
                buffer);
  }
  return true;
}

}  // namespace heddle::cpu
