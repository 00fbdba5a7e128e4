// A driver without a GPU: libcuda.so.1 whose memory is address space of the host, whose launches
// and copies do nothing. Whatever runs on it compiles every kernel that an H200 would ask for, so
// the kernel cache can be filled beforehand; and what the host spends on a run can be measured
// alone. Results are never written.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

CUcontext current = nullptr;
int handle = 0;  // what all opaque handles point at
template <class T>
T some() {
  return reinterpret_cast<T>(&handle);
}

std::mutex mutex;
std::map<CUdeviceptr, size_t> blocks;

int attribute(CUdevice_attribute a) {
  switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    default:
      return 0;
  }
}

}  // namespace

extern "C" {

#define HD_NOTHING(name, ...) \
  CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }

HD_NOTHING(cuInit, unsigned)
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
  std::strncpy(text, "stub", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = size_t{139} << 30;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute a, CUdevice) {
  *value = attribute(a);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = some<CUcontext>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuDevicePrimaryCtxRelease, CUdevice)
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = reinterpret_cast<CUdeviceptr>(p);
  std::lock_guard lock(mutex);
  blocks[*pointer] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr pointer) {
  std::lock_guard lock(mutex);
  auto it = blocks.find(pointer);
  if (it == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(pointer), it->second);
  blocks.erase(it);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{139} << 30;
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::calloc(1, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* pointer) {
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

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  *stream = some<CUstream>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuStreamDestroy, CUstream)
HD_NOTHING(cuStreamSynchronize, CUstream)
HD_NOTHING(cuStreamWaitEvent, CUstream, CUevent, unsigned)
HD_NOTHING(cuStreamWaitValue32, CUstream, CUdeviceptr, cuuint32_t, unsigned)
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = some<CUevent>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuEventRecord, CUevent, CUstream)
HD_NOTHING(cuEventSynchronize, CUevent)
HD_NOTHING(cuEventQuery, CUevent)
HD_NOTHING(cuEventDestroy, CUevent)

HD_NOTHING(cuMemcpyHtoDAsync, CUdeviceptr, const void*, size_t, CUstream)
CUresult cuMemcpyDtoHAsync(void* host, CUdeviceptr, size_t bytes, CUstream) {
  std::memset(host, 0, bytes);
  return CUDA_SUCCESS;
}
HD_NOTHING(cuMemcpyDtoDAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)
HD_NOTHING(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = some<CUmodule>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuModuleUnload, CUmodule)
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = some<CUfunction>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuFuncSetAttribute, CUfunction, CUfunction_attribute, int)
HD_NOTHING(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, CUstream, void**, void**)
HD_NOTHING(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
           unsigned, unsigned, CUstream, void**)
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks_out, CUfunction, int, size_t) {
  *blocks_out = 4;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "error of the stub";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "no GPU";
  return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  *graph = some<CUgraph>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuGraphDestroy, CUgraph)
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                        size_t, CUgraphNodeParams* params) {
  *node = some<CUgraphNode>();
  static CUgraph bodies[2] = {some<CUgraph>(), some<CUgraph>()};
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) params->conditional.phGraph_out = bodies;
  return CUDA_SUCCESS;
}
HD_NOTHING(cuGraphConditionalHandleCreate, CUgraphConditionalHandle*, CUgraph, CUcontext, unsigned,
           unsigned)
CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph, unsigned long long) {
  *exec = some<CUgraphExec>();
  return CUDA_SUCCESS;
}
HD_NOTHING(cuGraphExecDestroy, CUgraphExec)
HD_NOTHING(cuGraphLaunch, CUgraphExec, CUstream)
HD_NOTHING(cuGraphKernelNodeSetAttribute, CUgraphNode, CUkernelNodeAttrID,
           const CUkernelNodeAttrValue*)
HD_NOTHING(cuGraphExecKernelNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*)
HD_NOTHING(cuGraphExecMemcpyNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*,
           CUcontext)
HD_NOTHING(cuGraphExecMemsetNodeSetParams, CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*,
           CUcontext)
HD_NOTHING(cuStreamBeginCaptureToGraph, CUstream, CUgraph, const CUgraphNode*,
           const CUgraphEdgeData*, size_t, CUstreamCaptureMode)
CUresult cuStreamGetCaptureInfo(CUstream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*,
                                const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                size_t* count) {
  static const CUgraphNode one = some<CUgraphNode>();
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (nodes != nullptr) *nodes = &one;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 1;
  return CUDA_SUCCESS;
}
HD_NOTHING(cuStreamEndCapture, CUstream, CUgraph*)

}  // extern "C"
