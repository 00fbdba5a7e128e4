// Polynomials over atoms: the normal form of sums and products.
#include "ir/expr_node.h"

#include "base/check.h"
#include "base/hash.h"

#include <algorithm>

namespace heddle::detail {

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return a > 0 ? INT64_MAX : INT64_MIN;
  return r;
}

int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
  return r;
}

namespace {

// Bounds arithmetic where INT64_MIN / INT64_MAX are infinite and stay so.
int64_t bound_add(int64_t a, int64_t b, bool low) {
  int64_t infinite = low ? INT64_MIN : INT64_MAX;
  if (a == infinite || b == infinite) return infinite;
  return saturating_add(a, b);
}

std::pair<int64_t, int64_t> bound_mul(std::pair<int64_t, int64_t> x,
                                      std::pair<int64_t, int64_t> y) {
  int64_t c[4] = {saturating_mul(x.first, y.first), saturating_mul(x.first, y.second),
                  saturating_mul(x.second, y.first), saturating_mul(x.second, y.second)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}

int64_t floor_div(int64_t a, int64_t b) {
  if (a == INT64_MAX || a == INT64_MIN) return b > 0 ? a : (a == INT64_MAX ? INT64_MIN : INT64_MAX);
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

void set_bounds(ExprNode& n) {
  const auto& o = n.operands;
  switch (n.kind) {
    case ExprKind::add:
      n.lower = n.upper = 0;
      for (const Expr& t : o) {
        n.lower = bound_add(n.lower, t.lower(), true);
        n.upper = bound_add(n.upper, t.upper(), false);
      }
      return;
    case ExprKind::mul: {
      std::pair<int64_t, int64_t> r{1, 1};
      for (const Expr& f : o) r = bound_mul(r, {f.lower(), f.upper()});
      n.lower = r.first;
      n.upper = r.second;
      return;
    }
    case ExprKind::floordiv:
      n.lower = INT64_MIN;
      n.upper = INT64_MAX;
      if (o[1].lower() > 0 ||
          (o[1].lower() == 0 && o[0].lower() >= 0)) {  // a zero divisor is an error anyway
        int64_t lo = std::max<int64_t>(o[1].lower(), 1), hi = std::max<int64_t>(o[1].upper(), 1);
        n.lower = std::min(floor_div(o[0].lower(), lo), floor_div(o[0].lower(), hi));
        n.upper = std::max(floor_div(o[0].upper(), lo), floor_div(o[0].upper(), hi));
      }
      return;
    case ExprKind::mod:
      n.lower = INT64_MIN;
      n.upper = INT64_MAX;
      if (o[1].lower() >= 0) {
        n.lower = 0;
        n.upper = o[1].upper() == INT64_MAX ? INT64_MAX : std::max<int64_t>(o[1].upper() - 1, 0);
        if (o[0].lower() >= 0) n.upper = std::min(n.upper, o[0].upper());
      }
      return;
    case ExprKind::min:
      n.lower = std::min(o[0].lower(), o[1].lower());
      n.upper = std::min(o[0].upper(), o[1].upper());
      return;
    case ExprKind::max:
      n.lower = std::max(o[0].lower(), o[1].lower());
      n.upper = std::max(o[0].upper(), o[1].upper());
      return;
    default:
      return;
  }
}

Expr make_node(ExprKind kind, std::vector<Expr> operands) {
  auto n = std::make_shared<ExprNode>();
  n->kind = kind;
  n->hash = base::mix(0x51ed, static_cast<uint64_t>(kind));
  for (const Expr& o : operands) n->hash = base::mix(n->hash, o.hash());
  n->operands = std::move(operands);
  set_bounds(*n);
  return ExprNode::wrap(std::move(n));
}

int compare_monomials(const Monomial& a, const Monomial& b) {
  if (a.size() != b.size())
    return a.size() > b.size() ? -1 : 1;  // high degree first, the constant last
  for (size_t k = 0; k < a.size(); ++k) {
    if (int c = compare(a[k], b[k]); c != 0) return c;
  }
  return 0;
}

Expr term_expr(const Monomial& m, int64_t c) {
  if (m.empty()) return Expr(c);
  if (c == 1 && m.size() == 1) return m[0];
  std::vector<Expr> factors;
  if (c != 1) factors.emplace_back(c);
  factors.insert(factors.end(), m.begin(), m.end());
  return make_node(ExprKind::mul, std::move(factors));
}

Monomial monomial_product(const Monomial& a, const Monomial& b) {
  Monomial m;
  m.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(m),
             [](const Expr& x, const Expr& y) { return compare(x, y) < 0; });
  return m;
}

// Replaces c * mod(x, b) + c * b * floordiv(x, b) by c * x; true if something changed.
bool merge_remainders(Poly& p) {
  for (const auto& [m, c] : p.terms) {
    for (size_t k = 0; k < m.size(); ++k) {
      if (m[k].kind() != ExprKind::mod) continue;
      Expr x = m[k].operands()[0], b = m[k].operands()[1];
      Expr quotient = x / b;
      Monomial others = m;
      others.erase(others.begin() + static_cast<int64_t>(k));
      Poly wanted;  // c * others * b * quotient, which must be part of p
      wanted.add_term(others, c);
      wanted = multiply(multiply(wanted, to_poly(b)), to_poly(quotient));
      bool all = !wanted.terms.empty();
      for (const auto& [wm, wc] : wanted.terms) {
        auto it = std::find_if(p.terms.begin(), p.terms.end(),
                               [&](const auto& t) { return compare_monomials(t.first, wm) == 0; });
        all = all && it != p.terms.end() && ((wc > 0) == (it->second > 0)) &&
              std::abs(it->second) >= std::abs(wc);
      }
      if (!all) continue;
      Poly replacement;
      replacement.add_term(others, c);
      replacement = multiply(replacement, to_poly(x));
      Monomial removed = m;
      int64_t removed_c = c;
      p.add_term(removed, -removed_c);
      p.add(wanted, -1);
      p.add(replacement, 1);
      return true;
    }
  }
  return false;
}

}  // namespace

std::shared_ptr<const ExprNode> make_constant(int64_t value) {
  auto n = std::make_shared<ExprNode>();
  n->value = n->lower = n->upper = value;
  n->hash = base::mix(0xc0, static_cast<uint64_t>(value));
  return n;
}

std::shared_ptr<const ExprNode> make_symbol_node(SymbolRef symbol) {
  auto n = std::make_shared<ExprNode>();
  n->kind = ExprKind::symbol;
  n->lower = symbol->lower;
  n->upper = symbol->upper;
  n->hash = base::mix(0x5e, symbol->id);
  n->symbol = std::move(symbol);
  return n;
}

Expr make_binary(ExprKind kind, const Expr& a, const Expr& b) { return make_node(kind, {a, b}); }

Expr rebuild(ExprKind kind, const std::vector<Expr>& o) {
  switch (kind) {
    case ExprKind::add: {
      Poly p;
      for (const Expr& t : o) p.add(to_poly(t), 1);
      return from_poly(std::move(p));
    }
    case ExprKind::mul: {
      Expr r = o[0];
      for (size_t k = 1; k < o.size(); ++k) r = r * o[k];
      return r;
    }
    case ExprKind::floordiv:
      return o[0] / o[1];
    case ExprKind::mod:
      return o[0] % o[1];
    case ExprKind::min:
      return min(o[0], o[1]);
    case ExprKind::max:
      return max(o[0], o[1]);
    default:
      break;
  }
  HD_CHECK(false, "leaf");
  return {};
}

int compare(const Expr& a, const Expr& b) {
  if (ExprNode::same(a, b)) return 0;
  if (a.kind() != b.kind()) return a.kind() < b.kind() ? -1 : 1;
  if (a.is_constant()) {
    int64_t x = *a.constant(), y = *b.constant();
    return x < y ? -1 : (x > y ? 1 : 0);
  }
  if (a.kind() == ExprKind::symbol) {
    uint64_t x = a.symbol()->id, y = b.symbol()->id;
    return x < y ? -1 : (x > y ? 1 : 0);
  }
  std::span<const Expr> oa = a.operands(), ob = b.operands();
  if (oa.size() != ob.size()) return oa.size() < ob.size() ? -1 : 1;
  for (size_t k = 0; k < oa.size(); ++k) {
    if (int c = compare(oa[k], ob[k]); c != 0) return c;
  }
  return 0;
}

void Poly::add_term(Monomial monomial, int64_t coefficient) {
  if (coefficient == 0) return;
  auto it = std::lower_bound(
      terms.begin(), terms.end(), monomial,
      [](const auto& t, const Monomial& m) { return compare_monomials(t.first, m) < 0; });
  if (it != terms.end() && compare_monomials(it->first, monomial) == 0) {
    it->second = saturating_add(it->second, coefficient);
    if (it->second == 0) terms.erase(it);
    return;
  }
  terms.insert(it, {std::move(monomial), coefficient});
}

void Poly::add(const Poly& other, int64_t factor) {
  for (const auto& [m, c] : other.terms) add_term(m, saturating_mul(c, factor));
}

int64_t Poly::constant() const {
  return !terms.empty() && terms.back().first.empty() ? terms.back().second : 0;
}

Poly to_poly(const Expr& e) {
  Poly p;
  auto add_product = [&p](const Expr& t) {
    int64_t c = 1;
    Monomial m;
    if (t.kind() == ExprKind::mul) {
      for (const Expr& f : t.operands()) {
        if (f.is_constant()) {
          c = *f.constant();
        } else {
          m.push_back(f);
        }
      }
    } else if (t.is_constant()) {
      c = *t.constant();
    } else {
      m.push_back(t);
    }
    p.add_term(std::move(m), c);
  };
  if (e.kind() == ExprKind::add) {
    for (const Expr& t : e.operands()) add_product(t);
  } else {
    add_product(e);
  }
  return p;
}

Expr from_poly(Poly p) {
  for (int round = 0; round < 16 && merge_remainders(p); ++round) {
  }
  if (p.terms.empty()) return Expr(0);
  std::vector<Expr> terms;
  terms.reserve(p.terms.size());
  for (const auto& [m, c] : p.terms) terms.push_back(term_expr(m, c));
  return terms.size() == 1 ? terms[0] : make_node(ExprKind::add, std::move(terms));
}

namespace {

// Of min(bound, p): where no term is negative, a term that is not 0 reaches the bound with a
// coefficient that does.
Poly with_bounded_coefficients(Poly p, int64_t bound) {
  auto negative = [](const auto& t) { return term_expr(t.first, t.second).lower() < 0; };
  if (bound < 1 || std::any_of(p.terms.begin(), p.terms.end(), negative)) return p;
  for (auto& [m, c] : p.terms) c = std::min(c, bound);
  return p;
}

}  // namespace

std::optional<Expr> without_absorbed_minima(const Expr& bound, const Expr& sum) {
  if (!bound.is_constant() || *bound.constant() < 0) return std::nullopt;
  if (sum.kind() != ExprKind::add && sum.kind() != ExprKind::mul) return std::nullopt;
  Poly p = to_poly(sum);
  for (const auto& [m, c] : p.terms) {
    if (c < 1 || m.size() != 1 || m[0].kind() != ExprKind::min) continue;
    for (size_t k = 0; k < 2; ++k) {
      std::optional<int64_t> least = m[0].operands()[k].constant();
      if (!least || *least < *bound.constant()) continue;
      Poly rest = p;
      rest.add_term(m, -c);
      if (from_poly(rest).lower() < 0) continue;
      rest.add(to_poly(m[0].operands()[1 - k]), c);
      return from_poly(with_bounded_coefficients(std::move(rest), *bound.constant()));
    }
  }
  return std::nullopt;
}

Poly multiply(const Poly& a, const Poly& b) {
  Poly p;
  for (const auto& [ma, ca] : a.terms) {
    for (const auto& [mb, cb] : b.terms)
      p.add_term(monomial_product(ma, mb), saturating_mul(ca, cb));
  }
  return p;
}

}  // namespace heddle::detail
