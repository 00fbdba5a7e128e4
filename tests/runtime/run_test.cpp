// Executables: feeds, outputs, sizes, caches, variables, queues, threads.
#include "helpers.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <numeric>
#include <thread>

namespace hd = heddle;

namespace {

using hd::test::message;
using hd::test::runtime_device;
using hd::test::Values;

hd::Array array(std::vector<int64_t> shape, const Values& v) {
  return hd::Array::from<float>(std::move(shape), v);
}

struct AddGraph {
  hd::Graph graph;
  hd::Tensor a = graph.placeholder(hd::f32, {1, 3}, "a");
  hd::Tensor b = graph.placeholder(hd::f32, {2, 1}, "b");
  hd::Executable add = graph.compile({.feeds = {a, b}, .targets = {a + b}}, runtime_device());
};

TEST(Run, AddsWithBroadcasting) {
  AddGraph g;
  std::vector<hd::Array> out = g.add.run({array({1, 3}, {1, 2, 3}), array({2, 1}, {10, 20})});
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(out[0].to_vector<float>(), (Values{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(g.add.kernel_count(), 1);
  EXPECT_NE(g.add.describe().find("1 kernels"), std::string::npos) << g.add.describe();
}

TEST(Run, EveryDeviceKindAgrees) {
  for (const char* name : {"interpreter", "judge"}) {
    hd::Graph graph;
    hd::Tensor x = graph.placeholder(hd::f32, {4}, "x");
    hd::Executable e = graph.compile({.feeds = {x}, .targets = {x * x, x + 1.0}}, hd::device(name));
    std::vector<hd::Array> out = e.run({array({4}, {1, 2, 3, 4})});
    EXPECT_EQ(out[0].to_vector<float>(), (Values{1, 4, 9, 16})) << name;
    EXPECT_EQ(out[1].to_vector<float>(), (Values{2, 3, 4, 5})) << name;
  }
}

TEST(Run, WrongFeedsAreNamed) {
  AddGraph g;
  hd::Array a = array({1, 3}, {1, 2, 3}), b = array({2, 1}, {1, 2});
  EXPECT_MESSAGE(g.add.run({a}), "2 feeds expected, given 1");
  EXPECT_MESSAGE(g.add.run({a, hd::Array()}), "feed 1 (b): the array holds no data");
  EXPECT_MESSAGE(g.add.run({hd::Array::zeros(hd::f64, {1, 3}), b}),
                 "feed 0 (a): dtype is f64, expected f32[1,3]");
  EXPECT_MESSAGE(g.add.run({array({3}, {1, 2, 3}), b}),
                 "feed 0 (a): rank of f32[3] is 1, expected f32[1,3]");
  EXPECT_MESSAGE(g.add.run({array({1, 2}, {1, 2}), b}),
                 "axis 1 of [1,2] has extent 2, expected f32[1,3]");
  EXPECT_MESSAGE(g.add.run_into({a, b}, {hd::Array::zeros(hd::f32, {3, 2})}),
                 "output 0: given f32[3,2], expected f32[2,3]");
  EXPECT_MESSAGE(g.add.run_into({a, b}, {}), "no error");  // results are dropped
}

TEST(Run, StridedFeedsAndOutputs) {
  AddGraph g;
  hd::Array a = array({3, 1}, {1, 2, 3}).transpose({1, 0});
  hd::Array b = array({1, 1}, {10}).broadcast_to({2, 1});
  hd::Array whole = hd::Array::zeros(hd::f32, {3, 4});
  hd::Array out = whole.transpose({1, 0}).slice(0, 3, 1, -1);
  g.add.run_into({a, b}, {out});
  EXPECT_EQ(out.to_vector<float>(), (Values{11, 12, 13, 11, 12, 13}));
  EXPECT_EQ(whole.to_vector<float>(), (Values{0, 0, 11, 11, 0, 0, 12, 12, 0, 0, 13, 13}));
  EXPECT_MESSAGE(g.add.run_into({a, b}, {array({1, 3}, {1, 2, 3}).broadcast_to({2, 3})}),
                 "stride 0");
}

TEST(Run, OutputMayBeTheFeed) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {4}, "x");
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {x * 2.0}}, runtime_device());
  hd::Array memory = array({5}, {1, 2, 3, 4, 5});
  e.run_into({memory.slice(0, 0, 4)}, {memory.slice(0, 1, 5)});
  EXPECT_EQ(memory.to_vector<float>(), (Values{1, 2, 4, 6, 8}));
  hd::Array own = array({4}, {1, 2, 3, 4});
  for (int i = 0; i < 3; ++i) e.run_into({own}, {own});
  EXPECT_EQ(own.to_vector<float>(), (Values{8, 16, 24, 32}));
}

TEST(Run, OutputsThatOverlapAreFoundAmongMany) {
  constexpr int kOutputs = 9;
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1, 2}, "x");
  hd::Tensors targets;
  for (int k = 0; k < kOutputs; ++k) targets.push_back(x + static_cast<double>(k));
  hd::Executable e = graph.compile({.feeds = {x}, .targets = targets}, runtime_device());
  hd::Array feed = array({1, 2}, {10, 20});
  auto apart = [] {
    std::vector<hd::Array> out;
    for (int k = 0; k < kOutputs; ++k) out.push_back(hd::Array::zeros(hd::f32, {1, 2}));
    return out;
  };
  auto expect_values = [](const std::vector<hd::Array>& out) {
    for (int k = 0; k < kOutputs; ++k)
      EXPECT_EQ(out[static_cast<size_t>(k)].to_vector<float>(),
                (Values{10 + static_cast<float>(k), 20 + static_cast<float>(k)}));
  };
  for (int repeat = 0; repeat < 3; ++repeat) {  // the first run, and warm ones
    std::vector<hd::Array> out = apart();
    e.run_into({feed}, out);
    expect_values(out);
    for (auto [a, b] : {std::pair<size_t, size_t>{0, 8}, {3, 4}, {0, 1}}) {
      out = apart();
      out[b] = out[a];
      EXPECT_MESSAGE(e.run_into({feed}, out), "outputs " + std::to_string(a) + " and " +
                                                  std::to_string(b) + " overlap in memory");
    }
    // Rows and columns of one matrix, in any order.
    hd::Array rows = hd::Array::zeros(hd::f32, {kOutputs, 2}),
              columns = hd::Array::zeros(hd::f32, {2, kOutputs});
    for (int k = 0; k < kOutputs; ++k) {
      int at = (k * 4) % kOutputs;
      out[static_cast<size_t>(k)] = rows.slice(0, at, at + 1);
    }
    e.run_into({feed}, out);
    expect_values(out);
    for (int k = 0; k < kOutputs; ++k) {
      int at = (k * 4) % kOutputs;
      out[static_cast<size_t>(k)] = columns.transpose({1, 0}).slice(0, at, at + 1);
    }
    e.run_into({feed}, out);
    expect_values(out);
    // An output within the feed's memory.
    hd::Array memory = array({1, 3}, {10, 20, 0});
    out = apart();
    out[5] = memory.slice(1, 1, 3);
    e.run_into({memory.slice(1, 0, 2)}, out);
    expect_values(out);
  }
}

TEST(Run, TargetsMayBeFeedsConstantsAndRepeated) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {2}, "x");
  hd::Tensor c = graph.constant(array({2}, {7, 8}));
  hd::Tensor y = x + c;
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {x, c, y, y}}, runtime_device());
  std::vector<hd::Array> out = e.run({array({2}, {1, 2})});
  EXPECT_EQ(out[0].to_vector<float>(), (Values{1, 2}));
  EXPECT_EQ(out[1].to_vector<float>(), (Values{7, 8}));
  EXPECT_EQ(out[2].to_vector<float>(), (Values{8, 10}));
  EXPECT_EQ(out[3].to_vector<float>(), (Values{8, 10}));
}

// K03: one executable for all sizes.
TEST(Run, SymbolicSizesCompileOnce) {
  hd::Graph graph;
  hd::Dim n("n", 1, 4);
  hd::Tensor table = graph.constant(array({4}, {2, 4, 8, 16}));
  hd::Tensor index = graph.placeholder(hd::i32, {n}, "index");
  hd::Tensor total = hd::sum(hd::gather(table, index, {.axis = 0}), {.axes = {0}});
  int64_t before = hd::counters().graph_compiles;
  hd::Executable e = graph.compile({.feeds = {index}, .targets = {total}}, runtime_device());
  Values expected{2, 6, 14, 30};
  for (int32_t size = 1; size <= 4; ++size) {
    std::vector<int32_t> which(static_cast<size_t>(size));
    std::iota(which.begin(), which.end(), 0);
    std::vector<hd::Array> out = e.run({hd::Array::from<int32_t>({size}, which)});
    EXPECT_EQ(out[0].to_vector<float>(), Values{expected[static_cast<size_t>(size - 1)]});
  }
  EXPECT_EQ(hd::counters().graph_compiles, before + 1);
  EXPECT_MESSAGE(e.run({hd::Array::zeros(hd::i32, {5})}), "n in 1..4");
}

TEST(Run, SymbolsMustAgree) {
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x"), y = graph.placeholder(hd::f32, {2 * n}, "y");
  hd::Executable e =
      graph.compile({.feeds = {x, y}, .targets = {x + 1.0, y * 2.0}}, runtime_device());
  EXPECT_EQ(e.run({array({2}, {1, 2}), array({4}, {1, 2, 3, 4})})[1].to_vector<float>(),
            (Values{2, 4, 6, 8}));
  EXPECT_MESSAGE(e.run({array({2}, {1, 2}), array({3}, {1, 2, 3})}),
                 "feed 1 (y): axis 0 of [3] has extent 3");
  hd::Executable only_y = graph.compile({.feeds = {y}, .targets = {y * 2.0}}, runtime_device());
  EXPECT_EQ(only_y.run({array({2}, {1, 2})})[0].to_vector<float>(), (Values{2, 4}));
  EXPECT_MESSAGE(only_y.run({array({3}, {1, 2, 3})}), "has extent 3");
  EXPECT_EQ(e.output_types({hd::type(hd::f32, {5}), hd::type(hd::f32, {10})})[0],
            hd::type(hd::f32, {5}));
}

// K04: many sizes of one graph hold bounded memory.
TEST(Run, ManySizesHoldBoundedMemory) {
  hd::Device device = runtime_device();
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {hd::Dim("n")}, "x");
  hd::Tensor y = hd::cumulative_sum(x, {.axis = 0});
  hd::Executable e =
      graph.compile({.feeds = {x}, .targets = {hd::cumulative_sum(y, {.axis = 0})}}, device);
  int64_t before = device.memory().live;
  for (int64_t n = 1; n <= 500; ++n) e.run({hd::Array::zeros(hd::f32, {n})});
  EXPECT_LT(device.memory().live - before, 10 * 4096);
}

// K01: constants are part of what tells executables apart.
TEST(GraphRun, CachesByContent) {
  hd::Graph graph;
  hd::Device device = runtime_device();
  hd::Tensor x = graph.placeholder(hd::f32, {2}, "x");
  for (double low : {0.0, 1e-7, 2e-7}) {
    hd::Tensor y = hd::maximum(x, graph.constant(low, hd::f32));
    EXPECT_EQ(
        graph.run({{x, hd::Array::zeros(hd::f32, {2})}}, {y}, {}, device)[0].to_vector<float>(),
        (Values{static_cast<float>(low), static_cast<float>(low)}));
  }
  hd::GraphCacheStats stats = graph.cache_stats();
  EXPECT_EQ(stats.compiles, 3);
  EXPECT_EQ(stats.entries, 3);
  hd::Tensor z = x + 1.0;
  for (int i = 0; i < 4; ++i) graph.run({{x, hd::Array::zeros(hd::f32, {2})}}, {z}, {}, device);
  EXPECT_EQ(graph.cache_stats().compiles, 4);
  EXPECT_EQ(graph.cache_stats().hits, 3);
  graph.set_cache_limit(1);
  EXPECT_EQ(graph.cache_stats().entries, 1);
  EXPECT_EQ(graph.cache_stats().evictions, 3);
  graph.clear_cache();
  EXPECT_EQ(graph.cache_stats().bytes, 0);
}

TEST(GraphRun, OpenTypesAreSpecialised) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::Type{}, "x");
  hd::Tensor y = x + x;
  hd::Device device = runtime_device();
  EXPECT_EQ(graph.run({{x, array({2}, {1, 2})}}, {y}, {}, device)[0].to_vector<float>(),
            (Values{2, 4}));
  EXPECT_EQ(graph.run({{x, hd::Array::from<int32_t>({1, 1}, {3})}}, {y}, {}, device)[0]
                .to_vector<int32_t>(),
            (std::vector<int32_t>{6}));
  EXPECT_EQ(graph.cache_stats().compiles, 2);
  EXPECT_MESSAGE(graph.compile({.feeds = {x}, .targets = {y}}, device), "still open");
}

TEST(Compile, RefusesOtherGraphsAndMissingFeeds) {
  hd::Graph graph, other;
  hd::Tensor x = graph.placeholder(hd::f32, {2}, "x"), o = other.placeholder(hd::f32, {2}, "o");
  EXPECT_MESSAGE(graph.compile({.feeds = {x}, .targets = {o}}, runtime_device()),
                 "target 0 belongs to another graph");
  EXPECT_MESSAGE(graph.compile({.feeds = {o}, .targets = {x}}, runtime_device()),
                 "feed 0 belongs to another graph");
  EXPECT_MESSAGE(graph.compile({.feeds = {}, .targets = {x + 1.0}}, runtime_device()), "x");
}

TEST(Variables, StatePersistsAndIsShared) {
  for (const char* name : {"interpreter", "judge"}) {
    hd::Device device = hd::device(name);
    hd::Graph graph;
    hd::Tensor counter = graph.variable(array({1}, {10}), "counter");
    hd::Tensor step = graph.placeholder(hd::f32, {1}, "step");
    hd::Tensor before = hd::read_variable(counter);
    hd::Operation bump = hd::assign(counter, before + step);
    hd::Tensor after =
        hd::with_dependencies({bump}, [&] { return hd::read_variable(counter) * 1.0; });
    hd::Executable run =
        graph.compile({.feeds = {step}, .targets = {before, after}, .operations = {bump}}, device);
    std::vector<hd::Array> out = run.run({array({1}, {1})});
    EXPECT_EQ(out[0].to_vector<float>(), Values{10}) << name;
    EXPECT_EQ(out[1].to_vector<float>(), Values{11}) << name;
    out = run.run({array({1}, {5})});
    EXPECT_EQ(out[0].to_vector<float>(), Values{11}) << name;
    EXPECT_EQ(out[1].to_vector<float>(), Values{16}) << name;
    hd::Executable look = graph.compile({.feeds = {}, .targets = {before}}, device);
    EXPECT_EQ(look.run({})[0].to_vector<float>(), Values{16}) << name;
    // Not a target, not a dependency: nothing is assigned.
    hd::Executable idle = graph.compile({.feeds = {step}, .targets = {before + step}}, device);
    idle.run({array({1}, {1})});
    EXPECT_EQ(look.run({})[0].to_vector<float>(), Values{16}) << name;
  }
}

TEST(Variables, StateIsByDevice) {
  hd::Graph graph;
  hd::Tensor v = graph.variable(array({1}, {1}), "v");
  hd::Operation set = hd::assign(v, hd::read_variable(v) + 1.0);
  hd::Tensor value = hd::read_variable(v);
  graph.run({}, {}, {set}, hd::device("interpreter"));
  EXPECT_EQ(graph.run({}, {value}, {}, hd::device("interpreter"))[0].to_vector<float>(), Values{2});
  EXPECT_EQ(graph.run({}, {value}, {}, hd::device("judge"))[0].to_vector<float>(), Values{1});
}

TEST(Async, CompletionEventsAndOrder) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {2}, "x");
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {x + 1.0}}, runtime_device());
  hd::Queue queue(runtime_device());
  hd::Event go, done;
  std::promise<Values> result;
  hd::RunOptions options;
  options.queue = &queue;
  options.wait_for = {{go, 1}};
  std::vector<hd::Array> first = e.run_async({array({2}, {1, 2})}, options);
  hd::RunOptions then;
  then.queue = &queue;
  then.signal = {{done, 4}};
  then.completion = [&](std::vector<hd::Array> out, std::exception_ptr error) {
    EXPECT_FALSE(error);
    result.set_value(out[0].to_vector<float>());
  };
  e.run_async(first, then);
  EXPECT_FALSE(done.wait(4, std::chrono::milliseconds(20)));
  go.signal(1);
  EXPECT_TRUE(done.wait(4));
  EXPECT_EQ(result.get_future().get(), (Values{3, 4}));
  queue.wait();
}

TEST(Async, ErrorsSurfaceOnce) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1}, "x");
  // The predicate never fails: the run is ended by the memory limit before it starts.
  hd::Device device = runtime_device();
  hd::Tensor y = hd::cumulative_sum(hd::broadcast_to(x, {1 << 20}), {.axis = 0});
  hd::Executable e = graph.compile(
      {.feeds = {x}, .targets = {hd::sum(hd::cumulative_sum(y, {.axis = 0}), {.axes = {0}})}},
      device);
  device.trim();
  struct Unlimited {
    hd::Device device;
    ~Unlimited() { device.set_memory_limit(0); }
  } unlimited{device};
  // Enough for the result, too little for the two rows of 4 MiB.
  device.set_memory_limit(device.memory().live + (2 << 20) + (1 << 16));
  hd::Queue queue(device);
  hd::Event done;
  hd::RunOptions options;
  options.queue = &queue;
  options.signal = {{done, 1}};
  e.run_async({array({1}, {1})}, options);
  EXPECT_THROW(done.wait(1), hd::DeviceError);
  EXPECT_NO_THROW(done.wait(1));
  EXPECT_THROW(queue.wait(), hd::DeviceError);
  EXPECT_NO_THROW(queue.wait());
  EXPECT_MESSAGE(e.run({array({1}, {1})}), "out of memory");
  device.set_memory_limit(0);
  EXPECT_NO_THROW(e.run({array({1}, {1})}));
}

TEST(CommandBuffer, CommitsTogetherInOrder) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1}, "x");
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {x * 2.0}}, runtime_device());
  hd::Queue queue(runtime_device());
  hd::CommandBuffer buffer(queue);
  hd::Array a = array({1}, {3}), b = hd::Array::zeros(hd::f32, {1}),
            c = hd::Array::zeros(hd::f32, {1});
  e.encode(buffer, {a}, {b});
  e.encode(buffer, {b}, {c});
  EXPECT_EQ(c.to_vector<float>(), Values{0});
  buffer.commit();
  buffer.wait();
  EXPECT_EQ(c.to_vector<float>(), Values{12});
  EXPECT_MESSAGE(buffer.commit(), "committed before");
  EXPECT_MESSAGE(e.encode(buffer, {a}, {b}), "committed before");
}

// T01: several threads compile and run.
TEST(Threads, CompileAndRunAtOnce) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {8}, "x");
  hd::Executable shared = graph.compile(
      {.feeds = {x}, .targets = {hd::cumulative_sum(x * 2.0, {.axis = 0})}}, runtime_device());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      hd::Graph own;
      hd::Tensor y = own.placeholder(hd::f32, {8}, "y");
      hd::Executable e = own.compile(
          {.feeds = {y}, .targets = {hd::cumulative_sum(y * 2.0, {.axis = 0})}}, runtime_device());
      for (int i = 0; i < 50; ++i) {
        Values v(8, static_cast<float>(t * 50 + i));
        Values a = shared.run({array({8}, v)})[0].to_vector<float>(),
               b = e.run({array({8}, v)})[0].to_vector<float>();
        ASSERT_EQ(a, b);
        ASSERT_EQ(a[7], 16 * v[0]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(Threads, VariableWritersAreOrdered) {
  hd::Graph graph;
  hd::Tensor v = graph.variable(array({1}, {0}), "v");
  hd::Operation bump = hd::assign(v, hd::read_variable(v) + 1.0);
  hd::Executable e =
      graph.compile({.feeds = {}, .targets = {}, .operations = {bump}}, runtime_device());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) e.run({});
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(graph.run({}, {hd::read_variable(v)}, {}, runtime_device())[0].to_vector<float>(),
            Values{200});
}

}  // namespace
