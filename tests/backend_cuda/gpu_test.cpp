// Everything that needs a GPU; skipped by name where there is none.
#include "backend/cuda/graph.h"
#include "backend_cuda/graphs.h"
#include "backend_cuda/kernels.h"
#include "loop/interpret.h"
#include "support/numeric.h"
#include "target/counters.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" const heddle::target::BackendEntry* heddle_backend_entry();

namespace heddle::test {
namespace {

using cuda::CudaDevice;

std::shared_ptr<CudaDevice> gpu(std::string* reason) {
  static std::string why;
  static std::shared_ptr<CudaDevice> device = [] {
    std::vector<DeviceReport> reports;
    auto devices = heddle_backend_entry()->devices(reports);
    if (devices.empty()) {
      why = reports.empty() ? "no GPU" : reports[0].reason;
      return std::shared_ptr<CudaDevice>();
    }
    return std::dynamic_pointer_cast<CudaDevice>(devices[0]);
  }();
  *reason = why;
  return device;
}

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    device_ = gpu(&reason);
    if (device_ == nullptr) GTEST_SKIP() << reason;
    stream_ = device_->create_stream();
  }

  // A case's arguments in device memory.
  struct OnDevice {
    Gpu& owner;
    const KernelCase& c;
    std::vector<void*> blocks, pointers;
    OnDevice(Gpu& test, const KernelCase& kernel, int shift = 0) : owner(test), c(kernel) {
      size_t argument = 0;
      for (const ir::Buffer& b : c.kernel.buffers) {
        if (cuda::is_local(b)) continue;
        const auto& data = c.buffers[argument++];
        void* p =
            owner.device_->allocate(static_cast<int64_t>(data.size()) + 64, owner.stream_.get());
        blocks.push_back(p);
        p = static_cast<std::byte*>(p) + shift * cuda::memory_bytes(b.dtype);
        owner.stream_->copy_from_host(p, data.data(), static_cast<int64_t>(data.size()));
        pointers.push_back(p);
      }
    }
    ~OnDevice() {
      for (void* p : blocks) owner.device_->release(p, 0, owner.stream_.get());
    }
    target::KernelArgs args() const { return {pointers, c.symbols}; }
    CaseMemory read() const {
      CaseMemory m(c);
      for (size_t k = 0; k < pointers.size(); ++k)
        owner.stream_->copy_to_host(m.pointers()[k], pointers[k],
                                    static_cast<int64_t>(c.buffers[k].size()));
      return m;
    }
  };

  void check(const KernelCase& c, int shift = 0, const target::EmitOptions& options = {}) {
    SCOPED_TRACE(c.name);
    auto kernel = device_->emitter().compile(c.kernel, options);
    OnDevice memory(*this, c, shift);
    stream_->recorder().launch(*kernel, memory.args());
    stream_->synchronize();
    CaseMemory want(c), got = memory.read();
    loop::interpret(c.kernel, want.args(c));
    std::string difference = compare(c, want.pointers(), got.pointers());
    EXPECT_TRUE(difference.empty()) << difference;
  }

  // Runs a kernel on copies of host memory.
  Execute execute() { return execute(device_->emitter()); }
  Execute execute(target::Emitter& emitter) {
    return [this, &emitter](const ir::Kernel& kernel, const target::KernelArgs& args) {
      KernelCase c;
      c.name = kernel.name;
      c.kernel = kernel;
      c.symbols.assign(args.symbols.begin(), args.symbols.end());
      auto number_of = [&](const Symbol& s) -> std::optional<int64_t> {
        for (size_t k = 0; k < c.symbols.size(); ++k) {
          if (kernel.symbols[k]->id == s.id) return c.symbols[k];
        }
        return std::nullopt;
      };
      size_t argument = 0;
      for (const ir::Buffer& b : kernel.buffers) {
        if (cuda::is_local(b)) continue;
        int64_t n = cuda::memory_bytes(b.dtype);
        for (const Expr& e : b.extents) n *= evaluate(e, number_of);
        auto* p = static_cast<const std::byte*>(args.buffers[argument++]);
        c.buffers.emplace_back(p, p + n);
      }
      auto compiled = emitter.compile(kernel, {});
      OnDevice memory(*this, c);
      stream_->recorder().launch(*compiled, memory.args());
      stream_->synchronize();
      for (size_t k = 0; k < memory.pointers.size(); ++k)
        stream_->copy_to_host(args.buffers[k], memory.pointers[k],
                              static_cast<int64_t>(c.buffers[k].size()));
    };
  }

  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<target::Stream> stream_;
};

TEST_F(Gpu, EveryKernelShape) {
  for (const KernelCase& c : kernel_cases()) check(c);
}
TEST_F(Gpu, UnalignedAddresses) {
  size_t k = 0;
  for (const KernelCase& c : kernel_cases()) {
    if (++k % 4 == 0) check(c, 1);
  }
}
TEST_F(Gpu, BoundsChecked) {
  size_t k = 0;
  for (const KernelCase& c : kernel_cases()) {
    if (++k % 4 == 1) check(c, 0, {.check_bounds = true});
  }
}
TEST_F(Gpu, RandomKernels) {
  for (uint64_t seed = 0; seed < test_count(100); ++seed) check(random_case(seed));
}

TEST_F(Gpu, ScheduledGraphs) {
  for (const GraphCase& c : graph_cases(static_cast<int64_t>(test_number("HEDDLE_TEST_SIZE", 32))))
    EXPECT_EQ(run_case(c, execute()), "") << c.name;
}
// Code for a device of one multiprocessor: small graphs fill it, so that threads make several
// points.
TEST_F(Gpu, SharedWork) {
  target::DeviceDescription small = device_->description();
  small.processors = 1;
  auto emitter = cuda::make_emitter(small);
  for (const GraphCase& c : shared_work_cases(24))
    EXPECT_EQ(run_case(c, execute(*emitter)), "") << c.name;
}
TEST_F(Gpu, LongScans) {
  for (const GraphCase& c : long_scan_cases()) {
    EXPECT_EQ(run_case(c, execute()), "") << c.name;
    EXPECT_EQ(run_case(c, execute()), "") << c.name << ", again";
  }
}
TEST_F(Gpu, RandomGraphs) {
  for (uint64_t seed = 1; seed <= test_count(40); ++seed)
    EXPECT_EQ(run_random(seed, execute()), "");
}

TEST_F(Gpu, CopiesOfAllSizes) {
  for (int64_t bytes : {int64_t{1}, int64_t{4097}, int64_t{9} << 20}) {
    std::vector<uint8_t> data(static_cast<size_t>(bytes)), back(data.size());
    for (size_t k = 0; k < data.size(); ++k) data[k] = static_cast<uint8_t>(k * 7 + k / 251);
    void* a = device_->allocate(bytes, stream_.get());
    void* b = device_->allocate(bytes, stream_.get());
    stream_->copy_from_host(a, data.data(), bytes);
    stream_->recorder().fill(b, 0, bytes);
    stream_->recorder().copy(b, a, bytes);
    stream_->copy_to_host(back.data(), b, bytes);
    EXPECT_EQ(data, back);
    device_->release(a, bytes, stream_.get());
    device_->release(b, bytes, stream_.get());
  }
}

TEST_F(Gpu, OutOfMemorySaysHowMuch) {
  try {
    device_->allocate(int64_t{1} << 44, stream_.get());
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("requested 17592186044416 bytes"), std::string::npos)
        << e.what();
  }
  void* p = device_->allocate(1 << 20, stream_.get());
  device_->release(p, 1 << 20, stream_.get());
}

TEST_F(Gpu, HostFunctionsInOrder) {
  std::vector<int> order;
  stream_->run_on_host([&] { order.push_back(1); });
  stream_->run_on_host([&] { order.push_back(2); });
  stream_->synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  stream_->run_on_host([] { throw GraphError("from the host"); });
  EXPECT_THROW(stream_->synchronize(), GraphError);
  EXPECT_NO_THROW(stream_->synchronize());
}

// x += 1; go = x < limit, on device memory.
KernelCase counting_step(double limit) {
  KernelCase c;
  c.name = c.kernel.name = "count";
  c.kernel.buffers = {{"x", DType::f32, {}, ir::BufferRole::output},
                      {"go", DType::boolean, {}, ir::BufferRole::output}};
  ir::BodyBuilder b;
  ir::NodeId v =
      b.binary(ir::ScalarOp::add, b.load(DType::f32, {0, {}}), b.constant(DType::f32, 1));
  b.store({0, {}}, v);
  b.store({1, {}}, b.binary(ir::ScalarOp::lt, v, b.constant(DType::f32, limit)));
  ir::Nest nest;
  nest.phases.emplace_back();
  nest.phases[0].body = b.take();
  ir::Stmt s;
  s.nest = std::make_shared<const ir::Nest>(std::move(nest));
  c.kernel.body.push_back(s);
  c.buffers = {std::vector<std::byte>(4), std::vector<std::byte>(1)};
  return c;
}

TEST_F(Gpu, RecordedLoopsAndBranches) {
  for (double limit : {10.0, 1000.0}) {
    KernelCase c = counting_step(limit);
    auto kernel = device_->emitter().compile(c.kernel, {});
    OnDevice memory(*this, c), other(*this, c);
    auto program = [&](const OnDevice& m) {
      return [&m, &kernel](target::Recorder& r) {
        r.fill(m.pointers[0], 0, 4);
        r.while_loop(
            m.pointers[1], [&](target::Recorder& q) { q.launch(*kernel, m.args()); },
            [](target::Recorder&) {});
        r.if_else(
            m.pointers[1], [&](target::Recorder& q) { q.fill(m.pointers[0], 0xff, 4); },
            [&](target::Recorder& q) { q.launch(*kernel, m.args()); });
      };
    };
    auto recording = stream_->record(program(memory));
    uint64_t calls = target::runtime_counters().driver_calls;
    stream_->launch(*recording);
    calls = target::runtime_counters().driver_calls - calls;
    EXPECT_LE(calls, 3u);
    float x = 0;
    stream_->copy_to_host(&x, memory.pointers[0], 4);
    EXPECT_EQ(x, static_cast<float>(limit + 1));
    bool patched = stream_->update(*recording, program(other));
    std::printf("nodes in conditional bodies can be patched: %s\n", patched ? "yes" : "no");
    if (patched) {
      stream_->launch(*recording);
      stream_->copy_to_host(&x, other.pointers[0], 4);
      EXPECT_EQ(x, static_cast<float>(limit + 1));
    }
    auto start = std::chrono::steady_clock::now();
    stream_->launch(*recording);
    stream_->synchronize();
    double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    std::printf("while node, limit %g: %.2f us an iteration\n", limit, us / limit);
  }
}

TEST_F(Gpu, RecordingPatchedInPlace) {
  KernelCase c = kernel_cases()[0];
  auto kernel = device_->emitter().compile(c.kernel, {});
  OnDevice first(*this, c), second(*this, c);
  auto program = [&](const OnDevice& m) {
    return [&](target::Recorder& r) { r.launch(*kernel, m.args()); };
  };
  auto recording = stream_->record(program(first));
  EXPECT_TRUE(stream_->update(*recording, program(second)));
  stream_->launch(*recording);
  stream_->synchronize();
  CaseMemory want(c), got = second.read();
  loop::interpret(c.kernel, want.args(c));
  EXPECT_EQ(compare(c, want.pointers(), got.pointers()), "");
  auto twice = [&](target::Recorder& r) {
    program(first)(r);
    program(first)(r);
  };
  EXPECT_FALSE(stream_->update(*recording, twice));
}

// A recording holds no workspace while it is idle: it takes that of the stream it is launched on.
TEST_F(Gpu, RecordingsUseTheWorkspaceOfTheStream) {
  std::unique_ptr<target::Stream> other = device_->create_stream();
  for (const KernelCase& c : kernel_cases()) {
    SCOPED_TRACE(c.name);
    auto kernel = device_->emitter().compile(c.kernel, {});
    OnDevice m(*this, c);
    stream_->synchronize();
    int64_t live = device_->memory().live;
    auto recording = stream_->record([&](target::Recorder& r) { r.launch(*kernel, m.args()); });
    EXPECT_EQ(device_->memory().live, live);
    other->launch(*recording);
    other->synchronize();
    CaseMemory want(c), got = m.read();
    loop::interpret(c.kernel, want.args(c));
    EXPECT_EQ(compare(c, want.pointers(), got.pointers()), "");
  }
}

// A cooperative kernel in a recording, and inside a conditional body.
TEST_F(Gpu, CooperativeKernelsRecord) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.name != "relaxation_grid") continue;
    auto kernel = device_->emitter().compile(c.kernel, {});
    OnDevice m(*this, c);
    auto recording = stream_->record([&](target::Recorder& r) { r.launch(*kernel, m.args()); });
    stream_->launch(*recording);
    stream_->synchronize();
    CaseMemory want(c), got = m.read();
    loop::interpret(c.kernel, want.args(c));
    EXPECT_EQ(compare(c, want.pointers(), got.pointers()), "");
    void* go = device_->allocate(1, stream_.get());
    stream_->recorder().fill(go, 1, 1);
    try {
      auto nested = stream_->record([&](target::Recorder& r) {
        r.if_else(go, [&](target::Recorder& q) { q.launch(*kernel, m.args()); }, nullptr);
      });
      stream_->launch(*nested);
      stream_->synchronize();
      std::printf("a cooperative kernel runs inside a conditional body\n");
    } catch (const DeviceError& e) {
      std::printf("a cooperative kernel inside a conditional body: %s\n", e.what());
    }
    device_->release(go, 1, stream_.get());
  }
}

// Median microseconds of a launch, from events around a batch of launches.
TEST_F(Gpu, Timing) {
  if (test_number("HEDDLE_TEST_TIMING", 0) == 0) GTEST_SKIP() << "set HEDDLE_TEST_TIMING=1";
  for (const KernelCase& c : timing_cases()) {
    auto start = std::chrono::steady_clock::now();
    auto kernel = device_->emitter().compile(c.kernel, {});
    double compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    std::vector<void*> blocks;
    double bytes = 0;
    for (const ir::Buffer& b : c.kernel.buffers) {
      if (cuda::is_local(b)) continue;
      int64_t n = cuda::memory_bytes(b.dtype);
      for (const Expr& e : b.extents) n *= *e.constant();
      blocks.push_back(device_->allocate(n, stream_.get()));
      stream_->recorder().fill(blocks.back(), 0, n);
      if (b.role != ir::BufferRole::scratch) bytes += static_cast<double>(n);
    }
    target::KernelArgs args{blocks, {}};
    stream_->recorder().launch(*kernel, args);
    stream_->synchronize();
    std::vector<double> times;
    for (int round = 0; round < 7; ++round) {
      constexpr int kLaunches = 20;
      auto t0 = std::chrono::steady_clock::now();
      for (int k = 0; k < kLaunches; ++k) stream_->recorder().launch(*kernel, args);
      stream_->synchronize();
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count() /
          kLaunches);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-28s %9.2f us  %5.2f TB/s  compile %.0f ms\n", c.name.c_str(), times[3],
                bytes / times[3] * 1e-6, compile_ms);
    for (void* p : blocks) device_->release(p, 0, stream_.get());
  }
}

TEST(CudaBackend, SaysWhyThereIsNoGpu) {
  std::vector<DeviceReport> reports;
  auto devices = heddle_backend_entry()->devices(reports);
  if (devices.empty()) {
    ASSERT_FALSE(reports.empty());
    EXPECT_FALSE(reports[0].reason.empty());
  }
}

}  // namespace
}  // namespace heddle::test
