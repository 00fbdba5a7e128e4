#include "backend/cpu/form.h"

#include "base/check.h"

#include <algorithm>
#include <cmath>

namespace heddle::cpu {

using ir::NodeId;
using ir::ScalarOp;

namespace {
constexpr double kUnknownExtent = 1024;  // guess for a symbol without a useful bound
// A part of the vector axis below this share of the range is not worth resolving for.
constexpr double kSmallestShare = 0.2;
}  // namespace

Expr flat_offset(const ir::Buffer& buffer, const std::vector<Expr>& coords) {
  HD_CHECK(coords.size() == buffer.extents.size(), "access to '", buffer.name, "': rank");
  Expr offset = 0;
  Expr stride = 1;
  for (size_t k = coords.size(); k-- > 0;) {
    offset = offset + coords[k] * stride;
    stride = stride * buffer.extents[k];
  }
  return offset;
}

BodyForm make_form(const ir::Kernel& kernel, const ir::Body& body) {
  BodyForm form;
  form.exprs = body.exprs;
  for (const ir::Access& a : body.accesses)
    form.offsets.push_back(flat_offset(kernel.buffers[a.buffer], a.coords));
  form.known.resize(body.nodes.size());
  return form;
}

BodyForm substituted(const BodyForm& form, const SymbolRef& symbol, const Expr& value) {
  BodyForm out = form;
  for (Expr& e : out.exprs) e = substitute(e, symbol, value);
  for (Expr& e : out.offsets) e = substitute(e, symbol, value);
  return out;
}

double estimate(const Expr& e) {
  try {
    return static_cast<double>(evaluate(e, [](const Symbol& s) -> std::optional<int64_t> {
      if (s.kind == SymbolKind::loop && s.extent)
        return std::max<int64_t>(0, static_cast<int64_t>(estimate(*s.extent) / 2));
      if (s.upper < INT64_MAX / 2) return (std::max(s.lower, int64_t{0}) + s.upper + 1) / 2;
      return std::max(s.lower, static_cast<int64_t>(kUnknownExtent));
    }));
  } catch (const Error&) {
    return kUnknownExtent;
  }
}

Resolver::Resolver(SymbolRef v, Range range) : v_(std::move(v)), range_(std::move(range)) {
  lo_guess_ = estimate(range_.lo);
  hi_guess_ = estimate(range_.hi);
}

Range Resolver::range() const {
  Range out = range_;
  for (const Expr& e : lower_) out.lo = max(out.lo, e);
  for (const Expr& e : upper_) out.hi = min(out.hi, e);
  out.lo = min(out.lo, range_.hi);
  out.hi = max(out.lo, out.hi);
  return out;
}

// The bounds of a range are computed once a row or less: only extents may occur in them.
bool Resolver::splittable(const Expr& rest) const {
  std::vector<SymbolRef> symbols;
  collect_symbols(rest, symbols);
  return std::all_of(symbols.begin(), symbols.end(),
                     [](const SymbolRef& s) { return s->kind == SymbolKind::extent; });
}

std::optional<bool> Resolver::decide(const Expr& d) {
  if (d.lower() >= 0) return true;
  if (d.upper() < 0) return false;
  if (!uses(d, *v_)) return std::nullopt;
  auto affine = affine_in(d, v_);
  if (!affine) return std::nullopt;
  auto coefficient = affine->first.constant();
  const Expr& rest = affine->second;
  if (!coefficient || *coefficient == 0 || !splittable(rest)) return std::nullopt;
  // c * v + rest >= 0 from `at` on (c > 0), or below `at` (c < 0).
  int64_t c = *coefficient;
  Expr at = c > 0 ? (c - 1 - rest) / Expr(c) : rest / Expr(-c) + 1;
  double guess = std::clamp(estimate(at), lo_guess_, hi_guess_);
  bool keep_above = hi_guess_ - guess >= guess - lo_guess_;
  double kept = keep_above ? hi_guess_ - guess : guess - lo_guess_;
  if (kept < kSmallestShare * (hi_guess_ - lo_guess_)) return std::nullopt;
  if (keep_above) {
    lower_.push_back(at);
    lo_guess_ = guess;
  } else {
    upper_.push_back(at);
    hi_guess_ = guess;
  }
  return keep_above == (c > 0);
}

// floor(a / n) and a mod n: a constant quotient in the range that is kept.
Expr Resolver::resolve_division(const Expr& e) {
  bool division = e.kind() == ExprKind::floordiv;
  Expr a = resolve(e.operands()[0]), n = resolve(e.operands()[1]);
  Expr as_is = division ? a / n : a % n;
  bool still = as_is.kind() == ExprKind::floordiv || as_is.kind() == ExprKind::mod;
  if (!still || !uses(a, *v_) || uses(n, *v_)) return as_is;
  auto affine = affine_in(a, v_);
  if (!affine || !affine->first.constant() || !splittable(affine->second) || !splittable(n))
    return as_is;
  double middle = (lo_guess_ + hi_guess_) / 2;
  double period = estimate(n);
  if (period <= 0) return as_is;
  double at_middle =
      static_cast<double>(*affine->first.constant()) * middle + estimate(affine->second);
  auto quotient = static_cast<int64_t>(std::floor(at_middle / period));
  // One period must cover a good part of the range.
  double slope = std::fabs(static_cast<double>(*affine->first.constant()));
  if (period / slope < kSmallestShare * (hi_guess_ - lo_guess_)) return as_is;
  Resolver trial = *this;
  auto above = trial.decide(a - Expr(quotient) * n);
  auto below = trial.decide(Expr(quotient + 1) * n - 1 - a);
  if (above != true || below != true) return as_is;
  *this = trial;
  return division ? Expr(quotient) : a - Expr(quotient) * n;
}

Expr Resolver::resolve(const Expr& e) {
  if (!uses(e, *v_)) return e;
  switch (e.kind()) {
    case ExprKind::constant:
    case ExprKind::symbol:
      return e;
    case ExprKind::add: {
      Expr sum = 0;
      for (const Expr& t : e.operands()) sum = sum + resolve(t);
      return sum;
    }
    case ExprKind::mul: {
      Expr product = 1;
      for (const Expr& t : e.operands()) product = product * resolve(t);
      return product;
    }
    case ExprKind::min:
    case ExprKind::max: {
      Expr a = resolve(e.operands()[0]), b = resolve(e.operands()[1]);
      auto first_larger = decide(a - b);
      if (!first_larger) return e.kind() == ExprKind::min ? min(a, b) : max(a, b);
      return *first_larger == (e.kind() == ExprKind::max) ? a : b;
    }
    case ExprKind::floordiv:
    case ExprKind::mod:
      return resolve_division(e);
  }
  return e;
}

namespace {

// The integer that a node computes from indices, where it is one.
std::optional<Expr> index_of(const ir::Body& body, const BodyForm& form, NodeId id) {
  const ir::Node& n = body.nodes[id];
  if (n.op == ScalarOp::index) return form.exprs[n.payload];
  if (n.op == ScalarOp::constant && n.type == DType::i64) return Expr(static_cast<int64_t>(n.bits));
  return std::nullopt;
}

}  // namespace

std::optional<Expr> comparison(const ir::Body& body, const BodyForm& form, NodeId id) {
  const ir::Node& n = body.nodes[id];
  bool ordered =
      n.op == ScalarOp::lt || n.op == ScalarOp::le || n.op == ScalarOp::gt || n.op == ScalarOp::ge;
  if (!ordered) return std::nullopt;
  auto a = index_of(body, form, n.a), b = index_of(body, form, n.b);
  if (!a || !b) return std::nullopt;
  switch (n.op) {
    case ScalarOp::lt:
      return *b - *a - 1;
    case ScalarOp::le:
      return *b - *a;
    case ScalarOp::gt:
      return *a - *b - 1;
    default:
      return *a - *b;
  }
}

void Resolver::resolve_comparisons(const ir::Body& body, const BodyForm& in, BodyForm& out) {
  for (NodeId id = 0; id < body.nodes.size(); ++id) {
    auto d = comparison(body, in, id);
    if (!d) continue;
    if (auto known = decide(resolve(*d))) out.known[id] = *known ? 1 : 0;
  }
}

BodyForm Resolver::resolve(const ir::Body& body, const BodyForm& form) {
  BodyForm out = form;
  for (Expr& e : out.exprs) e = resolve(e);
  for (Expr& e : out.offsets) e = resolve(e);
  resolve_comparisons(body, out, out);
  return out;
}

}  // namespace heddle::cpu
