// The kernels of scatter_add, run on this machine's CPU: the bits of adding one update after the
// other.
#include "backend/cuda/scatter_source.h"

#include "backend/cuda/compiler.h"
#include "backend/cuda/prelude.h"
#include "backend_cuda/simulated_code.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace heddle::test {
namespace {

using cuda::ScatterSizes;
using cuda::ScatterTypes;
using ops::HostTensor;

struct Shape3 {
  ScatterSizes sizes;
  int64_t ranked = cuda::kRankedUpdates;  // 0: sorted by digits
  bool zeros = false;
  int64_t spread = 0;  // indices lie in [-spread, spread], 0: in all rows and a little beyond
};

double added(DType d, double a, double b) {
  HostTensor t(compute_type(d), {1});
  t.f[0] = a + b;
  ops::round_to_dtype(t);
  return t.f[0];
}

// In the order of the updates, in the type that sums are kept in.
HostTensor one_after_the_other(const HostTensor& data, const HostTensor& indices,
                               const HostTensor& updates, const ScatterSizes& s) {
  HostTensor out = data;
  for (int64_t o = 0; o < s.outer; ++o) {
    for (int64_t j = 0; j < s.count; ++j) {
      int64_t at = indices.i[static_cast<size_t>(j)];
      if (at < 0 && is_signed_integer(indices.dtype)) at += s.rows;
      if (at < 0 || at >= s.rows) continue;
      for (int64_t w = 0; w < s.inner; ++w) {
        auto to = static_cast<size_t>((o * s.rows + at) * s.inner + w);
        auto from = static_cast<size_t>((o * s.count + j) * s.inner + w);
        if (!out.f.empty()) {
          out.f[to] = added(data.dtype, out.f[to], updates.f[from]);
        } else {
          out.i[to] = static_cast<int64_t>(static_cast<uint64_t>(out.i[to]) +
                                           static_cast<uint64_t>(updates.i[from]));
        }
      }
    }
  }
  ops::round_to_dtype(out);
  return out;
}

const SimulatedCode& code_of(const ScatterTypes& types) {
  static std::map<ScatterTypes, std::unique_ptr<SimulatedCode>> all;
  std::unique_ptr<SimulatedCode>& code = all[types];
  if (!code)
    code = std::make_unique<SimulatedCode>(cuda::prelude_common(types.wide) +
                                           cuda::scatter_source(types));
  return *code;
}

void check(const ScatterTypes& types, DType index, const Shape3& shape) {
  const ScatterSizes& s = shape.sizes;
  SCOPED_TRACE(std::string(name(types.value)) + " by " + std::string(name(index)) +
               (types.wide ? " wide" : "") + ": " + std::to_string(s.outer) + " x " +
               std::to_string(s.rows) + " x " + std::to_string(s.inner) + ", " +
               std::to_string(s.count) + " updates, ranked " + std::to_string(shape.ranked));
  std::mt19937_64 rng(static_cast<uint64_t>(s.rows * 31 + s.count));
  HostTensor data = random_tensor(types.value, {s.outer, s.rows, s.inner}, rng, -100, 100);
  if (shape.zeros) {
    for (double& v : data.f) v = 0;
    for (int64_t& v : data.i) v = 0;
  }
  HostTensor updates = random_tensor(types.value, {s.outer, s.count, s.inner}, rng, -100, 100);
  HostTensor indices(index, {s.count});
  int64_t most = shape.spread > 0 ? shape.spread : s.rows + 2;
  for (int64_t& i : indices.i) {
    i = static_cast<int64_t>(rng() % static_cast<uint64_t>(2 * most + 1)) - most;
    if (!is_signed_integer(index)) i = std::abs(i);
  }
  ops::round_to_dtype(indices);
  std::vector<std::byte> a = ops::to_bytes(data), b = ops::to_bytes(indices),
                         c = ops::to_bytes(updates), out(a.size(), std::byte{0xff}),
                         work(static_cast<size_t>(cuda::scatter_workspace(s, types.wide)) + 256,
                              std::byte{0xaa});
  auto address = reinterpret_cast<uintptr_t>(work.data());
  cuda::ScatterBuffers buffers{
      shape.zeros ? nullptr : a.data(),   b.data(), index, c.data(), out.data(),
      work.data() + (256 - address % 256)};
  for (const cuda::ScatterLaunch& l : cuda::scatter_launches(types, s, buffers, shape.ranked))
    code_of(types).run(l.entry, l.grid, l.block, {l.words.begin(), l.words.end()});
  HostTensor right = one_after_the_other(data, indices, updates, s);
  EXPECT_TRUE(out == ops::to_bytes(right))
      << difference(ops::from_bytes(data.dtype, data.shape, out), right, {});
}

const Shape3 kShapes[] = {
    {{1, 1, 1, 1}},
    {{1, 1003, 1, 1}},
    {{1, 5, 1, 0}},
    {{1, 0, 3, 4}},
    {{1, 7, 1, 33}, cuda::kRankedUpdates, true},
    {{1, 40, 1, 300}, 0},
    {{1, 3, 1, 700}, 0, false, 2},  // long runs
    {{1, 2, 1, 2300}, cuda::kRankedUpdates, false, 1},
    {{3, 50, 5, 70}},
    {{2, 50, 40, 65}, 0, true},  // lanes along the inner extent
    {{1, 4, 33, 200}, 0, false, 3},
    {{1, 70000, 1, 400}, 0},  // three digits
    {{1, 300, 2, 4500}, 0},   // several tiles
};

TEST(CudaScatter, AddsInTheOrderOfTheUpdates) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  for (const Shape3& shape : kShapes) {
    check({f32, false}, i64, shape);
    check({f32, true}, i64, shape);
    check({f16, false}, i32, shape);
  }
}

TEST(CudaScatter, EveryType) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  for (DType d : {f64, DType::bf16, i8, i16, i32, i64, u8, u16, u32, u64}) {
    check({d, false}, i32, {{1, 30, 1, 200}, 0});
    check({d, false}, i32, {{2, 9, 17, 40}});
  }
  for (DType index : {i8, i16, u8, u16, u32, u64}) {
    check({f32, false}, index, {{1, 30, 1, 90}});
    check({f32, false}, index, {{1, 30, 1, 90}, 0});
  }
}

TEST(CudaScatter, CompilesForHopper) {
  if (!cuda::compiler().usable) GTEST_SKIP() << cuda::compiler().reason;
  for (bool wide : {false, true}) {
    for (DType d : {f32, f64, DType::bf16, i8}) {
      ScatterTypes types{d, wide};
      EXPECT_FALSE(cuda::compile_cubin(cuda::prelude_machine() + cuda::prelude_common(wide) +
                                           cuda::scatter_source(types),
                                       "scatter_add", "sm_90")
                       .empty());
    }
  }
}

}  // namespace
}  // namespace heddle::test
