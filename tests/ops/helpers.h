// Small graphs by the judge, and values at the edges of each dtype.
#pragma once

#include "ir/graph.h"
#include "ops/host_tensor.h"
#include "ops/judge.h"

#include <heddle/graph.h>

#include <string>
#include <vector>

namespace heddle::test {

using ops::HostTensor;

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

// What a GraphError says; "" where `build` throws none.
template <class F>
std::string graph_error(F build);

}  // namespace heddle::test

#include <heddle/error.h>

template <class F>
std::string heddle::test::graph_error(F build) {
  try {
    build();
  } catch (const GraphError& e) {
    return e.what();
  }
  return "";
}
