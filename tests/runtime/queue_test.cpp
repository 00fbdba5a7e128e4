// Queues of devices whose work goes on beside the host: a device whose streams run what they are
// given on a thread each, a run at a time where the test says so.
#include "runtime/queue.h"
#include "loop/interpret.h"
#include "runtime/host_device.h"
#include "runtime/host_stream.h"

#include "helpers.h"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

namespace hd = heddle;
using heddle::test::Values;

namespace {

// What all streams of the device share.
struct Control {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t allowed = INT64_MAX;  // commands that may still run
  std::atomic<int64_t> synchronized{0}, launches{0};
  std::atomic<int64_t> fail_launch{-1};  // number of the launch that is refused

  void allow(int64_t commands) {
    std::lock_guard lock(mutex);
    allowed = commands;
    changed.notify_all();
  }
};

class AsyncStream : public hd::target::Stream {
 public:
  explicit AsyncStream(std::shared_ptr<Control> control)
      : control_(std::move(control)), recorder_(*this), thread_([this] { loop(); }) {}
  ~AsyncStream() override {
    give([this] { stop_ = true; }, false);
    thread_.join();
  }
  AsyncStream(const AsyncStream&) = delete;
  AsyncStream& operator=(const AsyncStream&) = delete;

  hd::target::Recorder& recorder() override { return recorder_; }
  void copy_from_host(void* dst, const void* src, int64_t bytes) override {
    recorder_.copy(dst, src, bytes);
    synchronize();
  }
  void copy_to_host(void* dst, const void* src, int64_t bytes) override {
    recorder_.copy(dst, src, bytes);
    synchronize();
  }
  void synchronize() override {
    ++control_->synchronized;
    mark()->wait();
  }
  std::unique_ptr<hd::target::Mark> mark() override {
    struct Promise : hd::target::Mark {
      std::shared_future<void> done;
      void wait() override { done.wait(); }
    };
    auto promise = std::make_shared<std::promise<void>>();
    auto mark = std::make_unique<Promise>();
    mark->done = promise->get_future().share();
    give([promise] { promise->set_value(); }, false);
    return mark;
  }
  void run_on_host(std::function<void()> f) override { give(std::move(f), false); }

 private:
  struct Command {
    std::function<void()> f;
    bool counted;
  };
  class Recorder : public hd::target::Recorder {
   public:
    explicit Recorder(AsyncStream& stream) : stream_(stream) {}
    void launch(const hd::target::CompiledKernel& kernel,
                const hd::target::KernelArgs& args) override {
      if (stream_.control_->launches++ == stream_.control_->fail_launch)
        throw hd::DeviceError("the launch was refused");
      stream_.give(
          [&kernel, buffers = std::vector<void*>(args.buffers.begin(), args.buffers.end()),
           symbols = std::vector<int64_t>(args.symbols.begin(), args.symbols.end())] {
            hd::runtime::HostRecorder(false).launch(kernel, {buffers, symbols});
          },
          true);
    }
    void call(const hd::target::LibraryCall&, std::span<void* const>, std::span<const int64_t>,
              void*) override {
      throw hd::InternalError("the device has no libraries");
    }
    void copy(void* dst, const void* src, int64_t bytes) override {
      stream_.give([=] { hd::runtime::HostRecorder(false).copy(dst, src, bytes); }, false);
    }
    void fill(void* dst, uint8_t byte, int64_t bytes) override {
      stream_.give([=] { hd::runtime::HostRecorder(false).fill(dst, byte, bytes); }, false);
    }
    void read_back(void* host, const void* src, int64_t bytes) override {
      stream_.copy_to_host(host, src, bytes);
    }
    bool control_flow() const override { return false; }
    void while_loop(const void*, const std::function<void(hd::target::Recorder&)>&,
                    const std::function<void(hd::target::Recorder&)>&) override {}
    void if_else(const void*, const std::function<void(hd::target::Recorder&)>&,
                 const std::function<void(hd::target::Recorder&)>&) override {}

   private:
    AsyncStream& stream_;
  };

  void give(std::function<void()> f, bool counted) {
    std::lock_guard lock(control_->mutex);
    commands_.push_back({std::move(f), counted});
    control_->changed.notify_all();
  }
  void loop() {
    std::unique_lock lock(control_->mutex);
    while (!stop_) {
      control_->changed.wait(lock, [&] {
        return !commands_.empty() && (!commands_.front().counted || control_->allowed > 0);
      });
      Command command = std::move(commands_.front());
      commands_.pop_front();
      control_->allowed -= command.counted ? 1 : 0;
      lock.unlock();
      command.f();
      lock.lock();
    }
  }

  std::shared_ptr<Control> control_;
  Recorder recorder_;
  std::deque<Command> commands_;
  bool stop_ = false;
  std::thread thread_;
};

class AsyncDevice : public hd::runtime::HostDevice {
 public:
  AsyncDevice() : HostDevice(parts()) {}
  bool host_memory() const override { return false; }
  std::unique_ptr<hd::target::Stream> create_stream() override {
    return std::make_unique<AsyncStream>(control);
  }
  std::shared_ptr<Control> control = std::make_shared<Control>();

 private:
  static hd::runtime::HostDeviceParts parts() {
    hd::runtime::HostDeviceParts p;
    p.name = "async";
    p.summary = "a device of the tests";
    p.description.kind = "async";
    p.description.arch = "any";
    p.emitter = hd::loop::make_interpreter_emitter();
    return p;
  }
};

class AsyncQueue : public ::testing::Test {
 protected:
  // Kernels with an arena between them.
  AsyncQueue() : device(impl) {
    hd::Tensor x = graph.placeholder(hd::f32, {1}, "x");
    hd::Tensor rows = hd::cumulative_sum(hd::broadcast_to(x, {kLength}), {.axis = 0});
    hd::Tensor sums = hd::cumulative_sum(rows, {.axis = 0});
    executable = graph.compile({.feeds = {x}, .targets = {hd::sum(sums, {.axes = {0}})}}, device);
    launches = executable.kernel_count();
    Control& c = control();
    executable.run({feed(1)});  // keeps an arena
    c.synchronized = 0;
    c.launches = 0;
  }
  ~AsyncQueue() override { control().allow(INT64_MAX); }

  hd::Array feed(float value) const { return hd::Array::from<float>({1}, {value}).to(device); }
  static float expected(float value) {
    constexpr int64_t kTerms = kLength * (kLength + 1) * (kLength + 2) / 6;
    return value * static_cast<float>(kTerms);
  }
  Control& control() const { return *impl->control; }

  static constexpr int64_t kLength = 128;
  std::shared_ptr<AsyncDevice> impl = std::make_shared<AsyncDevice>();
  hd::Device device;
  hd::Graph graph;
  hd::Executable executable;
  int launches = 0;
};

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
