#include "backend_cuda/simulator.h"

#include "backend/cuda/prelude.h"
#include "base/check.h"

#include <algorithm>
#include <vector>

namespace heddle::test {

target::DeviceDescription described_gpu() {
  target::DeviceDescription d;
  d.kind = "cuda";
  d.arch = "sm_90";
  d.features["name"] = "NVIDIA H200";
  d.processors = 132;
  d.shared_memory = 227 << 10;
  d.l2_bytes = 60 << 20;
  d.vector_bytes = 16;
  return d;
}

SimulatedKernel::SimulatedKernel(const ir::Kernel& kernel, const target::EmitOptions& options,
                                 const cuda::Variant& variant,
                                 const target::DeviceDescription& device)
    : source_(cuda::write_kernel(kernel, options, variant, device)),
      code_(cuda::prelude_common(variant.wide) + source_.text) {}

bool SimulatedKernel::runs(const target::KernelArgs& args) const {
  const cuda::LaunchShape& shape = source_.shape;
  for (size_t k = 0; k < shape.alignment.size(); ++k) {
    if (reinterpret_cast<uintptr_t>(args.buffers[k]) % static_cast<uintptr_t>(shape.alignment[k]) !=
        0)
      return false;
  }
  std::vector<int64_t> symbols(args.symbols.begin(), args.symbols.end());
  for (size_t k = 0; k < shape.divisible.size(); ++k) {
    if (shape.divisible[k].eval(symbols) % shape.divisor[k] != 0) return false;
  }
  return true;
}

void SimulatedKernel::run(const target::KernelArgs& args) {
  const cuda::LaunchShape& shape = source_.shape;
  std::vector<int64_t> symbols(args.symbols.begin(), args.symbols.end());
  int64_t blocks = 0;
  for (size_t k = 0; k < shape.units.size(); ++k) {
    int64_t n = shape.units[k].eval(symbols);
    blocks = std::max(blocks, (n + shape.units_per_block[k] - 1) / shape.units_per_block[k]);
  }
  bool together = shape.kind == cuda::LaunchKind::cooperative;
  if (shape.kind == cuda::LaunchKind::block) blocks = 1;
  if (together) blocks = std::clamp<int64_t>(blocks, 1, 3);
  if (shape.kind == cuda::LaunchKind::loops) blocks = std::min<int64_t>(blocks, 3);
  std::vector<uintptr_t> words;
  for (void* b : args.buffers) words.push_back(reinterpret_cast<uintptr_t>(b));
  for (int64_t s : symbols) words.push_back(static_cast<uintptr_t>(s));
  words.push_back(reinterpret_cast<uintptr_t>(control_));
  words.push_back(reinterpret_cast<uintptr_t>(fault_));
  parts_.resize(4096 + 2 * static_cast<size_t>(cuda::kLookbackTiles));
  words.push_back(reinterpret_cast<uintptr_t>(parts_.data()));
  code_.run(source_.entry, static_cast<unsigned>(blocks), static_cast<unsigned>(shape.block), words,
            shape.shared_bytes, together);
}

}  // namespace heddle::test
