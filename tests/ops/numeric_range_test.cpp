// Reductions over squares and products whose results fit, though a square or a sum on the way may
// not.
#include "support/evaluate.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

using ops::HostTensor;
using Rows = std::vector<std::vector<double>>;

// f of rows [r, n] along axis 1, or of their transpose along axis 0.
using RowFunction = std::function<Tensor(const Tensor& x, int axis)>;

struct Layout {
  bool transposed, open;
};
constexpr Layout kLayouts[] = {{false, false}, {false, true}, {true, false}, {true, true}};

HostTensor tensor_of(const Rows& rows, DType dtype, bool transposed) {
  size_t r = rows.size(), n = rows[0].size();
  HostTensor t(dtype, transposed ? std::vector<int64_t>{int64_t(n), int64_t(r)}
                                 : std::vector<int64_t>{int64_t(r), int64_t(n)});
  for (size_t i = 0; i < r; ++i) {
    for (size_t k = 0; k < n; ++k) {
      size_t at = transposed ? k * r + i : i * n + k;
      if (is_complex(dtype)) {
        t.c[at] = {rows[i][k], -rows[i][k]};
      } else {
        t.f[at] = rows[i][k];
      }
    }
  }
  ops::round_to_dtype(t);
  return t;
}

double at(const HostTensor& t, size_t row, size_t k, bool transposed) {
  size_t r = static_cast<size_t>(t.shape[transposed ? 1 : 0]),
         n = t.size() / static_cast<int64_t>(r);
  return t.f[transposed ? k * r + row : row * n + k];
}

// `right`: of each row (as it was rounded to the dtype) its results; within `ulps` of them.
void check(const RowFunction& f, DType dtype, const Rows& rows,
           const std::function<std::vector<double>(const std::vector<double>&)>& right,
           double ulps) {
  for (const Layout& layout : kLayouts) {
    HostTensor fed = tensor_of(rows, dtype, layout.transposed);
    Graph g;
    Shape shape(fed.shape.begin(), fed.shape.end());
    if (layout.open) shape = {Dim("a"), Dim("b")};
    Tensor x = g.placeholder(dtype, shape, "x");
    Tensor y = f(x, layout.transposed ? 0 : 1);
    for (const Device& d : {test_device(), device("interpreter"), device("judge")}) {
      HostTensor got =
          to_host(g.compile({.feeds = {x}, .targets = {y}}, d).run({to_array(fed)})[0]);
      bool vector = got.shape.size() == 2;
      for (size_t i = 0; i < rows.size(); ++i) {
        std::vector<double> row;
        for (size_t k = 0; k < rows[i].size(); ++k)
          row.push_back(
              is_complex(dtype)
                  ? fed.c[layout.transposed ? k * rows.size() + i : i * rows[i].size() + k].real()
                  : at(fed, i, k, layout.transposed));
        std::vector<double> want = right(row);
        for (size_t k = 0; k < want.size(); ++k) {
          double value = vector ? at(got, i, k, layout.transposed) : got.f[i];
          double allowed = ulps * ops::epsilon(got.dtype) *
                           std::max(std::fabs(want[k]), vector ? 1e-3 * std::fabs(want[0]) : 0);
          if (!std::isfinite(want[k])) {
            EXPECT_EQ(std::isnan(value), std::isnan(want[k]));
            EXPECT_EQ(std::isinf(value), std::isinf(want[k]));
          } else {
            EXPECT_NEAR(value, want[k], allowed)
                << name(dtype) << " on " << d.name() << ", row " << i << ", element " << k
                << (layout.transposed ? ", along axis 0" : "") << (layout.open ? ", open" : "");
          }
        }
      }
    }
  }
}

double mean_of(const std::vector<double>& row) {
  long double total = 0;
  for (double v : row) total += v;
  return static_cast<double>(total / static_cast<long double>(row.size()));
}
long double wide_variance_of(const std::vector<double>& row) {
  long double m = mean_of(row), total = 0;
  for (double v : row) total += (v - m) * (v - m);
  return total / static_cast<long double>(row.size());
}
double variance_of(const std::vector<double>& row) {
  return static_cast<double>(wide_variance_of(row));
}
double root_of(const std::vector<double>& row, double epsilon) {
  return static_cast<double>(std::sqrt(wide_variance_of(row) + epsilon));
}

std::vector<double> around(size_t n, double middle, double spread) {
  std::mt19937_64 rng(n);
  std::normal_distribution<double> normal(middle, spread);
  std::vector<double> row(n);
  for (double& v : row) v = normal(rng);
  return row;
}

Tensor variance_along(const Tensor& x, int axis) { return variance(x, {.axes = {axis}}); }

TEST(NumericRange, VarianceThatFits) {
  EXPECT_NEAR(variance_of({0, 3e19, 0, 3e19}), 2.25e38, 1e30);
  for (DType d : {f32, DType::bf16}) {
    for (const std::vector<double>& row : {std::vector<double>{0, 3e19, 0, 3e19},
                                           {3e19},
                                           {1e19, -2e19},
                                           {-1e19, 2e19, 1e18},
                                           around(1000, 1e20, 1e19),
                                           around(5003, 0, 1e19),
                                           around(17, 1, 2),
                                           around(64, 1, 1e-3)})
      check(
          variance_along, d, {row, row, row},
          [](const std::vector<double>& r) { return std::vector<double>{variance_of(r)}; },
          d == f32 ? 64 : 4);
  }
  // |x|^2 of complex numbers whose parts are as large as each other.
  check(
      variance_along, DType::c64, {{0, 2e19, 0, 2e19}, {1, 2, 3, 4}},
      [](const std::vector<double>& r) { return std::vector<double>{2 * variance_of(r)}; }, 64);
  check(
      variance_along, f64, {{0, 3e150, 0, 3e150}},
      [](const std::vector<double>& r) { return std::vector<double>{variance_of(r)}; }, 64);
  // Results below the least normal number.
  check(
      variance_along, f32, {{0, 1e-20, 0, 1e-20}},
      [](const std::vector<double>& r) { return std::vector<double>{variance_of(r)}; }, 1e5);
  check(
      variance_along, f16, {{0, 60000, 0, 1}, {-1, 2, 3, 4}},
      [](const std::vector<double>& r) {
        double v = variance_of(r);
        return std::vector<double>{v > 65519 ? INFINITY : v};
      },
      4);
}

TEST(NumericRange, VarianceOfNumbersThatAreNone) {
  double inf = INFINITY;
  check(
      variance_along, f32, {{1, inf, 2}, {NAN, 1, 2}, {inf, -inf, 0}},
      [](const std::vector<double>&) { return std::vector<double>{NAN}; }, 4);
}

RowFunction normalised(double epsilon) {
  return [epsilon](const Tensor& x, int axis) {
    return layer_norm(x, {}, {}, {.axes = {axis}, .epsilon = epsilon});
  };
}
std::function<std::vector<double>(const std::vector<double>&)> right_normalised(double epsilon) {
  return [epsilon](const std::vector<double>& row) {
    double m = mean_of(row), root = root_of(row, epsilon);
    std::vector<double> y;
    for (double v : row) y.push_back((v - m) / root);
    return y;
  };
}

TEST(NumericRange, LayerNormOfAnySize) {
  for (DType d : {f32, DType::bf16}) {
    for (double epsilon : {1e-5, 1e-12, 0.5, 1e-30, 0.0}) {
      for (double size : {1.0, 1e-3, 1e15, 1e22, 1e27}) {
        std::vector<double> row = around(65, 0, size);
        check(normalised(epsilon), d, {{-size, size}, {size, -size}}, right_normalised(epsilon),
              d == f32 ? 64 : 4);
        check(normalised(epsilon), d, {row, row}, right_normalised(epsilon), d == f32 ? 256 : 4);
      }
    }
  }
  // Without an epsilon small rows count too.
  check(normalised(0), f32, {around(33, 0, 1e-25), around(33, 0, 1e-30)}, right_normalised(0), 256);
  check(normalised(1e-5), f64, {around(65, 0, 1e180), around(65, 0, 1)}, right_normalised(1e-5),
        256);
  check(normalised(1e-5), f16, {around(65, 0, 100), around(65, 0, 2)}, right_normalised(1e-5), 4);
}

// The derivative of sum(y * w) by x is (w - mean(w) - y mean(w y)) / root, here with w = 1, 2, ...
TEST(NumericRange, GradientOfLayerNormOfAnySize) {
  for (double size : {1.0, 1e22}) {
    for (double epsilon : {1e-5, 0.0}) {
      check(
          [&](const Tensor& x, int axis) {
            Tensor w = cumulative_sum(constant_like(x, 1) + x * 0.0, {.axis = axis});
            return gradients(sum(normalised(epsilon)(x, axis) * stop_gradient(w)), {x})[0] * size;
          },
          f32, {around(9, 0, size), around(9, 1, size)},
          [&](const std::vector<double>& row) {
            std::vector<double> y = right_normalised(epsilon)(row), out;
            double root = root_of(row, epsilon), w = 0, wy = 0;
            auto n = static_cast<double>(row.size());
            for (size_t k = 0; k < row.size(); ++k) {
              w += static_cast<double>(k + 1) / n;
              wy += static_cast<double>(k + 1) * y[k] / n;
            }
            for (size_t k = 0; k < row.size(); ++k)
              out.push_back((static_cast<double>(k + 1) - w - y[k] * wy) / root * size);
            return out;
          },
          4096);
    }
  }
}

// Scaling by powers of 2 leaves the bits of ordinary numbers as they are.
TEST(NumericRange, LayerNormHasTheBitsOfItsFormula) {
  Graph g;
  Tensor x = g.placeholder(f32, {7, 203}, "x");
  ReduceOptions along{.axes = {1}, .keep_axes = true};
  Tensor d = x - mean(x, along);
  Tensor plain = d / sqrt(mean(d * d, along) + 1e-5);
  std::mt19937_64 rng(4);
  for (const Device& on : {test_device(), device("interpreter")}) {
    std::vector<Array> got =
        g.compile({.feeds = {x}, .targets = {layer_norm(x, {}, {}), plain}}, on)
            .run({to_array(random_tensor(f32, {7, 203}, rng))});
    EXPECT_TRUE(got[0].to_bytes() == got[1].to_bytes()) << on.name();
  }
}

// 1 and four times 0.0019 in bf16, whose numbers near 1 are 0.0078125 apart: rounded once, or after
// every operation, which then never moves.
// Extremes beside a plain number, of values that are known to be no NaN: LLVM makes calls of them.
TEST(HalfTypes, ExtremesBesideANumber) {
  for (DType d : {f16, bf16, f32, f64}) {
    Graph g;
    ops::HostTensor x = floats({5}, {-2, -0.5, 0, 1, 3}, d);
    Tensor t = g.placeholder(d, {5}), a = abs(t), k = constant_like(t, 0.75);
    EXPECT_EQ(evaluate({{t, x}}, maximum_number(k, a)).f,
              (std::vector<double>{2, 0.75, 0.75, 1, 3}));
    EXPECT_EQ(evaluate({{t, x}}, minimum_number(a, k)).f,
              (std::vector<double>{0.75, 0.5, 0, 0.75, 0.75}));
    EXPECT_EQ(evaluate({{t, x}}, maximum(a, k)).f, (std::vector<double>{2, 0.75, 0.75, 1, 3}));
  }
}

TEST(HalfTypes, AFusedChainRoundsOnce) {
  Graph g;
  Tensor x = g.placeholder(DType::bf16, {3}, "x"), y = x;
  for (int k = 0; k < 4; ++k) y = y + 0.0019;
  Array one = Array::from_bytes(
      DType::bf16, {3}, std::as_bytes(std::span<const uint16_t>(std::vector<uint16_t>(3, 0x3f80))));
  auto value = [&](const Device& d, bool fusion) {
    return g.compile({.feeds = {x}, .targets = {y}}, d, {.fusion = fusion})
        .run({one})[0]
        .to_vector<double>();
  };
  for (const Device& d : {test_device(), device("interpreter")}) {
    EXPECT_EQ(value(d, true), std::vector<double>(3, 1.0078125)) << d.name();
    EXPECT_EQ(value(d, false), std::vector<double>(3, 1.0)) << d.name();
  }
  EXPECT_EQ(value(device("judge"), true), std::vector<double>(3, 1.0));
}

// Partial sums of a scatter are kept in f32 for f32 too, in the order of the updates.
TEST(NumericRange, ScatterAddKeepsItsSumsInF32) {
  for (auto [dtype, start, right] : {std::tuple{f32, 16777216.0, 16777216.0},
                                     {f64, 16777216.0, 16777218.0},
                                     {f16, 2048.0, 2050.0},
                                     {DType::bf16, 256.0, 258.0}}) {
    Graph g;
    Tensor data = g.placeholder(dtype, {1}, "data"), at = g.placeholder(i64, {2}, "at"),
           updates = g.placeholder(dtype, {2}, "updates");
    Tensor y = scatter_add(data, at, updates);
    HostTensor from(dtype, {1}), ones(dtype, {2});
    from.f[0] = start;
    ones.f = {1, 1};
    for (const Device& d : {test_device(), device("interpreter")}) {
      Array got = g.compile({.feeds = {data, at, updates}, .targets = {y}}, d)
                      .run({to_array(from), Array::from<int64_t>({2}, {0, 0}), to_array(ones)})[0];
      EXPECT_EQ(got.to_vector<double>()[0], right) << name(dtype) << " on " << d.name();
    }
  }
}

}  // namespace
}  // namespace heddle::test
