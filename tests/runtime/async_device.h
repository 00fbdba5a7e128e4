// A device whose streams run what they are given on a thread each, a command at a time where the
// test says so.
#pragma once

#include "loop/interpret.h"
#include "runtime/host_device.h"
#include "runtime/host_stream.h"

#include "helpers.h"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

namespace heddle::test {

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

class AsyncStream : public heddle::target::Stream {
 public:
  explicit AsyncStream(std::shared_ptr<Control> control)
      : control_(std::move(control)), recorder_(*this), thread_([this] { loop(); }) {}
  ~AsyncStream() override {
    give([this] { stop_ = true; }, false);
    thread_.join();
  }
  AsyncStream(const AsyncStream&) = delete;
  AsyncStream& operator=(const AsyncStream&) = delete;

  heddle::target::Recorder& recorder() override { return recorder_; }
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
  std::unique_ptr<heddle::target::Mark> mark() override {
    struct Promise : heddle::target::Mark {
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
  class Recorder : public heddle::target::Recorder {
   public:
    explicit Recorder(AsyncStream& stream) : stream_(stream) {}
    void launch(const heddle::target::CompiledKernel& kernel,
                const heddle::target::KernelArgs& args) override {
      if (stream_.control_->launches++ == stream_.control_->fail_launch)
        throw heddle::DeviceError("the launch was refused");
      stream_.give(
          [&kernel, buffers = std::vector<void*>(args.buffers.begin(), args.buffers.end()),
           symbols = std::vector<int64_t>(args.symbols.begin(), args.symbols.end())] {
            heddle::runtime::HostRecorder(false).launch(kernel, {buffers, symbols});
          },
          true);
    }
    void call(const heddle::target::LibraryCall&, std::span<void* const>, std::span<const int64_t>,
              void*) override {
      throw heddle::InternalError("the device has no libraries");
    }
    void copy(void* dst, const void* src, int64_t bytes) override {
      stream_.give([=] { heddle::runtime::HostRecorder(false).copy(dst, src, bytes); }, false);
    }
    void fill(void* dst, uint8_t byte, int64_t bytes) override {
      stream_.give([=] { heddle::runtime::HostRecorder(false).fill(dst, byte, bytes); }, false);
    }
    void read_back(void* host, const void* src, int64_t bytes) override {
      stream_.copy_to_host(host, src, bytes);
    }
    bool control_flow() const override { return false; }
    void while_loop(const void*, const std::function<void(heddle::target::Recorder&)>&,
                    const std::function<void(heddle::target::Recorder&)>&) override {}
    void if_else(const void*, const std::function<void(heddle::target::Recorder&)>&,
                 const std::function<void(heddle::target::Recorder&)>&) override {}

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

class AsyncDevice : public heddle::runtime::HostDevice {
 public:
  AsyncDevice() : HostDevice(parts()) {}
  bool host_memory() const override { return false; }
  std::unique_ptr<heddle::target::Stream> create_stream() override {
    return std::make_unique<AsyncStream>(control);
  }
  std::shared_ptr<Control> control = std::make_shared<Control>();

 private:
  static heddle::runtime::HostDeviceParts parts() {
    heddle::runtime::HostDeviceParts p;
    p.name = "async";
    p.summary = "a device of the tests";
    p.description.kind = "async";
    p.description.arch = "any";
    p.emitter = heddle::loop::make_interpreter_emitter();
    return p;
  }
};

class AsyncQueue : public ::testing::Test {
 protected:
  // Kernels with an arena between them.
  AsyncQueue() : device(impl) {
    heddle::Tensor x = graph.placeholder(heddle::f32, {1}, "x");
    heddle::Tensor rows = heddle::cumulative_sum(heddle::broadcast_to(x, {kLength}), {.axis = 0});
    heddle::Tensor sums = heddle::cumulative_sum(rows, {.axis = 0});
    executable =
        graph.compile({.feeds = {x}, .targets = {heddle::sum(sums, {.axes = {0}})}}, device);
    launches = executable.kernel_count();
    Control& c = control();
    executable.run({feed(1)});  // keeps an arena
    c.synchronized = 0;
    c.launches = 0;
  }
  ~AsyncQueue() override { control().allow(INT64_MAX); }

  heddle::Array feed(float value) const {
    return heddle::Array::from<float>({1}, {value}).to(device);
  }
  static float expected(float value) {
    constexpr int64_t kTerms = kLength * (kLength + 1) * (kLength + 2) / 6;
    return value * static_cast<float>(kTerms);
  }
  Control& control() const { return *impl->control; }

  static constexpr int64_t kLength = 128;
  std::shared_ptr<AsyncDevice> impl = std::make_shared<AsyncDevice>();
  heddle::Device device;
  heddle::Graph graph;
  heddle::Executable executable;
  int launches = 0;
};

}  // namespace heddle::test
