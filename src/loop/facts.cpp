#include "loop/facts.h"

#include "loop/scalar_eval.h"
#include "loop/unify.h"

#include <limits>
#include <utility>

namespace heddle::loop {

using ir::kNoNode;
using ir::Node;
using ir::NodeId;
using ir::ScalarOp;

namespace {

constexpr int kCases = 4;  // minima, maxima and selections that a proof goes through case by case

bool whole(DType d) { return is_integer(d) || d == DType::boolean; }

// Does `to` hold every value of `from`?
bool widens(DType from, DType to) {
  if (!whole(from) || !is_integer(to)) return false;
  if (from == DType::boolean || from == to) return true;
  int spare = is_signed_integer(to) && is_unsigned_integer(from) ? 1 : 0;
  if (is_unsigned_integer(to) && is_signed_integer(from)) return false;
  return bit_width(from) + spare <= bit_width(to);
}

// A minimum or maximum that e holds.
std::optional<Expr> choice_in(const Expr& e) {
  if (e.kind() == ExprKind::min || e.kind() == ExprKind::max) return e;
  for (const Expr& o : e.operands()) {
    if (std::optional<Expr> found = choice_in(o)) return found;
  }
  return std::nullopt;
}

Expr with(const Expr& e, const Expr& part, const Expr& value) {
  if (e == part) return value;
  if (e.operands().empty()) return e;
  std::vector<Expr> operands;
  for (const Expr& o : e.operands()) operands.push_back(with(o, part, value));
  return combined(e.kind(), operands);
}

// The terms of a sum.
std::vector<Expr> terms(const Expr& e) {
  if (e.kind() != ExprKind::add) return {e};
  return {e.operands().begin(), e.operands().end()};
}

// e where each loop variable that it is affine in makes it least.
Expr at_extremes(Expr e) {
  std::vector<SymbolRef> symbols;
  collect_symbols(e, symbols);
  for (const SymbolRef& s : symbols) {
    if (s->kind != SymbolKind::loop) continue;
    auto parts = affine_in(e, s);
    std::optional<int64_t> c = parts ? parts->first.constant() : std::nullopt;
    if (!c || *c == 0) continue;
    if (*c > 0) {
      e = parts->second;
    } else if (s->extent != nullptr) {
      e = parts->second + parts->first * (*s->extent - Expr(1));
    } else if (s->upper != INT64_MAX) {
      e = parts->second + parts->first * Expr(s->upper);
    }
  }
  return e;
}

// A term that is a number times a quotient, remainder, ...
struct Multiple {
  Expr term, of;
  int64_t factor = 1;
};
std::vector<Multiple> multiples(const Expr& e, ExprKind kind) {
  std::vector<Multiple> out;
  for (const Expr& t : terms(e)) {
    Multiple m{t, t, 1};
    if (t.kind() == ExprKind::mul && t.operands().size() == 2 && t.operands()[0].is_constant()) {
      m.factor = *t.operands()[0].constant();
      m.of = Expr(t.operands()[1]);
    }
    if (m.of.kind() == kind) out.push_back(m);
  }
  return out;
}

// a % b as a - b * (a / b).
template <class Positive>
std::optional<Expr> without_remainder(const Expr& e, const Positive& positive) {
  for (const Multiple& m : multiples(e, ExprKind::mod)) {
    Expr a = m.of.operands()[0], b = m.of.operands()[1], quotient = a / b;
    if (!positive(b) || quotient.kind() != ExprKind::floordiv) continue;
    return e - m.term + Expr(m.factor) * (a - b * quotient);
  }
  return std::nullopt;
}

// e = a / b - c / b + rest: not negative if a - c and rest are not.
struct Ordered {
  Expr difference, rest;
};
template <class Positive>
std::optional<Ordered> ordered_quotients(const Expr& e, const Positive& positive) {
  std::vector<Multiple> all = multiples(e, ExprKind::floordiv);
  for (const Multiple& more : all) {
    for (const Multiple& less : all) {
      Expr b = more.of.operands()[1];
      if (more.factor != 1 || less.factor != -1 || !(less.of.operands()[1] == b)) continue;
      if (!positive(b)) continue;
      return Ordered{more.of.operands()[0] - less.of.operands()[0], e - more.term - less.term};
    }
  }
  return std::nullopt;
}

// For a term c * (a / b) of e: b * e with a, or a - (b - 1), in place of b * (a / b), whichever is
// less, and b - 1 more: a whole number e is not negative where b * e > -b.
template <class Positive>
std::optional<Expr> without_quotient(const Expr& e, const Positive& positive) {
  for (const Multiple& m : multiples(e, ExprKind::floordiv)) {
    Expr a = m.of.operands()[0], b = m.of.operands()[1];
    if (!positive(b)) continue;
    Expr least = m.factor > 0 ? a - b + Expr(1) : a;
    return b * (e - m.term) + Expr(m.factor) * least + b - Expr(1);
  }
  return std::nullopt;
}

bool nonnegative(const Expr& e) { return is_less_equal(0, e) == Ordering::yes; }

}  // namespace

Facts::Facts(const ir::Body& body, std::map<NodeId, Expr> known)
    : body_(&body), unknown_(std::move(known)) {}

Expr Facts::opaque(NodeId id) const {
  auto it = unknown_.find(id);
  if (it != unknown_.end()) return it->second;
  DType type = body_->nodes[id].type;
  int64_t lower = INT64_MIN, upper = INT64_MAX;
  if (type == DType::boolean) {
    lower = 0;
    upper = 1;
  } else if (bit_width(type) < 64) {
    bool is_signed = is_signed_integer(type);
    upper = (int64_t{1} << (bit_width(type) - (is_signed ? 1 : 0))) - 1;
    lower = is_signed ? -upper - 1 : 0;
  } else if (is_unsigned_integer(type)) {
    lower = 0;
  }
  Expr symbol(make_symbol(SymbolKind::indirect, "node" + std::to_string(id), lower, upper));
  return unknown_.emplace(id, symbol).first->second;
}

// Sums and products of i64 are taken not to wrap, as everywhere in index arithmetic.
Expr Facts::value(NodeId id) const {
  if (auto it = unknown_.find(id); it != unknown_.end()) return it->second;
  const Node& n = body_->nodes[id];
  switch (n.op) {
    case ScalarOp::constant:
      if (n.type == DType::u64 && static_cast<int64_t>(n.bits) < 0) break;
      return get<int64_t>(eval_cast(n.type, DType::i64, canonical(n.type, n.bits)));
    case ScalarOp::index:
      return resolved(body_->exprs[n.payload]);
    case ScalarOp::bind:
      return resolved(Expr(body_->symbols[n.payload]));
    case ScalarOp::cast:
      if (widens(body_->nodes[n.a].type, n.type)) return value(n.a);
      break;
    case ScalarOp::select:
      if (auto it = holds_.find(n.a); it != holds_.end()) return value(it->second ? n.b : n.c);
      break;
    default:
      break;
  }
  if (n.type != DType::i64) return opaque(id);
  switch (n.op) {
    case ScalarOp::add:
      return value(n.a) + value(n.b);
    case ScalarOp::sub:
      return value(n.a) - value(n.b);
    case ScalarOp::mul:
      return value(n.a) * value(n.b);
    case ScalarOp::min:
      return min(value(n.a), value(n.b));
    case ScalarOp::max:
      return max(value(n.a), value(n.b));
    default:
      return opaque(id);
  }
}

Expr Facts::resolved(const Expr& e) const {
  if (holds_.empty()) return e;
  return substitute(e, [&](const SymbolRef& s) -> std::optional<Expr> {
    if (s->kind != SymbolKind::indirect) return std::nullopt;
    for (const Node& n : body_->nodes) {
      if (n.op != ScalarOp::bind || body_->symbols[n.payload]->id != s->id) continue;
      const Node& from = body_->nodes[n.a];
      if (from.op == ScalarOp::select && holds_.contains(from.a)) return value(n.a);
    }
    return std::nullopt;
  });
}

void Facts::add_point(const Expr& extent) {
  if (is_less_equal(1, extent) == Ordering::yes) return;
  add(extent - Expr(1));
  if (extent.kind() != ExprKind::mul) return;
  for (const Expr& factor : extent.operands()) {
    if (factor.lower() >= 0) add_point(factor);
  }
}

void Facts::assume(NodeId c, bool holds) {
  if (!holds_.emplace(c, holds).second) return;
  const Node& n = body_->nodes[c];
  auto constant = [&](NodeId id, bool v) {
    const Node& o = body_->nodes[id];
    return o.op == ScalarOp::constant && (o.bits != 0) == v;
  };
  switch (n.op) {
    case ScalarOp::constant:
      if ((n.bits != 0) != holds) add(-1);
      return;
    case ScalarOp::bit_and:
    case ScalarOp::bit_or:
      if (holds != (n.op == ScalarOp::bit_and)) return;
      assume(n.a, holds);
      assume(n.b, holds);
      return;
    case ScalarOp::logical_not:
      assume(n.a, !holds);
      return;
    case ScalarOp::select:
      if (constant(n.c, !holds)) {
        assume(n.a, true);
        assume(n.b, holds);
      } else if (constant(n.b, !holds)) {
        assume(n.a, false);
        assume(n.c, holds);
      }
      return;
    default:
      break;
  }
  if (n.a == kNoNode || n.b == kNoNode || !is_integer(body_->nodes[n.a].type)) return;
  Expr above = value(n.a) - value(n.b);
  switch (n.op) {
    case ScalarOp::ge:
      add(holds ? above : -above - Expr(1));
      return;
    case ScalarOp::gt:
      add(holds ? above - Expr(1) : -above);
      return;
    case ScalarOp::le:
      add(holds ? -above : above - Expr(1));
      return;
    case ScalarOp::lt:
      add(holds ? -above - Expr(1) : above);
      return;
    case ScalarOp::eq:
    case ScalarOp::ne:
      if (holds != (n.op == ScalarOp::eq)) return;
      add(above);
      add(-above);
      return;
    default:
      return;
  }
}

bool Facts::proves(const Expr& e) const { return proves(resolved(e), kCases); }

bool Facts::proves(const Expr& e, int depth) const {
  Expr least = at_extremes(e);
  if (nonnegative(e) || nonnegative(least)) return true;
  for (size_t k = 0; k < facts_.size(); ++k) {
    Expr rest = e - facts_[k];
    // Twice e, too: e >= 0 where 2 * e >= -1.
    if (nonnegative(rest) || nonnegative(rest + e + Expr(1))) return true;
    for (size_t j = k + 1; j < facts_.size(); ++j) {
      if (nonnegative(rest - facts_[j])) return true;
      // No such point.
      if (depth == kCases && nonnegative(-facts_[k] - facts_[j] - Expr(1))) return true;
    }
    if (depth == kCases && nonnegative(-facts_[k] - Expr(1))) return true;
  }
  if (depth == 0) return false;
  if (std::optional<Expr> choice = choice_in(e)) {
    const Expr a = choice->operands()[0], b = choice->operands()[1];
    bool lower = choice->kind() == ExprKind::min;
    auto in_case = [&](const Expr& chosen, const Expr& other) {
      Facts more = *this;
      more.add(lower ? other - chosen : chosen - other);
      return more.proves(with(e, *choice, chosen), depth - 1);
    };
    // One of the two alone, where the facts tell which.
    if (proves(lower ? b - a : a - b, depth - 1)) return proves(with(e, *choice, a), depth - 1);
    if (proves(lower ? a - b : b - a, depth - 1)) return proves(with(e, *choice, b), depth - 1);
    return in_case(a, b) && in_case(b, a);
  }
  auto positive = [&](const Expr& b) { return proves(b - Expr(1), depth - 1); };
  if (std::optional<Expr> same = without_remainder(e, positive)) return proves(*same, depth - 1);
  if (std::optional<Ordered> parts = ordered_quotients(least, positive)) {
    if (proves(parts->difference, depth - 1)) return proves(parts->rest, depth - 1);
  }
  std::optional<Expr> weaker = without_quotient(least, positive);
  return weaker && proves(*weaker, depth - 1);
}

Verdict Facts::inside(const Expr& e, const Expr& extent) const {
  Expr last = extent - Expr(1) - resolved(e);
  if (proves(e) && proves(last)) return Verdict::proven;
  bool never =
      is_less_equal(0, resolved(e)) == Ordering::no || is_less_equal(0, last) == Ordering::no;
  return never ? Verdict::broken : Verdict::open;
}

bool Facts::bound_holds(const Node& bind) const {
  return in_bounds(bind.a, *body_->symbols[bind.payload], kCases);
}

bool Facts::in_bounds(NodeId v, const Symbol& symbol, int depth) const {
  Expr x = value(v);
  bool above = symbol.lower == INT64_MIN || proves(x - Expr(symbol.lower));
  bool below = symbol.extent != nullptr
                   ? proves(*symbol.extent - Expr(1) - x)
                   : symbol.upper == INT64_MAX || proves(Expr(symbol.upper) - x);
  if (above && below) return true;
  const Node& n = body_->nodes[v];
  if (n.op != ScalarOp::select || depth == 0 || holds_.contains(n.a)) return false;
  Facts yes = *this, no = *this;
  yes.assume(n.a, true);
  no.assume(n.a, false);
  return yes.in_bounds(n.b, symbol, depth - 1) && no.in_bounds(n.c, symbol, depth - 1);
}

}  // namespace heddle::loop
