// Composites: whole until somebody claims them, else decomposed and fused.
#pragma once

#include <heddle/tensor.h>

#include <vector>

namespace heddle {

Tensor softmax(const Tensor& x, int axis = -1);
struct LayerNormOptions {
  std::vector<int> axes = {-1};
  double epsilon = 1e-5;
};
// gain and bias broadcast against x; either may be an invalid Tensor{}.
Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                  const LayerNormOptions& options = {});
struct LrnOptions {
  int64_t size = 5;  // odd window over the channel axis, zero outside
  double alpha = 1e-4, beta = 0.75, bias = 1.0;
  int axis = 1;
};
// x / (bias + alpha / size * sum of squares over the window)^beta
Tensor local_response_norm(const Tensor& x, const LrnOptions& options = {});
Tensor gelu(const Tensor& x);  // x * (1 + erf(x / sqrt 2)) / 2

}  // namespace heddle
