// Structural hash and equality. Values and symbols are numbered by first occurrence; names and
// locations do not count.
#include "base/hash.h"
#include "ir/graph.h"

#include <map>

namespace heddle::ir {

namespace {

using base::mix;

// by_identity: values from outside and symbols are what they are (regions of one graph); else they
// are numbered.
class Hasher {
 public:
  Hasher(const Graph& graph, bool by_identity) : graph_(graph), by_identity_(by_identity) {}

  uint64_t region(RegionId id) {
    const Region& r = graph_.region(id);
    uint64_t h = mix(r.arguments.size(), r.results.size());
    for (ValueId v : r.arguments) h = mix(h, define(v));
    for (OpId id_of_op : r.ops) h = mix(h, op(id_of_op));
    for (ValueId v : r.results) h = mix(h, use(v));
    return h;
  }

 private:
  uint64_t define(ValueId v) {
    values_.emplace(v, values_.size());
    return type(graph_.value(v).type);
  }
  uint64_t use(ValueId v) {
    auto at = values_.find(v);
    return at != values_.end() ? mix(1, at->second) : mix(2, v);
  }
  uint64_t op(OpId id) {
    const Op& op = graph_.op(id);
    uint64_t h = base::hash_string(op.name);
    for (ValueId v : op.operands) h = mix(h, use(v));
    for (const auto& [name, value] : op.attrs.items()) {
      h = mix(base::hash_string(name, h), attr(value));
    }
    for (RegionId r : op.regions) h = mix(h, region(r));
    for (OpId before : op.after) {
      auto at = ops_.find(before);
      h = mix(h, at != ops_.end() ? mix(1, at->second) : mix(2, before));
    }
    for (ValueId v : op.results) h = mix(h, define(v));
    ops_.emplace(id, ops_.size());
    return h;
  }
  uint64_t attr(const Attr& value) {
    uint64_t h = value.index();
    if (const auto* e = std::get_if<Expr>(&value)) return mix(h, expr(*e));
    if (const auto* t = std::get_if<Type>(&value)) return mix(h, type(*t));
    if (const auto* list = std::get_if<std::vector<Expr>>(&value)) return mix(h, exprs(*list));
    return mix(h, hash(value));
  }
  uint64_t type(const Type& t) {
    uint64_t h = mix(static_cast<uint64_t>(t.dtype), t.shape.has_value());
    return t.shape ? mix(h, exprs(*t.shape)) : h;
  }
  uint64_t exprs(const std::vector<Expr>& list) {
    uint64_t h = list.size();
    for (const Expr& e : list) h = mix(h, expr(e));
    return h;
  }
  // The order of the terms of sums and products depends on the symbols' identity: it must not
  // count.
  uint64_t expr(const Expr& e) {
    auto kind = static_cast<uint64_t>(e.kind());
    switch (e.kind()) {
      case ExprKind::constant:
        return mix(kind, static_cast<uint64_t>(*e.constant()));
      case ExprKind::symbol:
        return mix(kind, symbol(*e.symbol()));
      case ExprKind::floordiv:
      case ExprKind::mod: {
        uint64_t first = expr(e.operands()[0]);
        return mix(mix(kind, first), expr(e.operands()[1]));
      }
      default:
        break;
    }
    uint64_t sum = 0;
    for (const Expr& operand : e.operands()) sum += mix(kind, expr(operand));
    return mix(kind, sum);
  }
  uint64_t symbol(const Symbol& s) {
    if (by_identity_) return s.id;
    auto [at, added] = symbols_.emplace(s.id, symbols_.size());
    if (!added) return at->second;
    uint64_t h = mix(at->second, static_cast<uint64_t>(s.kind));
    return at->second = mix(mix(h, static_cast<uint64_t>(s.lower)), static_cast<uint64_t>(s.upper));
  }

  const Graph& graph_;
  bool by_identity_;
  std::map<ValueId, uint64_t> values_;
  std::map<OpId, uint64_t> ops_;
  std::map<uint64_t, uint64_t> symbols_;
};

class Comparer {
 public:
  Comparer(const Graph& a, const Graph& b, bool by_identity)
      : a_(a), b_(b), by_identity_(by_identity) {}

  bool regions(RegionId x, RegionId y) {
    const Region& a = a_.region(x);
    const Region& b = b_.region(y);
    if (a.arguments.size() != b.arguments.size() || a.ops.size() != b.ops.size() ||
        a.results.size() != b.results.size()) {
      return false;
    }
    for (size_t i = 0; i < a.arguments.size(); ++i) {
      if (!define(a.arguments[i], b.arguments[i])) return false;
    }
    for (size_t i = 0; i < a.ops.size(); ++i) {
      if (!ops(a.ops[i], b.ops[i])) return false;
    }
    return uses(a.results, b.results);
  }

 private:
  bool define(ValueId x, ValueId y) {
    values_[x] = y;
    return types(a_.value(x).type, b_.value(y).type);
  }
  bool uses(const std::vector<ValueId>& x, const std::vector<ValueId>& y) {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      auto at = values_.find(x[i]);
      if (at != values_.end() ? at->second != y[i] : !(by_identity_ && x[i] == y[i])) return false;
    }
    return true;
  }
  bool ops(OpId x, OpId y) {
    const Op& a = a_.op(x);
    const Op& b = b_.op(y);
    if (a.def != b.def || !uses(a.operands, b.operands) || !attrs(a.attrs, b.attrs) ||
        a.regions.size() != b.regions.size() || a.results.size() != b.results.size() ||
        !dependencies(a.after, b.after)) {
      return false;
    }
    for (size_t i = 0; i < a.regions.size(); ++i) {
      if (!regions(a.regions[i], b.regions[i])) return false;
    }
    for (size_t i = 0; i < a.results.size(); ++i) {
      if (!define(a.results[i], b.results[i])) return false;
    }
    ops_[x] = y;
    return true;
  }
  bool dependencies(const std::vector<OpId>& x, const std::vector<OpId>& y) {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      auto at = ops_.find(x[i]);
      if (at != ops_.end() ? at->second != y[i] : !(by_identity_ && x[i] == y[i])) return false;
    }
    return true;
  }
  bool attrs(const Attrs& x, const Attrs& y) {
    const auto& a = x.items();
    const auto& b = y.items();
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].first != b[i].first || !attr(a[i].second, b[i].second)) return false;
    }
    return true;
  }
  bool attr(const Attr& x, const Attr& y) {
    if (x.index() != y.index()) return false;
    if (const auto* e = std::get_if<Expr>(&x)) return expr(*e, std::get<Expr>(y));
    if (const auto* t = std::get_if<Type>(&x)) return types(*t, std::get<Type>(y));
    if (const auto* list = std::get_if<std::vector<Expr>>(&x)) {
      return exprs(*list, std::get<std::vector<Expr>>(y));
    }
    return equal(x, y);
  }
  bool types(const Type& x, const Type& y) {
    return x.dtype == y.dtype && x.rank() == y.rank() && (!x.shape || exprs(*x.shape, *y.shape));
  }
  bool exprs(const std::vector<Expr>& x, const std::vector<Expr>& y) {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!expr(x[i], y[i])) return false;
    }
    return true;
  }
  bool expr(const Expr& x, const Expr& y) {
    if (by_identity_ || (x.is_constant() && y.is_constant())) return x == y;
    std::vector<SymbolRef> in_x, in_y;
    collect_symbols(x, in_x);
    collect_symbols(y, in_y);
    if (in_x.size() != in_y.size()) return false;
    for (size_t i = 0; i < in_x.size(); ++i) pair_new_symbols(in_x[i], in_y[i]);
    for (const SymbolRef& s : in_x) {
      if (symbols_.count(s->id) == 0) return false;
    }
    return y == substitute(x, [&](const SymbolRef& s) -> std::optional<Expr> {
             return Expr(symbols_.at(s->id));
           });
  }
  // Two symbols that both occur for the first time stand for each other.
  void pair_new_symbols(const SymbolRef& x, const SymbolRef& y) {
    if (symbols_.count(x->id) != 0 || taken_.count(y->id) != 0) return;
    if (x->kind != y->kind || x->lower != y->lower || x->upper != y->upper) return;
    symbols_.emplace(x->id, y);
    taken_.emplace(y->id, x);
  }

  const Graph& a_;
  const Graph& b_;
  bool by_identity_;
  std::map<ValueId, ValueId> values_;
  std::map<OpId, OpId> ops_;
  std::map<uint64_t, SymbolRef> symbols_, taken_;
};

}  // namespace

uint64_t structural_hash(const Graph& graph) { return Hasher(graph, false).region(kTopRegion); }

bool structurally_equal(const Graph& a, const Graph& b) {
  return Comparer(a, b, false).regions(kTopRegion, kTopRegion);
}

uint64_t region_hash(const Graph& graph, RegionId region) {
  return Hasher(graph, true).region(region);
}

bool regions_equal(const Graph& graph, RegionId a, RegionId b) {
  return Comparer(graph, graph, true).regions(a, b);
}

}  // namespace heddle::ir
