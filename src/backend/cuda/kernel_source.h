// A kernel as CUDA C++, and how it is launched.
#pragma once

#include "backend/cuda/kernel_context.h"
#include "loop/program.h"
#include "target/target.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle::cuda {

// What a compiled text assumes; checked at each launch.
struct Variant {
  bool wide = false;           // 64-bit indices
  bool vectors = true;         // false: one lane, any alignment
  unsigned off = forms_off();  // Form
  friend auto operator<=>(const Variant&, const Variant&) = default;
};

enum class LaunchKind : uint8_t {
  exact,        // one nest, the grid fits
  loops,        // several independent nests, each loops over the grid
  block,        // barriers, all in one block
  cooperative,  // barriers across the grid
};

// Sizes as programs over the kernel's symbols (slots in the order of Kernel::symbols).
struct LaunchShape {
  LaunchKind kind = LaunchKind::exact;
  int block = 256;
  std::vector<loop::ExprProgram> units;  // of work, one a nest
  std::vector<int64_t> units_per_block;
  std::vector<loop::ExprProgram> divisible;  // by divisor[k], else the variant must not run
  std::vector<int64_t> divisor;
  std::vector<int> alignment;  // bytes, of each buffer argument
  int64_t shared_bytes = 0;
};

struct KernelSource {
  std::string entry;  // name of the function
  std::string text;   // without the prelude
  LaunchShape shape;
  Variant variant;
  std::vector<CheckedAccess> checked;
  bool constant_vectors = true;  // no conditions on sizes
};

KernelSource write_kernel(const ir::Kernel& kernel, const target::EmitOptions& options,
                          const Variant& variant, const target::DeviceDescription& device);

// Do all index computations fit 32 bits when the symbols have values from `low` to `high`? Of
// constant kernels it does not ask for any.
bool fits_32_bits(const ir::Kernel& kernel, std::span<const int64_t> low,
                  std::span<const int64_t> high);

}  // namespace heddle::cuda
