#include "backend/cuda/compiler.h"

#include "backend/cuda/platform.h"
#include "base/check.h"

#include <dlfcn.h>
#include <link.h>
#include <nvrtc.h>

#include <cstdlib>
#include <filesystem>

namespace heddle::cuda {

namespace {

#define HD_NVRTC_FUNCTIONS(F) \
  F(nvrtcVersion)             \
  F(nvrtcCreateProgram)       \
  F(nvrtcDestroyProgram)      \
  F(nvrtcCompileProgram)      \
  F(nvrtcGetProgramLogSize)   \
  F(nvrtcGetProgramLog) F(nvrtcGetCUBINSize) F(nvrtcGetCUBIN) F(nvrtcGetErrorString)

struct Nvrtc {
#define HD_NVRTC_MEMBER(name) decltype(&::name) name##_ = nullptr;
  HD_NVRTC_FUNCTIONS(HD_NVRTC_MEMBER)
#undef HD_NVRTC_MEMBER
  CompilerInfo info;
  int version = 0;  // 1000 * major + minor
};

std::vector<std::string> folders() {
  std::vector<std::string> out;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* v = std::getenv(variable)) out.emplace_back(v);
  }
  out.emplace_back("/usr/local/cuda");
#ifdef HEDDLE_CUDA_ROOT
  out.emplace_back(HEDDLE_CUDA_ROOT);
#endif
  return out;
}

// NVRTC opens its builtins by name when it compiles for the first time. The loader does not look
// into the folder of an NVRTC that was opened by path (NVIDIA's wheels, a toolkit that moved), but
// it knows by name what is already open.
void open_builtins(void* library, const std::string& version) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return;
  std::filesystem::path path = std::filesystem::path(map->l_name).parent_path();
  path /= base::cat("libnvrtc-builtins.so.", version);
  // Where the file is not there NVRTC's own search remains.
  dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

Nvrtc load() {
  Nvrtc n;
  void* library = open_cuda_library("nvrtc", {"13", "12"});
  if (library == nullptr) {
    n.info.reason =
        "no CUDA compiler: libnvrtc.so.13 was found neither by the loader nor under CUDA_HOME";
    return n;
  }
#define HD_NVRTC_LOAD(name)                                                 \
  n.name##_ = reinterpret_cast<decltype(n.name##_)>(dlsym(library, #name)); \
  if (n.name##_ == nullptr) {                                               \
    n.info.reason = "the CUDA compiler is too old: libnvrtc has no " #name; \
    return n;                                                               \
  }
  HD_NVRTC_FUNCTIONS(HD_NVRTC_LOAD)
#undef HD_NVRTC_LOAD
  int major = 0, minor = 0;
  n.nvrtcVersion_(&major, &minor);
  n.version = 1000 * major + minor;
  n.info.version = base::cat(major, ".", minor);
  open_builtins(library, n.info.version);
  n.info.usable = true;
  return n;
}

const Nvrtc& nvrtc() {
  static const Nvrtc instance = load();
  return instance;
}

struct Program {
  nvrtcProgram handle = nullptr;
  ~Program() {
    if (handle != nullptr) nvrtc().nvrtcDestroyProgram_(&handle);
  }
};

std::string log_of(nvrtcProgram program) {
  size_t size = 0;
  nvrtc().nvrtcGetProgramLogSize_(program, &size);
  std::string log(size, '\0');
  nvrtc().nvrtcGetProgramLog_(program, log.data());
  return log.substr(0, 4000);
}

}  // namespace

const CompilerInfo& compiler() {
  static const CompilerInfo info =
      platform() != nullptr ? CompilerInfo{true, "", platform()->version} : nvrtc().info;
  return info;
}

void* open_cuda_library(const std::string& name, const std::vector<std::string>& versions) {
  if (void* own = platform_library()) return own;
  for (const std::string& version : versions) {
    std::string file = base::cat("lib", name, ".so.", version);
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    for (const std::string& folder : folders()) {
      for (const char* sub : {"/lib64/", "/lib/"}) {
        std::string path = folder + sub + file;
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) continue;
        if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
      }
    }
  }
  return nullptr;
}

std::string compile_cubin(const std::string& text, const std::string& name,
                          const std::string& arch) {
  const Nvrtc& n = nvrtc();
  if (!n.info.usable) throw UnsupportedError(base::cat("kernel ", name, ": ", n.info.reason));
  Program program;
  nvrtcResult code =
      n.nvrtcCreateProgram_(&program.handle, text.c_str(), "kernel.cu", 0, nullptr, nullptr);
  HD_CHECK(code == NVRTC_SUCCESS, "nvrtcCreateProgram: ", n.nvrtcGetErrorString_(code));
  std::string gpu = "-arch=" + arch;
  std::vector<const char*> options = {gpu.c_str(),       "--std=c++17",      "--fmad=false",
                                      "--prec-div=true", "--prec-sqrt=true", "--ftz=false",
                                      "-default-device"};
  if (n.version >= 12008) options.push_back("--minimal");
  // Heddle keeps the code itself; to open the compiler's own cache takes longer than a kernel.
  if (n.version >= 13000) options.push_back("--no-cache");
  code = n.nvrtcCompileProgram_(program.handle, static_cast<int>(options.size()), options.data());
  if (code == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE) {
    throw UnsupportedError(base::cat("kernel ", name, ": the CUDA compiler has no ",
                                     "libnvrtc-builtins.so.", n.info.version,
                                     ", which belongs beside libnvrtc: ", log_of(program.handle)));
  }
  if (code != NVRTC_SUCCESS) {
    throw InternalError(base::cat("kernel ", name, " does not compile: ",
                                  n.nvrtcGetErrorString_(code), "\n", log_of(program.handle)));
  }
  size_t size = 0;
  n.nvrtcGetCUBINSize_(program.handle, &size);
  std::string cubin(size, '\0');
  n.nvrtcGetCUBIN_(program.handle, cubin.data());
  return cubin;
}

}  // namespace heddle::cuda
