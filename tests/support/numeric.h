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

inline constexpr DType kEveryDType[] = {f64,
                                        f32,
                                        f16,
                                        bf16,
                                        i8,
                                        i16,
                                        i32,
                                        i64,
                                        u8,
                                        u16,
                                        u32,
                                        u64,
                                        bool_,
                                        c32,
                                        c64,
                                        c128,
                                        DType::f8e4m3fn,
                                        DType::f8e5m2,
                                        DType::f8e4m3fnuz,
                                        DType::f8e5m2fnuz,
                                        DType::f8e8m0,
                                        DType::f4e2m1,
                                        DType::i2,
                                        DType::i4,
                                        DType::u2,
                                        DType::u4};

// Random values in [low, high] that the dtype holds exactly: integers are rounded, booleans are
// coin tosses.
ops::HostTensor random_tensor(DType dtype, std::vector<int64_t> shape, std::mt19937_64& rng,
                              double low = -2, double high = 2);

Array to_array(const ops::HostTensor& t);  // on the host, packed
ops::HostTensor to_host(const Array& a);   // packed copy of any array

using ops::epsilon;

struct Tolerance {
  double relative = 0, absolute = 0;
  // Complex values of a function with poles: next to one of order 1 the rounding of the argument
  // grows with the value's modulus.
  bool poles = false;
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
// The number that a switch of base/env.cpp holds, else `fallback`.
uint64_t test_number(const char* variable, uint64_t fallback);
// HEDDLE_SEED, else `fallback`; printed by the caller.
uint64_t test_seed(uint64_t fallback);
// HEDDLE_TEST_COUNT, else `fallback`.
uint64_t test_count(uint64_t fallback);

}  // namespace heddle::test
