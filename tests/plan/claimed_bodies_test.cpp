// Library calls in the bodies of loops and branches, and in their gradients: recurrent cells and
// powers, each target alone and all together, in every form, at static and open sizes.
#include "plan/test_hooks.h"
#include "support/evaluate.h"
#include "support/library_device.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>

using namespace heddle;
using namespace heddle::test;

namespace {

// Claims of every size while it lives.
class EveryClaim {
 public:
  EveryClaim() { plan::test_hooks().claim_every_size = true; }
  ~EveryClaim() { plan::test_hooks().claim_every_size = false; }
  EveryClaim(const EveryClaim&) = delete;
  EveryClaim& operator=(const EveryClaim&) = delete;
};

// Ways to run a graph on a device.
struct Way {
  Device device;
  std::string name;
  CompileOptions options;
  bool alone = false;  // also each target by itself; elsewhere that would tell nothing new
};
std::vector<Way> ways() {
  Device plain = library_device(false), recording = library_device(true);
  std::vector<Way> all{{plain, "host", {.loops = LoopRecording::host}, true},
                       {plain, "unfused", {.fusion = false}},
                       {plain, "no claims", {.claims = false}},
                       {recording, "device graph", {.loops = LoopRecording::device_graph}, true},
                       {recording, "automatic", {}}};
  if (test_device() == device("interpreter")) return all;
  all.push_back({test_device(), "automatic", {}});
  all.push_back({test_device(), "host", {.loops = LoopRecording::host}});
  return all;
}

struct Program {
  Graph graph;
  Tensors feeds, targets;
  std::vector<Array> values;  // of the feeds
};

double largest(const std::vector<double>& v) {
  double most = 0;
  for (double x : v) most = std::max(most, std::abs(x));
  return most;
}

void expect_equal(const Array& expected, const Array& actual, double epsilon,
                  const std::string& what) {
  ASSERT_EQ(expected.shape(), actual.shape()) << what;
  std::vector<double> a = expected.to_vector<double>(), b = actual.to_vector<double>();
  for (size_t k = 0; k < a.size(); ++k)
    ASSERT_NEAR(a[k], b[k], epsilon * (largest(a) + 1)) << what << ", element " << k;
}

// Every way gives what the judge gives.
void check(Program& p, double epsilon) {
  EveryClaim every;
  std::vector<Feed> feeds(p.feeds.begin(), p.feeds.end());
  std::vector<Array> expected =
      p.graph.compile({feeds, p.targets, {}}, device("judge")).run(p.values);
  for (const Way& way : ways()) {
    std::string what = way.device.name() + ", " + way.name;
    Executable all = p.graph.compile({feeds, p.targets, {}}, way.device, way.options);
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::vector<Array> got = all.run(p.values);
      for (size_t t = 0; t < got.size(); ++t)
        expect_equal(expected[t], got[t], epsilon, what + ", target " + std::to_string(t));
    }
    for (size_t t = 0; way.alone && t < p.targets.size(); ++t) {
      Executable one = p.graph.compile({feeds, {p.targets[t]}, {}}, way.device, way.options);
      expect_equal(expected[t], one.run(p.values)[0], epsilon,
                   what + ", target " + std::to_string(t) + " alone");
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

Array random_array(DType dtype, std::vector<int64_t> shape, std::mt19937_64& rng) {
  return to_array(random_tensor(dtype, std::move(shape), rng, -0.9, 0.9));
}

// Placeholders of these shapes; at open sizes equal extents above 1 are one symbol.
struct Feeds {
  Program& program;
  bool open;
  DType dtype;
  std::mt19937_64 rng{7};
  std::map<int64_t, Dim> dims;

  Tensor operator()(std::vector<int64_t> shape, std::vector<int64_t> kept_axes = {}) {
    Shape type;
    for (size_t k = 0; k < shape.size(); ++k) {
      bool keep = !open || std::find(kept_axes.begin(), kept_axes.end(), k) != kept_axes.end();
      if (keep) {
        type.emplace_back(shape[k]);
        continue;
      }
      auto it = dims.find(shape[k]);
      if (it == dims.end())
        it = dims.emplace(shape[k], Dim("d" + std::to_string(shape[k]), 1)).first;
      type.push_back(it->second);
    }
    program.feeds.push_back(program.graph.placeholder(dtype, type));
    program.values.push_back(random_array(dtype, shape, rng));
    return program.feeds.back();
  }
};

// First gradients of the targets' squares, then gradients of a function of those.
void add_gradients(Program& p, const Tensors& by) {
  Tensor loss;
  for (const Tensor& t : Tensors(p.targets)) {
    Tensor part = sum(t * t);
    loss = loss.valid() ? loss + part : part;
  }
  Tensors first = gradients(loss, by);
  Tensor again;
  for (const Tensor& t : first) {
    Tensor part = sum(tanh(t));
    again = again.valid() ? again + part : part;
  }
  Tensors second = gradients(again, by);
  p.targets.insert(p.targets.end(), first.begin(), first.end());
  p.targets.insert(p.targets.end(), second.begin(), second.end());
}

using Build = std::function<void(Program&, Feeds&, int64_t steps)>;

void check_all(const Build& build) {
  struct Case {
    DType dtype;
    bool open;
    int64_t steps;
  };
  constexpr Case kCases[] = {
      {f64, false, 1}, {f64, false, 3}, {f64, true, 1}, {f64, true, 2}, {f32, true, 3}};
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(name(c.dtype)) + (c.open ? " open " : " static ") +
                 std::to_string(c.steps));
    Program p;
    Feeds feeds{p, c.open, c.dtype};
    build(p, feeds, c.steps);
    check(p, c.dtype == f64 ? 1e-12 : 2e-4);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace

// By hand: p = c w, t = x w, h = p + t with c = 1, x = 2 3, w = 2.
TEST(ClaimedBodies, ScanOfProductsByHand) {
  EveryClaim every;
  for (bool open : {false, true}) {
    Graph g;
    Dim b("b"), h("h");
    Shape one{1, 1}, rows{2, 1, 1};
    Tensor c = g.placeholder(f32, open ? Shape{b, h} : one),
           x = g.placeholder(f32, open ? Shape{2, b, h} : rows),
           w = g.placeholder(f32, open ? Shape{h, h} : one);
    ScanResult r = scan({c}, {x}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      Tensor p = matmul(s[0], w), t = matmul(v[0], w), y = p + t;
      return {{y}, {p, y}};
    });
    std::vector<Array> values{Array::from<float>({1, 1}, {1}),
                              Array::from<float>({2, 1, 1}, {2, 3}),
                              Array::from<float>({1, 1}, {2})};
    using Values = std::vector<float>;
    for (const Way& way : ways()) {
      auto fetch = [&](const Tensor& target) {
        return g.compile({{c, x, w}, {target}, {}}, way.device, way.options)
            .run(values)[0]
            .to_vector<float>();
      };
      std::string what = way.device.name() + " " + way.name;
      EXPECT_EQ(fetch(r.carried[0]), Values{18}) << what;
      EXPECT_EQ(fetch(r.stacked[0]), (Values{2, 12})) << what;
      EXPECT_EQ(fetch(r.stacked[1]), (Values{6, 18})) << what;
    }
  }
}

// By hand: h = c w^T, so d/dw = T w^(T-1) and d2/dw2 = T (T-1) w^(T-2) at w = 2.
TEST(ClaimedBodies, DerivativesOfPowersByHand) {
  EveryClaim every;
  for (bool open : {false, true}) {
    for (int64_t steps : {0, 1, 2, 3}) {
      Graph g;
      Dim b("b"), h("h");
      Tensor c = g.placeholder(f32, open ? Shape{b, h} : Shape{1, 1}),
             w = g.placeholder(f32, open ? Shape{h, h} : Shape{1, 1}),
             x = g.placeholder(f32, {steps, 1});
      ScanResult r = scan({c}, {x}, [&](const Tensors& s, const Tensors&) -> ScanResult {
        return {{matmul(s[0], w)}, {}};
      });
      Tensor first = gradients(sum(r.carried[0]), {w})[0];
      Tensor second = gradients(sum(first), {w})[0];
      auto n = static_cast<double>(steps);
      std::vector<Array> values{Array::from<float>({1, 1}, {1}), Array::from<float>({1, 1}, {2}),
                                Array::zeros(f32, {steps, 1})};
      for (const Way& way : ways()) {
        auto fetch = [&](const Tensor& target) {
          return g.compile({{c, w, x}, {target}, {}}, way.device, way.options)
              .run(values)[0]
              .to_vector<double>()[0];
        };
        std::string what = way.device.name() + " " + way.name + " " + std::to_string(steps);
        EXPECT_EQ(fetch(first), n * std::pow(2.0, n - 1)) << what;
        EXPECT_EQ(fetch(second), n * (n - 1) * std::pow(2.0, n - 2)) << what;
      }
    }
  }
}

TEST(ClaimedBodies, TanhCell) {
  check_all([](Program& p, Feeds& feed, int64_t steps) {
    Tensor x = feed({steps, 2, 3}, {0}), w = feed({3, 5}), u = feed({5, 5}), h = feed({2, 5});
    ScanResult r = scan({h}, {x}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      Tensor next = tanh(matmul(v[0], w) + matmul(s[0], u));
      return {{next}, {next, v[0]}};
    });
    p.targets = {r.carried[0], r.stacked[0]};
    add_gradients(p, {x, w, u, h});
  });
}

TEST(ClaimedBodies, LstmCell) {
  check_all([](Program& p, Feeds& feed, int64_t steps) {
    Tensor x = feed({steps, 2, 3}, {0}), h = feed({2, 4}), c = feed({2, 4});
    Tensors w, u;
    for (int gate = 0; gate < 4; ++gate) w.push_back(feed({3, 4})), u.push_back(feed({4, 4}));
    ScanResult r = scan({h, c}, {x}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      auto gate = [&](size_t k) { return matmul(v[0], w[k]) + matmul(s[0], u[k]); };
      Tensor cell = sigmoid(gate(0)) * s[1] + sigmoid(gate(1)) * tanh(gate(2));
      Tensor out = sigmoid(gate(3)) * tanh(cell);
      return {{out, cell}, {out, cell}};
    });
    p.targets = {r.carried[0], r.stacked[0]};
    add_gradients(p, {x, h, c, w[0], u[2]});
  });
}

TEST(ClaimedBodies, PowersInEachKindOfLoop) {
  check_all([](Program& p, Feeds& feed, int64_t steps) {
    Tensor h = feed({2, 3}), w = feed({3, 3});
    auto step = [&](const Tensors& v) { return Tensors{matmul(v[0], w)}; };
    Tensor by_for =
        for_loop(steps, {h}, [&](const Tensor&, const Tensors& v) { return step(v); })[0];
    Tensor by_while = while_loop({h}, [&](const Tensors& v) { return sum(v[0] * v[0]) < 1e3; },
                                 step, {.max_iterations = steps})[0];
    p.targets = {by_for, by_while};
    add_gradients(p, {h, w});
  });
}

TEST(ClaimedBodies, NestedLoopsAndBranches) {
  check_all([](Program& p, Feeds& feed, int64_t steps) {
    Tensor x = feed({steps, 2, 3}, {0}), h = feed({2, 3}), w = feed({3, 3});
    ScanResult r = scan({h}, {x}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      Tensor inner = for_loop(2, {s[0]}, [&](const Tensor& k, const Tensors& c) {
        return Tensors{cond(
            k > 0.0, [&] { return tanh(matmul(c[0], w) + v[0]); },
            [&] { return matmul(c[0] + v[0], w) * 0.5; })};
      })[0];
      ScanResult rows =
          scan({inner}, {v[0]}, [&](const Tensors& c, const Tensors& row) -> ScanResult {
            Tensor next = matmul(c[0], w) * 0.3;
            return {{next}, {tanh(row[0]), sum(next, {.axes = {0}})}};
          });
      return {{rows.carried[0]}, {rows.stacked[1], inner}};
    });
    p.targets = {r.carried[0], r.stacked[0]};
    add_gradients(p, {x, h, w});
  });
}

// The same gradients against central differences.
TEST(ClaimedBodies, CentralDifferences) {
  EveryClaim every;
  auto cell = [](Graph&, const Tensors& x) {
    ScanResult r = scan({x[0]}, {x[1]}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      Tensor next = tanh(matmul(v[0], x[2]) + matmul(s[0], x[2]));
      return {{next}, {next, s[0]}};
    });
    return r.carried[0] + r.stacked[0];
  };
  std::mt19937_64 rng(11);
  auto random = [&](std::vector<int64_t> shape) {
    return random_tensor(f64, shape, rng, -0.9, 0.9);
  };
  for (int64_t steps : {1, 2, 3})
    EXPECT_EQ(check_gradient(cell, {random({2, 2}), random({steps, 2, 2}), random({2, 2})}), "");
}
