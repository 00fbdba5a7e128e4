// Kernels of a single node with a form of their own: scatters, and results with several elements a
// byte.
#include "loop/limits.h"
#include "loop/nest.h"

#include <algorithm>

namespace heddle::loop {

using ir::kNoNode;
using ir::NodeId;
using ir::Val;
using ir::ValueId;

namespace {

LeafRule loads(ir::BodyBuilder& b, const std::vector<Placement>& placement, KernelBuilder& kernel) {
  return [&b, &placement, &kernel](ValueId v, const std::vector<Expr>& coords,
                                   NodeId mask) -> std::optional<Leaf> {
    if (placement[v] == Placement::inlined) return std::nullopt;
    return Leaf{load_value(b, kernel.type(v), kernel.input(v), coords, mask), true};
  };
}

// Where a scatter accumulates: the result, or scratch of the compute type, so that half types round
// once.
struct Target {
  Type type;
  ir::BufferId buffer = 0;
};

ir::Phase copy_phase(const Member& m, const ops::ScatterRule& rule,
                     const std::vector<Placement>& placement, const Target& to,
                     const std::vector<Expr>& coords, const std::vector<LoopAxis>& inner,
                     KernelBuilder& kernel) {
  ir::BodyBuilder b;
  ElementBuilder e(kernel.graph(), b, loads(b, placement, kernel));
  const ir::Op& op = kernel.graph().op(m.node->op);
  Val v = e.element(op.operands[static_cast<size_t>(rule.data)], coords);
  store_value(b, to.type, to.buffer, coords, v);
  ir::Phase p;
  p.inner = to_axes(inner, ir::AxisKind::mapped);
  p.body = b.take();
  return p;
}

ir::Phase update_phase(const Member& m, const ops::ScatterRule& rule,
                       const std::vector<Placement>& placement, const Target& to,
                       std::vector<Expr> coords, KernelBuilder& kernel) {
  using ir::ScalarOp;
  ir::BodyBuilder b;
  ElementBuilder e(kernel.graph(), b, loads(b, placement, kernel));
  const ir::Op& op = kernel.graph().op(m.node->op);
  auto axis = static_cast<size_t>(rule.axis);
  ValueId indices = op.operands[static_cast<size_t>(rule.indices)];
  ValueId updates = op.operands[static_cast<size_t>(rule.updates)];
  Expr count = (*kernel.type(indices).shape)[0];
  LoopAxis along{make_loop_symbol("j", count), count};
  Expr extent = (*to.type.shape)[axis];
  // A negative index counts from the end once; one that is then out of range is skipped.
  NodeId at = e.element(indices, {count.is(1) ? Expr(0) : Expr(along.var)}).re;
  bool is_signed = is_signed_integer(b.type(at));
  if (b.type(at) != DType::i64) at = b.cast(at, DType::i64);
  NodeId n = b.index(extent), zero = b.constant_int(DType::i64, 0);
  if (is_signed)
    at = b.select(b.binary(ScalarOp::lt, at, zero), b.binary(ScalarOp::add, at, n), at);
  NodeId inside =
      b.binary(ScalarOp::bit_and, b.binary(ScalarOp::ge, at, zero), b.binary(ScalarOp::lt, at, n));
  // Along an empty axis every update is skipped, at position 0.
  Expr positions = max(extent, Expr(1));
  SymbolRef where = b.bind(b.select(inside, at, zero), 0,
                           std::max<int64_t>(extent.constant_or(INT64_MAX) - 1, 0), &positions);
  coords[axis] = count.is(1) ? Expr(0) : Expr(along.var);
  Val v = e.element(updates, coords, inside);
  coords[axis] = Expr(where);
  store_value(b, to.type, to.buffer, coords, v, inside, rule.kind);
  ir::Phase p;
  p.inner = to_axes({along}, ir::AxisKind::scattered);
  p.body = b.take();
  return p;
}

}  // namespace

void build_scatter(const Member& m, const std::vector<Placement>& placement,
                   KernelBuilder& kernel) {
  const ir::Op& op = kernel.graph().op(m.node->op);
  ops::ScatterRule rule = op.def->scatter(kernel.graph(), op);
  const Type& type = kernel.type(m.node->value);
  DType wide = compute_type(type.dtype);
  bool widened = wide != type.dtype && rule.kind == ir::StoreKind::add;
  Target result{type, kernel.output(m.node->value)};
  Target to = result;
  if (widened) {
    to.type.dtype = wide;
    to.buffer = kernel.scratch("sum", memory_type(wide), memory_extents(to.type));
  }
  std::vector<LoopAxis> outer, inner;
  const Expr& at = m.coords[static_cast<size_t>(rule.axis)];
  for (const LoopAxis& a : m.node->axes) {
    (at.kind() == ExprKind::symbol && at.symbol()->id == a.var->id ? inner : outer).push_back(a);
  }
  ir::Nest nest;
  nest.outer = to_axes(outer, ir::AxisKind::mapped);
  nest.phases.push_back(copy_phase(m, rule, placement, to, m.coords, inner, kernel));
  nest.phases.push_back(update_phase(m, rule, placement, to, m.coords, kernel));
  if (widened) {
    ir::BodyBuilder b;
    store_value(b, type, result.buffer, m.coords,
                load_value(b, to.type, to.buffer, m.coords, kNoNode));
    ir::Phase p;
    p.inner = to_axes(inner, ir::AxisKind::mapped);
    p.body = b.take();
    nest.phases.push_back(std::move(p));
  }
  kernel.add(std::move(nest));
}

// One point a byte, which gathers the codes of its elements.
void build_packed(const Member& m, const std::vector<Placement>& placement, KernelBuilder& kernel) {
  using ir::ScalarOp;
  const Type& type = kernel.type(m.node->value);
  const Shape& shape = *type.shape;
  int64_t packed = elements_per_byte(type.dtype);
  Expr bytes = memory_extents(type)[0], count = element_count(shape);
  LoopAxis axis{make_loop_symbol("byte", bytes), bytes};
  ir::BodyBuilder b;
  ElementBuilder e(kernel.graph(), b, loads(b, placement, kernel));
  NodeId byte = kNoNode;
  for (int64_t k = 0; k < packed; ++k) {
    Expr flat = Expr(axis.var) * Expr(packed) + Expr(k);
    std::vector<Expr> coords(shape.size());
    Expr below(1);
    for (size_t j = shape.size(); j-- > 0;) {
      coords[j] = shape[j].is(1) ? Expr(0) : flat / below % shape[j];
      below = below * shape[j];
    }
    NodeId mask = k == 0 ? kNoNode : b.binary(ScalarOp::lt, b.index(flat), b.index(count));
    NodeId code = e.inlined(m.node->value, coords, mask).re;
    NodeId low = b.binary(ScalarOp::bit_and, code,
                          b.constant_int(DType::u8, (1 << bit_width(type.dtype)) - 1));
    if (mask != kNoNode) low = b.select(mask, low, b.constant_int(DType::u8, 0));
    NodeId shift = b.constant_int(DType::u8, k * bit_width(type.dtype));
    NodeId moved = k == 0 ? low : b.binary(ScalarOp::shl, low, shift);
    byte = k == 0 ? moved : b.binary(ScalarOp::bit_or, byte, moved);
  }
  b.store({kernel.output(m.node->value), {Expr(axis.var)}}, byte);
  ir::Nest nest;
  nest.outer = to_axes({axis}, ir::AxisKind::mapped);
  nest.phases.emplace_back();
  nest.phases[0].body = b.take();
  kernel.add(std::move(nest));
}

}  // namespace heddle::loop
