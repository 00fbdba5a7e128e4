// Automatic differentiation: gradients are graph ops, so they fuse and can be differentiated again.
#pragma once

#include <heddle/tensor.h>

#include <functional>

namespace heddle {

// d(sum of y)/dx for each x; zeros where y does not depend on x. `seed` is the upstream gradient
// (default: ones). Complex: the conjugate convention of PyTorch and TensorFlow.
Tensors gradients(const Tensor& y, const Tensors& xs, const Tensor& seed = {});
Tensors gradients(const Tensors& ys, const Tensors& xs, const Tensors& seeds);
// `forward` builds the value, `backward` (inputs, outputs, upstream) -> gradients of the inputs
// replaces the derived rule.
Tensors custom_gradient(const Tensors& inputs,
                        const std::function<Tensors(const Tensors&)>& forward,
                        const std::function<Tensors(const Tensors& inputs, const Tensors& outputs,
                                                    const Tensors& upstream)>& backward);

}  // namespace heddle
