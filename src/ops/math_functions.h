// Elementary functions as scalar nodes. f32: range reduction and polynomials of primitive nodes, so
// that every device gives the same bits; errors against float64 over all f32 inputs are below. f64:
// library calls.
//
//   function   largest error   notes
//   exp        1.02 ULP        subnormal results are rounded once
//   log        0.94 ULP        subnormal inputs too
//   tanh       1.71 ULP
//   sigmoid    1.70 ULP        subnormal results too
//   erf        1.32 ULP
//   power      1.01 ULP        sampled; special cases of C's pow
//
// (heddle-fuzz-math; the coefficients come from tools/fit_functions.py.)
#pragma once

#include "ir/body.h"

namespace heddle::ops {

// Operands and results are f32 or f64 nodes.
ir::NodeId exp_node(ir::BodyBuilder& b, ir::NodeId x);
ir::NodeId log_node(ir::BodyBuilder& b, ir::NodeId x);
ir::NodeId tanh_node(ir::BodyBuilder& b, ir::NodeId x);
ir::NodeId sigmoid_node(ir::BodyBuilder& b, ir::NodeId x);
ir::NodeId erf_node(ir::BodyBuilder& b, ir::NodeId x);
ir::NodeId power_node(ir::BodyBuilder& b, ir::NodeId x, ir::NodeId y);

// Integers of any width: wraps; x^0 = 1; a negative exponent gives the truncated quotient (1, -1 or
// 0; 0 for x = 0).
ir::NodeId integer_power_node(ir::BodyBuilder& b, ir::NodeId x, ir::NodeId y);

}  // namespace heddle::ops
