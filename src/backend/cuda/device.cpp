#include "backend/cuda/device.h"

#include "backend/cuda/compiler.h"
#include "backend/cuda/stream.h"
#include "base/check.h"

namespace heddle::cuda {

namespace {

int attribute(CUdevice device, CUdevice_attribute a) {
  int value = 0;
  HD_CU(cuDeviceGetAttribute, &value, a, device);
  return value;
}

void* native_of(target::Stream* stream) { return stream == nullptr ? nullptr : stream->native(); }

}  // namespace

CudaDevice::CudaDevice(int index) : index_(index), name_(base::cat("cuda:", index)) {
  HD_CU(cuDeviceGet, &device_, index);
  char text[256] = {};
  HD_CU(cuDeviceGetName, text, static_cast<int>(sizeof text), device_);
  size_t memory = 0;
  HD_CU(cuDeviceTotalMem, &memory, device_);
  int major = attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  int minor = attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  int version = 0;
  HD_CU(cuDriverGetVersion, &version);
  description_.kind = "cuda";
  description_.arch = base::cat("sm_", major, minor);
  description_.features["name"] = text;
  description_.features["driver"] = base::cat(version / 1000, ".", version % 1000 / 10);
  description_.features["nvrtc"] = compiler().version;
  description_.processors = attribute(device_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  description_.shared_memory =
      attribute(device_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  description_.l2_bytes = attribute(device_, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  description_.vector_bytes = 16;
  summary_ = base::cat(text, ", ", description_.arch, ", ", memory >> 30, " GiB, driver ",
                       description_.features["driver"]);
  if (major < 8) {
    throw UnsupportedError(base::cat(summary_, ": compute capability 8.0 or later is needed"));
  }
  if (!compiler().usable) throw UnsupportedError(base::cat(summary_, ": ", compiler().reason));
  emitter_ = make_emitter(description_);
  claims_ = library_claims(description_.arch);
}

// The primary context stays retained: kernels and memory may be in use until the process ends.
CudaDevice::~CudaDevice() = default;

CUcontext CudaDevice::context() {
  std::call_once(retained_, [&] {
    HD_CU_AT(name_, cuDevicePrimaryCtxRetain, &context_, device_);
    allocator_ = std::make_unique<Allocator>(name_, driver_memory(context_));
  });
  return context_;
}

void CudaDevice::enter() {
  CUcontext own = context(), current = nullptr;
  driver().cuCtxGetCurrent_(&current);
  if (current != own) HD_CU_AT(name_, cuCtxSetCurrent, own);
}

Allocator& CudaDevice::allocator() {
  context();
  return *allocator_;
}

void* CudaDevice::allocate(int64_t bytes, target::Stream* stream) {
  enter();
  return allocator_->allocate(bytes, native_of(stream));
}
void CudaDevice::release(void* pointer, int64_t /*bytes*/, target::Stream* stream) noexcept {
  if (allocator_ != nullptr) allocator_->release(pointer, native_of(stream));
}
MemoryStats CudaDevice::memory() const {
  return allocator_ == nullptr ? MemoryStats{} : allocator_->stats();
}
void CudaDevice::set_memory_limit(int64_t bytes) { allocator().set_limit(bytes); }
void CudaDevice::trim() {
  if (allocator_ != nullptr) allocator_->trim();
}

std::unique_ptr<target::Stream> CudaDevice::create_stream() {
  enter();
  CUstream s = nullptr;
  HD_CU_AT(name_, cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
  return std::make_unique<CudaStream>(shared_from_this(), s, true);
}
std::unique_ptr<target::Stream> CudaDevice::wrap_stream(void* native) {
  enter();
  return std::make_unique<CudaStream>(shared_from_this(), static_cast<CUstream>(native), false);
}

}  // namespace heddle::cuda
