// Between which values a float node of a body lies, as far as the nodes that it is made of tell.
#pragma once

#include "ir/body.h"

namespace heddle::ir {

// lower <= value <= upper unless the value is NaN; zeros of either sign are 0.
struct FloatBounds {
  double lower, upper;
};
FloatBounds float_bounds(const Body& body, NodeId n);

// The operand that a minimum or maximum with a constant always gives, NaN included; else kNoNode.
// Zeros have an order that bounds do not see, so a clamp at 0 stays.
NodeId without_clamp(const Body& body, const Node& n);

// A node of the same magnitude (for what does not see signs), with nodes left out that only set the
// sign: neg, abs, and bit_or with a sign bit alone.
NodeId without_sign(const Body& body, NodeId n);

}  // namespace heddle::ir
