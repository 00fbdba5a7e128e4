// Small graphs by the judge, and values at the edges of each dtype.
#pragma once

#include "ir/graph.h"
#include "ops/host_tensor.h"
#include "ops/judge.h"
#include "support/evaluate.h"
#include "support/numeric.h"

#include <heddle/graph.h>

#include <string>
#include <vector>

namespace heddle::test {

using ops::HostTensor;

// `targets` for these values of the feeds.
std::vector<HostTensor> judged(const Tensors& feeds, const Tensors& targets,
                               const std::vector<HostTensor>& values);
HostTensor judged_one(const Tensors& feeds, const Tensor& target,
                      const std::vector<HostTensor>& values);

// Elements given as numbers; rounded to the dtype.
HostTensor host(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values);
HostTensor host_integers(DType dtype, std::vector<int64_t> shape,
                         const std::vector<int64_t>& values);

// Zeros, ones, extremes, subnormals, infinities, NaN, some ordinary numbers; every code of a
// storage type.
HostTensor edge_values(DType dtype);

// Bit pattern of element k as bodies see it (for a complex one of its real, imaginary part).
uint64_t element_bits(const HostTensor& t, size_t k, bool imaginary = false);

}  // namespace heddle::test
