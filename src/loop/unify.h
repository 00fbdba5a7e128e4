// Solving for coordinates: which point of one iteration space reads what a point of another one
// makes.
#pragma once

#include <heddle/expr.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace heddle::loop {

struct LoopAxis {
  SymbolRef var;
  Expr extent;
  friend bool operator==(const LoopAxis& a, const LoopAxis& b) {
    return a.var == b.var && a.extent == b.extent;
  }
};

// Values of symbols, by their id.
using Bindings = std::unordered_map<uint64_t, Expr>;
Expr replaced(const Bindings& map, const Expr& e);
std::vector<Expr> replaced(const Bindings& map, const std::vector<Expr>& list);
// An expression of a kind (not a constant or symbol) from its operands.
Expr combined(ExprKind kind, const std::vector<Expr>& operands);

// unknown(x...) = known
struct Equation {
  Expr unknown, known;
};
struct Solution {
  Bindings values;  // of the unknowns that are determined
  std::vector<LoopAxis>
      fresh;              // new axes for digits that no equation names (in order, slowest first)
  bool complete = false;  // every unknown is determined
};
// Solves by mixed radix: an unknown is known if equations name it, or digits of it ((x / c) % m),
// that together tile its extent. With `fresh` missing digits become new axes. Equations that can't
// be used are left out, so a caller checks the result by substitution.
Solution solve(const std::vector<Equation>& equations, const std::vector<LoopAxis>& unknowns,
               bool fresh);

// Is x -> values a one-to-one map from the points of `from` (the symbols that occur in the values)
// onto those of `to`?
bool is_bijection(const Bindings& values, const std::vector<LoopAxis>& to,
                  const std::vector<LoopAxis>& from);

Expr product(const std::vector<LoopAxis>& axes);
// Row-major position of a point.
Expr row_major(const std::vector<LoopAxis>& axes);
bool same_extents(const std::vector<LoopAxis>& a, const std::vector<LoopAxis>& b);
bool mentions(const Expr& e, const std::vector<LoopAxis>& axes);
// Whether every loop variable of e is one of the axes'.
bool only_uses(const Expr& e, const std::vector<LoopAxis>& a, const std::vector<LoopAxis>& b);

}  // namespace heddle::loop
