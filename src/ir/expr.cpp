// Symbolic integers in normal form. Sums are polynomials over atoms (symbols, floordiv, mod, min,
// max), sorted by a total order, so equality is structural. Division rules follow from x = b * (x /
// b) + x % b with 0 <= x % b < b.
#include "ir/describe.h"
#include "ir/expr_node.h"

#include "base/check.h"
#include "base/hash.h"

#include <heddle/error.h>

#include <algorithm>
#include <atomic>

namespace heddle {

using detail::ExprNode;
using detail::saturating_add;
using detail::saturating_mul;

namespace {

std::shared_ptr<const ExprNode> constant_node(int64_t value) {
  static const auto small = [] {
    std::vector<std::shared_ptr<const ExprNode>> nodes;
    for (int64_t v = -8; v <= 64; ++v) nodes.push_back(detail::make_constant(v));
    return nodes;
  }();
  if (value >= -8 && value <= 64) return small[static_cast<size_t>(value + 8)];
  return detail::make_constant(value);
}

int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

std::atomic<uint64_t> next_symbol_id{1};

}  // namespace

Expr Expr::number(int64_t value) { return Expr(constant_node(value)); }
Expr Expr::large_number(uint64_t value) {
  throw GraphError(base::cat("Expr: ", value, " is above 2^63 - 1"));
}
Expr::Expr(SymbolRef symbol) : node_(detail::make_symbol_node(std::move(symbol))) {}

ExprKind Expr::kind() const { return node_->kind; }
bool Expr::is(int64_t value) const { return is_constant() && node_->value == value; }
std::optional<int64_t> Expr::constant() const {
  return is_constant() ? std::optional<int64_t>(node_->value) : std::nullopt;
}
int64_t Expr::constant_or(int64_t fallback) const {
  return is_constant() ? node_->value : fallback;
}
const SymbolRef& Expr::symbol() const {
  HD_CHECK(kind() == ExprKind::symbol);
  return node_->symbol;
}
std::span<const Expr> Expr::operands() const { return node_->operands; }
int64_t Expr::lower() const { return node_->lower; }
int64_t Expr::upper() const { return node_->upper; }
uint64_t Expr::hash() const { return node_->hash; }

bool operator==(const Expr& a, const Expr& b) {
  if (a.node_ == b.node_) return true;
  return a.hash() == b.hash() && detail::compare(a, b) == 0;
}

Expr operator+(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return Expr(saturating_add(*a.constant(), *b.constant()));
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  detail::Poly p = detail::to_poly(a);
  p.add(detail::to_poly(b), 1);
  return detail::from_poly(std::move(p));
}

Expr operator-(const Expr& a) {
  if (a.is_constant()) return Expr(saturating_mul(*a.constant(), -1));
  detail::Poly p;
  p.add(detail::to_poly(a), -1);
  return detail::from_poly(std::move(p));
}

Expr operator-(const Expr& a, const Expr& b) {
  if (b.is(0)) return a;
  detail::Poly p = detail::to_poly(a);
  p.add(detail::to_poly(b), -1);
  return detail::from_poly(std::move(p));
}

Expr operator*(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return Expr(saturating_mul(*a.constant(), *b.constant()));
  if (a.is(0) || b.is(0)) return Expr(0);
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  return detail::from_poly(detail::multiply(detail::to_poly(a), detail::to_poly(b)));
}

Expr operator/(const Expr& a, const Expr& b) { return detail::divide(a, b); }
Expr operator%(const Expr& a, const Expr& b) { return detail::modulo(a, b); }

Expr min(const Expr& a, const Expr& b) {
  if (a == b) return a;
  if (std::optional<Expr> sum = detail::without_absorbed_minima(a, b)) return min(a, *sum);
  if (std::optional<Expr> sum = detail::without_absorbed_minima(b, a)) return min(b, *sum);
  if (detail::prove_nonnegative(b - a)) return a;
  if (detail::prove_nonnegative(a - b)) return b;
  bool swap = detail::compare(a, b) > 0;
  return detail::make_binary(ExprKind::min, swap ? b : a, swap ? a : b);
}

Expr max(const Expr& a, const Expr& b) {
  if (a == b) return a;
  if (detail::prove_nonnegative(a - b)) return a;
  if (detail::prove_nonnegative(b - a)) return b;
  bool swap = detail::compare(a, b) > 0;
  return detail::make_binary(ExprKind::max, swap ? b : a, swap ? a : b);
}

SymbolRef make_symbol(SymbolKind kind, std::string name, int64_t lower, int64_t upper,
                      std::shared_ptr<const Expr> extent) {
  auto s = std::make_shared<Symbol>();
  s->id = next_symbol_id.fetch_add(1, std::memory_order_relaxed);
  s->kind = kind;
  s->name = std::move(name);
  s->lower = lower;
  s->upper = upper;
  s->extent = std::move(extent);
  return s;
}

SymbolRef make_loop_symbol(std::string name, const Expr& extent) {
  int64_t upper =
      extent.upper() == INT64_MAX ? INT64_MAX : std::max<int64_t>(extent.upper() - 1, 0);
  std::shared_ptr<const Expr> symbolic =
      extent.is_constant() ? nullptr : std::make_shared<const Expr>(extent);
  return make_symbol(SymbolKind::loop, std::move(name), 0, upper, std::move(symbolic));
}

Dim::Dim(std::string name, int64_t lower, int64_t upper)
    : Expr(make_symbol(SymbolKind::extent, std::move(name), std::max<int64_t>(lower, 0), upper)) {}
Dim::Dim() : Dim("") {}

Expr substitute(const Expr& e, const Substitution& map) {
  switch (e.kind()) {
    case ExprKind::constant:
      return e;
    case ExprKind::symbol: {
      std::optional<Expr> r = map(e.symbol());
      return r ? *r : e;
    }
    default:
      break;
  }
  bool changed = false;
  std::vector<Expr> operands;
  operands.reserve(e.operands().size());
  for (const Expr& o : e.operands()) {
    operands.push_back(substitute(o, map));
    changed = changed || !(operands.back() == o);
  }
  return changed ? detail::rebuild(e.kind(), operands) : e;
}

Expr substitute(const Expr& e, const SymbolRef& symbol, const Expr& value) {
  return substitute(e, [&](const SymbolRef& s) -> std::optional<Expr> {
    if (s->id == symbol->id) return value;
    return std::nullopt;
  });
}

int64_t evaluate(const Expr& e, const std::function<std::optional<int64_t>(const Symbol&)>& value) {
  auto overflow = [&]() -> int64_t {
    throw ir::OverflowError("expression " + e.to_string() + ": the value does not fit 64 bits");
  };
  switch (e.kind()) {
    case ExprKind::constant:
      return *e.constant();
    case ExprKind::symbol: {
      std::optional<int64_t> v = value(*e.symbol());
      if (!v) throw GraphError("expression " + e.to_string() + ": the symbol has no value");
      return *v;
    }
    default:
      break;
  }
  auto operand = [&](size_t k) { return evaluate(e.operands()[k], value); };
  if (e.kind() == ExprKind::add || e.kind() == ExprKind::mul) {
    int64_t r = operand(0);
    for (size_t k = 1; k < e.operands().size(); ++k) {
      int64_t v = operand(k);
      bool bad = e.kind() == ExprKind::add ? __builtin_add_overflow(r, v, &r)
                                           : __builtin_mul_overflow(r, v, &r);
      if (bad) return overflow();
    }
    return r;
  }
  int64_t a = operand(0), b = operand(1);
  if (e.kind() == ExprKind::min) return std::min(a, b);
  if (e.kind() == ExprKind::max) return std::max(a, b);
  if (b == 0) throw GraphError("expression " + e.to_string() + ": division by zero");
  if (b == -1) return e.kind() == ExprKind::mod ? 0 : (a == INT64_MIN ? overflow() : -a);
  return e.kind() == ExprKind::floordiv ? floor_div(a, b) : a - floor_div(a, b) * b;
}

void collect_symbols(const Expr& e, std::vector<SymbolRef>& out) {
  if (e.kind() == ExprKind::symbol) {
    for (const SymbolRef& s : out) {
      if (s->id == e.symbol()->id) return;
    }
    out.push_back(e.symbol());
    return;
  }
  for (const Expr& o : e.operands()) collect_symbols(o, out);
}

bool uses(const Expr& e, const Symbol& symbol) {
  if (e.kind() == ExprKind::symbol) return e.symbol()->id == symbol.id;
  for (const Expr& o : e.operands()) {
    if (uses(o, symbol)) return true;
  }
  return false;
}

std::optional<std::pair<Expr, Expr>> affine_in(const Expr& e, const SymbolRef& symbol) {
  if (!uses(e, *symbol)) return std::pair(Expr(0), e);
  detail::Poly coefficient, rest;
  for (const auto& [factors, c] : detail::to_poly(e).terms) {
    int seen = 0;
    detail::Monomial others;
    for (const Expr& f : factors) {
      if (f.kind() == ExprKind::symbol && f.symbol()->id == symbol->id) {
        ++seen;
      } else {
        if (uses(f, *symbol)) return std::nullopt;
        others.push_back(f);
      }
    }
    if (seen > 1) return std::nullopt;
    (seen == 1 ? coefficient : rest).add_term(std::move(others), c);
  }
  return std::pair(detail::from_poly(std::move(coefficient)), detail::from_poly(std::move(rest)));
}

Expr simplify_in_range(const Expr& e, const SymbolRef& symbol, const Expr& lo, const Expr& hi) {
  if (!uses(e, *symbol)) return e;
  Expr span = hi - lo + Expr(1);
  SymbolRef t = make_loop_symbol(symbol->name, span);
  Expr shifted = substitute(e, symbol, lo + Expr(t));
  return substitute(shifted, t, Expr(symbol) - lo);
}

Ordering is_equal(const Expr& a, const Expr& b) {
  Expr d = a - b;
  if (d.is_constant()) return d.is(0) ? Ordering::yes : Ordering::no;
  if (detail::prove_nonnegative(d - Expr(1)) || detail::prove_nonnegative(-d - Expr(1)))
    return Ordering::no;
  return Ordering::undecided;
}

Ordering is_less_equal(const Expr& a, const Expr& b) {
  if (detail::prove_nonnegative(b - a)) return Ordering::yes;
  if (detail::prove_nonnegative(a - b - Expr(1))) return Ordering::no;
  return Ordering::undecided;
}

namespace {

using SymbolNames = std::function<std::string(const Symbol&)>;

// `outer`: 0 inside a sum, 1 inside a product.
void print_expr(const Expr& e, int outer, const SymbolNames& names, std::string& out) {
  auto call = [&](const char* f) {
    out += f;
    out += '(';
    print_expr(e.operands()[0], 0, names, out);
    out += ", ";
    print_expr(e.operands()[1], 0, names, out);
    out += ')';
  };
  switch (e.kind()) {
    case ExprKind::constant:
      out += std::to_string(*e.constant());
      return;
    case ExprKind::symbol:
      out += names(*e.symbol());
      return;
    case ExprKind::floordiv:
      call("div");
      return;
    case ExprKind::mod:
      call("mod");
      return;
    case ExprKind::min:
      call("min");
      return;
    case ExprKind::max:
      call("max");
      return;
    case ExprKind::add:
    case ExprKind::mul:
      break;
  }
  bool sum = e.kind() == ExprKind::add;
  bool parenthesis = sum && outer > 0;
  if (parenthesis) out += '(';
  for (size_t k = 0; k < e.operands().size(); ++k) {
    if (k > 0) out += sum ? " + " : " * ";
    print_expr(e.operands()[k], sum ? 0 : 1, names, out);
  }
  if (parenthesis) out += ')';
}

}  // namespace

std::string to_string(const Expr& e, const SymbolNames& symbol_name) {
  std::string out;
  print_expr(e, 0, symbol_name, out);
  return out;
}

std::string Expr::to_string() const {
  return heddle::to_string(
      *this, [](const Symbol& s) { return s.name.empty() ? "s" + std::to_string(s.id) : s.name; });
}

}  // namespace heddle
