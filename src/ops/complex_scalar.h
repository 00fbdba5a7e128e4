// Arithmetic of complex numbers as pairs of scalar nodes, in f32 (c32, c64) or f64 (c128).
//
// All but products of f32 parts are computed in f64, by formulas that are scaled for f64's own
// range, and rounded once.
#pragma once

#include "ir/body.h"

namespace heddle::ops {

ir::Val complex_multiply(ir::BodyBuilder& b, ir::Val x, ir::Val y);
ir::Val complex_divide(ir::BodyBuilder& b, ir::Val x, ir::Val y);
ir::NodeId complex_abs(ir::BodyBuilder& b, ir::Val x);
ir::Val complex_exp(ir::BodyBuilder& b, ir::Val x);
ir::Val complex_log(ir::BodyBuilder& b, ir::Val x);   // imaginary part in [-pi, pi]
ir::Val complex_sqrt(ir::BodyBuilder& b, ir::Val x);  // principal root, real part >= 0
ir::Val complex_tanh(ir::BodyBuilder& b, ir::Val x);
ir::Val complex_power(ir::BodyBuilder& b, ir::Val x, ir::Val y);  // exp(y log x); x^0 = 1, 0^y = 0
// An f64 angle in [-pi, pi], signs of zeros as C's atan2.
ir::NodeId atan2_f64(ir::BodyBuilder& b, ir::NodeId y, ir::NodeId x);

}  // namespace heddle::ops
