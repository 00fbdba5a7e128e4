// The index side of a body: expressions and flat offsets, specialised for a copy of an unrolled
// loop and for a range of the vector axis in which clamps, wraps and masks resolve.
#pragma once

#include "ir/kernel.h"

#include <heddle/type.h>

#include <optional>
#include <vector>

namespace heddle::cpu {

// One copy of a body.
struct BodyForm {
  std::vector<Expr> exprs;    // of Body::exprs
  std::vector<Expr> offsets;  // of Body::accesses: flat, in elements
  std::vector<std::optional<uint64_t>>
      known;  // of Body::nodes: value of index comparisons in this range
};

// Row-major offset of an access, in elements.
Expr flat_offset(const ir::Buffer& buffer, const std::vector<Expr>& coords);

BodyForm make_form(const ir::Kernel& kernel, const ir::Body& body);
// With a loop variable replaced.
BodyForm substituted(const BodyForm& form, const SymbolRef& symbol, const Expr& value);

// Of an ordered comparison of two indices: d with node <=> d >= 0.
std::optional<Expr> comparison(const ir::Body& body, const BodyForm& form, ir::NodeId id);

// Trip counts and extents as guessed from bounds, where they are not numbers.
double estimate(const Expr& e);

// A range of the vector axis: lo <= v < hi.
struct Range {
  Expr lo, hi;
};
// Resolves clamps, wraps and comparisons of indices for the larger part of `range`, which it
// shrinks accordingly.
class Resolver {
 public:
  Resolver(SymbolRef v, Range range);
  BodyForm resolve(const ir::Body& body, const BodyForm& form);
  Range range() const;
  bool shrunk() const { return !lower_.empty() || !upper_.empty(); }

 private:
  Expr resolve(const Expr& e);
  Expr resolve_division(const Expr& e);
  void resolve_comparisons(const ir::Body& body, const BodyForm& in, BodyForm& out);
  // Is d >= 0 in the range that is kept? nullopt where it cannot be made so.
  std::optional<bool> decide(const Expr& d);
  bool splittable(const Expr& rest) const;

  SymbolRef v_;
  Range range_;
  double lo_guess_, hi_guess_;
  std::vector<Expr> lower_, upper_;
};

}  // namespace heddle::cpu
