#include "loop/unify.h"

#include <algorithm>

namespace heddle::loop {

namespace {

// A digit of an unknown: (x / divisor) % modulus, which has `modulus` values.
struct Digit {
  size_t unknown = 0;
  Expr divisor, modulus;
};
struct Term {
  Digit digit;
  Expr coefficient = 1;
};
struct Piece {
  Digit digit;
  Expr value;
};

std::optional<Expr> exact_quotient(const Expr& a, const Expr& b) {
  if (b.is(0)) return std::nullopt;
  Expr q = a / b;
  if (q * b == a) return q;
  return std::nullopt;
}

class Solver {
 public:
  Solver(const std::vector<LoopAxis>& unknowns, bool fresh)
      : unknowns_(unknowns), allow_fresh_(fresh) {}

  void use(const Equation& e);
  Solution finish();

 private:
  std::optional<size_t> find(const Expr& e) const {
    if (e.kind() != ExprKind::symbol) return std::nullopt;
    for (size_t k = 0; k < unknowns_.size(); ++k) {
      if (unknowns_[k].var->id == e.symbol()->id) return k;
    }
    return std::nullopt;
  }
  std::optional<Digit> parse_digit(const Expr& e) const;
  std::optional<Term> parse_term(const Expr& e) const;
  std::optional<Expr> assemble(size_t unknown, Solution& out);

  const std::vector<LoopAxis>& unknowns_;
  bool allow_fresh_;
  std::vector<Piece> pieces_;
};

std::optional<Digit> Solver::parse_digit(const Expr& e) const {
  if (std::optional<size_t> k = find(e)) return Digit{*k, 1, unknowns_[*k].extent};
  if (e.kind() == ExprKind::floordiv) {
    std::optional<Digit> d = parse_digit(e.operands()[0]);
    if (!d || mentions(e.operands()[1], unknowns_)) return std::nullopt;
    std::optional<Expr> m = exact_quotient(d->modulus, e.operands()[1]);
    if (!m) return std::nullopt;
    return Digit{d->unknown, d->divisor * e.operands()[1], *m};
  }
  if (e.kind() == ExprKind::mod) {
    std::optional<Digit> d = parse_digit(e.operands()[0]);
    if (!d || mentions(e.operands()[1], unknowns_)) return std::nullopt;
    if (!exact_quotient(d->modulus, e.operands()[1])) return std::nullopt;
    return Digit{d->unknown, d->divisor, e.operands()[1]};
  }
  return std::nullopt;
}

std::optional<Term> Solver::parse_term(const Expr& e) const {
  if (e.kind() != ExprKind::mul) {
    std::optional<Digit> d = parse_digit(e);
    if (!d) return std::nullopt;
    return Term{*d, 1};
  }
  Term t;
  bool found = false;
  for (const Expr& f : e.operands()) {
    if (!mentions(f, unknowns_)) {
      t.coefficient = t.coefficient * f;
      continue;
    }
    std::optional<Digit> d = found ? std::nullopt : parse_digit(f);
    if (!d) return std::nullopt;
    t.digit = *d;
    found = true;
  }
  if (!found) return std::nullopt;
  return t;
}

void Solver::use(const Equation& e) {
  std::vector<Term> terms;
  Expr known = e.known;
  std::vector<Expr> parts;
  if (e.unknown.kind() == ExprKind::add) {
    parts.assign(e.unknown.operands().begin(), e.unknown.operands().end());
  } else {
    parts.push_back(e.unknown);
  }
  for (const Expr& part : parts) {
    if (!mentions(part, unknowns_)) {
      known = known - part;
      continue;
    }
    std::optional<Term> t = parse_term(part);
    if (!t) return;
    terms.push_back(*t);
  }
  if (terms.empty()) return;
  if (terms.size() == 1 && terms[0].coefficient.is(-1)) {  // rest - x = known
    pieces_.push_back({terms[0].digit, -known});
    return;
  }
  // The digits of a mixed radix number, lowest first.
  std::vector<Piece> digits;
  Expr radix(1);
  while (!terms.empty()) {
    auto it = std::find_if(terms.begin(), terms.end(),
                           [&](const Term& t) { return t.coefficient == radix; });
    if (it == terms.end()) return;
    Expr next = radix * it->digit.modulus;
    Expr value = known / radix;
    if (terms.size() > 1) value = value % it->digit.modulus;
    digits.push_back({it->digit, value});
    terms.erase(it);
    radix = next;
  }
  pieces_.insert(pieces_.end(), digits.begin(), digits.end());
}

std::optional<Expr> Solver::assemble(size_t unknown, Solution& out) {
  const LoopAxis& axis = unknowns_[unknown];
  std::vector<Piece> mine;
  for (const Piece& p : pieces_) {
    if (p.digit.unknown == unknown) mine.push_back(p);
  }
  Expr total(0), radix(1);
  std::vector<LoopAxis> fresh;
  while (!(radix == axis.extent)) {
    auto it = std::find_if(mine.begin(), mine.end(),
                           [&](const Piece& p) { return p.digit.divisor == radix; });
    if (it != mine.end()) {
      total = total + radix * it->value;
      if (it->digit.modulus.is(1)) return std::nullopt;
      radix = radix * it->digit.modulus;
      continue;
    }
    if (!allow_fresh_) return std::nullopt;
    // The gap up to the next digit that is named, or to the end.
    std::optional<Expr> gap;
    for (const Piece& p : mine) {
      std::optional<Expr> q = exact_quotient(p.digit.divisor, radix);
      if (q && !q->is(1) && !q->is(0) && (!gap || q->upper() < gap->upper())) gap = q;
    }
    if (!gap) gap = exact_quotient(axis.extent, radix);
    if (!gap || gap->is(0)) return std::nullopt;
    SymbolRef var = make_loop_symbol(axis.var->name, *gap);
    fresh.insert(fresh.begin(), {var, *gap});
    total = total + radix * Expr(var);
    radix = radix * *gap;
  }
  out.fresh.insert(out.fresh.end(), fresh.begin(), fresh.end());
  return total;
}

Solution Solver::finish() {
  Solution out;
  out.complete = true;
  for (size_t k = 0; k < unknowns_.size(); ++k) {
    std::optional<Expr> v = assemble(k, out);
    if (v) {
      out.values.emplace(unknowns_[k].var->id, *v);
    } else {
      out.complete = false;
    }
  }
  return out;
}

}  // namespace

Expr replaced(const Bindings& map, const Expr& e) {
  if (map.empty()) return e;
  return substitute(e, [&](const SymbolRef& s) -> std::optional<Expr> {
    auto it = map.find(s->id);
    if (it == map.end()) return std::nullopt;
    return it->second;
  });
}
std::vector<Expr> replaced(const Bindings& map, const std::vector<Expr>& list) {
  std::vector<Expr> out;
  out.reserve(list.size());
  for (const Expr& e : list) out.push_back(replaced(map, e));
  return out;
}

Expr combined(ExprKind kind, const std::vector<Expr>& operands) {
  Expr r = operands[0];
  for (size_t k = 1; k < operands.size(); ++k) {
    const Expr& o = operands[k];
    switch (kind) {
      case ExprKind::add:
        r = r + o;
        break;
      case ExprKind::mul:
        r = r * o;
        break;
      case ExprKind::floordiv:
        r = r / o;
        break;
      case ExprKind::mod:
        r = r % o;
        break;
      case ExprKind::min:
        r = min(r, o);
        break;
      default:
        r = max(r, o);
    }
  }
  return r;
}

Solution solve(const std::vector<Equation>& equations, const std::vector<LoopAxis>& unknowns,
               bool fresh) {
  Solver solver(unknowns, fresh);
  for (const Equation& e : equations) solver.use(e);
  return solver.finish();
}

bool is_bijection(const Bindings& values, const std::vector<LoopAxis>& to,
                  const std::vector<LoopAxis>& from) {
  if (!(product(to) == product(from))) return false;
  std::vector<Equation> back;
  for (const LoopAxis& a : to) {
    auto it = values.find(a.var->id);
    if (it == values.end()) return false;
    if (!only_uses(it->second, from, {})) return false;
    if (is_less_equal(0, it->second) != Ordering::yes) return false;
    if (is_less_equal(it->second, a.extent - Expr(1)) != Ordering::yes) return false;
    back.push_back({it->second, Expr(a.var)});
  }
  Solution s = solve(back, from, false);
  if (!s.complete) return false;
  // A left inverse between sets of one size makes a bijection: check that it really is an inverse.
  return std::all_of(from.begin(), from.end(), [&](const LoopAxis& a) {
    return replaced(values, s.values.at(a.var->id)) == Expr(a.var);
  });
}

Expr product(const std::vector<LoopAxis>& axes) {
  Expr p(1);
  for (const LoopAxis& a : axes) p = p * a.extent;
  return p;
}

Expr row_major(const std::vector<LoopAxis>& axes) {
  Expr at(0);
  for (const LoopAxis& a : axes) at = at * a.extent + Expr(a.var);
  return at;
}

bool same_extents(const std::vector<LoopAxis>& a, const std::vector<LoopAxis>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const LoopAxis& x, const LoopAxis& y) { return x.extent == y.extent; });
}

bool mentions(const Expr& e, const std::vector<LoopAxis>& axes) {
  if (e.kind() == ExprKind::symbol) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const LoopAxis& a) { return a.var->id == e.symbol()->id; });
  }
  for (const Expr& o : e.operands()) {
    if (mentions(o, axes)) return true;
  }
  return false;
}

bool only_uses(const Expr& e, const std::vector<LoopAxis>& a, const std::vector<LoopAxis>& b) {
  if (e.kind() == ExprKind::symbol) {
    SymbolKind kind = e.symbol()->kind;
    if (kind == SymbolKind::extent || kind == SymbolKind::defined) return true;
    return mentions(e, a) || mentions(e, b);
  }
  for (const Expr& o : e.operands()) {
    if (!only_uses(o, a, b)) return false;
  }
  return true;
}

}  // namespace heddle::loop
