// Kernel counts of known graphs, and results against the judge.
#include "loop/run_scheduled.h"
#include "ops/judge.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

struct Case {
  Graph graph;
  Tensors feeds;
  std::mt19937_64 rng{7};
  std::vector<ops::HostTensor> values;

  Tensor feed(DType dtype, Shape shape, std::vector<int64_t> numbers = {}) {
    if (numbers.empty()) {
      for (const Expr& e : shape) numbers.push_back(*e.constant());
    }
    feeds.push_back(graph.placeholder(dtype, shape));
    values.push_back(random_tensor(dtype, numbers, rng));
    return feeds.back();
  }
  // Runs fused and unfused; returns the number of kernels.
  int check(const Tensors& targets, int64_t length = 1, bool print = false,
            const target::DeviceDescription* device = nullptr) {
    std::shared_ptr<ir::Graph> g = prepare(graph, feeds, targets);
    std::vector<ops::HostTensor> expected = ops::judge(*g, values);
    ScheduledRun fused = run_scheduled(*g, values, {.device = device});
    if (print) printf("%s\n%s\n", ir::print(*g).c_str(), fused.text.c_str());
    ScheduledRun plain = run_scheduled(*g, values, {.fusion = false});
    for (size_t k = 0; k < expected.size(); ++k) {
      Tolerance t = tolerance(expected[k].dtype, length, 8);
      t.relative *= 4;
      EXPECT_EQ(difference(fused.results[k], expected[k], t), "") << "fused, target " << k << "\n"
                                                                  << fused.text;
      EXPECT_EQ(difference(plain.results[k], expected[k], t), "")
          << "not fused, target " << k << "\n"
          << plain.text;
    }
    text = fused.text;
    return fused.kernels;
  }
  std::string text;
};

#define EXPECT_KERNELS(c, n, ...) EXPECT_EQ((c).check(__VA_ARGS__), n) << (c).text

TEST(Schedule, Pointwise) {
  Case c;
  Tensor x = c.feed(f32, {4, 5}), b = c.feed(f32, {5});
  EXPECT_KERNELS(c, 1, {exp(x + b) * x});
}

TEST(Schedule, SoftmaxFromPrimitives) {
  for (int axis : {0, 1, 2}) {
    Case c;
    Tensor x = c.feed(f32, {3, 5, 7});
    Tensor m = reduce_max(x, {.axes = {axis}, .keep_axes = true});
    Tensor e = exp(x - m);
    EXPECT_KERNELS(c, 1, {e / sum(e, {.axes = {axis}, .keep_axes = true})}, 7);
  }
}

TEST(Schedule, SoftmaxWithPrologueAndEpilogue) {
  Case c;
  Tensor x = c.feed(f16, {3, 5, 7}), b = c.feed(f16, {5, 1});
  Tensor z = tanh(x) * b;
  Tensor e = exp(z - reduce_max(z, {.axes = {1}, .keep_axes = true}));
  Tensor y = e / sum(e, {.axes = {1}, .keep_axes = true});
  EXPECT_KERNELS(c, 1, {relu(y - b)}, 7);
}

TEST(Schedule, LayerNorm) {
  Case c;
  Tensor x = c.feed(f32, {6, 10}), g = c.feed(f32, {10}), b = c.feed(f32, {10});
  EXPECT_KERNELS(c, 1, {layer_norm(x, g, b)}, 10);
  Tensor m = mean(x, {.axes = {0}, .keep_axes = true});
  Tensor d = x - m;
  Tensor v = mean(d * d, {.axes = {0}, .keep_axes = true});
  EXPECT_KERNELS(c, 1, {d * rsqrt(v + 1e-5)}, 10);
}

TEST(Schedule, ResidualIsStoredAndNormalised) {
  Case c;
  Tensor x = c.feed(f32, {6, 10}), r = c.feed(f32, {6, 10});
  Tensor s = x + r;
  EXPECT_KERNELS(c, 1, {s, layer_norm(s, Tensor{}, Tensor{})}, 10);
}

TEST(Schedule, GroupNorm) {
  Case c;
  Tensor x = c.feed(f32, {2, 6, 4, 5}), g = c.feed(f32, {6, 1, 1});
  Tensor r = reshape(x, Shape{2, 3, 40});
  Tensor d = r - mean(r, {.axes = {2}, .keep_axes = true});
  Tensor y = d * rsqrt(mean(d * d, {.axes = {2}, .keep_axes = true}) + 1e-5);
  EXPECT_KERNELS(c, 1, {reshape(y, Shape{2, 6, 4, 5}) * g}, 40);
}

TEST(Schedule, LocalResponseNorm) {
  Case c;
  Tensor x = c.feed(f32, {2, 8, 3, 4});
  EXPECT_KERNELS(c, 1, {local_response_norm(relu(x))}, 10);
}

TEST(Schedule, BiasGelu) {
  Case c;
  Tensor x = c.feed(f32, {4, 8}), b = c.feed(f32, {8});
  EXPECT_KERNELS(c, 1, {gelu(x + b)});
}

TEST(Schedule, StencilWithNeighbours) {
  Case c;
  Tensor x = c.feed(f32, {9, 11}), w = c.feed(f32, {3, 3}), b = c.feed(f32, {9, 11});
  EXPECT_KERNELS(c, 1, {relu(stencil(exp(x), w, {.boundary = PaddingMode::reflect}) + b)}, 9);
}

TEST(Schedule, JacobiStepWithResidual) {
  Case c;
  Tensor x = c.feed(f32, {9, 11}), w = c.feed(f32, {3, 3}), b = c.feed(f32, {9, 11});
  Tensor next = stencil(x, w) + b;
  EXPECT_KERNELS(c, 1, {next, reduce_max(abs(next - x))}, 9);
}

TEST(Schedule, Siblings) {
  Case c;
  Tensor x = c.feed(f32, {5, 6});
  EXPECT_KERNELS(c, 1, {x + 1.0, x * 2.0, sum(x), reduce_max(x)}, 30);
  EXPECT_KERNELS(c, 1, {mean(x, {.axes = {1}}), variance(x, {.axes = {1}}), argmax(x, {.axis = 1})},
                 6);
}

TEST(Schedule, TransposedResultsStayApart) {
  Case c;
  Tensor x = c.feed(f32, {4, 6});
  EXPECT_KERNELS(c, 2, {x + 1.0, transpose(x * x, {1, 0})});
  EXPECT_KERNELS(c, 1, {x + 1.0, reshape(x * x, Shape{2, 12})});
}

TEST(Schedule, Matmul) {
  Case c;
  Tensor x = c.feed(f32, {4, 6}), w = c.feed(f32, {6, 5}), b = c.feed(f32, {5});
  EXPECT_KERNELS(c, 1, {gelu(matmul(x, w) + b)}, 6);
  EXPECT_KERNELS(c, 2, {matmul(tanh(x), w)}, 6);
}

TEST(Schedule, Scans) {
  Case c;
  Tensor x = c.feed(f32, {4, 6});
  for (bool exclusive : {false, true}) {
    for (bool reverse : {false, true}) {
      Tensor s = cumulative_sum(x * x, {.axis = 1, .exclusive = exclusive, .reverse = reverse});
      EXPECT_KERNELS(c, 1, {s * 2.0 + x}, 6);
      EXPECT_KERNELS(c, 1, {s / reduce_max(s, {.axes = {1}, .keep_axes = true})}, 6);
    }
  }
}

TEST(Schedule, ColumnsAreWalkedLineByLine) {
  Case c;
  Tensor x = c.feed(f32, {500, 301});
  EXPECT_KERNELS(c, 1, {sum(x * x, {.axes = {0}}), argmax(x, {.axis = 0})}, 500);
  EXPECT_NE(c.text.find("barrier"), std::string::npos) << c.text;
}

TEST(Schedule, LongScansAreSplit) {
  for (bool exclusive : {false, true}) {
    Case c;
    Tensor x = c.feed(f32, {40001});
    Tensor s = cumulative_sum(x, {.axis = 0, .exclusive = exclusive, .reverse = exclusive});
    EXPECT_KERNELS(c, 1, {s * 2.0 + x, cumulative_sum(x * x, {.axis = 0})}, 40001);
    EXPECT_NE(c.text.find("barrier"), std::string::npos) << c.text;
  }
}

TEST(Schedule, GatherAndScatter) {
  Case c;
  Tensor x = c.feed(f16, {5, 3}), u = c.feed(f16, {4, 3});
  Tensor i = c.feed(i32, {4});
  EXPECT_KERNELS(c, 1, {gather(x, i) * u});
  EXPECT_KERNELS(c, 1, {scatter_add(x + x, i, u * u)}, 4);
}

TEST(Schedule, ReshapedResultIsAnAlias) {
  Case c;
  Tensor x = c.feed(f32, {4, 6});
  EXPECT_KERNELS(c, 0, {reshape(x, Shape{24})});
  EXPECT_KERNELS(c, 1, {reshape(x + x, Shape{24})});
}

TEST(Schedule, EmptyAndZeroRank) {
  Case c;
  Tensor x = c.feed(f32, {0, 6}), s = c.feed(f32, {});
  EXPECT_KERNELS(c, 1, {exp(x) * s});
  EXPECT_KERNELS(c, 1, {sum(x, {.axes = {0}}) + s});
  EXPECT_KERNELS(c, 1, {s * s});
  EXPECT_KERNELS(c, 1, {sum(s) + s});
}

TEST(Schedule, SymbolicSizes) {
  Case c;
  Dim n("n"), m("m");
  Tensor x = c.feed(f32, {n, m}, {4, 7});
  EXPECT_KERNELS(c, 1, {softmax(x * x)}, 7);
  EXPECT_KERNELS(c, 1, {mean(x), x - mean(x)}, 28);
  EXPECT_KERNELS(c, 1, {layer_norm(x, Tensor{}, Tensor{}, {.axes = {0}})}, 7);
}

TEST(Schedule, LongRowsAreSplit) {
  target::DeviceDescription device;
  device.shared_memory = 1 << 16;
  for (const target::DeviceDescription* d :
       {static_cast<const target::DeviceDescription*>(nullptr),
        static_cast<const target::DeviceDescription*>(&device)}) {
    Case c;
    Tensor x = c.feed(f32, {3, 40, 1001});
    EXPECT_EQ(c.check({sum(x), reduce_max(x), argmax(reshape(x, Shape{120120}), {.axis = 0})},
                      120120, false, d),
              1)
        << c.text;
    EXPECT_EQ(c.check({x / (sum(x * x) + 1.0), mean(x)}, 120120, false, d), 1) << c.text;
    EXPECT_EQ(c.check({softmax(reshape(x, Shape{3, 40040}))}, 40040, false, d), 1) << c.text;
    Case e;
    Tensor y = e.feed(f32, {40000, 3});
    EXPECT_EQ(e.check({sum(y, {.axes = {0}}), argmax(y, {.axis = 0})}, 40000, false, d), 1)
        << e.text;
  }
}

TEST(Schedule, ComplexAndPackedTypes) {
  Case c;
  Tensor z = c.feed(c64, {4, 5});
  EXPECT_KERNELS(c, 1, {z * z - sum(z, {.axes = {1}, .keep_axes = true})}, 5);
  Tensor x = c.feed(f32, {3, 5});
  EXPECT_KERNELS(c, 2, {cast(x * 2.0, DType::i4), cast(x, DType::f8e4m3fn)});
}

}  // namespace
}  // namespace heddle::test
