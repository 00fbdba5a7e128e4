// Floor division and modulo of polynomials, and proofs of sign.
#include "ir/expr_node.h"

#include "base/check.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace heddle::detail {

namespace {

int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return saturating_mul(a, -1);
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

// m / d as multisets, if d is contained in m.
std::optional<Monomial> monomial_quotient(const Monomial& m, const Monomial& d) {
  Monomial q;
  size_t k = 0;
  for (const Expr& f : m) {
    if (k < d.size() && compare(f, d[k]) == 0) {
      ++k;
    } else {
      q.push_back(f);
    }
  }
  if (k < d.size()) return std::nullopt;
  return q;
}

struct Division {
  Poly quotient, rest;
};

// a = quotient * b + rest, exact whatever the values of the symbols. Only whole coefficients are
// taken.
Division divide_by_constant(const Poly& a, int64_t b) {
  Division r;
  for (const auto& [m, c] : a.terms) {
    if (c % b == 0) {
      r.quotient.add_term(m, c / b);
    } else if (m.empty() && b > 0) {
      r.quotient.add_term(m, floor_div(c, b));
      r.rest.add_term(m, floor_mod(c, b));
    } else {
      r.rest.add_term(m, c);
    }
  }
  return r;
}

// Long division by b's leading term; the order of monomials is graded lexicographic, so it ends.
Division long_division(Poly a, const Poly& b) {
  if (b.terms.front().first.empty()) return divide_by_constant(a, b.terms.front().second);
  Division r;
  const auto& [lead_m, lead_c] = b.terms.front();
  for (int steps = 0; steps < 64 && !a.terms.empty(); ++steps) {
    auto [m, c] = a.terms.front();
    std::optional<Monomial> q = monomial_quotient(m, lead_m);
    if (!q || c % lead_c != 0) {
      r.rest.add_term(m, c);
      a.terms.erase(a.terms.begin());
      continue;
    }
    Poly term;
    term.add_term(*q, c / lead_c);
    r.quotient.add(term, 1);
    a.add(multiply(term, b), -1);
  }
  r.rest.add(a, 1);
  return r;
}

// Upper (or lower) symbolic bound of a loop variable, of a remainder, ...: the atom's extreme
// value, or nullopt.
std::optional<Expr> extreme(const Expr& atom, bool high) {
  switch (atom.kind()) {
    case ExprKind::symbol: {
      const Symbol& s = *atom.symbol();
      if (!high) return Expr(s.lower);
      if (s.extent != nullptr) return *s.extent - Expr(1);
      return s.upper == INT64_MAX ? std::nullopt : std::optional<Expr>(Expr(s.upper));
    }
    case ExprKind::mod:
      if (atom.operands()[1].lower() < 0) return std::nullopt;
      return high ? atom.operands()[1] - Expr(1) : Expr(0);
    case ExprKind::min:
      return high ? std::optional<Expr>(atom.operands()[0]) : std::nullopt;
    case ExprKind::max:
      return high ? std::nullopt : std::optional<Expr>(atom.operands()[0]);
    case ExprKind::floordiv: {
      std::optional<int64_t> d = atom.operands()[1].constant();
      if (!d || *d <= 0) return std::nullopt;
      Poly p = to_poly(atom.operands()[0]);
      Expr bound(0);
      for (const auto& [m, c] :
           p.terms) {  // monotone: replace every atom of the dividend by its extreme
        Expr t(c);
        for (const Expr& f : m) {
          if (f.lower() < 0) return std::nullopt;
          std::optional<Expr> e =
              f.kind() == ExprKind::symbol && f.symbol()->kind == SymbolKind::extent
                  ? std::optional<Expr>(f)
                  : extreme(f, (c > 0) == high);
          if (!e) return std::nullopt;
          t = t * *e;
        }
        bound = bound + t;
      }
      return bound == atom.operands()[0] ? std::nullopt : std::optional<Expr>(bound / Expr(*d));
    }
    default:
      return std::nullopt;
  }
}

bool is_extent(const Expr& atom) {
  return atom.kind() == ExprKind::symbol && atom.symbol()->kind == SymbolKind::extent;
}

// The order in which atoms are replaced by their extremes: minima and maxima first, then loop
// variables whose extent names others (a later symbol can only name earlier ones), then the rest as
// they come.
uint64_t rank(const Expr& atom) {
  if (atom.kind() == ExprKind::min || atom.kind() == ExprKind::max) return UINT64_MAX;
  if (atom.kind() != ExprKind::symbol) return 0;
  const Symbol& s = *atom.symbol();
  return s.extent != nullptr && !s.extent->is_constant() ? s.id : 0;
}

// One step: an atom that is not an extent, in a term whose other factors are not negative, is
// replaced by the extreme value that makes e smallest. Several results: it is enough that one of
// them is not negative.
std::vector<Expr> weaken(const Expr& e) {
  Poly p = to_poly(e);
  struct Choice {
    const Monomial* m = nullptr;
    size_t factor = 0;
    int64_t coefficient = 0;
    std::vector<Expr> bounds;
  };
  std::optional<Choice> best;
  for (const auto& [m, c] : p.terms) {
    for (size_t k = 0; k < m.size(); ++k) {
      if (is_extent(m[k]) || (best && rank(m[k]) <= rank((*best->m)[best->factor]))) continue;
      bool others_positive = true;
      for (size_t j = 0; j < m.size(); ++j)
        others_positive = others_positive && (j == k || m[j].lower() >= 0);
      if (!others_positive) continue;
      std::optional<Expr> bound = extreme(m[k], c < 0);
      if (!bound) continue;
      best = Choice{&m, k, c, {*bound}};
      ExprKind kind = m[k].kind();
      if (kind == ExprKind::min || kind == ExprKind::max)
        best->bounds.push_back(m[k].operands()[1]);
    }
  }
  std::vector<Expr> results;
  if (!best) return results;
  Poly rest = p;
  rest.add_term(*best->m, -best->coefficient);
  Monomial others = *best->m;
  others.erase(others.begin() + static_cast<int64_t>(best->factor));
  Poly term;
  term.add_term(others, best->coefficient);
  for (const Expr& bound : best->bounds)
    results.push_back(from_poly(rest) + from_poly(term) * bound);
  return results;
}

constexpr int kProofDepth = 24;   // replacements one after another
constexpr int kProofSteps = 200;  // expressions looked at in one proof

// A search through what weaken() gives. Expressions that share their parts (extents grown in a
// loop) have exponentially many ways to the same few ends: none is looked at twice, and a proof
// that is not found within its steps is not found.
class Proof {
 public:
  bool found(const Expr& e, int depth) {
    if (e.lower() >= 0) return true;
    if (e.upper() < 0 || depth == 0 || ++steps_ > kProofSteps) return false;
    auto [failed, is_new] = failed_.try_emplace(e.hash(), depth);
    if (!is_new) {
      if (failed->second >= depth) return false;
      failed->second = depth;
    }
    for (const Expr& next : weaken(e)) {
      if (!(next == e) && found(next, depth - 1)) return true;
    }
    return false;
  }

 private:
  int steps_ = 0;
  // By hash, the longest rest of the way that was tried. Two expressions of one hash lose a proof,
  // never more.
  std::unordered_map<uint64_t, int> failed_;
};

bool between_zero_and(const Expr& rest, const Expr& b) {
  return prove_nonnegative(rest) && prove_nonnegative(b - Expr(1) - rest);
}

// a = unit * high + low with 0 <= low < unit, and b = unit * parts: the digits of a mixed radix
// number.
struct UnitSplit {
  Expr unit, high, low, parts;
};
std::optional<UnitSplit> split_by_unit(const Expr& a, const Expr& b) {
  Poly p = to_poly(a);
  if (p.terms.size() < 2) return std::nullopt;
  for (const auto& [m, c] : p.terms) {
    Monomial extents;
    for (const Expr& f : m) {
      if (is_extent(f)) extents.push_back(f);
    }
    Poly u;
    u.add_term(extents, c < 0 ? -c : c);
    Expr unit = from_poly(std::move(u));
    if (m.empty() || unit.is(1)) continue;
    std::optional<Expr> parts = divide_exactly(b, unit);
    if (!parts) continue;
    Division d = long_division(p, to_poly(unit));
    Expr low = from_poly(std::move(d.rest));
    if (d.quotient.terms.empty() || !between_zero_and(low, unit)) continue;
    return UnitSplit{unit, from_poly(std::move(d.quotient)), low, *parts};
  }
  return std::nullopt;
}

// rest / b with numbers: [k * b, (k + 1) * b) gives k; common factors cancel.
Expr divide_rest(const Expr& rest, const Expr& b) {
  std::optional<int64_t> bc = b.constant();
  if (bc && *bc > 0 && rest.lower() != INT64_MIN && rest.upper() != INT64_MAX &&
      floor_div(rest.lower(), *bc) == floor_div(rest.upper(), *bc)) {
    return Expr(floor_div(rest.lower(), *bc));
  }
  if (between_zero_and(rest, b)) return Expr(0);
  if (bc && *bc > 0) {
    Poly p = to_poly(rest);
    int64_t g = *bc;
    for (const auto& [m, c] : p.terms) {
      if (!m.empty()) g = std::gcd(g, c);
    }
    if (g > 1) {  // floor((g r + c) / (g b)) = floor((r + floor(c / g)) / b)
      Poly q;
      for (const auto& [m, c] : p.terms) q.add_term(m, m.empty() ? floor_div(c, g) : c / g);
      return from_poly(std::move(q)) / Expr(*bc / g);
    }
  }
  if (rest.kind() == ExprKind::floordiv && rest.operands()[1].lower() >= 0 && b.lower() >= 0) {
    return rest.operands()[0] / (rest.operands()[1] * b);  // (x / m) / n = x / (m n)
  }
  if (rest.kind() == ExprKind::mod && b.lower() >= 0 && rest.operands()[1].lower() >= 0) {
    if (std::optional<Expr> k = divide_exactly(rest.operands()[1], b)) {
      return (rest.operands()[0] / b) % *k;  // (x % (k b)) / b = (x / b) % k
    }
  }
  if (std::optional<UnitSplit> s = split_by_unit(rest, b)) return s->high / s->parts;
  return make_binary(ExprKind::floordiv, rest, b);
}

// rest % b where nothing of rest is a multiple of b.
Expr modulo_rest(const Expr& rest, const Expr& b) {
  if (between_zero_and(rest, b)) return rest;
  std::optional<int64_t> bc = b.constant();
  if (bc && *bc > 0 && rest.lower() != INT64_MIN && rest.upper() != INT64_MAX &&
      floor_div(rest.lower(), *bc) == floor_div(rest.upper(), *bc)) {
    return rest - Expr(floor_div(rest.lower(), *bc) * *bc);
  }
  Poly p = to_poly(rest);
  if (b.lower() >= 0) {  // (x % (k b) + y) % b = (x + y) % b
    for (const auto& [m, c] : p.terms) {
      if (m.size() != 1 || m[0].kind() != ExprKind::mod) continue;
      if (!divide_exactly(m[0].operands()[1], b)) continue;
      Poly q = p;
      q.add_term(m, -c);
      return (from_poly(std::move(q)) + Expr(c) * m[0].operands()[0]) % b;
    }
  }
  if (bc && *bc > 0) {  // (g r) % (g b) = g (r % b)
    int64_t g = *bc;
    for (const auto& [m, c] : p.terms) g = std::gcd(g, c);
    if (g > 1) {
      Poly q;
      for (const auto& [m, c] : p.terms) q.add_term(m, c / g);
      return Expr(g) * (from_poly(std::move(q)) % Expr(*bc / g));
    }
  }
  if (std::optional<UnitSplit> s = split_by_unit(rest, b))
    return s->unit * (s->high % s->parts) + s->low;
  return make_binary(ExprKind::mod, rest, b);
}

}  // namespace

Expr divide(const Expr& a, const Expr& b) {
  if (b.is(0))
    return make_binary(ExprKind::floordiv, a,
                       b);  // of an empty tensor: an error if it is ever evaluated
  if (b.is(1)) return a;
  if (a.is_constant() && b.is_constant()) return Expr(floor_div(*a.constant(), *b.constant()));
  if (a.is(0)) return Expr(0);
  if (std::optional<int64_t> c = b.constant(); c && *c < 0) {
    if (*c == INT64_MIN) return make_binary(ExprKind::floordiv, a, b);  // has no opposite
    return -a / Expr(-*c);
  }
  Division d = long_division(to_poly(a), to_poly(b));
  Expr rest = from_poly(std::move(d.rest));
  Expr quotient = from_poly(std::move(d.quotient));
  return rest.is(0) ? quotient : quotient + divide_rest(rest, b);
}

Expr modulo(const Expr& a, const Expr& b) {
  if (b.is(0))
    return make_binary(ExprKind::mod, a,
                       b);  // of an empty tensor: an error if it is ever evaluated
  if (b.is(1)) return Expr(0);
  if (a.is_constant() && b.is_constant()) return Expr(floor_mod(*a.constant(), *b.constant()));
  if (std::optional<int64_t> c = b.constant(); c && *c < 0) return make_binary(ExprKind::mod, a, b);
  Division d = long_division(to_poly(a), to_poly(b));
  Expr rest = from_poly(std::move(d.rest));
  return rest.is(0) ? rest : modulo_rest(rest, b);
}

std::optional<Expr> divide_exactly(const Expr& a, const Expr& b) {
  if (b.is(0)) return std::nullopt;
  Division d = long_division(to_poly(a), to_poly(b));
  if (!d.rest.terms.empty()) return std::nullopt;
  return from_poly(std::move(d.quotient));
}

bool prove_nonnegative(const Expr& e) {
  if (e.lower() >= 0) return true;
  if (e.upper() < 0) return false;
  return Proof().found(e, kProofDepth);
}

}  // namespace heddle::detail
