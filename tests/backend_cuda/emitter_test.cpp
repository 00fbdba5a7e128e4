#include "backend/cuda/emitter.h"
#include "backend/cuda/compiler.h"
#include "backend/cuda/prelude.h"
#include "backend_cuda/graphs.h"
#include "backend_cuda/kernels.h"
#include "backend_cuda/simulator.h"
#include "loop/interpret.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace heddle::test {
namespace {

std::vector<cuda::Variant> all_variants() {
  return {{.wide = false, .vectors = true},
          {.wide = false, .vectors = false},
          {.wide = true, .vectors = true}};
}

void simulate(const KernelCase& c, const cuda::Variant& v,
              const target::EmitOptions& options = {}) {
  CaseMemory want(c), got(c);
  loop::interpret(c.kernel, want.args(c));
  SimulatedKernel kernel(c.kernel, options, v);
  if (!kernel.runs(got.args(c))) return;
  kernel.run(got.args(c));
  std::string difference = compare(c, want.pointers(), got.pointers());
  EXPECT_TRUE(difference.empty()) << difference << "\n" << kernel.source().text;
  EXPECT_EQ(kernel.fault()[0], 0u) << c.name;
}

class Cases : public testing::TestWithParam<size_t> {
 protected:
  static const std::vector<KernelCase>& all() {
    static const std::vector<KernelCase> cases = kernel_cases();
    return cases;
  }
};

TEST_P(Cases, SimulatedEqualsInterpreter) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  const KernelCase& c = all()[GetParam()];
  SCOPED_TRACE(c.name);
  // All variants of every fourth case: each costs a run of the host compiler.
  std::vector<cuda::Variant> variants = all_variants();
  if (GetParam() % 4 != 0) variants.resize(1);
  for (const cuda::Variant& v : variants) simulate(c, v);
}

TEST_P(Cases, CompilesForHopper) {
  if (!cuda::compiler().usable) GTEST_SKIP() << cuda::compiler().reason;
  const KernelCase& c = all()[GetParam()];
  std::vector<cuda::Variant> variants = all_variants();
  if (GetParam() % 4 != 1) variants.resize(1);
  for (const cuda::Variant& v : variants) {
    cuda::KernelSource source = cuda::write_kernel(c.kernel, {}, v, described_gpu());
    std::string text = cuda::prelude_machine() + cuda::prelude_common(v.wide) + source.text;
    EXPECT_NO_THROW(cuda::compile_cubin(text, c.name, "sm_90")) << source.text;
  }
}

TEST_P(Cases, ChecksBounds) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  const KernelCase& c = all()[GetParam()];
  bool open = c.name.ends_with("_open");  // indices whose bounds are those of all integers
  if ((GetParam() % 3 != 0 && !open) || c.kernel.buffers.size() > 8) return;
  simulate(c, {.wide = open, .vectors = true}, {.check_bounds = true});
}

std::string case_name(const testing::TestParamInfo<size_t>& info) {
  static const std::vector<KernelCase> cases = kernel_cases();
  return cases[info.param].name;
}
INSTANTIATE_TEST_SUITE_P(Cuda, Cases, testing::Range<size_t>(0, kernel_cases().size()), case_name);

TEST(CudaEmitter, RandomKernelsSimulated) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  uint64_t first = test_seed(0);
  for (uint64_t seed = first; seed < first + test_count(12); ++seed) {
    SCOPED_TRACE(seed);
    simulate(random_case(seed), {.wide = false, .vectors = true});
  }
}

// Aligned copies of the arguments, a simulated run, and what was written back.
void simulate_kernel(const ir::Kernel& kernel, const target::KernelArgs& args) {
  SimulatedKernel wide(kernel, {}, {.wide = false, .vectors = true});
  if (wide.runs(args)) {
    wide.run(args);
  } else {
    SimulatedKernel(kernel, {}, {.wide = false, .vectors = false}).run(args);
  }
}

TEST(CudaEmitter, ScheduledGraphsSimulated) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  for (const GraphCase& c : graph_cases(20)) EXPECT_EQ(run_case(c, simulate_kernel), "") << c.name;
}

// A device without multiprocessors never lacks threads: whatever can share work does.
TEST_P(Cases, SharedWorkSimulated) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  const KernelCase& c = all()[GetParam()];
  target::DeviceDescription small = described_gpu();
  small.processors = 0;
  cuda::Variant variant{.wide = false, .vectors = true};
  // A run of the host compiler only where the text is another one than that of a large device.
  std::string usual = cuda::write_kernel(c.kernel, {}, variant, described_gpu()).text;
  if (cuda::write_kernel(c.kernel, {}, variant, small).text == usual) return;
  CaseMemory want(c), got(c);
  loop::interpret(c.kernel, want.args(c));
  SimulatedKernel kernel(c.kernel, {}, variant, small);
  if (!kernel.runs(got.args(c))) return;
  kernel.run(got.args(c));
  EXPECT_EQ(compare(c, want.pointers(), got.pointers()), "") << kernel.source().text;
}
TEST(CudaEmitter, SharedWorkSimulated) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  target::DeviceDescription small = described_gpu();
  small.processors = 0;
  std::string forms;
  auto execute = [&](const ir::Kernel& kernel, const target::KernelArgs& args) {
    SimulatedKernel wide(kernel, {}, {.wide = false, .vectors = true}, small);
    forms += wide.source().text;
    ASSERT_TRUE(wide.runs(args));
    wide.run(args);
  };
  for (const GraphCase& c : shared_work_cases(1)) EXPECT_EQ(run_case(c, execute), "") << c.name;
  for (const char* used : {"hd_store_stream<16>", "g0.w", "hd_quotient(", "early0[4]", "early0[2]"})
    EXPECT_NE(forms.find(used), std::string::npos) << used;
}

TEST(CudaEmitter, LongScansSimulated) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  int waiting = 0;
  auto execute = [&](const ir::Kernel& kernel, const target::KernelArgs& args) {
    SimulatedKernel k(kernel, {}, {.wide = false, .vectors = true});
    waiting += k.source().text.find("hd_wait_total") != std::string::npos ? 1 : 0;
    k.run(args);
    k.run(args);  // tickets and totals of the first run are still there
  };
  for (const GraphCase& c : long_scan_cases()) EXPECT_EQ(run_case(c, execute), "") << c.name;
  EXPECT_EQ(waiting, static_cast<int>(long_scan_cases().size()));
}

// What HEDDLE_CUDA_OFF names is not used.
TEST(CudaEmitter, FormsCanBeSwitchedOff) {
  auto text = [](unsigned off) {
    std::string out;
    target::DeviceDescription small = described_gpu();
    small.processors = 0;
    auto execute = [&](const ir::Kernel& kernel, const target::KernelArgs& args) {
      out +=
          cuda::write_kernel(kernel, {}, {.wide = false, .vectors = true, .off = off}, small).text;
      loop::interpret(kernel, args);
    };
    for (const GraphCase& c : shared_work_cases(1)) EXPECT_EQ(run_case(c, execute), "");
    EXPECT_EQ(run_case(long_scan_cases()[0], execute), "");
    return out;
  };
  std::string without =
      text(cuda::kStreaming | cuda::kPack | cuda::kLookback | cuda::kDivide | cuda::kBatch);
  for (const char* form : {"hd_store_stream<", "g0.w", "hd_wait_total", "hd_quotient(", "early"})
    EXPECT_EQ(without.find(form), std::string::npos) << form;
}

TEST(CudaEmitter, RandomGraphsSimulated) {
  if (!can_simulate()) GTEST_SKIP() << "no host compiler";
  uint64_t first = test_seed(1);
  for (uint64_t seed = first; seed < first + test_count(4); ++seed)
    EXPECT_EQ(run_random(seed, simulate_kernel), "");
}

// With HEDDLE_CACHE_DIR set, the cubins that a run on a GPU will ask for.
TEST(CudaEmitter, ScheduledGraphsCompile) {
  if (!cuda::compiler().usable) GTEST_SKIP() << cuda::compiler().reason;
  std::unique_ptr<target::Emitter> emitter = cuda::make_emitter(described_gpu());
  auto compile = [&](const ir::Kernel& kernel, const target::KernelArgs& args) {
    EXPECT_NO_THROW(emitter->compile(kernel, {}));
    loop::interpret(kernel, args);
  };
  for (const GraphCase& c : graph_cases(20)) EXPECT_EQ(run_case(c, compile), "");
}

TEST(CudaEmitter, CompilesWithoutGpu) {
  if (!cuda::compiler().usable) GTEST_SKIP() << cuda::compiler().reason;
  std::unique_ptr<target::Emitter> emitter = cuda::make_emitter(described_gpu());
  KernelCase c = random_case(1);
  auto kernel = emitter->compile(c.kernel, {});
  EXPECT_GT(kernel->code_bytes(), 0);
  EXPECT_NE(kernel->code().find("heddle_kernel_nv"), std::string::npos);
}

}  // namespace
}  // namespace heddle::test
