// Which stores of a nest go past the cache, and which loads are fetched ahead.
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
// Of squares of whole lines, which lie far apart: a plain store waits for the line's old contents.
constexpr int64_t kStreamSquareBytes = int64_t{16} << 20;
constexpr int64_t kLine = 64;
// How far ahead of a long run of loads the processor is asked for memory: about the time of one
// miss in a loop that computes.
constexpr int64_t kAheadBytes = 4096;
// Bodies of fewer nodes reach ahead by themselves.
constexpr size_t kLightNodes = 8;
// A row of at most so many bytes is fetched while the row before it is computed.
constexpr int64_t kNextRowBytes = 64 << 10;
// And up to this into the first cache, which holds two rows and a buffer: 32 KiB, with wide vectors
// 48.
constexpr int64_t kNearRowBytes = 8 << 10, kWideNearRowBytes = 16 << 10;
}  // namespace

std::vector<bool> NestEmitter::streamable(size_t p) const {
  const ir::Body& body = nest_.phases[p].body;
  std::vector<bool> out(body.stores.size());
  const VectorLoop& v = plan_.vector.v ? plan_.vector : plan_.phases[p].vector;
  if (repeated_ || !v.v || v.lanes == 1 || nest_.outer.empty()) return out;
  // Parts of the axis start at whole vectors.
  bool whole = std::all_of(v.segments.begin(), v.segments.end(), [&](const Segment& s) {
    auto lo = s.range.lo.constant();
    return lo && *lo % v.lanes == 0;
  });
  if (!whole) return out;
  size_t place = plan_.vector.v ? p : 0;
  const PhaseForm& form = v.segments[0].phases[place];
  if (form.copies.size() != 1) return out;
  for (size_t s = 0; s < out.size(); ++s) {
    const ir::Store& store = body.stores[s];
    const ir::Buffer& buffer = e_.kernel.buffers[body.accesses[store.access].buffer];
    int64_t elements = element_count(buffer.extents).constant_or(0);
    bool lines = plan_.tile >= 0 && v.lanes * bit_width(buffer.dtype) == 8 * kLine;
    int64_t least = lines ? kStreamSquareBytes : kStreamBytes;
    if (store.mask != ir::kNoNode || store.kind != ir::StoreKind::set ||
        buffer.role != BufferRole::output || elements * bit_width(buffer.dtype) / 8 < least)
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

// Of the phases that read a buffer, the one that computes most.
size_t NestEmitter::fetching_phase(ir::BufferId buffer) const {
  size_t best = 0, most = 0;
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    const ir::Body& body = nest_.phases[p].body;
    bool reads = std::any_of(body.nodes.begin(), body.nodes.end(), [&](const ir::Node& n) {
      return n.op == ir::ScalarOp::load && body.accesses[n.payload].buffer == buffer;
    });
    if (reads && body.nodes.size() > most) best = p, most = body.nodes.size();
  }
  return best;
}

// Where phases go over the same row, one of them fetches the row that comes next; else every loop
// that computes fetches what it comes to soon. What is inside a loop is in a cache already, and
// where an index was read from memory nobody knows what comes next.
std::vector<Prefetch> NestEmitter::fetched_ahead(size_t p, const BodyForm& form) const {
  const ir::Body& body = nest_.phases[p].body;
  std::vector<Prefetch> out(body.accesses.size());
  if (repeated_ || body.nodes.size() <= kLightNodes || !body.symbols.empty()) return out;
  bool row = !plan_.vector.v && plan_.phases[p].vector.v && plan_.phases[p].rows.empty();
  for (size_t k = 0; k < out.size(); ++k) {
    const ir::Buffer& buffer = e_.kernel.buffers[body.accesses[k].buffer];
    if (buffer.role == BufferRole::row_local || buffer.role == BufferRole::scalar_local) continue;
    out[k].bytes = kAheadBytes;
    if (!row || plan_.rows.empty()) continue;
    auto next = affine_in(form.offsets[k], plan_.rows.back().var);
    if (!next || !next->first.constant()) continue;
    int64_t bytes = *next->first.constant() * bit_width(buffer.dtype) / 8;
    if (bytes <= 0 || bytes > kNextRowBytes) continue;
    bool mine = fetching_phase(body.accesses[k].buffer) == p;
    out[k] = {mine ? bytes : 0, bytes <= (e_.target.wide() ? kWideNearRowBytes : kNearRowBytes)};
  }
  return out;
}

}  // namespace heddle::cpu
