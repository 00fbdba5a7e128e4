#include "loop/element.h"

#include "base/check.h"
#include "base/hash.h"
#include "loop/limits.h"
#include "loop/scalar_eval.h"

#include <cstring>

namespace heddle::loop {

using ir::kNoNode;
using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

DType memory_type(DType d) { return element_type(d); }

int64_t elements_per_byte(DType d) { return is_sub_byte(d) ? 8 / bit_width(d) : 1; }

std::vector<Expr> memory_extents(const Type& type) {
  std::vector<Expr> extents = *type.shape;
  if (is_complex(type.dtype)) extents.push_back(2);
  if (int64_t n = elements_per_byte(type.dtype); n > 1)
    return {(element_count(*type.shape) + Expr(n - 1)) / Expr(n)};
  return extents;
}

Expr flat_coordinate(const std::vector<Expr>& coords, const Shape& shape) {
  Expr flat(0);
  for (size_t k = 0; k < shape.size(); ++k) flat = flat * shape[k] + coords[k];
  return flat;
}

namespace {

// The type of a value's scalars inside a body.
DType body_type(DType d) {
  if (is_storage_only(d)) return DType::u8;
  return real_part(compute_type(d));
}

NodeId load_scalar(ir::BodyBuilder& b, DType memory, ir::Access access, NodeId mask) {
  NodeId other = mask == kNoNode ? kNoNode : b.constant_bits(memory, 0);
  NodeId n = b.load(memory, std::move(access), mask, other);
  return body_type(memory) == memory ? n : b.cast(n, body_type(memory));
}

std::vector<Expr> with_part(std::vector<Expr> coords, int part) {
  coords.push_back(part);
  return coords;
}

}  // namespace

Val load_value(ir::BodyBuilder& b, const Type& type, ir::BufferId buffer,
               const std::vector<Expr>& coords, NodeId mask) {
  DType memory = memory_type(type.dtype);
  if (is_complex(type.dtype)) {
    return {load_scalar(b, memory, {buffer, with_part(coords, 0)}, mask),
            load_scalar(b, memory, {buffer, with_part(coords, 1)}, mask)};
  }
  int64_t packed = elements_per_byte(type.dtype);
  if (packed == 1) return {load_scalar(b, memory, {buffer, coords}, mask)};
  Expr flat = flat_coordinate(coords, *type.shape);
  NodeId byte = load_scalar(b, memory, {buffer, {flat / Expr(packed)}}, mask);
  NodeId shift = b.cast(b.index(flat % Expr(packed) * Expr(bit_width(type.dtype))), DType::u8);
  return {b.binary(ScalarOp::shr, byte, shift)};
}

void store_value(ir::BodyBuilder& b, const Type& type, ir::BufferId buffer,
                 const std::vector<Expr>& coords, Val v, NodeId mask, ir::StoreKind kind) {
  DType memory = memory_type(type.dtype);
  auto rounded = [&](NodeId n) { return b.type(n) == memory ? n : b.cast(n, memory); };
  if (!is_complex(type.dtype)) {
    b.store({buffer, coords}, rounded(v.re), mask, kind);
    return;
  }
  b.store({buffer, with_part(coords, 0)}, rounded(v.re), mask, kind);
  b.store({buffer, with_part(coords, 1)}, rounded(v.im), mask, kind);
}

Val zero_value(ir::BodyBuilder& b, DType dtype) {
  NodeId zero = b.constant_bits(body_type(dtype), 0);
  return {zero, is_complex(dtype) ? zero : kNoNode};
}

Val cast_value(ir::BodyBuilder& b, Val v, DType dtype) {
  DType to = body_type(dtype);
  Val r{b.type(v.re) == to ? v.re : b.cast(v.re, to)};
  if (v.complex()) r.im = b.type(v.im) == to ? v.im : b.cast(v.im, to);
  return r;
}

Val select_value(ir::BodyBuilder& b, NodeId predicate, Val x, Val y) {
  Val r{b.select(predicate, x.re, y.re)};
  if (x.complex()) r.im = b.select(predicate, x.im, y.im);
  return r;
}

NodeId both(ir::BodyBuilder& b, NodeId x, NodeId y) {
  if (x == kNoNode || x == y) return y;
  if (y == kNoNode) return x;
  return b.binary(ScalarOp::bit_and, x, y);
}

std::vector<Expr> broadcast_coords(const std::vector<Expr>& coords, const Shape& shape) {
  std::vector<Expr> r;
  size_t skip = coords.size() - shape.size();
  for (size_t k = 0; k < shape.size(); ++k)
    r.push_back(shape[k].is(1) ? Expr(0) : coords[skip + k]);
  return r;
}

namespace {

// Which element is meant: the first where all are the same; none where that is not known.
std::optional<int64_t> element_index(const ir::Literal& literal, size_t width,
                                     const std::vector<Expr>& coords) {
  int64_t count = 1, index = 0;
  bool known = coords.size() == literal.shape.size();
  for (size_t d = 0; d < literal.shape.size(); ++d) {
    int64_t n = literal.shape[d];
    count *= n;
    std::optional<int64_t> at = known ? coords[d].constant() : std::nullopt;
    known = at && *at >= 0 && *at < n;
    if (known) index = index * n + *at;
  }
  if (count < 1 || count > limits::kSplatElements) return std::nullopt;
  if (is_sub_byte(literal.dtype) && count > 1) return std::nullopt;
  if (known) return index;
  for (int64_t k = 1; k < count; ++k) {
    if (std::memcmp(literal.bytes.data(), literal.bytes.data() + static_cast<size_t>(k) * width,
                    width) != 0)
      return std::nullopt;
  }
  return 0;
}

}  // namespace

std::optional<Val> constant_element(ir::BodyBuilder& b, const ir::Graph& graph, ir::ValueId v,
                                    const std::vector<Expr>& coords) {
  const ir::Value& value = graph.value(v);
  if (value.op == ir::kNone || ops::role_of(graph.op(value.op)) != ops::Role::constant)
    return std::nullopt;
  const ir::Literal& literal = *ops::literal_of(graph.op(value.op));
  DType memory = memory_type(literal.dtype);
  auto size = static_cast<size_t>(element_bytes(memory));
  size_t width = size * (is_complex(literal.dtype) ? 2 : 1);
  std::optional<int64_t> index = element_index(literal, width, coords);
  if (!index) return std::nullopt;
  auto part = [&](size_t k) {
    uint64_t bits = 0;
    std::memcpy(&bits, literal.bytes.data() + static_cast<size_t>(*index) * width + k * size, size);
    DType type = body_type(memory);
    return b.constant_bits(type, eval_cast(memory, type, canonical(memory, bits)).bits);
  };
  Val r{part(0)};
  if (is_complex(literal.dtype)) r.im = part(1);
  return r;
}

Lowering lowering_of(const ir::Graph& graph, ir::OpId id) {
  const ir::Op& op = graph.op(id);
  const ops::OpDef& def = *op.def;
  if (!op.regions.empty() || def.role != ops::Role::none || def.effect != ops::Effect::none)
    return Lowering::none;
  if (def.reduce && (!def.element || (def.prefer_reduce && def.prefer_reduce(graph, op))))
    return Lowering::reduce;
  if (def.scalar) return Lowering::scalar;
  if (def.element) return Lowering::element;
  if (def.scan) return Lowering::scan;
  return def.scatter ? Lowering::scatter : Lowering::none;
}

size_t ElementBuilder::KeyHash::operator()(const Key& k) const {
  uint64_t h = base::mix(k.value, k.mask);
  for (const Expr& e : k.coords) h = base::mix(h, e.hash());
  return h;
}

Val ElementBuilder::element(ir::ValueId v, const std::vector<Expr>& coords, NodeId mask) {
  return find(v, coords, mask).val;
}

ElementBuilder::Found ElementBuilder::find(ir::ValueId v, const std::vector<Expr>& coords,
                                           NodeId mask) {
  Key key{v, coords, mask};
  if (auto it = memo_.find(key); it != memo_.end()) return it->second;
  Found found;
  if (std::optional<Val> c = constant_element(b_, graph_, v, coords)) {
    found.val = *c;
  } else if (std::optional<Leaf> leaf = leaf_(v, coords, mask)) {
    found = {leaf->val, leaf->zero_outside};
  } else {
    found.val = inlined(v, coords, mask);
  }
  memo_.emplace(std::move(key), found);
  return found;
}

Val ElementBuilder::inlined(ir::ValueId v, const std::vector<Expr>& coords, NodeId mask) {
  const ir::Value& value = graph_.value(v);
  HD_CHECK(value.op != ir::kNone, "value ", v, " is an argument and can't be computed");
  const ir::Op& op = graph_.op(value.op);
  visited_.push_back(value.op);
  switch (lowering_of(graph_, value.op)) {
    case Lowering::scalar:
      return scalar_op(op, v, coords, mask);
    case Lowering::element: {
      ops::ElementContext c = context(value.op, static_cast<int>(value.index), coords, mask);
      return op.def->element(c);
    }
    default:
      break;
  }
  base::check_failed(__FILE__, __LINE__, "inlined", std::string(op.name) + " can't be inlined");
}

Val ElementBuilder::scalar_op(const ir::Op& op, ir::ValueId v, const std::vector<Expr>& coords,
                              NodeId mask) {
  ops::ScalarContext c{
      .b = b_, .attrs = op.attrs, .in = {}, .in_dtypes = {}, .dtype = graph_.value(v).type.dtype};
  for (ir::ValueId o : op.operands) {
    const Type& type = graph_.value(o).type;
    c.in.push_back(element(o, broadcast_coords(coords, *type.shape), mask));
    c.in_dtypes.push_back(type.dtype);
  }
  return op.def->scalar(c);
}

ops::ElementContext ElementBuilder::context(ir::OpId id, int result,
                                            const std::vector<Expr>& coords, NodeId mask) {
  const ir::Op& op = graph_.op(id);
  auto at = [this, &op, mask](int operand, const std::vector<Expr>& where, NodeId inner,
                              Val other) {
    ir::ValueId v = op.operands[static_cast<size_t>(operand)];
    if (inner == kNoNode) return element(v, where, mask);
    Found found = find(v, where, both(b_, mask, inner));
    Val zero = zero_value(b_, graph_.value(v).type.dtype);
    if (other.re == kNoNode) other = zero;
    bool is_zero = other.re == zero.re && (!zero.complex() || other.im == zero.im);
    return found.zero_outside && is_zero ? found.val : select_value(b_, inner, found.val, other);
  };
  return {.b = b_, .graph = graph_, .op = op, .result = result, .coords = coords, .at = at};
}

Val ElementBuilder::folded(ir::OpId id, const std::vector<Expr>& coords,
                           const std::vector<Expr>& inner) {
  visited_.push_back(id);
  ops::ElementContext c = context(id, 0, coords, kNoNode);
  return graph_.op(id).def->reduce->value(c, inner);
}

}  // namespace heddle::loop
