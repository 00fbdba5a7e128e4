// Control operations driven from outside and as single kernels, against the judge.
#include "loop/run_scheduled.h"
#include "ops/judge.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

struct Case {
  Graph graph;
  Tensors feeds;
  std::mt19937_64 rng{11};
  std::vector<ops::HostTensor> values;
  std::string text;

  Tensor feed(DType dtype, Shape shape, double low = -2, double high = 2) {
    std::vector<int64_t> numbers;
    for (const Expr& e : shape) numbers.push_back(*e.constant());
    feeds.push_back(graph.placeholder(dtype, shape));
    values.push_back(random_tensor(dtype, numbers, rng, low, high));
    return feeds.back();
  }
  // Returns how many control operations became one kernel.
  int check(const Tensors& targets, const target::DeviceDescription* device = nullptr) {
    std::shared_ptr<ir::Graph> g = prepare(graph, feeds, targets);
    std::vector<ops::HostTensor> expected = ops::judge(*g, values);
    int fused = 0;
    for (bool fuse : {false, true}) {
      ScheduledRun r = run_scheduled(*g, values, {.fuse_loops = fuse, .device = device});
      text = r.text;
      for (size_t k = 0; k < expected.size(); ++k) {
        Tolerance t = tolerance(expected[k].dtype, 64, 8);
        t.relative *= 16;
        EXPECT_EQ(difference(r.results[k], expected[k], t), "")
            << "fused " << fuse << ", target " << k << "\n"
            << text;
      }
      fused = r.loop_kernels;
    }
    return fused;
  }
};

TEST(Control, ScalarLoopHasNoBarrier) {
  Case c;
  Tensor x = c.feed(f32, {}, 1, 2);
  Tensors r = while_loop(
      {x}, [](const Tensors& v) { return less(v[0], constant_like(v[0], 100.0)); },
      [](const Tensors& v) { return Tensors{v[0] * 1.5}; });
  EXPECT_EQ(c.check(r), 1);
  EXPECT_EQ(c.text.find("barrier"), std::string::npos) << c.text;
}

// A row of what is scanned is the next carried value, as it is.
TEST(Control, ARowIsCarriedOn) {
  for (int64_t rows : {1, 2, 5}) {
    Case c;
    Tensor x = c.feed(f32, {3}), xs = c.feed(f32, {rows, 3});
    ScanResult r = scan({x}, {xs}, [](const Tensors& v, const Tensors& row) {
      return ScanResult{{row[0]}, {v[0] * 0.5}};
    });
    EXPECT_EQ(c.check({r.carried[0], r.stacked[0]}), 1);
  }
}

TEST(Control, JacobiUntilTolerance) {
  target::DeviceDescription device;
  device.shared_memory = 1 << 16;
  for (const target::DeviceDescription* d :
       {static_cast<const target::DeviceDescription*>(nullptr),
        static_cast<const target::DeviceDescription*>(&device)}) {
    for (int64_t n : {int64_t{12}, int64_t{100}}) {
      Case c;
      Tensor x = c.feed(f32, {n, n + 1}), b = c.feed(f32, {n, n + 1}),
             w = c.feed(f32, {3, 3}, 0, 0.1);
      Tensor r0 = c.feed(f32, {}, 10, 11);
      Tensors r = while_loop(
          {x, r0}, [](const Tensors& v) { return greater(v[1], constant_like(v[1], 0.5)); },
          [&](const Tensors& v) {
            Tensor next = stencil(v[0], w) + b;
            return Tensors{next, reduce_max(abs(next - v[0]))};
          });
      EXPECT_EQ(c.check(r, d), 1) << c.text;
    }
  }
}

TEST(Control, PermutedAndUnchangedValues) {
  Case c;
  Tensor x = c.feed(f32, {4}), y = c.feed(f32, {4}), z = c.feed(f32, {2, 2});
  Tensors r = for_loop(Expr(3), {x, y, z}, [](const Tensor& i, const Tensors& v) {
    return Tensors{v[1] + cast(i, f32), v[0], v[2]};
  });
  EXPECT_EQ(c.check({r[0], r[1], r[2]}), 1) << c.text;
  Tensors s = for_loop(Expr(2), {x, z}, [](const Tensor&, const Tensors& v) {
    return Tensors{reshape(v[1], Shape{4}), reshape(v[0], Shape{2, 2})};
  });
  EXPECT_EQ(c.check(s), 1) << c.text;
}

TEST(Control, ScanWithSlicesAndRows) {
  Case c;
  Tensor h = c.feed(f32, {3}), xs = c.feed(f32, {5, 3}), w = c.feed(f32, {3, 3}),
         ks = c.feed(f32, {5});
  ScanResult r = scan({h}, {xs, ks}, [&](const Tensors& v, const Tensors& s) {
    Tensor next = tanh(reshape(matmul(reshape(v[0], Shape{1, 3}), w), Shape{3}) + s[0]) * s[1];
    return ScanResult{{next}, {next, sum(next)}};
  });
  EXPECT_EQ(c.check({r.carried[0], r.stacked[0], r.stacked[1]}), 1) << c.text;
}

TEST(Control, BranchesAndNesting) {
  for (bool way : {false, true}) {
    Case c;
    Tensor x = c.feed(f32, {4, 5}), p = c.feed(f32, {}, way ? 1 : -2, way ? 2 : -1);
    Tensors r = cond(
        greater(p, constant_like(p, 0.0)), [&] { return Tensors{x * 2.0, sum(x)}; },
        [&] { return Tensors{x, p}; });
    EXPECT_EQ(c.check(r), 1) << c.text;
    Tensors n = for_loop(Expr(3), {x}, [&](const Tensor& i, const Tensors& v) {
      Tensors inner = while_loop(
          {v[0], i}, [](const Tensors& u) { return less(u[1], constant_like(u[1], 3)); },
          [](const Tensors& u) { return Tensors{u[0] * 0.5 + mean(u[0]), u[1] + 1.0}; });
      return Tensors{cond(
          greater(p, constant_like(p, 0.0)), [&] { return inner[0]; },
          [&] { return relu(inner[0]) - cast(i, f32); })};
    });
    EXPECT_EQ(c.check(n), 1) << c.text;
  }
}

TEST(Control, BoundedWhile) {
  Case c;
  Tensor x = c.feed(f32, {6});
  Tensors r = while_loop(
      {x}, [](const Tensors& v) { return greater(sum(abs(v[0])), constant_like(v[0], 0.01)); },
      [](const Tensors& v) { return Tensors{v[0] * 0.9}; }, {.max_iterations = 7});
  EXPECT_EQ(c.check(r), 1) << c.text;
}

TEST(Control, RepeatedScalarsKeepTheirOldValues) {
  Case c;
  Tensor a = c.feed(i64, {}, 1, 5), b = c.feed(i64, {}, 1, 5);
  Tensors r = for_loop(Expr(10), {a, b},
                       [](const Tensor&, const Tensors& v) { return Tensors{v[1], v[0] + v[1]}; });
  EXPECT_EQ(c.check(r), 1) << c.text;
}

}  // namespace
}  // namespace heddle::test
