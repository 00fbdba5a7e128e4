// Which points of a nest touch which elements: from an element's coordinates back to the point.
#pragma once

#include "ir/kernel.h"
#include "loop/facts.h"
#include "loop/unify.h"

#include <memory>
#include <optional>
#include <vector>

namespace heddle::loop {

// Coordinates of an element as symbols, and the loop variables of an access that follow from them.
struct Inverse {
  std::vector<LoopAxis> element;
  Bindings of;
  // A loop variable (of these axes) at the element that `coords` name, if it follows.
  std::optional<Expr> at(const LoopAxis& axis, const std::vector<Expr>& coords) const;
};
Inverse invert(const std::vector<Expr>& coords, const std::vector<LoopAxis>& axes,
               const std::vector<Expr>& extents);

// A store without a mask: it writes `coords` at each point of `axes`, in order from slow to fast
// (extents may name earlier axes).
struct Written {
  std::vector<LoopAxis> axes;
  std::vector<Expr> coords;
};
// Does it write the element at `coords`, at points that the facts describe? Of its first `shared`
// axes it must be the same point.
bool writes(const Written& store, size_t shared, const std::vector<Expr>& coords,
            const Facts& facts);
using Stores = std::vector<std::shared_ptr<const Written>>;
// Is every element of a buffer written by one of them, or every part of complex elements?
bool fill(const Stores& stores, const std::vector<Expr>& extents);

}  // namespace heddle::loop
