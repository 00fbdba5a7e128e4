// NVRTC, loaded at run time: CUDA C++ text to machine code. Needs no GPU.
#pragma once

#include <string>
#include <vector>

namespace heddle::cuda {

struct CompilerInfo {
  bool usable = false;
  std::string reason;   // where not usable
  std::string version;  // "13.0"
};
const CompilerInfo& compiler();

// A cubin for `arch` ("sm_90"). InternalError with the compiler's log where the text does not
// compile, UnsupportedError where there is no compiler.
std::string compile_cubin(const std::string& text, const std::string& name,
                          const std::string& arch);

// Opens lib<name>.so.<version> from the loader's path, CUDA_HOME, the place of the build, or
// NVIDIA's wheels; a driver library with a platform of its own stands for all of them.
void* open_cuda_library(const std::string& name, const std::vector<std::string>& versions);

}  // namespace heddle::cuda
