// Conversions of the small float formats to and from f32/f64, in software: nearest even, exact
// subnormals.
#pragma once

#include <heddle/dtype.h>

#include <cstdint>

namespace heddle::base {

// Bit patterns (low bits) of f16, bf16, FP8, FP4, E8M0.
double decode_small_float(DType dtype, uint32_t bits);
// Rounds to nearest even once, from the exact double. f16, bf16, e5m2: overflow gives infinity;
// e4m3fn: NaN; fnuz: NaN; e2m1: saturates (no infinity, no NaN: NaN gives +max); e8m0: nearest
// power of two, NaN is 0xff.
uint32_t encode_small_float(DType dtype, double value);

uint16_t f32_to_f16(float value);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
float bf16_to_f32(uint16_t bits);

}  // namespace heddle::base
