// Conversion of a scalar inside a body.
#pragma once

#include "ir/body.h"

#include <heddle/dtype.h>

namespace heddle::ops {

// value: in the representation that bodies use for `from` (see ScalarRule in opdef.h); the result
// in that for `to`, rounded to it: to a half type gives an f32 that the half type holds.
ir::Val cast_scalar(ir::BodyBuilder& b, ir::Val value, DType from, DType to);

}  // namespace heddle::ops
