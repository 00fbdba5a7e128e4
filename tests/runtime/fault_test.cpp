// What goes wrong around an engine: memory that is short, sizes that nothing holds, events that
// nobody signals, queues that go while they work, forks. Each is an error that says what happened,
// and the next run works.
#include "helpers.h"
#include "plan/layout.h"
#include "runtime/executable.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>

namespace hd = heddle;

namespace {

using hd::test::message;
using hd::test::runtime_device;
using hd::test::Values;

// A device's limit while it lives.
class Limit {
 public:
  Limit(const hd::Device& device, int64_t bytes) : device_(device) {
    device_.trim();
    device_.set_memory_limit(device_.memory().live + bytes);
  }
  ~Limit() { device_.set_memory_limit(0); }

 private:
  hd::Device device_;
};

// Two rows of n floats in the arena, one float as the result.
hd::Executable needs_memory(const hd::Device& device, const hd::Expr& n) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
  hd::Tensor y = hd::cumulative_sum(hd::cumulative_sum(x, {.axis = 0}), {.axis = 0});
  return graph.compile({.feeds = {x}, .targets = {hd::sum(y, {.axes = {0}})}}, device);
}

TEST(Faults, OutOfMemoryNamesRequestLiveAndLimit) {
  for (const hd::Device& device : {runtime_device(), hd::Device()}) {
    hd::Executable e = needs_memory(device, 1 << 20);
    hd::Array x = hd::Array::zeros(hd::f32, {1 << 20}).to(device);
    {
      Limit limit(device, 1 << 20);
      std::string text = message([&] { e.run({x}); });
      EXPECT_NE(text.find("out of memory"), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(device.memory().limit)), std::string::npos) << text;
      // The limit was in the way. What the run itself held by then counts too.
      size_t requested = text.find("requested "), live = text.find(", live ");
      ASSERT_TRUE(requested != text.npos && live != text.npos) << text;
      int64_t held = std::stoll(text.substr(live + 7));
      EXPECT_GE(held, device.memory().live) << text;
      EXPECT_GT(held + std::stoll(text.substr(requested + 10)), device.memory().limit) << text;
      EXPECT_MESSAGE(hd::Array::empty(hd::f32, {1 << 20}, device), "out of memory");
    }
    EXPECT_EQ(e.run({x})[0].to_vector<float>(), Values{0});
  }
}

TEST(Faults, TuningWithoutMemoryIsNoFailure) {
  hd::Device device = runtime_device();
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1 << 20}, "x");
  hd::CompileOptions options;
  options.autotune = true;
  Limit limit(device, 1 << 20);
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {x * 3.0}}, device, options);
  EXPECT_NE(e.describe().find("not tuned: the device has no memory"), std::string::npos)
      << e.describe();
}

// What idle runs of other executables and free blocks hold is given back before a run fails.
TEST(Faults, IdleMemoryIsNotInTheWay) {
  hd::Device device = runtime_device();
  hd::Executable small = needs_memory(device, 1 << 18), large = needs_memory(device, 1 << 19);
  hd::Array a = hd::Array::zeros(hd::f32, {1 << 18}).to(device);
  hd::Array b = hd::Array::zeros(hd::f32, {1 << 19}).to(device);
  Limit limit(device, int64_t{6} << 20);  // one run of the larger fits
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(small.run({a})[0].to_vector<float>(), Values{0});
    EXPECT_EQ(large.run({b})[0].to_vector<float>(), Values{0});
  }
}

// Executables that run one after another use one arena.
TEST(Memory, ExecutablesShareTheirArenas) {
  hd::Device device = runtime_device();
  device.trim();
  hd::Array x = hd::Array::zeros(hd::f32, {1 << 15}).to(device);
  std::vector<hd::Executable> all;
  int64_t before = device.memory().live, one = 0;
  for (int i = 0; i < 8; ++i) {
    all.push_back(needs_memory(device, 1 << 15));
    for (const hd::Executable& e : all) e.run({x});
    if (i == 0) one = device.memory().live - before;
  }
  EXPECT_GT(one, 0);
  EXPECT_LT(device.memory().live - before, 2 * one);
  device.trim();
  EXPECT_LT(device.memory().live - before, one / 2);
}

TEST(Faults, SizesThatNothingHolds) {
  hd::Device device = runtime_device();
  const int64_t huge = int64_t{1} << 62;
  EXPECT_MESSAGE(hd::Array::empty(hd::f32, {huge}, device), "more than 2^63 bytes");
  EXPECT_MESSAGE(hd::Array::empty(hd::f32, {huge, 4}, device), "more than 2^63 bytes");
  EXPECT_MESSAGE(hd::Array::empty(hd::f32, {int64_t{1} << 50}, device), "out of memory");
  EXPECT_MESSAGE(hd::Array::empty(hd::f32, {-1}, device), "negative extent");
  // An intermediate value.
  for (int64_t n : {int64_t{1} << 40, int64_t{1} << 55, huge}) {
    std::string text = message([&] {
      hd::Graph graph;
      hd::Tensor x = graph.placeholder(hd::f32, {1}, "x");
      hd::Tensor y = hd::cumulative_sum(hd::broadcast_to(x, {n}), {.axis = 0});
      hd::Tensor z = hd::sum(hd::cumulative_sum(y, {.axis = 0}), {.axes = {0}});
      graph.compile({.feeds = {x}, .targets = {z}}, device).run({hd::Array::zeros(hd::f32, {1})});
    });
    EXPECT_TRUE(text.find("out of memory") != std::string::npos ||
                text.find("2^63") != std::string::npos ||
                text.find("64 bits") != std::string::npos ||
                text.find("more elements than fit") != std::string::npos)
        << n << ": " << text;
  }
  // A result whose size only the feed decides.
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
  hd::Executable e = graph.compile(
      {.feeds = {x}, .targets = {hd::broadcast_to(x, {int64_t{1} << 38, n}) + 1.0}}, device);
  EXPECT_MESSAGE(e.run({hd::Array::zeros(hd::f32, {1024})}), "out of memory");
  hd::Array many = hd::Array::zeros(hd::f32, {1}).broadcast_to({int64_t{1} << 30});
  EXPECT_MESSAGE(e.run({many}), "64 bits");
}

TEST(Faults, ASwitchThatIsNoNumber) {
  hd::Device device = runtime_device();
  for (const char* text : {"soon", "-1", "3s", "nan"}) {
    setenv("HEDDLE_WAIT_LIMIT", text, 1);
    hd::Queue queue(device);
    queue.wait_for(hd::Event(), 1);
    EXPECT_MESSAGE(queue.wait(), std::string("HEDDLE_WAIT_LIMIT is '") + text + "', expected a");
  }
  unsetenv("HEDDLE_WAIT_LIMIT");
}

TEST(Faults, AnEventThatNobodySignals) {
  hd::Device device = runtime_device();
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1}, "x");
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {x + 1.0}}, device);
  hd::Array one = hd::Array::from<float>({1}, {1});
  hd::Event never, done;
  EXPECT_FALSE(never.wait(1, std::chrono::milliseconds(10)));
  setenv("HEDDLE_WAIT_LIMIT", "0.05", 1);
  hd::RunOptions options;
  options.wait_for = {{never, 3}};
  EXPECT_MESSAGE(e.run({one}, options), "expected 3: nothing has signalled it");
  {
    hd::Queue queue(device);
    options.queue = &queue;
    options.signal = {{done, 1}};
    e.run_async({one}, options);
    EXPECT_MESSAGE(done.wait(1), "nothing has signalled it");
    EXPECT_MESSAGE(queue.wait(), "nothing has signalled it");
    EXPECT_NO_THROW(queue.wait());
    queue.wait_for(never, 4);
  }  // the queue goes although its work never began
  unsetenv("HEDDLE_WAIT_LIMIT");
  EXPECT_EQ(e.run({one})[0].to_vector<float>(), Values{2});
}

// Whoever gave the work may go: graph, executable, feeds, queue.
TEST(Faults, AQueueDestroyedWhileItWorks) {
  hd::Device device = runtime_device();
  std::vector<hd::Array> results;
  std::atomic<int> completed{0};
  {
    hd::Queue queue(device);
    hd::Graph graph;
    hd::Tensor x = graph.placeholder(hd::f32, {10000}, "x");
    hd::Executable e =
        graph.compile({.feeds = {x}, .targets = {hd::cumulative_sum(x, {.axis = 0})}}, device);
    hd::RunOptions options;
    options.queue = &queue;
    options.completion = [&](const std::vector<hd::Array>&, std::exception_ptr error) {
      completed += error ? 0 : 1;
    };
    for (int i = 0; i < 20; ++i) {
      hd::Array feed = hd::Array::from<float>({10000}, Values(10000, static_cast<float>(i)));
      results.push_back(e.run_async({feed}, options)[0]);
    }
  }
  EXPECT_EQ(completed, 20);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(results[static_cast<size_t>(i)].to_vector<float>().back(),
              10000.0F * static_cast<float>(i));
}

int64_t heap_bytes() { return static_cast<int64_t>(mallinfo2().uordblks); }

void build_and_drop(int i, bool run) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {4}, "x");
  hd::Tensor y = hd::sum(hd::exp(x * 2.0) + static_cast<double>(i % 16), {.axes = {0}});
  hd::Tensor g = hd::gradients(y, {x})[0];
  if (run) graph.run({{x, hd::Array::zeros(hd::f32, {4})}}, {y, g}, {}, runtime_device());
}

TEST(Memory, TenThousandGraphsLeaveNothing) {
  for (int i = 0; i < 500; ++i) build_and_drop(i, i % 10 == 0);
  int64_t heap = heap_bytes(), live = runtime_device().memory().live;
  for (int i = 0; i < 10000; ++i) build_and_drop(i, i % 20 == 0);
  EXPECT_LT(heap_bytes() - heap, 1 << 20);
  EXPECT_EQ(runtime_device().memory().live, live);
}

// One executable for 2,000 sizes: one compile, every result right, layouts bounded.
TEST(Memory, TwoThousandSizesOfOneExecutable) {
  hd::Device device = runtime_device();
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {hd::Dim("n")}, "x");
  hd::Tensor y = hd::cumulative_sum(x * 2.0 + 1.0, {.axis = 0});
  hd::Executable e =
      graph.compile({.feeds = {x}, .targets = {y, hd::sum(y, {.axes = {0}})}}, device);
  int64_t graphs = hd::counters().graph_compiles, kernels = hd::counters().kernel_compiles;
  std::vector<int64_t> sizes(2000);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (size_t k = 0; k < sizes.size(); ++k) std::swap(sizes[k], sizes[k * 7919 % sizes.size()]);
  int64_t live = 0, heap = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    int64_t n = sizes[k] % 257 + (k % 50 == 0 ? sizes[k] : 1);  // few large ones: quick
    std::vector<hd::Array> out = e.run({hd::Array::zeros(hd::f32, {n})});
    Values counted = out[0].to_vector<float>();
    ASSERT_EQ(counted.size(), static_cast<size_t>(n));
    for (size_t i = 0; i < counted.size(); ++i) ASSERT_EQ(counted[i], static_cast<float>(i + 1));
    const int64_t total = n * (n + 1) / 2;
    ASSERT_EQ(out[1].to_vector<float>()[0], static_cast<float>(total)) << n;
    if (k == 1000) live = device.memory().live, heap = heap_bytes();
  }
  EXPECT_LT(heap_bytes() - heap, 100 << 10);  // 1,000 more sizes: nothing is kept for each
  EXPECT_EQ(hd::counters().graph_compiles, graphs);
  EXPECT_EQ(hd::counters().kernel_compiles, kernels);
  EXPECT_LE(device.memory().live - live, 64 << 10);
  const heddle::plan::LayoutCache& layouts = e.impl()->layouts;
  EXPECT_LE(layouts.size(), heddle::plan::LayoutCache::kLimit);
  EXPECT_GT(layouts.evictions(), 100);
}

// A graph that is specialised for each size: its cache levels off.
TEST(Memory, ManySpecialisationsAreEvicted) {
  hd::Device device = runtime_device();
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::Type{}, "x");
  hd::Tensor y = x + 1.0;
  graph.run({{x, hd::Array::zeros(hd::f32, {1})}}, {y}, {}, device);
  int64_t one = graph.cache_stats().bytes;
  graph.set_cache_limit(20 * one);
  for (int64_t n = 2; n <= 100; ++n) {
    EXPECT_EQ(graph.run({{x, hd::Array::zeros(hd::f32, {n})}}, {y}, {}, device)[0].size(), n);
  }
  hd::GraphCacheStats stats = graph.cache_stats();
  EXPECT_EQ(stats.compiles, 100);
  EXPECT_LE(stats.bytes, 20 * one);
  EXPECT_EQ(stats.entries + stats.evictions, 100);
  EXPECT_GT(stats.evictions, 50);
}

// A child runs what the parent compiled, also on several threads and on queues of its own; the
// parent's queues are refused with a word.
TEST(Faults, AForkedChildWorks) {
  for (const hd::Device& device : {runtime_device(), hd::Device()}) {
    if (device.name().rfind("cuda", 0) == 0) continue;  // the driver supports no fork
    constexpr int64_t kN = 1 << 20;
    hd::Graph graph;
    hd::Tensor x = graph.placeholder(hd::f32, {device.name() == "cpu" ? kN : 1024}, "x");
    hd::Executable e = graph.compile({.feeds = {x}, .targets = {hd::exp(x) * 3.0}}, device);
    hd::Array feed = hd::Array::zeros(hd::f32, {device.name() == "cpu" ? kN : 1024});
    hd::Queue queue(device);
    hd::RunOptions on_queue;
    on_queue.queue = &queue;
    Values expected = e.run({feed})[0].to_vector<float>();
    e.run_async({feed}, on_queue);
    e.run_async({feed}, {});
    queue.wait();
    pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a hang is a failure
      bool good = e.run({feed})[0].to_vector<float>() == expected;
      hd::Event done;
      hd::RunOptions options;
      options.signal = {{done, 1}};
      std::vector<hd::Array> late = e.run_async({feed}, options);
      good = good && done.wait(1) && late[0].to_vector<float>() == expected;
      std::string text = message([&] { e.run_async({feed}, on_queue); });
      good = good && text.find("make a new queue") != std::string::npos;
      _exit(good ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << device.name() << ": " << status;
    EXPECT_EQ(e.run({feed})[0].to_vector<float>(), expected);
  }
}

}  // namespace
