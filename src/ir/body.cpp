#include "ir/body.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/small_float.h"
#include "ir/body_bounds.h"
#include "ir/scalar_eval.h"

#include <bit>
#include <cmath>
#include <sstream>

namespace heddle::ir {

namespace {

bool is_compare(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }

DType binary_type(ScalarOp op, DType operand) { return is_compare(op) ? bool_ : operand; }

// The indirect symbols of an access must be defined before it, so accesses are looked up by
// equality.
template <class T>
uint32_t intern_in(std::vector<T>& table, const T& item) {
  for (size_t k = 0; k < table.size(); ++k) {
    if (table[k] == item) return static_cast<uint32_t>(k);
  }
  table.push_back(item);
  return static_cast<uint32_t>(table.size() - 1);
}

uint64_t node_hash(const Node& n) {
  uint64_t h = base::mix(static_cast<uint64_t>(n.op), static_cast<uint64_t>(n.type));
  h = base::mix(h, (uint64_t{n.a} << 32) | n.b);
  h = base::mix(h, (uint64_t{n.c} << 32) | n.payload);
  return base::mix(h, n.bits);
}

}  // namespace

NodeId BodyBuilder::intern(Node n) {
  if (buckets_.empty()) buckets_.resize(64);
  if (body_.nodes.size() > buckets_.size() * 4) {
    buckets_.assign(buckets_.size() * 8, {});
    for (NodeId k = 0; k < body_.nodes.size(); ++k) {
      buckets_[node_hash(body_.nodes[k]) % buckets_.size()].push_back(k);
    }
  }
  auto& bucket = buckets_[node_hash(n) % buckets_.size()];
  for (NodeId k : bucket) {
    if (body_.nodes[k] == n) return k;
  }
  body_.nodes.push_back(n);
  bucket.push_back(static_cast<NodeId>(body_.nodes.size() - 1));
  return bucket.back();
}

NodeId BodyBuilder::constant_bits(DType t, uint64_t bits) {
  Node n;
  n.op = ScalarOp::constant;
  n.type = t;
  n.bits = bits;
  return intern(n);
}

NodeId BodyBuilder::constant_int(DType t, int64_t value) {
  HD_CHECK(is_integer(t) || t == bool_);
  return constant_bits(t, narrow_bits(t, static_cast<uint64_t>(value)));
}

NodeId BodyBuilder::constant(DType t, double value) {
  if (t == f64) return constant_bits(t, std::bit_cast<uint64_t>(value));
  if (t == f32) return constant_bits(t, std::bit_cast<uint32_t>(static_cast<float>(value)));
  if (t == f16 || t == bf16) return constant_bits(t, base::encode_small_float(t, value));
  if (t == bool_) return constant_int(t, value != 0);
  if (is_unsigned_integer(t) && value >= 0x1p63)
    return constant_bits(t, narrow_bits(t, static_cast<uint64_t>(value)));
  return constant_int(t, static_cast<int64_t>(value));
}

NodeId BodyBuilder::index(const Expr& e) {
  if (std::optional<int64_t> c = e.constant()) return constant_int(i64, *c);
  Node n;
  n.op = ScalarOp::index;
  n.type = i64;
  n.payload = intern_in(body_.exprs, e);
  return intern(n);
}

NodeId BodyBuilder::load(DType t, Access access, NodeId mask, NodeId other) {
  if (mask != kNoNode && body_.nodes[mask].op == ScalarOp::constant) {
    if (body_.nodes[mask].bits == 0) return other;
    mask = other = kNoNode;
  }
  HD_CHECK((mask == kNoNode) == (other == kNoNode));
  Node n;
  n.op = ScalarOp::load;
  n.type = t;
  n.a = mask;
  n.b = other;
  n.payload = intern_in(body_.accesses, access);
  return intern(n);
}

SymbolRef BodyBuilder::bind(NodeId value, int64_t lower, int64_t upper, const Expr* extent) {
  HD_CHECK(type(value) == i64);
  for (NodeId k = 0; k < body_.nodes.size();
       ++k) {  // the same value with the same bounds: the same symbol
    const Node& n = body_.nodes[k];
    if (n.op != ScalarOp::bind || n.a != value) continue;
    const SymbolRef& s = body_.symbols[n.payload];
    bool same_extent =
        extent == nullptr ? s->extent == nullptr : (s->extent != nullptr && *s->extent == *extent);
    if (s->lower == lower && s->upper == upper && same_extent) return s;
  }
  std::shared_ptr<const Expr> e =
      extent == nullptr ? nullptr : std::make_shared<const Expr>(*extent);
  SymbolRef s = make_symbol(SymbolKind::indirect, "g" + std::to_string(body_.symbols.size()), lower,
                            upper, e);
  body_.symbols.push_back(s);
  Node n;
  n.op = ScalarOp::bind;
  n.type = i64;
  n.a = value;
  n.payload = static_cast<uint32_t>(body_.symbols.size() - 1);
  intern(n);
  return s;
}

NodeId BodyBuilder::row(DType t, RowRef ref) {
  Node n;
  n.op = ScalarOp::row;
  n.type = t;
  n.payload = intern_in(body_.rows, ref);
  return intern(n);
}

NodeId BodyBuilder::scan(ScanSpec spec, NodeId value) {
  Node n;
  n.op = ScalarOp::scan;
  n.type = type(value);
  n.a = value;
  // Each scan node has an entry, hence a running value, of its own.
  for (NodeId k = 0; k < body_.nodes.size(); ++k) {
    const Node& other = body_.nodes[k];
    if (other.op == ScalarOp::scan && other.a == value && body_.scans[other.payload] == spec)
      return k;
  }
  n.payload = static_cast<uint32_t>(body_.scans.size());
  body_.scans.push_back(spec);
  return intern(n);
}

NodeId BodyBuilder::unary(ScalarOp op, NodeId a) {
  Node n;
  n.op = op;
  n.type = op == ScalarOp::is_nan || op == ScalarOp::logical_not ? bool_ : type(a);
  n.a = a;
  return fold(n);
}

NodeId BodyBuilder::binary(ScalarOp op, NodeId a, NodeId b) {
  HD_CHECK(type(a) == type(b), name(type(a)), " with ", name(type(b)));
  Node n;
  n.op = op;
  n.type = binary_type(op, type(a));
  n.a = a;
  n.b = b;
  return fold(n);
}

NodeId BodyBuilder::fma(NodeId a, NodeId b, NodeId c) {
  HD_CHECK(type(a) == type(b) && type(a) == type(c));
  Node n;
  n.op = ScalarOp::fma;
  n.type = type(a);
  n.a = a;
  n.b = b;
  n.c = c;
  return fold(n);
}

NodeId BodyBuilder::select(NodeId predicate, NodeId a, NodeId b) {
  HD_CHECK(type(predicate) == bool_ && type(a) == type(b));
  if (a == b) return a;
  if (body_.nodes[predicate].op == ScalarOp::constant)
    return body_.nodes[predicate].bits != 0 ? a : b;
  Node n;
  n.op = ScalarOp::select;
  n.type = type(a);
  n.a = predicate;
  n.b = a;
  n.c = b;
  return intern(n);
}

NodeId BodyBuilder::cast(NodeId a, DType t) {
  if (type(a) == t) return a;
  Node n;
  n.op = ScalarOp::cast;
  n.type = t;
  n.a = a;
  return fold(n);
}

NodeId BodyBuilder::bitcast(NodeId a, DType t) {
  if (type(a) == t) return a;
  HD_CHECK(bit_width(type(a)) == bit_width(t));
  Node n;
  n.op = ScalarOp::bitcast;
  n.type = t;
  n.a = a;
  return fold(n);
}

NodeId BodyBuilder::call(LibraryFunction f, NodeId a, NodeId b) {
  HD_CHECK(type(a) == f64);
  Node n;
  n.op = ScalarOp::call;
  n.type = f64;
  n.a = a;
  n.b = b;
  n.payload = static_cast<uint32_t>(f);
  return intern(n);
}

// Constants fold by the rules that the interpreter uses; identities only where they hold for every
// value.
NodeId BodyBuilder::fold(const Node& n) {
  auto constant_of = [&](NodeId k) {
    return k == kNoNode || body_.nodes[k].op == ScalarOp::constant;
  };
  if (constant_of(n.a) && constant_of(n.b) && constant_of(n.c)) {
    auto bits = [&](NodeId k) { return k == kNoNode ? 0 : body_.nodes[k].bits; };
    return constant_bits(n.type,
                         eval_scalar(n.op, n.type, type(n.a), bits(n.a), bits(n.b), bits(n.c)));
  }
  if (n.op == ScalarOp::mul && (is_float_one(n.a) || is_float_one(n.b)))
    return is_float_one(n.a) ? n.b : n.a;
  if (n.op == ScalarOp::div && is_float_one(n.b)) return n.a;
  if (NodeId x = without_clamp(body_, n); x != kNoNode) return x;
  if (n.op == ScalarOp::mul && n.a == n.b && (n.type == f32 || n.type == f64)) {
    Node square = n;
    square.a = square.b = without_sign(body_, n.a);
    return intern(square);
  }
  if (is_integer(n.type) && (n.op == ScalarOp::add || n.op == ScalarOp::mul)) {
    uint64_t neutral = n.op == ScalarOp::mul ? 1 : 0;
    for (auto [x, y] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
      if (constant_of(x) && body_.nodes[x].bits == neutral) return y;
    }
  }
  if (n.op == ScalarOp::bit_and || n.op == ScalarOp::bit_or) {
    if (n.a == n.b) return n.a;
    if (n.type == bool_) {
      for (auto [x, y] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
        if (!constant_of(x)) continue;
        bool absorbs = (body_.nodes[x].bits != 0) == (n.op == ScalarOp::bit_or);
        return absorbs ? x : y;
      }
    }
  }
  return intern(n);
}

bool BodyBuilder::is_float_one(NodeId k) const {
  const Node& n = body_.nodes[k];
  if (n.op != ScalarOp::constant) return false;
  if (n.type == f32) return n.bits == std::bit_cast<uint32_t>(1.0f);
  return n.type == f64 && n.bits == std::bit_cast<uint64_t>(1.0);
}

void BodyBuilder::store(Access access, NodeId value, NodeId mask, StoreKind kind) {
  if (mask != kNoNode && body_.nodes[mask].op == ScalarOp::constant) {
    if (body_.nodes[mask].bits == 0) return;
    mask = kNoNode;
  }
  body_.stores.push_back({intern_in(body_.accesses, access), value, mask, kind});
}

NodeId BodyBuilder::keep(NodeId n) {
  kept_.push_back(n);
  return n;
}

NodeId BodyBuilder::renumbered(NodeId n) const { return n == kNoNode ? kNoNode : renumber_.at(n); }

namespace {

// Binds that define the symbols of an expression.
void mark_binds(const Body& body, const Expr& e, const std::vector<NodeId>& bind_of,
                std::vector<NodeId>& work) {
  std::vector<SymbolRef> symbols;
  collect_symbols(e, symbols);
  for (const SymbolRef& s : symbols) {
    for (size_t k = 0; k < body.symbols.size(); ++k) {
      if (body.symbols[k]->id == s->id) work.push_back(bind_of[k]);
    }
  }
}

}  // namespace

Body BodyBuilder::take() {
  std::vector<NodeId> bind_of(body_.symbols.size(), kNoNode);
  for (NodeId k = 0; k < body_.nodes.size(); ++k) {
    if (body_.nodes[k].op == ScalarOp::bind) bind_of[body_.nodes[k].payload] = k;
  }
  std::vector<bool> used(body_.nodes.size(), false);
  std::vector<NodeId> work = kept_;
  auto use_access = [&](uint32_t access) {
    for (const Expr& e : body_.accesses[access].coords) mark_binds(body_, e, bind_of, work);
  };
  for (const Store& s : body_.stores) {
    work.push_back(s.value);
    if (s.mask != kNoNode) work.push_back(s.mask);
    use_access(s.access);
  }
  while (!work.empty()) {
    NodeId k = work.back();
    work.pop_back();
    if (k == kNoNode || used[k]) continue;
    used[k] = true;
    const Node& n = body_.nodes[k];
    for (NodeId o : {n.a, n.b, n.c}) work.push_back(o);
    if (n.op == ScalarOp::load) use_access(n.payload);
    if (n.op == ScalarOp::index) mark_binds(body_, body_.exprs[n.payload], bind_of, work);
  }
  Body out;
  renumber_.assign(body_.nodes.size(), kNoNode);
  for (NodeId k = 0; k < body_.nodes.size(); ++k) {
    if (!used[k]) continue;
    Node n = body_.nodes[k];
    for (NodeId* o : {&n.a, &n.b, &n.c}) {
      if (*o != kNoNode) *o = renumber_[*o];
    }
    switch (n.op) {
      case ScalarOp::load:
        n.payload = intern_in(out.accesses, body_.accesses[n.payload]);
        break;
      case ScalarOp::index:
        n.payload = intern_in(out.exprs, body_.exprs[n.payload]);
        break;
      case ScalarOp::row:
        n.payload = intern_in(out.rows, body_.rows[n.payload]);
        break;
      case ScalarOp::scan:
        // Equal specifications stay apart: each node has a running value of its own.
        out.scans.push_back(body_.scans[n.payload]);
        n.payload = static_cast<uint32_t>(out.scans.size() - 1);
        break;
      case ScalarOp::bind:
        out.symbols.push_back(body_.symbols[n.payload]);
        n.payload = static_cast<uint32_t>(out.symbols.size() - 1);
        break;
      default:
        break;
    }
    renumber_[k] = static_cast<NodeId>(out.nodes.size());
    out.nodes.push_back(n);
  }
  for (Store s : body_.stores) {
    s.access = intern_in(out.accesses, body_.accesses[s.access]);
    s.value = renumber_[s.value];
    if (s.mask != kNoNode) s.mask = renumber_[s.mask];
    out.stores.push_back(s);
  }
  return out;
}

}  // namespace heddle::ir
