// Plans: arena, in-place reuse, copies, helper kernels, claims, validation.
#include "loop/interpret.h"
#include "ops/opdef.h"
#include "plan/helper_kernels.h"
#include "plan/kernel_cache.h"
#include "plan/layout.h"
#include "runtime/executable.h"
#include "runtime/host_device.h"
#include "target/host_kernel.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace hd = heddle;

namespace {

using Values = std::vector<float>;

hd::Array array(std::vector<int64_t> shape, const Values& v) {
  return hd::Array::from<float>(std::move(shape), v);
}
hd::Device interpreter() { return hd::device("interpreter"); }

const hd::plan::Plan& plan_of(const hd::Executable& e) { return *e.impl()->plan; }

// No two slots that live at once share bytes, unless one took the other's place.
void check_arena(const hd::plan::Plan& plan, const std::vector<int64_t>& symbols) {
  auto layout = hd::plan::make_layout(plan, symbols);
  auto root = [&](hd::plan::SlotId s) {
    while (plan.slots[s].shares != hd::plan::kNone) s = plan.slots[s].shares;
    return s;
  };
  for (hd::plan::SlotId a = 0; a < plan.slots.size(); ++a) {
    for (hd::plan::SlotId b = 0; b < a; ++b) {
      const auto &s = plan.slots[a], &t = plan.slots[b];
      if (layout->offset[a] < 0 || layout->offset[b] < 0 || root(a) == root(b)) continue;
      bool alive = s.begin <= t.end && t.begin <= s.end;
      bool overlap = layout->offset[a] < layout->offset[b] + layout->bytes[b] &&
                     layout->offset[b] < layout->offset[a] + layout->bytes[a];
      EXPECT_FALSE(alive && overlap) << "slots " << a << " and " << b;
    }
    if (layout->offset[a] >= 0)
      EXPECT_LE(layout->offset[a] + layout->bytes[a], layout->arena_bytes);
  }
}

// Compiles on the interpreter, but not before two threads are here.
class Meeting : public hd::target::Emitter {
 public:
  std::shared_ptr<const hd::target::CompiledKernel> compile(
      const hd::ir::Kernel& kernel, const hd::target::EmitOptions& options) override {
    {
      std::unique_lock lock(mutex_);
      ++compiled;
      threads_.insert(std::this_thread::get_id());
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::seconds(20), [&] { return threads_.size() >= 2; });
    }
    if (&kernel == fails) throw hd::DeviceError("on purpose");
    return inner_->compile(kernel, options);
  }
  size_t threads() const { return threads_.size(); }
  int compiled = 0;
  const hd::ir::Kernel* fails = nullptr;

 private:
  std::unique_ptr<hd::target::Emitter> inner_ = hd::loop::make_interpreter_emitter();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> threads_;
};

TEST(KernelCache, ManyCompileSideBySide) {
  using hd::plan::strided_kernel;
  const char* before = std::getenv("HEDDLE_THREADS");
  std::string kept = before != nullptr ? before : "";
  setenv("HEDDLE_THREADS", "3", 1);
  std::vector<hd::ir::Kernel> kernels;
  for (int rank : {1, 2, 1, 3, 2}) kernels.push_back(strided_kernel(4, rank, false));
  std::vector<const hd::ir::Kernel*> pointers;
  for (const hd::ir::Kernel& k : kernels) pointers.push_back(&k);
  Meeting emitter;
  auto compiled = hd::plan::compile_cached(emitter, pointers, {});
  EXPECT_EQ(emitter.compiled, 3);  // equal ones once
  EXPECT_GE(emitter.threads(), 2U);
  EXPECT_EQ(compiled[0], compiled[2]);
  EXPECT_EQ(compiled[1], compiled[4]);
  EXPECT_NE(compiled[0], compiled[3]);
  EXPECT_EQ(hd::plan::compile_cached(emitter, pointers, {}), compiled);  // all are alive
  EXPECT_EQ(emitter.compiled, 3);
  kernels.push_back(strided_kernel(4, 5, false));
  kernels.push_back(strided_kernel(4, 4, false));
  emitter.fails = &kernels[5];
  EXPECT_THROW(hd::plan::compile_cached(emitter, {&kernels[5], &kernels[6]}, {}), hd::DeviceError);
  EXPECT_NE(hd::plan::compile_cached(emitter, kernels[6], {}), nullptr);
  before != nullptr ? setenv("HEDDLE_THREADS", kept.c_str(), 1) : unsetenv("HEDDLE_THREADS");
}

// A chain of scans cannot fuse: each step has a buffer, of which two suffice.
TEST(Arena, BuffersAreReused) {
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::f32, {n}, "x"), y = x;
  for (int i = 0; i < 10; ++i) y = hd::cumulative_sum(y, {.axis = 0, .reverse = i % 2 == 1});
  hd::Executable e =
      graph.compile({.feeds = {x}, .targets = {y}}, interpreter(), {.fusion = false});
  check_arena(plan_of(e), {1000});
  auto layout = hd::plan::make_layout(plan_of(e), {1000});
  EXPECT_GT(layout->arena_bytes, 0);
  EXPECT_LT(layout->arena_bytes, 3 * 4096) << e.describe();
  EXPECT_NE(e.describe().find("arena: by size (symbols n)"), std::string::npos);
}

TEST(Arena, ElementwiseStepsRunInPlace) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {1024}, "x");
  hd::Tensor y =
      hd::cumulative_sum(hd::exp(hd::cumulative_sum(x, {.axis = 0}) * 0.01) + 1.0, {.axis = 0});
  hd::Executable e =
      graph.compile({.feeds = {x}, .targets = {y}}, interpreter(), {.fusion = false});
  check_arena(plan_of(e), {});
  Values v(1024, 0.01F);
  Values expected = graph.compile({.feeds = {x}, .targets = {y}}, hd::device("judge"))
                        .run({array({1024}, v)})[0]
                        .to_vector<float>();
  Values actual = e.run({array({1024}, v)})[0].to_vector<float>();
  for (size_t i = 0; i < v.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5 * expected[i]);
  bool shared = false;
  for (const auto& slot : plan_of(e).slots) shared |= slot.shares != hd::plan::kNone;
  EXPECT_TRUE(shared) << e.describe();
}

TEST(Plan, ConstantsAreSharedByContent) {
  hd::Graph graph;
  hd::Device device = interpreter();
  std::mt19937 rng(1);
  Values big(1 << 16);
  for (float& f : big) f = static_cast<float>(rng() % 100);
  hd::Tensor x = graph.placeholder(hd::f32, {1 << 16}, "x");
  hd::Executable a =
      graph.compile({.feeds = {x}, .targets = {x + graph.constant(array({1 << 16}, big))}}, device);
  int64_t live = device.memory().live;
  hd::Executable b =
      graph.compile({.feeds = {x}, .targets = {x * graph.constant(array({1 << 16}, big))}}, device);
  EXPECT_EQ(device.memory().live, live);
  EXPECT_EQ(b.run({array({1 << 16}, big)})[0].to_vector<float>()[7], big[7] * big[7]);
}

int copies(const hd::Executable& e) {
  int n = 0;
  for (const hd::plan::Step& step : plan_of(e).steps) n += step.kind == hd::plan::StepKind::copy;
  return n;
}

// A training step reads and writes a weight where it is.
TEST(Plan, AssignsInPlace) {
  hd::Graph graph;
  hd::Tensor w = graph.variable(array({3}, {1, 2, 3}), "w");
  hd::Tensor g = graph.placeholder(hd::f32, {3}, "g");
  hd::Operation step = hd::assign(w, hd::read_variable(w) - g * 0.5);
  hd::Executable e =
      graph.compile({.feeds = {g}, .targets = {}, .operations = {step}}, interpreter());
  EXPECT_EQ(copies(e), 0) << e.describe();
  for (int i = 0; i < 2; ++i) e.run({array({3}, {2, 2, 2})});
  hd::Tensor now = hd::read_variable(w);
  EXPECT_EQ(graph.run({}, {now}, {}, interpreter())[0].to_vector<float>(), (Values{-1, 0, 1}));
}

// What was read before an assign stays what it was.
TEST(Plan, ReadsKeepTheOldState) {
  hd::Graph graph;
  hd::Tensor w = graph.variable(array({3}, {1, 2, 3}), "w");
  hd::Tensor g = graph.placeholder(hd::f32, {3}, "g");
  hd::Tensor old = hd::read_variable(w);
  // Shifted: the kernel reads elements that it has already written.
  hd::Tensor shifted = hd::concat({hd::slice(old, {.starts = {2}, .stops = {3}}),
                                   hd::slice(old, {.starts = {0}, .stops = {2}})},
                                  0);
  hd::Operation first = hd::assign(w, shifted + g);
  hd::Tensor later =
      hd::with_dependencies({first}, [&] { return hd::cumulative_sum(old, {.axis = 0}); });
  hd::Executable e =
      graph.compile({.feeds = {g}, .targets = {later, w}, .operations = {first}}, interpreter());
  std::vector<hd::Array> out = e.run({array({3}, {10, 10, 10})});
  EXPECT_EQ(out[0].to_vector<float>(), (Values{1, 3, 6})) << e.describe();
  EXPECT_EQ(out[1].to_vector<float>(), (Values{1, 2, 3})) << e.describe();
  EXPECT_EQ(graph.run({}, {hd::read_variable(w)}, {}, interpreter())[0].to_vector<float>(),
            (Values{13, 11, 12}));
}

// Each assign of several to one variable sees the state that the one before left; what was read in
// between stays as it was.
TEST(Plan, AssignsOneAfterAnother) {
  for (int n : {1, 2, 5}) {
    hd::Graph graph;
    hd::Tensor v = graph.variable(array({3}, {1, 2, 3}), "v");
    hd::Tensor g = graph.placeholder(hd::f32, {3}, "g");
    std::vector<hd::Operation> steps;
    std::vector<hd::Tensor> states;
    Values expected{1, 2, 3};
    std::vector<Values> expected_states;
    for (int k = 0; k < n; ++k) {
      std::vector<hd::Operation> before(steps);
      states.push_back(hd::with_dependencies(before, [&] {
        hd::Tensor old = hd::read_variable(v);
        steps.push_back(hd::assign(v, old * 0.5 + g));
        return old;
      }));
      expected_states.push_back(expected);
      for (size_t i = 0; i < 3; ++i) expected[i] = expected[i] * 0.5f + 8.0f * (i + 1);
    }
    hd::Executable e =
        graph.compile({.feeds = {g}, .targets = states, .operations = steps}, interpreter());
    std::vector<hd::Array> out = e.run({array({3}, {8, 16, 24})});
    for (int k = 0; k < n; ++k)
      EXPECT_EQ(out[k].to_vector<float>(), expected_states[k]) << k << "\n" << e.describe();
    EXPECT_EQ(graph.run({}, {hd::read_variable(v)}, {}, interpreter())[0].to_vector<float>(),
              expected);
    // Where nobody asks for the old states, all is done in the variable.
    hd::Executable in_place =
        graph.compile({.feeds = {g}, .targets = {}, .operations = steps}, interpreter());
    EXPECT_EQ(copies(in_place), 0) << in_place.describe();
  }
}

TEST(Plan, EqualKernelsCompileOnce) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {77}, "x");
  hd::Executable a = graph.compile({.feeds = {x}, .targets = {hd::tanh(x)}}, interpreter());
  hd::RuntimeCounters before = hd::counters();
  hd::Executable b = graph.compile({.feeds = {x}, .targets = {hd::tanh(x)}}, interpreter());
  EXPECT_EQ(hd::counters().kernel_compiles, before.kernel_compiles);
  EXPECT_GT(hd::counters().kernel_cache_hits, before.kernel_cache_hits);
}

void run_kernel(const hd::ir::Kernel& kernel, std::vector<void*> buffers,
                std::vector<int64_t> symbols) {
  ASSERT_EQ(hd::ir::verify(kernel), "");
  hd::loop::interpret(kernel, {buffers, symbols}, {.check_bounds = true});
}

TEST(HelperKernels, CountersAndRows) {
  int64_t k = 3, count = 4;
  run_kernel(hd::plan::increment_kernel(), {&k, &k}, {});
  EXPECT_EQ(k, 4);
  bool less = true;
  run_kernel(hd::plan::less_kernel(hd::Expr(5)), {&k, &less}, {});
  EXPECT_TRUE(less);
  run_kernel(hd::plan::less_value_kernel(), {&k, &count, &less}, {});
  EXPECT_FALSE(less);
  less = true;
  run_kernel(hd::plan::and_less_kernel(hd::Expr(4)), {&k, &less, &less}, {});
  EXPECT_FALSE(less);
  std::vector<uint16_t> xs{1, 2, 3, 4, 5, 6}, row(2), stacked(6);
  k = 2;
  run_kernel(hd::plan::load_row_kernel(2, 2, 3), {xs.data(), &k, row.data()}, {});
  EXPECT_EQ(row, (std::vector<uint16_t>{5, 6}));
  k = 1;
  run_kernel(hd::plan::store_row_kernel(2, 2, 3), {row.data(), &k, stacked.data()}, {});
  EXPECT_EQ(stacked, (std::vector<uint16_t>{0, 0, 5, 6, 0, 0}));
}

TEST(HelperKernels, SeveralCopies) {
  std::vector<uint8_t> a{1, 2, 3}, a2(3);
  std::vector<uint64_t> b{4, 5}, b2(2), none, none2;
  std::vector<uint32_t> c{6}, c2(1);
  run_kernel(
      hd::plan::copy_kernel({{1, 3}, {8, 2}, {4, 1}, {2, 0}}),
      {a.data(), a2.data(), b.data(), b2.data(), c.data(), c2.data(), none.data(), none2.data()},
      {});
  EXPECT_EQ(a2, a);
  EXPECT_EQ(b2, b);
  EXPECT_EQ(c2, c);
}

TEST(HelperKernels, StridedCopies) {
  std::vector<uint32_t> flat{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, packed(6);
  // 3 x 2 of a 3 x 4 array: the last axis reversed with step 2, i.e. columns 3 and 1.
  std::vector<int64_t> symbols{3, 2, 4, -2, 3 - 1 + 0, 11};
  symbols[4] = 2;   // the first element is column 3; the view's lowest address is column 1
  symbols[5] = 11;  // up to the last row's column 3
  run_kernel(hd::plan::strided_kernel(4, 2, false), {flat.data() + 1, packed.data()}, symbols);
  EXPECT_EQ(packed, (std::vector<uint32_t>{3, 1, 7, 5, 11, 9}));
  std::vector<uint32_t> out(12, 99);
  run_kernel(hd::plan::strided_kernel(4, 2, true), {packed.data(), out.data() + 1}, symbols);
  EXPECT_EQ(out, (std::vector<uint32_t>{99, 1, 99, 3, 99, 5, 99, 7, 99, 9, 99, 11}));
}

TEST(Validation, AcceptsRightPlans) {
  setenv("HEDDLE_VALIDATE", "reference", 1);
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {64}, "x");
  hd::Tensors r = hd::for_loop(hd::Expr(3), {x}, [&](const hd::Tensor&, const hd::Tensors& v) {
    return hd::Tensors{hd::cumulative_sum(v[0], {.axis = 0}) * 0.1};
  });
  hd::Executable e = graph.compile(
      {.feeds = {x}, .targets = {hd::exp(r[0]) + hd::sum(x, {.axes = {0}})}}, interpreter());
  unsetenv("HEDDLE_VALIDATE");
  EXPECT_NO_THROW(e.run({array({64}, Values(64, 0.5F))}));
}

// A library call that is wrong on purpose, offered for every exp.
class WrongCall : public hd::target::HostLibraryCall {
 public:
  explicit WrongCall(float bias) : bias_(bias) {}
  std::string describe() const override { return "exp, off by a bias"; }
  int64_t workspace_bytes(std::span<const int64_t>) const override { return 64; }
  void run(std::span<void* const> buffers, std::span<const int64_t>, void* workspace,
           int) const override {
    EXPECT_NE(workspace, nullptr);
    for (int i = 0; i < 4; ++i) {
      static_cast<float*>(buffers[1])[i] =
          std::exp(static_cast<const float*>(buffers[0])[i]) + bias_;
    }
  }

 private:
  float bias_;
};

std::shared_ptr<hd::runtime::HostDevice> claiming_device(float bias) {
  hd::runtime::HostDeviceParts parts;
  parts.name = "claiming";
  parts.description.kind = "claiming";
  parts.emitter = hd::loop::make_interpreter_emitter();
  parts.claims.push_back(
      {"refusing.exp", "exp", [](const hd::ir::Graph&, hd::ir::OpId) -> hd::target::ClaimResult {
         return hd::target::Refusal{"never here"};
       }});
  parts.claims.push_back(
      {"test.exp", "exp",
       [bias](const hd::ir::Graph& g, hd::ir::OpId op) -> hd::target::ClaimResult {
         hd::target::ClaimOffer offer;
         offer.call = std::make_shared<WrongCall>(bias);
         offer.inputs = g.op(op).operands;
         offer.outputs = g.op(op).results;
         return offer;
       }});
  return std::make_shared<hd::runtime::HostDevice>(std::move(parts));
}

TEST(Claims, AreTakenAndExplained) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {4}, "x");
  hd::CompileSpec spec{{x}, {hd::exp(x + 1.0) * 2.0}, {}};
  hd::Device device(claiming_device(0));
  hd::Executable e = graph.compile(spec, device);
  std::string text = e.describe();
  EXPECT_NE(text.find("call test.exp"), std::string::npos) << text;
  EXPECT_NE(text.find("refusing.exp: never here"), std::string::npos) << text;
  EXPECT_EQ(e.kernel_count(), 2);
  EXPECT_NEAR(e.run({array({4}, {0, 1, 2, 3})})[0].to_vector<float>()[1], 2 * std::exp(2.0), 1e-5);
  EXPECT_EQ(graph.compile(spec, device, {.claims = false}).kernel_count(), 1);
}

TEST(Validation, StopsAtTheFirstDifference) {
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {4}, "x");
  setenv("HEDDLE_VALIDATE", "reference", 1);
  hd::Executable e = graph.compile({.feeds = {x}, .targets = {hd::exp(x + 1.0) * 2.0}},
                                   hd::Device(claiming_device(0.01F)));
  unsetenv("HEDDLE_VALIDATE");
  try {
    e.run({array({4}, {0, 1, 2, 3})});
    FAIL();
  } catch (const hd::DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("test.exp"), std::string::npos) << error.what();
  }
}

}  // namespace
