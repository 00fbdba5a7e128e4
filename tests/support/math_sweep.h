// Errors of the f32 functions of ops/math_functions.h over a stride of all f32 inputs, against
// float64.
#pragma once

#include "ir/body.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle::test {

struct SweptFunction {
  std::string name;
  std::function<ir::NodeId(ir::BodyBuilder&, ir::NodeId)> build;
  double (*truth)(double);
  double bound;  // units in the last place of f32
};
const std::vector<SweptFunction>& swept_functions();

struct SweepResult {
  double worst = 0;  // ULP
  float at = 0;      // where
  int64_t points = 0;
  int64_t wrong_special = 0;  // NaN or infinity where the other has none
  float special_at = 0;
};
// Inputs are the bit patterns first, first + stride, ... below `end` (at most 2^32).
SweepResult sweep(const SweptFunction& f, uint64_t first, uint64_t end, uint64_t stride);

// Distance of `got` from the exact value in units of the f32 at it; infinite where only one is NaN
// or infinite.
double ulp_error(float got, double truth);

}  // namespace heddle::test
