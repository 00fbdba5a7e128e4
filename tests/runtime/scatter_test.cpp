// scatter_add at sizes where devices have forms of their own: the bits of adding one update after
// another, on every device.
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

using ops::HostTensor;

struct Scatter {
  std::vector<int64_t> data;
  int axis = 0;
  int64_t updates = 0;
  int64_t spread = 0;  // rows that are hit; 0: all, and some beyond
  bool zeros = false;  // added to zeros, as by the gradient of gather
  bool open = false;
};

HostTensor one_after_the_other(HostTensor out, const HostTensor& indices, const HostTensor& updates,
                               int axis) {
  int64_t outer = 1, inner = 1, rows = out.shape[static_cast<size_t>(axis)];
  for (size_t k = 0; k < out.shape.size(); ++k)
    (k < static_cast<size_t>(axis) ? outer : inner) *=
        k == static_cast<size_t>(axis) ? 1 : out.shape[k];
  int64_t count = indices.shape[0];
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t j = 0; j < count; ++j) {
      int64_t at = indices.i[static_cast<size_t>(j)];
      if (at < 0) at += rows;
      if (at < 0 || at >= rows) continue;
      for (int64_t w = 0; w < inner; ++w) {
        auto to = static_cast<size_t>((o * rows + at) * inner + w);
        auto from = static_cast<size_t>((o * count + j) * inner + w);
        // Halves are added in f32 and rounded once.
        if (!out.f.empty())
          out.f[to] = out.dtype == f64 ? out.f[to] + updates.f[from]
                                       : static_cast<float>(out.f[to] + updates.f[from]);
        if (!out.i.empty()) out.i[to] += updates.i[from];
        if (!out.c.empty()) {
          out.c[to] = {static_cast<float>(out.c[to].real() + updates.c[from].real()),
                       static_cast<float>(out.c[to].imag() + updates.c[from].imag())};
        }
      }
    }
  }
  ops::round_to_dtype(out);
  return out;
}

void check(DType dtype, const Scatter& s) {
  std::mt19937_64 rng(s.data.size() + static_cast<uint64_t>(s.updates));
  HostTensor data = random_tensor(dtype, s.data, rng, -100, 100);
  if (s.zeros) data = HostTensor(dtype, s.data);
  std::vector<int64_t> shape = s.data;
  int64_t rows = shape[static_cast<size_t>(s.axis)];
  shape[static_cast<size_t>(s.axis)] = s.updates;
  HostTensor updates = random_tensor(dtype, shape, rng, -100, 100);
  HostTensor indices(i64, {s.updates});
  int64_t most = s.spread > 0 ? s.spread : rows + 2;
  for (int64_t& i : indices.i)
    i = static_cast<int64_t>(rng() % static_cast<uint64_t>(2 * most)) - most;
  Graph g;
  auto fed = [&](const std::vector<int64_t>& extents, const char* names) {
    Shape out;
    for (size_t k = 0; k < extents.size(); ++k)
      out.push_back(s.open ? Expr(Dim(std::string(1, names[k]))) : Expr(extents[k]));
    return out;
  };
  Shape data_shape = fed(s.data, "abc"), update_shape = data_shape;
  Expr count = s.open ? Expr(Dim("u")) : Expr(s.updates);
  update_shape[static_cast<size_t>(s.axis)] = count;
  Tensor x = g.placeholder(dtype, data_shape, "data"), i = g.placeholder(i64, {count}, "indices"),
         u = g.placeholder(dtype, update_shape, "updates");
  Tensor base = s.zeros ? broadcast_to(g.constant(0.0, dtype), data_shape) : x;
  Tensor y = scatter_add(base, i, u, {.axis = s.axis});
  Executable e = g.compile({.feeds = {x, i, u}, .targets = {y}}, test_device());
  HostTensor right = one_after_the_other(data, indices, updates, s.axis);
  for (int run = 0; run < 2; ++run) {
    HostTensor got = to_host(e.run({to_array(data), to_array(indices), to_array(updates)})[0]);
    EXPECT_TRUE(ops::to_bytes(got) == ops::to_bytes(right))
        << name(dtype) << " by " << s.updates << " along axis " << s.axis << ": "
        << difference(got, right, {}) << "\n"
        << e.describe();
  }
}

const Scatter kScatters[] = {
    {{100003}, 0, 1},
    {{1000}, 0, 200000},
    {{3}, 0, 20000, 2},
    {{5000, 64}, 0, 8192, 0, true},
    {{5000, 64}, 0, 8193, 0, true},
    {{10, 64}, 0, 1797},
    {{2000, 3}, 0, 9000, 40},
    {{7, 1500}, 1, 600},
    {{3, 1100, 20}, 1, 50, 3},
    {{70000}, 0, 9000, 0, true},
    {{2048}, 0, 0},
    {{5}, 0, 30},
};

TEST(Scatters, OfAThousandRowsAddInTheOrderOfTheUpdates) {
  for (bool open : {false, true}) {
    check(f32, {{1003}, 0, 1, 0, false, open});
    check(f16, {{2, 1030, 20}, 1, 70, 3, false, open});
    check(f32, {{1024, 3}, 0, 40, 0, true, open});
    check(f32, {{5}, 0, 30, 0, false, open});
    check(f32, {{0}, 0, 3, 1, false, open});
  }
}

TEST(LargeScatters, AddInTheOrderOfTheUpdates) {
  for (Scatter s : kScatters) {
    for (bool open : {false, true}) {
      s.open = open;
      for (DType d : {f32, f16, i32, DType::c64}) check(d, s);
    }
  }
  for (DType d : {f64, DType::bf16, i64, u8}) check(d, {{2000, 3}, 0, 9000, 40});
}

}  // namespace
}  // namespace heddle::test
