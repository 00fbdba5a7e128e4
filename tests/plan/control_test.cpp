// Control flow in its three forms (driven by the host, as a device graph, as one kernel) against
// the judge.
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace hd = heddle;

namespace {

using Values = std::vector<float>;

hd::Array array(std::vector<int64_t> shape, const Values& v) {
  return hd::Array::from<float>(std::move(shape), v);
}

struct Form {
  const char* name;
  hd::LoopRecording loops;
  bool fusion = true;
};
constexpr Form kForms[] = {{"host", hd::LoopRecording::host},
                           {"device_graph", hd::LoopRecording::device_graph},
                           {"single_kernel", hd::LoopRecording::single_kernel},
                           {"automatic", hd::LoopRecording::automatic},
                           {"unfused", hd::LoopRecording::host, false}};

// The interpreter, whose streams record as a GPU's do, and the device of the tests.
std::vector<hd::Device> devices() {
  std::vector<hd::Device> all{hd::device("interpreter")};
  if (!(hd::test::test_device() == all[0])) all.push_back(hd::test::test_device());
  return all;
}

void compare(const std::vector<hd::Array>& expected, const std::vector<hd::Array>& actual,
             double tolerance, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].shape(), actual[i].shape()) << what;
    std::vector<double> a = expected[i].to_vector<double>(), b = actual[i].to_vector<double>();
    for (size_t k = 0; k < a.size(); ++k) {
      ASSERT_NEAR(a[k], b[k], tolerance * std::abs(a[k]))
          << "result " << i << ", element " << k << ", " << what;
    }
  }
}

// Every form gives what the judge gives, run after run.
void check(hd::Graph& graph, const std::vector<hd::Feed>& feeds, const hd::Tensors& targets,
           const std::vector<std::vector<hd::Array>>& runs, double tolerance = 0) {
  hd::CompileSpec spec{feeds, targets, {}};
  hd::Executable judge = graph.compile(spec, hd::device("judge"));
  for (const hd::Device& device : devices()) {
    for (const Form& form : kForms) {
      hd::Executable e = graph.compile(spec, device, {.fusion = form.fusion, .loops = form.loops});
      std::string what = device.name() + ", " + form.name + "\n" + e.describe();
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (const auto& inputs : runs) compare(judge.run(inputs), e.run(inputs), tolerance, what);
      }
    }
  }
}

TEST(Control, CondTakesOneBranch) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {3}, "x"), p = graph.placeholder(hd::bool_, {}, "p");
  hd::Tensors y = hd::cond(
      p, [&] { return hd::Tensors{x * 2.0, x}; },
      [&] { return hd::Tensors{x + 1.0, hd::cumulative_sum(x, {.axis = 0})}; });
  hd::Array yes = hd::Array::from_bytes(hd::bool_, {}, std::vector<std::byte>{std::byte{1}});
  hd::Array no = hd::Array::zeros(hd::bool_, {});
  check(graph, {x, p}, {y[0], y[1], y[0] + y[1]},
        {{array({3}, {1, 2, 3}), yes}, {array({3}, {1, 2, 3}), no}, {array({3}, {4, 5, 6}), yes}});
}

TEST(Control, WhileCountsUp) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {}, "x"),
             limit = graph.placeholder(hd::f32, {}, "limit");
  hd::Tensors r = hd::while_loop(
      {x, x * 0.0}, [&](const hd::Tensors& v) { return hd::less(v[0], limit); },
      [&](const hd::Tensors& v) { return hd::Tensors{v[0] * 2.0, v[1] + 1.0}; });
  check(graph, {x, limit}, r,
        {{array({}, {1}), array({}, {100})},
         {array({}, {1}), array({}, {1})},
         {array({}, {3}), array({}, {4})}});
}

TEST(Control, CarriedValuesMaySwap) {
  hd::Graph graph;
  hd::Tensor a = graph.placeholder(hd::f32, {4}, "a"), b = graph.placeholder(hd::f32, {4}, "b");
  hd::Tensors r = hd::for_loop(
      hd::Expr(5), {a, b, a},
      [&](const hd::Tensor&, const hd::Tensors& v) { return hd::Tensors{v[1], v[0] + 1.0, v[2]}; });
  check(graph, {a, b}, {r[0], r[1], r[2], r[0] + r[1]},
        {{array({4}, {1, 2, 3, 4}), array({4}, {5, 6, 7, 8})}});
}

// More than one kernel copies, of each size of word, at static and open sizes; values that change
// places.
TEST(Control, ManyValuesAreCarried) {
  for (bool open : {false, true}) {
    hd::Graph graph;
    hd::Dim n("n");
    hd::Tensor x = graph.placeholder(hd::f32, hd::Shape{open ? hd::Expr(n) : hd::Expr(5)}, "x");
    hd::Tensors first;
    const hd::DType types[] = {hd::f32, hd::f64, hd::i8, hd::f16, hd::c128};
    for (size_t k = 0; k < 19; ++k)
      first.push_back(hd::cast(x + static_cast<double>(k), types[k % 5]));
    hd::Tensors r = hd::for_loop(hd::Expr(4), first, [&](const hd::Tensor&, const hd::Tensors& v) {
      hd::Tensors next;
      for (size_t k = 0; k < v.size(); ++k)
        next.push_back(hd::cast(v[(k + 5) % v.size()], types[k % 5]) + v[k]);
      return next;
    });
    hd::Tensors results;
    for (const hd::Tensor& t : r) results.push_back(hd::cast(t, hd::f32));
    check(graph, {x}, results, {{array({5}, {1, 2, 0, -1, 1})}, {array({5}, {0, 1, 1, 2, -2})}});
  }
}

TEST(Control, GeneralWhileGivesTheValuesOfBefore) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {5}, "x");
  hd::Tensors r = hd::while_loop_general(
      {x},
      [&](const hd::Tensors& v) {
        hd::Tensor doubled = v[0] * 2.0;
        return hd::LoopResult{hd::less(hd::sum(doubled, {.axes = {0}}), graph.constant(1000.0)),
                              {doubled, v[0]}};
      },
      [&](const hd::Tensors& v) { return hd::Tensors{v[0] + v[1]}; });
  check(graph, {x}, r, {{array({5}, {1, 2, 3, 4, 5})}, {array({5}, {900, 100, 0, 0, 0})}});
}

TEST(Control, WhileIsBounded) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {2}, "x");
  for (int64_t bound : {0, 1, 7}) {
    hd::Tensors r = hd::while_loop(
        {x},
        [&](const hd::Tensors& v) {
          return hd::less(hd::sum(v[0], {.axes = {0}}), graph.constant(50.0));
        },
        [&](const hd::Tensors& v) { return hd::Tensors{v[0] + 1.0}; }, {.max_iterations = bound});
    check(graph, {x}, r, {{array({2}, {0, 0})}, {array({2}, {48, 0})}, {array({2}, {60, 0})}});
  }
}

TEST(Control, ForUsesItsCounter) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {6}, "x"), n = graph.placeholder(hd::i64, {}, "n");
  hd::Tensors r = hd::for_loop(n, {x}, [&](const hd::Tensor& i, const hd::Tensors& v) {
    return hd::Tensors{hd::cumulative_sum(v[0], {.axis = 0}) * 0.5 + hd::cast(i, hd::f32)};
  });
  std::vector<std::vector<hd::Array>> runs;
  for (int64_t count : {3, 0, -2, 1}) {
    runs.push_back({array({6}, {1, 2, 3, 4, 5, 6}), hd::Array::from<int64_t>({}, {count})});
  }
  check(graph, {x, n}, r, runs);
}

TEST(Control, ScanStacksRows) {
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n, 3}, "x"),
             start = graph.placeholder(hd::f32, {3}, "start");
  hd::ScanResult r = hd::scan({start}, {x}, [&](const hd::Tensors& v, const hd::Tensors& s) {
    hd::Tensor next = v[0] * 0.5 + s[0];
    return hd::ScanResult{{next}, {next * next, s[0]}};
  });
  hd::Array rows = array({4, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  check(graph, {x, start}, {r.carried[0], r.stacked[0], r.stacked[1]},
        {{rows, array({3}, {1, 1, 1})},
         {rows.slice(0, 0, 1), array({3}, {0, 0, 0})},
         {rows.slice(0, 0, 0), array({3}, {1, 2, 3})}});
}

TEST(Control, NestedLoopsAndBranches) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {8}, "x");
  hd::Tensors r = hd::for_loop(hd::Expr(3), {x}, [&](const hd::Tensor& i, const hd::Tensors& v) {
    hd::Tensors inner = hd::while_loop(
        {v[0]},
        [&](const hd::Tensors& w) {
          return hd::less(hd::sum(w[0], {.axes = {0}}), graph.constant(40.0));
        },
        [&](const hd::Tensors& w) {
          return hd::Tensors{hd::cond(
              hd::equal(i, graph.constant(int64_t{1}, hd::i64)), [&] { return w[0] * 1.5 + 1.0; },
              [&] { return w[0] + v[0]; })};
        });
    return hd::Tensors{inner[0] * 0.25};
  });
  Values v(8);
  std::iota(v.begin(), v.end(), 1.0F);
  check(graph, {x}, {r[0], hd::sum(r[0], {.axes = {0}})}, {{array({8}, v)}}, 1e-6);
}

TEST(Control, SymbolicSizesInLoops) {
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
  hd::Tensors r = hd::for_loop(hd::Expr(n), {x}, [&](const hd::Tensor&, const hd::Tensors& v) {
    return hd::Tensors{hd::cumulative_sum(v[0], {.axis = 0}) * 0.5};
  });
  check(graph, {x}, r, {{array({3}, {1, 2, 3})}, {array({5}, {1, 2, 3, 4, 5})}, {array({1}, {8})}});
}

TEST(Control, AssignInALoop) {
  for (const hd::Device& device : devices())
    for (const Form& form : kForms) {
      hd::Graph graph;
      hd::Tensor v = graph.variable(array({2}, {1, 2}), "v");
      hd::Tensors r = hd::for_loop(
          hd::Expr(4), {graph.constant(0.0, hd::f32, {2})},
          [&](const hd::Tensor&, const hd::Tensors& c) {
            hd::Tensor now = hd::read_variable(v);
            hd::Operation set = hd::assign(v, now * 2.0);
            return hd::Tensors{hd::with_dependencies({set}, [&] { return c[0] + now; })};
          });
      hd::Executable e = graph.compile({.feeds = {}, .targets = {r[0]}}, device,
                                       {.fusion = form.fusion, .loops = form.loops});
      EXPECT_EQ(e.run({})[0].to_vector<float>(), (Values{15, 30}))
          << device.name() << form.name << e.describe();
      EXPECT_EQ(graph.run({}, {hd::read_variable(v)}, {}, device)[0].to_vector<float>(),
                (Values{16, 32}))
          << device.name() << form.name;
    }
}

TEST(Control, CallRunsAnotherGraph) {
  hd::Graph callee;
  hd::Tensor p = callee.placeholder(hd::f32, {3}, "p");
  hd::Tensor q = p * p;
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {3}, "x");
  hd::Tensors r = hd::call(callee, {q, p}, {x + 1.0});
  check(graph, {x}, {r[0] + r[1], r[1]}, {{array({3}, {1, 2, 3})}});
}

// As many driver calls for 10 iterations as for 1,000.
TEST(Control, DeviceLoopsNeedNoHost) {
  hd::Device device = hd::test::test_device();
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {64}, "x"),
             limit = graph.placeholder(hd::f32, {}, "limit");
  hd::Tensors r = hd::while_loop(
      {x, graph.constant(0.0)}, [&](const hd::Tensors& v) { return hd::less(v[1], limit); },
      [&](const hd::Tensors& v) {
        return hd::Tensors{hd::cumulative_sum(v[0], {.axis = 0}) * 0.01, v[1] + 1.0};
      });
  hd::Executable e = graph.compile({.feeds = {x, limit}, .targets = r}, device,
                                   {.loops = hd::LoopRecording::device_graph});
  hd::Array feed = array({64}, Values(64, 1.0F)).to(device);
  std::vector<int64_t> calls;
  for (float n : {10.0F, 10.0F, 10.0F, 1000.0F}) {
    hd::Array bound = array({}, {n}).to(device);
    int64_t before = hd::counters().driver_calls;
    EXPECT_EQ(e.run({feed, bound})[1].to_vector<float>()[0], n);
    calls.push_back(hd::counters().driver_calls - before);
  }
  EXPECT_EQ(calls[2], calls[3]);
}

}  // namespace
