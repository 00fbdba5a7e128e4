// The normal form behind heddle::Expr; for ir/expr*.cpp only.
#pragma once

#include <heddle/expr.h>

#include <memory>
#include <utility>
#include <vector>

namespace heddle::detail {

struct ExprNode {
  ExprKind kind = ExprKind::constant;
  int64_t value = 0;
  int64_t lower = 0, upper = 0;  // saturated: INT64_MIN and INT64_MAX mean unbounded
  uint64_t hash = 0;
  SymbolRef symbol;
  std::vector<Expr> operands;

  static Expr wrap(std::shared_ptr<const ExprNode> node) { return Expr(std::move(node)); }
  static bool same(const Expr& a, const Expr& b) { return a.node_ == b.node_; }
};

int64_t saturating_add(int64_t a, int64_t b);
int64_t saturating_mul(int64_t a, int64_t b);

std::shared_ptr<const ExprNode> make_constant(int64_t value);
std::shared_ptr<const ExprNode> make_symbol_node(SymbolRef symbol);
Expr make_binary(ExprKind kind, const Expr& a, const Expr& b);   // no simplification
Expr rebuild(ExprKind kind, const std::vector<Expr>& operands);  // through the operators

int compare(const Expr& a, const Expr& b);  // total order: -1, 0, 1

// A product of atoms (never constants, sums or products), sorted; empty: the constant 1.
using Monomial = std::vector<Expr>;
// A sum of integer multiples of monomials, sorted by monomial; no zero coefficients.
struct Poly {
  std::vector<std::pair<Monomial, int64_t>> terms;
  void add_term(Monomial monomial, int64_t coefficient);
  void add(const Poly& other, int64_t factor);
  int64_t constant() const;
};
Poly to_poly(const Expr& e);
Expr from_poly(Poly p);
Poly multiply(const Poly& a, const Poly& b);

Expr divide(const Expr& a, const Expr& b);
Expr modulo(const Expr& a, const Expr& b);
// a / b where b divides a as a polynomial.
std::optional<Expr> divide_exactly(const Expr& a, const Expr& b);
// For min(bound, sum) with a constant bound: min(4, n + min(4, n)) is min(4, 2 n), because a
// minimum that takes its constant makes the sum at least the bound. The sum without such minima,
// nullopt where it has none.
std::optional<Expr> without_absorbed_minima(const Expr& bound, const Expr& sum);
// True only if e >= 0 for all values of its symbols within their bounds.
bool prove_nonnegative(const Expr& e);

}  // namespace heddle::detail
