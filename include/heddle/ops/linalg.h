// Matrix products.
#pragma once

#include <heddle/tensor.h>

namespace heddle {

struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;  // of the last two axes
};
// [..., m, k] x [..., k, n] -> [..., m, n]; batch axes broadcast. Rank 1 operands are an error:
// reshape first.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});

}  // namespace heddle
