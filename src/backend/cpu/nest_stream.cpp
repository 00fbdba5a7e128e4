// Which stores of a nest go past the cache.
#include "backend/cpu/nest_emitter.h"

#include "base/check.h"

#include <algorithm>

namespace heddle::cpu {

using ir::Axis;
using ir::AxisKind;
using ir::BufferRole;
using llvm::Value;

namespace {
// Below this a result may still be in the cache when it is read (measured: streaming gains from
// about here).
constexpr int64_t kStreamBytes = int64_t{32} << 20;
}  // namespace

std::vector<bool> NestEmitter::streamable(size_t p) const {
  const ir::Body& body = nest_.phases[p].body;
  std::vector<bool> out(body.stores.size());
  const VectorLoop& v = plan_.vector.v ? plan_.vector : plan_.phases[p].vector;
  if (repeated_ || !v.v || v.lanes == 1 || v.segments.size() != 1) return out;
  size_t place = plan_.vector.v ? p : 0;
  const PhaseForm& form = v.segments[0].phases[place];
  if (form.copies.size() != 1 || nest_.outer.empty()) return out;
  for (size_t s = 0; s < out.size(); ++s) {
    const ir::Store& store = body.stores[s];
    const ir::Buffer& buffer = e_.kernel.buffers[body.accesses[store.access].buffer];
    int64_t elements = element_count(buffer.extents).constant_or(0);
    if (store.mask != ir::kNoNode || store.kind != ir::StoreKind::set ||
        buffer.role != BufferRole::output || elements * bit_width(buffer.dtype) / 8 < kStreamBytes)
      continue;
    Expr rest = form.copies[0].offsets[store.access];
    bool aligned = true;
    for (const SymbolRef& var : loop_order(p, form)) {
      auto affine = affine_in(rest, var);
      if (!affine || !affine->first.constant()) {
        aligned = false;
        break;
      }
      int64_t c = *affine->first.constant();
      aligned = aligned && (var->id == v.v->id ? c == 1 : c % v.lanes == 0);
      rest = affine->second;
    }
    out[s] = aligned && rest.is_constant() && *rest.constant() % v.lanes == 0;
  }
  return out;
}

bool NestEmitter::streams() const {
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    std::vector<bool> some = streamable(p);
    if (std::find(some.begin(), some.end(), true) != some.end()) return true;
  }
  return false;
}

// Are the results that the caller gave aligned to whole cache lines?
Value* NestEmitter::streams_aligned() {
  auto& b = e_.b;
  Value* bits = e_.i64(0);
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    const ir::Body& body = nest_.phases[p].body;
    std::vector<bool> some = streamable(p);
    for (size_t s = 0; s < some.size(); ++s) {
      if (some[s])
        bits = b.CreateOr(
            bits, b.CreatePtrToInt(e_.f->buffers[body.accesses[body.stores[s].access].buffer],
                                   b.getInt64Ty()));
    }
  }
  return b.CreateICmpEQ(b.CreateAnd(bits, e_.i64(63)), e_.i64(0));
}

}  // namespace heddle::cpu
