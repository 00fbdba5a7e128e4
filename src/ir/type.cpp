#include <heddle/error.h>
#include <heddle/type.h>

#include "base/check.h"

namespace heddle {

Expr element_count(const Shape& shape) {
  Expr count = 1;
  for (const Expr& extent : shape) count = count * extent;
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += shape[i].to_string();
  }
  return text + "]";
}

std::string to_string(const Type& type) {
  std::string text = type.dtype == DType::unknown ? "?" : std::string(name(type.dtype));
  return text + (type.shape ? to_string(*type.shape) : "[*]");
}

namespace {

Expr broadcast_extent(const Expr& a, const Expr& b, const Shape& lhs, const Shape& rhs,
                      std::string_view op) {
  if (a.is(1)) return b;
  if (b.is(1) || a == b) return a;
  switch (is_equal(a, b)) {
    case Ordering::yes:
      return a;
    case Ordering::no:
      if (!a.constant() && a.lower() <= 1) break;  // may turn out to be 1
      if (!b.constant() && b.lower() <= 1) break;
      throw GraphError(base::cat(op, ": shapes ", to_string(lhs), " and ", to_string(rhs),
                                 " do not broadcast: ", a.to_string(), " against ", b.to_string()));
    case Ordering::undecided:
      break;
  }
  throw GraphError(base::cat(op, ": shapes ", to_string(lhs), " and ", to_string(rhs),
                             ": cannot decide whether extents ", a.to_string(), " and ",
                             b.to_string(), " are equal or one of them is 1"));
}

}  // namespace

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  size_t lead = longer.size() - shorter.size();
  Shape result = longer;
  for (size_t i = 0; i < shorter.size(); ++i) {
    const Expr& x = a.size() >= b.size() ? longer[lead + i] : shorter[i];
    const Expr& y = a.size() >= b.size() ? shorter[i] : longer[lead + i];
    result[lead + i] = broadcast_extent(x, y, a, b, op);
  }
  return result;
}

}  // namespace heddle
