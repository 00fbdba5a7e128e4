// What a driver library may bring beside the driver's functions: a compiler of its own. A driver
// without a GPU then decides what a module is, and runs it (tests/simulated_gpu).
#pragma once

#include "backend/cuda/kernel_source.h"

#include <string>

namespace heddle::cuda {

// Everything that is known of a module; `kernel` and `source` are null for code that is no
// kernel's (conditions of graphs; functions written by hand, whose parameters are all addresses or
// integers of 64 bits). Alive during the call only.
struct ModuleText {
  const std::string& text;  // CUDA C++, with the prelude
  const std::string& name;  // for messages
  const std::string& arch;  // "sm_90"
  const ir::Kernel* kernel = nullptr;
  const KernelSource* source = nullptr;
  bool check_bounds = false;
};

struct Platform {
  const char* version;  // stands for the compiler's
  // The image that the driver's cuModuleLoadData takes. It is good for this process only.
  std::string (*compile)(const ModuleText& module);
};
// The entry point, extern "C". A library that has it is also asked for the functions of NVIDIA's
// libraries (cublasLt...).
inline constexpr const char* kPlatformEntry = "heddle_cuda_platform";
using PlatformFunction = const Platform* (*)();

// Of the driver library; null for NVIDIA's.
const Platform* platform();
// The driver library, where it has a platform; else null.
void* platform_library();

}  // namespace heddle::cuda
