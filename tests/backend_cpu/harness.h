// Runs a kernel on the interpreter and on the CPU emitter, on equal random data.
#pragma once

#include "backend/cpu/cpu_kernel.h"
#include "ir/kernel.h"
#include "loop/interpret.h"

#include <map>
#include <random>
#include <string>
#include <vector>

namespace heddle::test {

using Bytes = std::vector<std::byte>;

struct RunResult {
  std::vector<Bytes> buffers;  // those that are passed, in order
};

// Random contents for every passed buffer; `symbols` in the order of Kernel::symbols.
struct KernelRun {
  KernelRun(const ir::Kernel& kernel, std::vector<int64_t> symbols, uint64_t seed);
  RunResult interpret() const;
  RunResult compiled(const std::string& arch, int threads, bool check_bounds = false) const;
  void set(size_t buffer, Bytes bytes) { inputs[buffer] = std::move(bytes); }

  const ir::Kernel& kernel;
  std::vector<int64_t> symbols;
  std::vector<Bytes> inputs;
  std::vector<const ir::Buffer*> passed;
};

// Architectures that this processor can run.
std::vector<std::string> runnable_archs();
// Empty if the results are the same bits (any NaN is any other NaN) where `exact`, else within
// rtol, atol; otherwise where they differ first.
std::string difference(const KernelRun& run, const RunResult& expected, const RunResult& actual,
                       bool exact, double rtol = 0, double atol = 0);

// For kernels written by hand.
ir::Axis axis(const std::string& name, const Expr& extent,
              ir::AxisKind kind = ir::AxisKind::mapped);
Expr var(const ir::Axis& a);
void add_nest(ir::Kernel& k, ir::Nest nest);
// Expects the interpreter's results on every architecture, the same bits with 1, 2 and 4 threads.
void check(const KernelRun& run, bool exact, double rtol = 0, double atol = 0);
void check(const ir::Kernel& k, const std::vector<int64_t>& symbols, bool exact, double rtol = 0,
           double atol = 0);

}  // namespace heddle::test
