#include "backend/cuda/writer.h"

namespace heddle::cuda {

namespace {

std::string literal(int64_t v) {
  if (v >= INT32_MIN + 1 && v <= INT32_MAX)
    return v < 0 ? base::cat("(", v, ")") : std::to_string(v);
  return base::cat("(idx)", v == INT64_MIN ? "(-0x7fffffffffffffffLL - 1)" : base::cat(v, "LL"));
}

}  // namespace

std::string SymbolNames::text(const Expr& e) const {
  auto joined = [&](const char* between) {
    std::string out = "(";
    for (size_t k = 0; k < e.operands().size(); ++k)
      out += (k ? between : "") + text(e.operands()[k]);
    return out + ")";
  };
  auto call = [&](const char* f) {
    return base::cat(f, "(", text(e.operands()[0]), ", ", text(e.operands()[1]), ")");
  };
  switch (e.kind()) {
    case ExprKind::constant:
      return literal(*e.constant());
    case ExprKind::symbol:
      return of(e.symbol());
    case ExprKind::add:
      return joined(" + ");
    case ExprKind::mul:
      return joined(" * ");
    case ExprKind::floordiv:
    case ExprKind::mod: {
      bool natural = e.operands()[0].lower() >= 0 && e.operands()[1].lower() > 0;
      bool div = e.kind() == ExprKind::floordiv;
      return call(natural ? (div ? "hd_udiv" : "hd_umod") : (div ? "hd_floordiv" : "hd_floormod"));
    }
    case ExprKind::min:
      return call("hd_imin");
    case ExprKind::max:
      return call("hd_imax");
  }
  return "0";
}

}  // namespace heddle::cuda
