// Codes of storage-only types inside bodies: FP8, FP4, E8M0, int2, int4 and their unsigned twins.
#pragma once

#include "ir/body.h"

#include <heddle/dtype.h>

namespace heddle::ops {

// What a code decodes to: f32 for the small floats, i8 for i2 and i4, u8 for u2 and u4.
DType decoded_type(DType dtype);
// code: u8, what lies above the low bit_width(dtype) bits is ignored. Exact.
ir::NodeId decode_storage(ir::BodyBuilder& b, DType dtype, ir::NodeId code);
// value: f32 or f64 for the small floats (rounded once, to nearest even; overflow as in
// base/small_float.h); any integer for int2 and int4 (wraps). Gives the u8 code, the bits above the
// width zero.
ir::NodeId encode_storage(ir::BodyBuilder& b, DType dtype, ir::NodeId value);

// f64 -> f32 with the last bit set where inexact ("round to odd"): rounding that to a type of at
// most 22 bits equals rounding the f64 once (Boldo & Melquiond 2008).
ir::NodeId round_to_odd(ir::BodyBuilder& b, ir::NodeId value);

}  // namespace heddle::ops
