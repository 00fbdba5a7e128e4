// Queues of devices whose work goes on beside the host.
#include "runtime/queue.h"

#include "async_device.h"

#include <future>
#include <thread>

namespace hd = heddle;
using heddle::test::AsyncQueue;
using heddle::test::Values;

namespace {

// All are given before any is done, on one arena, and waited for once.
TEST_F(AsyncQueue, RunsStartBehindThoseInFlight) {
  constexpr int kRuns = 20;
  hd::Queue queue(device);
  hd::RunOptions options;
  options.queue = &queue;
  std::vector<hd::Array> feeds, results;
  for (int k = 0; k < kRuns; ++k) feeds.push_back(feed(static_cast<float>(k)));
  int64_t synchronized = control().synchronized, live = device.memory().live;
  control().allow(0);
  for (const hd::Array& f : feeds) results.push_back(executable.run_async({f}, options)[0]);
  EXPECT_EQ(control().launches, kRuns * launches);
  EXPECT_LE(device.memory().live, live + kRuns * 256 + 4096);  // results, one arena at the most
  control().allow(INT64_MAX);
  queue.wait();
  EXPECT_EQ(control().synchronized, synchronized + 1);
  for (int k = 0; k < kRuns; ++k)
    EXPECT_EQ(results[static_cast<size_t>(k)].to_vector<float>(),
              Values{expected(static_cast<float>(k))});
}

// An end that is awaited is told of although work behind it is not done.
TEST_F(AsyncQueue, CompletionsComeInTime) {
  hd::Queue queue(device);
  hd::Event first;
  std::promise<void> second;
  hd::RunOptions signals, completes, plain;
  signals.queue = completes.queue = plain.queue = &queue;
  signals.signal = {{first, 1}};
  completes.completion = [&](const std::vector<hd::Array>&, std::exception_ptr error) {
    EXPECT_FALSE(error);
    second.set_value();
  };
  hd::Array f = feed(1);
  control().allow(0);
  executable.run_async({f}, signals);
  executable.run_async({f}, completes);
  hd::Array last = executable.run_async({f}, plain)[0];
  EXPECT_FALSE(first.wait(1, std::chrono::milliseconds(10)));
  control().allow(launches);
  EXPECT_TRUE(first.wait(1, std::chrono::seconds(60)));
  std::future<void> done = second.get_future();
  EXPECT_EQ(done.wait_for(std::chrono::milliseconds(10)), std::future_status::timeout);
  control().allow(launches);
  EXPECT_EQ(done.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  control().allow(INT64_MAX);
  queue.wait();
  EXPECT_EQ(last.to_vector<float>(), Values{expected(1)});
}

// What is in flight stays bounded, and what is done is let go of without anybody waiting.
TEST_F(AsyncQueue, ManyRunsInFlight) {
  constexpr int kRuns = 500;
  hd::Queue queue(device);
  hd::RunOptions options;
  options.queue = &queue;
  std::atomic<int> released{0};
  float memory[1] = {2};
  std::vector<hd::Array> results;
  control().allow(0);
  for (int k = 0; k < kRuns; ++k) {
    hd::Array f = hd::Array::wrap(hd::f32, {1}, {1}, memory, device, [&] { ++released; });
    results.push_back(executable.run_async({f}, options)[0]);
  }
  EXPECT_LE(control().launches, 64 * launches);
  EXPECT_EQ(released, 0);
  control().allow(INT64_MAX);
  for (int k = 0; k < 6000 && released < kRuns - 64; ++k)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(released, kRuns - 64);
  queue.wait();
  EXPECT_EQ(released, kRuns);
  for (const hd::Array& r : results) EXPECT_EQ(r.to_vector<float>(), Values{expected(2)});
}

// The error of one run is told once; the others are right, also those that shared its instance.
TEST_F(AsyncQueue, OneRunFails) {
  hd::Queue queue(device);
  hd::RunOptions options;
  options.queue = &queue;
  hd::Array f = feed(3);
  std::vector<hd::Array> results;
  control().fail_launch = launches;  // the first launch of the second run
  for (int k = 0; k < 4; ++k) results.push_back(executable.run_async({f}, options)[0]);
  EXPECT_MESSAGE(queue.wait(), "the launch was refused");
  EXPECT_NO_THROW(queue.wait());
  for (size_t k : {0, 2, 3}) EXPECT_EQ(results[k].to_vector<float>(), Values{expected(3)}) << k;
}

// Two queues and runs without one at the same time, from two threads; each has what it needs.
TEST_F(AsyncQueue, QueuesBesideEachOther) {
  auto work = [&](float value) {
    hd::Queue queue(device);
    hd::RunOptions options;
    options.queue = &queue;
    hd::Array f = feed(value);
    for (int k = 0; k < 20; ++k) {
      std::vector<hd::Array> results;
      for (int i = 0; i < 5; ++i) results.push_back(executable.run_async({f}, options)[0]);
      hd::Array now = executable.run({f})[0];
      queue.wait();
      results.push_back(now);
      for (const hd::Array& r : results) EXPECT_EQ(r.to_vector<float>(), Values{expected(value)});
    }
  };
  std::thread other(work, 1.0F);
  work(2);
  other.join();
}

}  // namespace
