// Memory, faults, and what the device says of itself.
#include "simulated_gpu/device.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace heddle::simulated {

namespace {

constexpr size_t kPoisoned = size_t{64} << 20;  // larger blocks are zero, to save time
constexpr size_t kMemory = size_t{64} << 30;    // bytes of the device

struct Memory {
  std::mutex mutex;
  std::map<uintptr_t, size_t> blocks, pinned;  // bytes by address
  size_t used = 0;
};
Memory& memory() {
  static auto* m = new Memory;  // outlives streams that are never destroyed
  return *m;
}

std::atomic<bool> lost{false};
std::string* message = new std::string("the simulated GPU has no fault");
std::mutex* message_mutex = new std::mutex;

bool holds(const std::map<uintptr_t, size_t>& blocks, uintptr_t at, size_t bytes) {
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}

int attribute(CUdevice_attribute a) {
  switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 2;  // few, so that small graphs fill it and threads share work
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    default:
      return 0;
  }
}

thread_local CUcontext current = nullptr;
int context = 0;  // what the context's handle points at

}  // namespace

void fault(const std::string& text) {
  if (lost.exchange(true)) return;
  std::lock_guard lock(*message_mutex);
  *message = text;
  std::fprintf(stderr, "simulated GPU: %s\n", text.c_str());
}
CUresult state() { return lost ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS; }

void perform(const Work& work) {
  if (lost) return;
  try {
    work();
  } catch (const std::exception& e) {
    fault(e.what());
  }
}

void check_memory(const void* pointer, size_t bytes, const char* what) {
  auto at = reinterpret_cast<uintptr_t>(pointer);
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  if (holds(m.blocks, at, bytes) || holds(m.pinned, at, bytes)) return;
  char text[160];
  std::snprintf(text, sizeof text, "%s: %zu bytes at %p are not memory of the device", what, bytes,
                pointer);
  throw std::runtime_error(text);
}

bool is_pinned(const void* pointer) {
  std::lock_guard lock(memory().mutex);
  return holds(memory().pinned, reinterpret_cast<uintptr_t>(pointer), 1);
}

}  // namespace heddle::simulated

using namespace heddle::simulated;

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* text, int size, CUdevice) {
  std::snprintf(text, static_cast<size_t>(size), "simulated GPU");
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = kMemory;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute a, CUdevice) {
  *value = attribute(a);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice) {
  *out = reinterpret_cast<CUcontext>(&context);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) {
  current = c;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = current;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kMemory - m.used) return CUDA_ERROR_OUT_OF_MEMORY;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  // What nobody wrote is not a number in any float type.
  if (bytes <= kPoisoned) std::memset(p, 0xff, bytes);
  m.blocks[reinterpret_cast<uintptr_t>(p)] = bytes;
  m.used += bytes;
  *pointer = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr pointer) {
  synchronize_all();
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  auto it = m.blocks.find(pointer);
  if (it == m.blocks.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(pointer), it->second);
  m.used -= it->second;
  m.blocks.erase(it);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  std::lock_guard lock(memory().mutex);
  *free = kMemory - memory().used;
  *total = kMemory;
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::calloc(1, bytes);
  if (*pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(memory().mutex);
  memory().pinned[reinterpret_cast<uintptr_t>(*pointer)] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* pointer) {
  synchronize_all();
  std::lock_guard lock(memory().mutex);
  if (memory().pinned.erase(reinterpret_cast<uintptr_t>(pointer)) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::free(pointer);
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* host, unsigned) {
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr) {
  std::memset(value, 0, 4);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult code, const char** text) {
  std::lock_guard lock(*message_mutex);
  *text = code == CUDA_ERROR_LAUNCH_FAILED ? message->c_str() : "refused by the simulated GPU";
  return CUDA_SUCCESS;
}

}  // extern "C"
