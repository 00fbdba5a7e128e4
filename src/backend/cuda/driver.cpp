#include "backend/cuda/driver.h"

#include "backend/cuda/platform.h"
#include "base/check.h"
#include "base/env.h"
#include "target/counters.h"

#include <dlfcn.h>

#include <mutex>

namespace heddle::cuda {

namespace {

struct Loaded {
  Driver table;
  void* library = nullptr;
  const Platform* platform = nullptr;
  bool usable = false;
  std::string reason;
};

#define HD_CUDA_STRING(name) #name
#define HD_CUDA_SYMBOL(name) HD_CUDA_STRING(name)

Loaded load() {
  Loaded out;
  std::string name = base::env("HEDDLE_CUDA_DRIVER").value_or("libcuda.so.1");
  void* library = out.library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out.reason = base::cat("no NVIDIA driver: ", name, " is not on this machine");
    return out;
  }
  // The argument is expanded before it is made a string, so that cuMemAlloc looks up cuMemAlloc_v2.
#define HD_CUDA_LOAD(name)                                                                  \
  out.table.name##_ =                                                                       \
      reinterpret_cast<decltype(out.table.name##_)>(dlsym(library, HD_CUDA_SYMBOL(name)));  \
  if (out.table.name##_ == nullptr) {                                                       \
    out.reason = "the NVIDIA driver is too old: libcuda.so.1 has no " HD_CUDA_SYMBOL(name); \
    return out;                                                                             \
  }
  HD_CUDA_FUNCTIONS(HD_CUDA_LOAD)
#undef HD_CUDA_LOAD
  if (auto entry = reinterpret_cast<PlatformFunction>(dlsym(library, kPlatformEntry)))
    out.platform = entry();
  out.usable = true;
  return out;
}

const Loaded& loaded() {
  static const Loaded instance = load();
  return instance;
}

}  // namespace

const Driver* load_driver(std::string* reason) {
  const Loaded& l = loaded();
  if (!l.usable && reason != nullptr) *reason = l.reason;
  return l.usable ? &l.table : nullptr;
}

const Driver& driver() {
  const Loaded& l = loaded();
  HD_CHECK(l.usable, l.reason);
  return l.table;
}

const Platform* platform() { return loaded().platform; }
void* platform_library() { return platform() != nullptr ? loaded().library : nullptr; }

void count_driver_call() {
  target::runtime_counters().driver_calls.fetch_add(1, std::memory_order_relaxed);
}

std::string error_text(CUresult code) {
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName_(code, &name);
  driver().cuGetErrorString_(code, &text);
  return base::cat(name != nullptr ? name : "unknown error", " (",
                   text != nullptr ? text : std::to_string(code), ")");
}

void driver_failed(CUresult code, const char* call, const std::string& step) {
  throw DeviceError(base::cat(step, step.empty() ? "" : ": ", call, " failed: ", error_text(code)));
}

}  // namespace heddle::cuda
