#include "support/math_sweep.h"

#include "ops/math_functions.h"
#include "support/body_eval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace heddle::test {

const std::vector<SweptFunction>& swept_functions() {
  static const std::vector<SweptFunction> functions = {
      {"exp", ops::exp_node, [](double x) { return std::exp(x); }, 1.67},
      {"log", ops::log_node, [](double x) { return std::log(x); }, 0.94},
      {"tanh", ops::tanh_node, [](double x) { return std::tanh(x); }, 1.72},
      {"sigmoid", ops::sigmoid_node,
       [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); },
       1.48},
      {"erf", ops::erf_node, [](double x) { return std::erf(x); }, 1.33},
  };
  return functions;
}

double ulp_error(float got, double truth) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(truth) || std::isnan(got))
    return std::isnan(truth) && std::isnan(got) ? 0 : kInfinity;
  if (std::isinf(got) || std::isinf(static_cast<float>(truth)))
    return got == static_cast<float>(truth) ? 0 : kInfinity;
  if (truth == 0) return got == 0 && std::signbit(got) == std::signbit(truth) ? 0 : kInfinity;
  int exponent = std::max(std::ilogb(truth), -126) - 23;
  return std::fabs(static_cast<double>(got) - truth) / std::ldexp(1.0, exponent);
}

SweepResult sweep(const SweptFunction& f, uint64_t first, uint64_t end, uint64_t stride) {
  ir::BodyBuilder b;
  ir::NodeId result = f.build(b, input(b, 0, f32));
  SweepResult r;
  for (uint64_t at = first; at < end;) {
    Lane inputs;
    for (; at < end && inputs.size() < 4096; at += stride) inputs.push_back(at);
    Lane got = evaluate(b.body(), {result}, {inputs})[0];
    for (size_t k = 0; k < inputs.size(); ++k) {
      float x = std::bit_cast<float>(static_cast<uint32_t>(inputs[k]));
      double error = ulp_error(std::bit_cast<float>(static_cast<uint32_t>(got[k])), f.truth(x));
      ++r.points;
      if (std::isinf(error)) {
        ++r.wrong_special;
        r.special_at = x;
      } else if (error > r.worst) {
        r.worst = error;
        r.at = x;
      }
    }
  }
  return r;
}

}  // namespace heddle::test
