// The CUDA driver, loaded at run time: a table of its functions, checked calls.
#pragma once

#include <cuda.h>

#include <string>

namespace heddle::cuda {

#define HD_CUDA_FUNCTIONS(F)                     \
  F(cuInit)                                      \
  F(cuDriverGetVersion)                          \
  F(cuDeviceGetCount)                            \
  F(cuDeviceGet)                                 \
  F(cuDeviceGetName)                             \
  F(cuDeviceTotalMem)                            \
  F(cuDeviceGetAttribute)                        \
  F(cuDevicePrimaryCtxRetain)                    \
  F(cuDevicePrimaryCtxRelease)                   \
  F(cuCtxSetCurrent)                             \
  F(cuCtxGetCurrent)                             \
  F(cuMemAlloc)                                  \
  F(cuMemFree)                                   \
  F(cuMemGetInfo)                                \
  F(cuMemHostAlloc)                              \
  F(cuMemFreeHost)                               \
  F(cuMemHostGetDevicePointer)                   \
  F(cuStreamCreate)                              \
  F(cuStreamDestroy)                             \
  F(cuStreamSynchronize)                         \
  F(cuStreamWaitEvent)                           \
  F(cuStreamWaitValue32)                         \
  F(cuStreamIsCapturing)                         \
  F(cuEventCreate)                               \
  F(cuEventRecord)                               \
  F(cuEventSynchronize)                          \
  F(cuEventQuery)                                \
  F(cuEventDestroy)                              \
  F(cuMemcpyHtoDAsync)                           \
  F(cuMemcpyDtoHAsync)                           \
  F(cuMemcpyDtoDAsync)                           \
  F(cuMemsetD8Async)                             \
  F(cuModuleLoadData)                            \
  F(cuModuleUnload)                              \
  F(cuModuleGetFunction)                         \
  F(cuFuncSetAttribute)                          \
  F(cuLaunchKernel)                              \
  F(cuLaunchCooperativeKernel)                   \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  F(cuGetErrorName)                              \
  F(cuGetErrorString)                            \
  F(cuGraphCreate)                               \
  F(cuGraphDestroy)                              \
  F(cuGraphAddNode)                              \
  F(cuGraphConditionalHandleCreate)              \
  F(cuGraphInstantiate)                          \
  F(cuGraphExecDestroy)                          \
  F(cuGraphLaunch)                               \
  F(cuGraphKernelNodeSetAttribute)               \
  F(cuGraphExecKernelNodeSetParams)              \
  F(cuGraphExecMemcpyNodeSetParams)              \
  F(cuGraphExecMemsetNodeSetParams)              \
  F(cuStreamBeginCaptureToGraph)                 \
  F(cuStreamGetCaptureInfo) F(cuStreamEndCapture) F(cuPointerGetAttribute)

// Names in the table are the driver's plain ones; cuda.h's macros pick the version that its
// signatures belong to.
struct Driver {
#define HD_CUDA_MEMBER(name) decltype(&::name) name##_ = nullptr;
  HD_CUDA_FUNCTIONS(HD_CUDA_MEMBER)
#undef HD_CUDA_MEMBER
};

// nullptr with the reason where libcuda.so.1 can't be loaded or is too old. Loaded once.
const Driver* load_driver(std::string* reason);
// The table; InternalError where there is none (devices exist only with one).
const Driver& driver();

// DeviceError "<step>: <call> failed: CUDA_ERROR_... (text)".
[[noreturn]] void driver_failed(CUresult code, const char* call, const std::string& step);
std::string error_text(CUresult code);
void count_driver_call();

}  // namespace heddle::cuda

// A checked, counted call; `step` is said in the error.
#define HD_CU_AT(step, name, ...)                                                      \
  do {                                                                                 \
    ::heddle::cuda::count_driver_call();                                               \
    if (CUresult hd_code = ::heddle::cuda::driver().name##_(__VA_ARGS__)) [[unlikely]] \
      ::heddle::cuda::driver_failed(hd_code, #name, step);                             \
  } while (false)
// Not by way of HD_CU_AT, which would expand cuda.h's macro in `name`.
#define HD_CU(name, ...)                                                               \
  do {                                                                                 \
    ::heddle::cuda::count_driver_call();                                               \
    if (CUresult hd_code = ::heddle::cuda::driver().name##_(__VA_ARGS__)) [[unlikely]] \
      ::heddle::cuda::driver_failed(hd_code, #name, "");                               \
  } while (false)
