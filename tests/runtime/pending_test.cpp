// Arrays that an asynchronous run writes: whatever reads one waits for that run, and has its error.
#include "runtime/dlpack_abi.h"

#include "async_device.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <utility>
#include <vector>

namespace hd = heddle;
using heddle::test::AsyncQueue;
using heddle::test::runtime_device;
using heddle::test::Values;

namespace {

constexpr int kSteps = 1000;

// x + steps in as many steps, which take a while.
struct Slow {
  explicit Slow(const hd::Device& device, int64_t steps = kSteps, int64_t length = 50) {
    hd::Tensor x = graph.placeholder(hd::f32, {length}, "x");
    hd::Tensor y = hd::for_loop(hd::Expr(steps), {x}, [](const hd::Tensor&, const hd::Tensors& v) {
      return hd::Tensors{v[0] + 1.0};
    })[0];
    executable = graph.compile({.feeds = {x}, .targets = {y}}, device);
  }
  hd::Graph graph;
  hd::Executable executable;
};

hd::Array zeros(int64_t n = 50) { return hd::Array::zeros(hd::f32, {n}); }

Values dlpack_values(const hd::Array& a) {
  DLManagedTensor* tensor = a.to_dlpack();
  auto* data = static_cast<const float*>(tensor->dl_tensor.data);
  Values values(data, data + tensor->dl_tensor.shape[0]);
  tensor->deleter(tensor);
  return values;
}

TEST(Pending, EveryReadOnTheHostWaits) {
  hd::Device device = runtime_device();
  Slow slow(device);
  Values expected(50, kSteps);
  std::vector<std::pair<const char*, std::function<Values(const hd::Array&)>>> reads{
      {"to_vector", [](const hd::Array& a) { return a.to_vector<float>(); }},
      {"to", [](const hd::Array& a) { return a.to(hd::Device()).to_vector<float>(); }},
      {"to_bytes",
       [](const hd::Array& a) {
         std::vector<std::byte> bytes = a.to_bytes();
         Values v(bytes.size() / 4);
         std::memcpy(v.data(), bytes.data(), bytes.size());
         return v;
       }},
      {"a view", [](const hd::Array& a) { return a.slice(0, -1, -51, -1).to_vector<float>(); }},
      {"a reshaped copy", [](const hd::Array& a) { return a.reshape({5, 10}).to_vector<float>(); }},
      {"wait, then another thread",
       [](const hd::Array& a) {
         a.wait();
         return std::async(std::launch::async, [a] { return a.to_vector<float>(); }).get();
       }},
      {"constant",
       [&](const hd::Array& a) {
         hd::Graph g;
         return g.run({}, {g.constant(a) + 0.0}, {}, device)[0].to_vector<float>();
       }},
      {"a run that is waited for", [&](const hd::Array& a) {
         hd::Graph g;
         hd::Tensor x = g.placeholder(hd::f32, {50}, "x");
         return g.run({{x, a}}, {x * 1.0}, {}, hd::device("judge"))[0].to_vector<float>();
       }}};
  if (device.impl()->host_memory()) {
    reads.emplace_back("data", [](const hd::Array& a) {
      auto* p = static_cast<const float*>(a.data());
      return Values(p, p + 50);
    });
    reads.emplace_back("to_dlpack", dlpack_values);
  }
  for (const auto& [name, read] : reads)
    EXPECT_EQ(read(slow.executable.run_async({zeros()}, {})[0]), expected) << name;
  for (int k = 0; k < 20; ++k)
    ASSERT_EQ(slow.executable.run_async({zeros()}, {})[0].to_vector<float>(), expected) << k;
}

// T06
TEST(Pending, ReadAtOnceAHundredTimes) {
  if (!heddle::test::has_cpu()) GTEST_SKIP() << "the CPU backend is not installed";
  Slow slow(hd::device("cpu"), 20000, 1000);
  for (int k = 0; k < 100; ++k) {
    Values values = slow.executable.run_async({zeros(1000)}, {})[0].to_vector<float>();
    ASSERT_EQ(values, Values(1000, 20000)) << k;
  }
}

TEST(Pending, ViewsTakenBeforeAndArraysThatAreDropped) {
  Slow slow(runtime_device());
  hd::Array view;
  {
    hd::Array result = slow.executable.run_async({zeros()}, {})[0];
    view = result.slice(0, 0, 50, 7);
  }
  for (int k = 0; k < 10; ++k) slow.executable.run_async({zeros()}, {});  // results go at once
  EXPECT_EQ(view.to_vector<float>(), Values(8, kSteps));
}

// A result is fed to runs on the same queue, on another one, and to one that is waited for.
TEST(Pending, RunsThatReadComeAfter) {
  hd::Device device = runtime_device();
  Slow slow(device);
  hd::Queue first(device), second(device);
  hd::RunOptions on_first, on_second;
  on_first.queue = &first;
  on_second.queue = &second;
  for (int k = 0; k < 10; ++k) {
    hd::Array a = slow.executable.run_async({zeros()}, on_first)[0];
    hd::Array b = slow.executable.run_async({a}, on_second)[0];
    hd::Array c = slow.executable.run_async({b}, on_first)[0];
    hd::Array d = slow.executable.run_async({c}, on_first)[0];
    EXPECT_EQ(slow.executable.run({d})[0].to_vector<float>(), Values(50, 5 * kSteps));
    EXPECT_EQ(b.to_vector<float>(), Values(50, 2 * kSteps));
  }
}

TEST(Pending, GivenOutputsOfCommandBuffers) {
  hd::Device device = runtime_device();
  Slow slow(device);
  hd::Queue queue(device);
  hd::Array all = zeros(150);
  if (!device.impl()->host_memory()) all = all.to(device);
  hd::Array left = all.slice(0, 0, 50), middle = all.slice(0, 50, 100);
  hd::CommandBuffer buffer(queue);
  slow.executable.encode(buffer, {zeros()}, {left});
  slow.executable.encode(buffer, {left}, {middle});
  EXPECT_EQ(left.to_vector<float>(), Values(50, 0.0F));  // nothing was committed
  buffer.commit();
  EXPECT_EQ(middle.to_vector<float>(), Values(50, 2 * kSteps));
  EXPECT_EQ(left.to_vector<float>(), Values(50, kSteps));
  EXPECT_EQ(all.slice(0, 100, 150).to_vector<float>(), Values(50, 0.0F));
  // Written over by one that is waited for.
  hd::CommandBuffer again(queue);
  slow.executable.encode(again, {middle}, {left});
  again.commit();
  slow.executable.run_into({zeros()}, {left});
  EXPECT_EQ(left.to_vector<float>(), Values(50, kSteps));
}

TEST(Pending, WaitBeforeCommitIsRefused) {
  hd::Queue queue(runtime_device());
  hd::CommandBuffer buffer(queue);
  EXPECT_MESSAGE(buffer.wait(), "CommandBuffer::wait: the buffer was not committed");
  buffer.commit();
  EXPECT_NO_THROW(buffer.wait());
}

// Only what was asked for is waited for: the run behind it waits for the reader.
TEST(Pending, LaterRunsAreNotWaitedFor) {
  hd::Device device = runtime_device();
  Slow slow(device);
  hd::Event event;
  hd::RunOptions later;
  later.wait_for = {{event, 1}};
  hd::Array first = slow.executable.run_async({zeros()}, {})[0];
  hd::Array second = slow.executable.run_async({first}, later)[0];
  EXPECT_EQ(first.to_vector<float>(), Values(50, kSteps));
  event.signal(1);
  EXPECT_EQ(second.to_vector<float>(), Values(50, 2 * kSteps));
}

TEST(Pending, InCompletionHandlers) {
  hd::Device device = runtime_device();
  Slow slow(device);
  std::promise<hd::Array> next;
  std::promise<std::pair<Values, std::string>> told;
  hd::RunOptions options;
  std::shared_future<hd::Array> behind = next.get_future().share();
  options.completion = [&](const std::vector<hd::Array>& results, std::exception_ptr) {
    hd::Array later = behind.get();
    std::string refused =
        device.impl()->host_memory() ? heddle::test::message([&] { later.wait(); }) : "";
    told.set_value({results[0].to_vector<float>(), refused});
  };
  slow.executable.run_async({zeros()}, options);
  next.set_value(slow.executable.run_async({zeros()}, {})[0]);
  auto [values, refused] = told.get_future().get();
  EXPECT_EQ(values, Values(50, kSteps));
  if (device.impl()->host_memory())
    EXPECT_NE(refused.find("a completion handler reads"), std::string::npos) << refused;
  EXPECT_EQ(behind.get().to_vector<float>(), Values(50, kSteps));
}

// The error is thrown at each read of the result, of its views, and of what was computed from it.
TEST_F(AsyncQueue, ErrorsAreThrownAtTheRead) {
  hd::Array f = feed(3);
  control().fail_launch = launches;  // the first launch of the second run
  hd::Queue queue(device);
  hd::RunOptions options;
  options.queue = &queue;
  hd::Array good = executable.run_async({f}, options)[0];
  hd::Array bad = executable.run_async({f}, options)[0];
  hd::Array fed = executable.run_async({bad.reshape({1})}, options)[0];
  hd::Array other = executable.run_async({f}, options)[0];
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_MESSAGE(bad.to_vector<float>(), "the launch was refused");
    EXPECT_MESSAGE(fed.wait(), "the launch was refused");
    EXPECT_MESSAGE(bad.reshape({1}).to_bytes(), "the launch was refused");
  }
  EXPECT_MESSAGE(executable.run({bad.reshape({1})}), "the launch was refused");
  EXPECT_EQ(good.to_vector<float>(), Values{expected(3)});
  EXPECT_EQ(other.to_vector<float>(), Values{expected(3)});
}

// What failed may be written again.
TEST_F(AsyncQueue, OutputsOfFailedRunsCanBeWrittenAgain) {
  hd::Array f = feed(3), out = hd::Array::zeros(hd::f32, {}).to(device);
  hd::Queue queue(device);
  for (bool synchronous : {false, true}) {
    control().fail_launch = control().launches.load();
    hd::CommandBuffer bad(queue);
    executable.encode(bad, {f}, {out});
    bad.commit();
    EXPECT_MESSAGE(out.wait(), "the launch was refused");
    if (synchronous) {
      executable.run_into({f}, {out});
    } else {
      hd::CommandBuffer good(queue);
      executable.encode(good, {f}, {out});
      good.commit();
    }
    EXPECT_EQ(out.to_vector<float>(), Values{expected(3)});
  }
}

// Reading costs no wait for the work given behind.
TEST_F(AsyncQueue, ReadsWaitForWhatTheStreamHas) {
  hd::Array f = feed(2);
  hd::Queue queue(device);
  hd::RunOptions options;
  options.queue = &queue;
  control().allow(0);
  hd::Array result = executable.run_async({f}, options)[0];
  std::future<Values> read =
      std::async(std::launch::async, [&] { return result.to_vector<float>(); });
  EXPECT_EQ(read.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  control().allow(INT64_MAX);
  EXPECT_EQ(read.get(), Values{expected(2)});
}

}  // namespace
