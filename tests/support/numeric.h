// Values for tests and how closely results must agree: tolerances come from the dtype and the
// length of a reduction.
#pragma once

#include "ops/host_tensor.h"

#include <heddle/array.h>
#include <heddle/device.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace heddle::test {

// Random values in [low, high] that the dtype holds exactly: integers are rounded, booleans are
// coin tosses.
ops::HostTensor random_tensor(DType dtype, std::vector<int64_t> shape, std::mt19937_64& rng,
                              double low = -2, double high = 2);

Array to_array(const ops::HostTensor& t);  // on the host, packed
ops::HostTensor to_host(const Array& a);   // packed copy of any array

// Distance between 1 and the next number of the dtype (its real part); 0 for integers and boolean.
double epsilon(DType dtype);

struct Tolerance {
  double relative = 0, absolute = 0;
};
// `length`: how many terms were folded into a result; `scale`: their largest magnitude. Elementary
// functions promise 2 ULP, composites a few of them.
Tolerance tolerance(DType dtype, int64_t length, double scale);

// Empty where they agree (NaN with NaN, infinities exactly), else the first difference with its
// position.
std::string difference(const ops::HostTensor& actual, const ops::HostTensor& expected,
                       Tolerance tolerance);

// HEDDLE_TEST_DEVICE, else the CPU with compiled kernels where its backend is there, else the
// interpreter.
Device test_device();
// HEDDLE_SEED, else `fallback`; printed by the caller.
uint64_t test_seed(uint64_t fallback);

}  // namespace heddle::test
