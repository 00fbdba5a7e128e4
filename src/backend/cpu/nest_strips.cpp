// Two nests over the same blocks, strip by strip: what the second one reads again is still in a
// cache.
#include "backend/cpu/nest_emitter.h"

#include "backend/cpu/run_context.h"

#include <algorithm>
#include <cstddef>

namespace heddle::cpu {

using ir::Axis;
using ir::BufferRole;
using llvm::Value;

namespace {

constexpr double kStripBytes = 512 << 10;  // that a thread reads of a strip
constexpr int64_t kManyBlocks = 32;        // of both nests: fewer are not worth strips

// The accesses of a phase that read or write memory all nests see.
struct Touch {
  ir::BufferId buffer = 0;
  const Expr* offset = nullptr;
  bool store = false;
};

std::vector<Touch> touches(const ir::Kernel& kernel, const ir::Nest& nest, const NestPlan& plan) {
  std::vector<Touch> out;
  for (size_t p = 0; p < nest.phases.size(); ++p) {
    const ir::Body& body = nest.phases[p].body;
    auto add = [&](uint32_t access, bool store) {
      ir::BufferId buffer = body.accesses[access].buffer;
      if (kernel.buffers[buffer].role == BufferRole::row_local) return;
      for (const BodyForm& copy : plan.phases[p].form.copies)
        out.push_back({buffer, &copy.offsets[access], store});
    };
    for (const ir::Node& n : body.nodes) {
      if (n.op == ir::ScalarOp::load) add(n.payload, false);
    }
    for (const ir::Store& s : body.stores) add(s.access, true);
  }
  return out;
}

// Its block's own part of a buffer: c * block + something in [0, c); 0: it is not.
int64_t block_length(const Expr& offset, const SymbolRef& block) {
  auto in = affine_in(offset, block);
  if (!in) return 0;
  int64_t c = in->first.constant_or(0);
  return c > 0 && in->second.lower() >= 0 && in->second.upper() < c ? c : 0;
}

// Is it the block's number, or that of one before?
bool up_to(const Expr& offset, const SymbolRef& block, const ir::Nest& nest) {
  if (offset == Expr(block)) return true;
  return std::any_of(nest.phases.begin(), nest.phases.end(), [&](const ir::Phase& p) {
    return std::any_of(p.inner.begin(), p.inner.end(), [&](const Axis& a) {
      return offset == Expr(a.var) && a.extent == Expr(block);
    });
  });
}

}  // namespace

bool NestEmitter::blocks() const {
  return !repeated_ && !e_.check_bounds && nest_.outer.size() == 1 && plan_.rows.size() == 1 &&
         !plan_.vector.v && plan_.rows[0].var == nest_.outer[0].var &&
         plan_.rows[0].extent.constant_or(kManyBlocks) >= kManyBlocks;
}

// Does the order (this nest, then `next`) also hold for one strip of blocks after the other? Then
// `next` reads of this one's results only those of its own block and of earlier ones, and whatever
// else is written belongs to one block, also where a result takes the place of an input.
bool NestEmitter::strips_with(const NestEmitter& next) const {
  if (!blocks() || !next.blocks() || plan_.rows[0].extent != next.plan_.rows[0].extent)
    return false;
  const SymbolRef &mine = plan_.rows[0].var, &its = next.plan_.rows[0].var;
  std::vector<Touch> before = touches(e_.kernel, nest_, plan_),
                     after = touches(e_.kernel, next.nest_, next.plan_);
  auto written = [](const std::vector<Touch>& all, ir::BufferId buffer) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Touch& t) { return t.store && t.buffer == buffer; });
  };
  int64_t length = 0;
  auto own = [&](const Touch& t, const SymbolRef& block) {
    int64_t n = block_length(*t.offset, block);
    if (length == 0) length = n;
    return n != 0 && n == length;
  };
  bool again = false;  // something is read by both
  for (const Touch& t : before) {
    if (t.store ? *t.offset != Expr(mine) : !own(t, mine)) return false;
    if (written(after, t.buffer) || (!t.store && written(before, t.buffer))) return false;
  }
  for (const Touch& t : after) {
    bool result = written(before, t.buffer);
    if (result ? !up_to(*t.offset, its, next.nest_) : !own(t, its)) return false;
    again = again || (!t.store && std::any_of(before.begin(), before.end(), [&](const Touch& o) {
              return !o.store && o.buffer == t.buffer;
            }));
  }
  return again;
}

// What a block reads, at least 1.
double NestEmitter::block_bytes() const {
  double bytes = 1;
  for (size_t p = 0; p < nest_.phases.size(); ++p) {
    double points = 1;
    for (const Axis& a : nest_.phases[p].inner) points *= std::max(1.0, estimate(a.extent));
    for (const ir::Node& n : nest_.phases[p].body.nodes) {
      if (n.op == ir::ScalarOp::load) bytes += points * bit_width(n.type) / 8;
    }
  }
  return bytes;
}

void NestEmitter::emit_strips(NestEmitter& next) {
  auto& b = e_.b;
  in_strips_ = next.in_strips_ = true;
  Value* count = row_count(plan_.rows, e_.f->symbols);
  store_frame();
  Value *first = outer_function(), *second = next.outer_function();
  Value* threads = b.CreateLoad(
      b.getInt32Ty(),
      b.CreateConstGEP1_64(b.getInt8Ty(), e_.f->context, offsetof(RunContext, threads)));
  auto blocks = std::max<int64_t>(1, static_cast<int64_t>(kStripBytes / block_bytes()));
  Value* strip = b.CreateMul(b.CreateZExt(threads, b.getInt64Ty()), e_.i64(blocks));
  Value* strips = b.CreateUDiv(b.CreateAdd(count, b.CreateSub(strip, e_.i64(1))), strip);
  e_.loop(e_.i64(0), strips, 1, [&](Value* i) {
    Value* from = b.CreateMul(i, strip);
    Value* some = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, strip, b.CreateSub(count, from));
    b.CreateStore(from, slot(layout_.block));
    // Many strips follow each other: the work of all of them tells whether threads are worth it.
    fork(first, some, b.CreateMul(count, e_.i64(cost())));
    fork(second, some, b.CreateMul(count, e_.i64(next.cost())));
  });
}

}  // namespace heddle::cpu
