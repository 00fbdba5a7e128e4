// Kernels for the tests of the CUDA backend, with data and the interpreter's answers.
#pragma once

#include "ir/kernel.h"
#include "target/target.h"

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace heddle::test {

struct KernelCase {
  std::string name;
  ir::Kernel kernel;
  std::vector<int64_t> symbols;
  std::vector<std::vector<std::byte>>
      buffers;  // of the arguments, before the run; 256-byte aligned copies are made
  double tolerance =
      0;  // relative to the largest magnitude of a buffer; 0: equal bits (NaNs are equal)
};

// Every shape of nest that the emitter knows.
std::vector<KernelCase> kernel_cases();
// Large ones, whose time says something; buffers have no data.
std::vector<KernelCase> timing_cases();
// A random elementwise, row or column program.
KernelCase random_case(uint64_t seed);

// Memory of a case's arguments at 256-byte aligned addresses, or `shift` elements beyond.
class CaseMemory {
 public:
  explicit CaseMemory(const KernelCase& c, int shift = 0);
  target::KernelArgs args(const KernelCase& c) { return {pointers_, c.symbols}; }
  std::vector<void*>& pointers() { return pointers_; }

 private:
  std::vector<std::vector<std::byte>> storage_;
  std::vector<void*> pointers_;
};
void fill_random(KernelCase& c, uint64_t seed);

// Empty, or how `got` differs from `want` in the written buffers.
std::string compare(const KernelCase& c, const std::vector<void*>& want,
                    const std::vector<void*>& got);

}  // namespace heddle::test
