// Automatic differentiation: gradients are graph ops, so they fuse and can be differentiated again.
#pragma once

#include <heddle/tensor.h>

#include <functional>

namespace heddle {

struct GradientOptions {
  // GraphError for an x that no y depends on (a wrong handle, a forgotten connection); else zeros.
  bool refuse_unrelated = false;
};
// d(sum of y)/dx for each x; zeros where y does not depend on x. `seed` is the upstream gradient
// (default: ones). Complex: the conjugate convention of PyTorch and TensorFlow.
Tensors gradients(const Tensor& y, const Tensors& xs, const Tensor& seed = {},
                  const GradientOptions& options = {});
Tensors gradients(const Tensors& ys, const Tensors& xs, const Tensors& seeds,
                  const GradientOptions& options = {});

struct CustomGradientOptions {
  // Tensors that `forward` takes from outside without naming them as inputs are constants for
  // gradients, as behind stop_gradient. Else gradients() refuses one that depends on what is
  // differentiated, since `backward` has no gradient of it.
  bool constant_captures = false;
};
// `forward` builds the value, `backward` (inputs, outputs, upstream) -> gradients of the inputs
// replaces the derived rule. An empty Tensor of `backward` means no gradient.
//
//   // x / k, with a gradient that is cut off at 1:
//   custom_gradient({x, k}, [](const Tensors& in) { return Tensors{in[0] / in[1]}; },
//                   [](const Tensors& in, const Tensors&, const Tensors& up) {
//                     return Tensors{minimum(up[0] / in[1], constant_like(up[0], 1)), Tensor{}}; })
Tensors custom_gradient(const Tensors& inputs,
                        const std::function<Tensors(const Tensors&)>& forward,
                        const std::function<Tensors(const Tensors& inputs, const Tensors& outputs,
                                                    const Tensors& upstream)>& backward,
                        const CustomGradientOptions& options = {});

}  // namespace heddle
