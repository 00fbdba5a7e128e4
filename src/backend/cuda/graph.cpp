#include "backend/cuda/graph.h"

#include "base/check.h"
#include "target/counters.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace heddle::cuda {

namespace {

// Sets a conditional handle from a boolean. The function is the driver's, so nothing is linked.
const std::string kConditionText = R"cuda(
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
extern "C" __global__ void heddle_condition(const unsigned char* predicate, unsigned long long handle) {
  cudaGraphSetConditional(handle, *predicate != 0);
}
)cuda";

CUfunction condition_function(CudaDevice& device) {
  static auto* cubins =
      new std::map<std::string, std::shared_ptr<Cubin>>;  // by device; never unloaded
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::shared_ptr<Cubin>& cubin = (*cubins)[device.name()];
  if (cubin == nullptr) {
    const std::string name = "condition", &arch = device.description().arch;
    cubin = std::make_shared<Cubin>(
        find_cubin({.text = kConditionText, .name = name, .arch = arch})->bytes(), kConditionText);
  }
  return cubin->function("heddle_condition");
}

uint64_t word(const void* p) { return reinterpret_cast<uint64_t>(p); }

std::vector<uint64_t> words_of(const target::KernelArgs& args) {
  std::vector<uint64_t> out;
  for (void* b : args.buffers) out.push_back(word(b));
  for (int64_t s : args.symbols) out.push_back(static_cast<uint64_t>(s));
  return out;
}

CUDA_MEMCPY3D copy_params(void* dst, const void* src, int64_t bytes) {
  CUDA_MEMCPY3D c = {};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = reinterpret_cast<CUdeviceptr>(src);
  c.dstDevice = reinterpret_cast<CUdeviceptr>(dst);
  c.WidthInBytes = static_cast<size_t>(bytes);
  c.Height = c.Depth = 1;
  return c;
}
CUDA_MEMSET_NODE_PARAMS fill_params(void* dst, uint8_t byte, int64_t bytes) {
  CUDA_MEMSET_NODE_PARAMS m = {};
  m.dst = reinterpret_cast<CUdeviceptr>(dst);
  m.value = byte;
  m.elementSize = 1;
  m.width = static_cast<size_t>(bytes);
  m.height = 1;
  return m;
}

// A stream whose only use is to capture library calls.
CUstream capture_stream(CudaDevice& device) {
  static auto* streams = new std::map<std::string, CUstream>;
  CUstream& s = (*streams)[device.name()];
  if (s == nullptr) HD_CU_AT("capture", cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
  return s;
}
std::mutex& capture_mutex() {
  static auto* m = new std::mutex;
  return *m;
}

}  // namespace

CudaRecording::CudaRecording(std::shared_ptr<CudaDevice> device, void* workspace)
    : device_(std::move(device)), owns_workspace_(workspace == nullptr) {
  device_->enter();
  if (owns_workspace_) workspace = device_->allocator().allocate(kWorkspace, nullptr);
  workspace_ = reinterpret_cast<CUdeviceptr>(workspace);
  HD_CU_AT("record", cuGraphCreate, &graph_, 0);
}

CudaRecording::~CudaRecording() {
  try {
    device_->enter();
    if (exec_ != nullptr) driver().cuGraphExecDestroy_(exec_);
    if (graph_ != nullptr) driver().cuGraphDestroy_(graph_);
    if (owns_workspace_) device_->allocator().release(workspace(), nullptr);
  } catch (const Error&) {
    // The context is lost; the driver frees what it held.
  }
}

void CudaRecording::instantiate() {
  if (exec_ != nullptr) return;
  device_->enter();
  HD_CU_AT("instantiate the recording", cuGraphInstantiate, &exec_, graph_, 0);
}

bool CudaRecording::has_conditions() const {
  return std::ranges::any_of(nodes,
                             [](const NodeRecord& r) { return r.kind == NodeKind::condition; });
}

CUresult CudaRecording::patch(NodeRecord& record) {
  // Addresses and symbols are words of the same size, in the order of the signature.
  std::span<const int64_t> words(reinterpret_cast<const int64_t*>(record.words.data()),
                                 record.words.size());
  LaunchParameters p({{}, words}, workspace());
  CUDA_KERNEL_NODE_PARAMS params = {};
  params.func = record.function;
  params.gridDimX = record.grid;
  params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = record.block;
  params.blockDimY = params.blockDimZ = 1;
  params.sharedMemBytes = record.shared;
  params.kernelParams = p.pointers;
  count_driver_call();
  return driver().cuGraphExecKernelNodeSetParams_(exec_, record.node, &params);
}

void CudaRecording::bind(void* workspace) {
  if (owns_workspace_ || workspace == this->workspace()) return;
  workspace_ = reinterpret_cast<CUdeviceptr>(workspace);
  for (NodeRecord& r : nodes) {
    if (r.kind != NodeKind::kernel) continue;
    if (CUresult code = patch(r); code != CUDA_SUCCESS)
      driver_failed(code, "cuGraphExecKernelNodeSetParams", "another stream's workspace");
  }
}

void CudaRecording::launch(CudaStream& stream) {
  device_->enter();
  bind(stream.workspace());
  auto& counters = target::runtime_counters();
  counters.launches.fetch_add(1, std::memory_order_relaxed);
  counters.graph_launches.fetch_add(1, std::memory_order_relaxed);
  HD_CU_AT("recorded graph", cuGraphLaunch, exec_, stream.handle());
}

// ---- recording

CUgraphNode GraphRecorder::add(CUgraphNodeParams& params, const std::string& step) {
  CUgraphNode node = nullptr;
  HD_CU_AT(step, cuGraphAddNode, &node, graph_, last_ == nullptr ? nullptr : &last_, nullptr,
           last_ == nullptr ? 0 : 1, &params);
  last_ = node;
  return node;
}

NodeRecord& GraphRecorder::note(NodeKind kind, CUgraphNode node) {
  NodeRecord r;
  r.kind = kind;
  r.node = node;
  r.nested = nested_;
  recording_.nodes.push_back(std::move(r));
  return recording_.nodes.back();
}

void GraphRecorder::launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) {
  const CudaKernel& k = cuda_kernel(kernel);
  // Its faults are looked for in the stream's record.
  if (k.checked()) throw UnsupportedError("kernels with checks are not recorded");
  recording_.device().enter();
  Launch l = k.prepare(args);
  if (l.grid == 0) return;
  LaunchParameters p(args, recording_.workspace());
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.func = l.variant->function;
  params.kernel.gridDimX = l.grid;
  params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = l.block;
  params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.sharedMemBytes = l.shared;
  params.kernel.kernelParams = p.pointers;
  CUgraphNode node = add(params, k.name());
  if (l.cooperative) {
    CUkernelNodeAttrValue value = {};
    value.cooperative = 1;
    HD_CU_AT(k.name(), cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
             &value);
  }
  NodeRecord& r = note(NodeKind::kernel, node);
  r.function = l.variant->function;
  r.grid = l.grid;
  r.block = l.block;
  r.shared = l.shared;
  r.words = words_of(args);
}

void GraphRecorder::call(const target::LibraryCall& call, std::span<void* const> buffers,
                         std::span<const int64_t> symbols, void* workspace) {
  auto* c = dynamic_cast<const CudaLibraryCall*>(&call);
  HD_CHECK(c != nullptr, "a library call of another device was given to a CUDA recorder");
  recording_.device().enter();
  std::lock_guard lock(capture_mutex());
  CUstream s = capture_stream(recording_.device());
  HD_CU_AT(call.describe(), cuStreamBeginCaptureToGraph, s, graph_,
           last_ == nullptr ? nullptr : &last_, nullptr, last_ == nullptr ? 0 : 1,
           CU_STREAM_CAPTURE_MODE_RELAXED);
  std::exception_ptr failure;
  try {
    c->run(recording_.device(), s, buffers, symbols, workspace);
  } catch (...) {
    failure = std::current_exception();
  }
  CUstreamCaptureStatus status;
  const CUgraphNode* tails = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  cuuint64_t id = 0;
  CUgraph captured = nullptr;
  size_t count = 0;
  driver().cuStreamGetCaptureInfo_(s, &status, &id, &captured, &tails, &edges, &count);
  CUgraphNode tail = count > 0 ? tails[0] : last_;
  CUresult ended = driver().cuStreamEndCapture_(s, &captured);
  if (failure) std::rethrow_exception(failure);
  if (ended != CUDA_SUCCESS) driver_failed(ended, "cuStreamEndCapture", call.describe());
  HD_CHECK(count <= 1, call.describe(), " forked its stream");
  last_ = tail;
  NodeRecord& r = note(NodeKind::library, tail);
  r.call = &call;
  r.words = words_of({buffers, symbols});
  r.words.push_back(word(workspace));
}

void GraphRecorder::copy(void* dst, const void* src, int64_t bytes) {
  if (bytes == 0) return;
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyCtx = recording_.device().context();
  params.memcpy.copyParams = copy_params(dst, src, bytes);
  NodeRecord& r = note(NodeKind::copy, add(params, "copy"));
  r.words = {word(dst), word(src), static_cast<uint64_t>(bytes)};
}

void GraphRecorder::fill(void* dst, uint8_t byte, int64_t bytes) {
  if (bytes == 0) return;
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  CUDA_MEMSET_NODE_PARAMS m = fill_params(dst, byte, bytes);
  params.memset.dst = m.dst;
  params.memset.value = m.value;
  params.memset.elementSize = m.elementSize;
  params.memset.width = m.width;
  params.memset.height = m.height;
  params.memset.ctx = recording_.device().context();
  NodeRecord& r = note(NodeKind::fill, add(params, "fill"));
  r.words = {word(dst), byte, static_cast<uint64_t>(bytes)};
}

void GraphRecorder::read_back(void* /*host*/, const void* /*src*/, int64_t /*bytes*/) {
  throw UnsupportedError("a recorded graph cannot read a value back to the host");
}

CUgraphConditionalHandle GraphRecorder::new_handle() {
  CUgraphConditionalHandle handle = 0;
  HD_CU_AT("condition", cuGraphConditionalHandleCreate, &handle, recording_.graph(),
           recording_.device().context(), 0, 0);
  return handle;
}

void GraphRecorder::set_condition(CUgraphConditionalHandle handle, const void* predicate) {
  CUfunction f = condition_function(recording_.device());
  void* parameters[] = {&predicate, &handle};
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.func = f;
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = parameters;
  NodeRecord& r = note(NodeKind::condition, add(params, "condition"));
  r.function = f;
  r.words = {word(predicate), handle};
}

// before; condition; WHILE { after; before; condition }
void GraphRecorder::while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                               const std::function<void(Recorder&)>& after) {
  recording_.device().enter();
  CUgraphConditionalHandle handle = new_handle();
  before(*this);
  set_condition(handle, predicate);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.size = 1;
  params.conditional.ctx = recording_.device().context();
  add(params, "while");
  GraphRecorder body(recording_, params.conditional.phGraph_out[0], true);
  after(body);
  before(body);
  body.set_condition(handle, predicate);
}

void GraphRecorder::if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
                            const std::function<void(Recorder&)>& else_block) {
  recording_.device().enter();
  CUgraphConditionalHandle handle = new_handle();
  set_condition(handle, predicate);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = else_block ? 2 : 1;
  params.conditional.ctx = recording_.device().context();
  add(params, "if");
  GraphRecorder chosen(recording_, params.conditional.phGraph_out[0], true);
  if (then_block) then_block(chosen);
  if (!else_block) return;
  GraphRecorder other(recording_, params.conditional.phGraph_out[1], true);
  else_block(other);
}

// ---- updating

NodeRecord* GraphUpdater::next(NodeKind kind) {
  if (!same_ || at_ >= recording_.nodes.size() || recording_.nodes[at_].kind != kind) {
    same_ = false;
    return nullptr;
  }
  return &recording_.nodes[at_++];
}

void GraphUpdater::patched(CUresult code) {
  count_driver_call();
  if (code != CUDA_SUCCESS) same_ = false;
}

void GraphUpdater::launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) {
  if (!same_) return;
  const CudaKernel& k = cuda_kernel(kernel);
  recording_.device().enter();
  Launch l = k.prepare(args);
  if (l.grid == 0) return;
  NodeRecord* r = next(NodeKind::kernel);
  if (r == nullptr) return;
  if (r->function != l.variant->function || r->block != l.block || r->shared != l.shared) {
    same_ = false;
    return;
  }
  std::vector<uint64_t> words = words_of(args);
  if (words == r->words && r->grid == l.grid) return;
  r->words = std::move(words);
  r->grid = l.grid;
  if (recording_.patch(*r) != CUDA_SUCCESS) same_ = false;
}

void GraphUpdater::call(const target::LibraryCall& call, std::span<void* const> buffers,
                        std::span<const int64_t> symbols, void* workspace) {
  NodeRecord* r = next(NodeKind::library);
  if (r == nullptr) return;
  std::vector<uint64_t> words = words_of({buffers, symbols});
  words.push_back(word(workspace));
  // A captured call holds its addresses in nodes that only the library knows.
  if (r->call != &call || r->words != words) same_ = false;
}

void GraphUpdater::copy(void* dst, const void* src, int64_t bytes) {
  if (bytes == 0) return;
  NodeRecord* r = next(NodeKind::copy);
  if (r == nullptr) return;
  std::vector<uint64_t> words = {word(dst), word(src), static_cast<uint64_t>(bytes)};
  if (words == r->words) return;
  CUDA_MEMCPY3D c = copy_params(dst, src, bytes);
  patched(driver().cuGraphExecMemcpyNodeSetParams_(recording_.exec(), r->node, &c,
                                                   recording_.device().context()));
  r->words = std::move(words);
}

void GraphUpdater::fill(void* dst, uint8_t byte, int64_t bytes) {
  if (bytes == 0) return;
  NodeRecord* r = next(NodeKind::fill);
  if (r == nullptr) return;
  std::vector<uint64_t> words = {word(dst), byte, static_cast<uint64_t>(bytes)};
  if (words == r->words) return;
  CUDA_MEMSET_NODE_PARAMS m = fill_params(dst, byte, bytes);
  patched(driver().cuGraphExecMemsetNodeSetParams_(recording_.exec(), r->node, &m,
                                                   recording_.device().context()));
  r->words = std::move(words);
}

void GraphUpdater::read_back(void* /*host*/, const void* /*src*/, int64_t /*bytes*/) {
  same_ = false;
}

void GraphUpdater::condition(const void* predicate) {
  NodeRecord* r = next(NodeKind::condition);
  if (r == nullptr || r->words[0] == word(predicate)) return;
  uint64_t handle = r->words[1];
  void* parameters[] = {&predicate, &handle};
  CUDA_KERNEL_NODE_PARAMS params = {};
  params.func = r->function;
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = parameters;
  patched(driver().cuGraphExecKernelNodeSetParams_(recording_.exec(), r->node, &params));
  r->words[0] = word(predicate);
}

void GraphUpdater::while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                              const std::function<void(Recorder&)>& after) {
  before(*this);
  condition(predicate);
  after(*this);
  before(*this);
  condition(predicate);
}

void GraphUpdater::if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
                           const std::function<void(Recorder&)>& else_block) {
  condition(predicate);
  if (then_block) then_block(*this);
  if (else_block) else_block(*this);
}

// ---- streams

std::unique_ptr<target::Recording> CudaStream::record(
    const std::function<void(target::Recorder&)>& body) {
  auto make = [&](void* shared) {
    auto recording = std::make_unique<CudaRecording>(device_, shared);
    GraphRecorder recorder(*recording, recording->graph(), false);
    body(recorder);
    return recording;
  };
  std::unique_ptr<CudaRecording> recording = make(workspace());
  if (recording->has_conditions()) {
    recording = make(nullptr);
    HD_CU_AT("record", cuMemsetD8Async, reinterpret_cast<CUdeviceptr>(recording->workspace()), 0,
             static_cast<size_t>(kWorkspace), stream_);
  }
  recording->instantiate();
  return recording;
}

bool CudaStream::update(target::Recording& recording,
                        const std::function<void(target::Recorder&)>& body) {
  auto* r = dynamic_cast<CudaRecording*>(&recording);
  HD_CHECK(r != nullptr, "a recording of another device was given to a CUDA stream");
  device_->enter();
  GraphUpdater updater(*r);
  body(updater);
  return updater.finish();
}

void CudaStream::launch(target::Recording& recording) {
  auto* r = dynamic_cast<CudaRecording*>(&recording);
  HD_CHECK(r != nullptr, "a recording of another device was given to a CUDA stream");
  r->launch(*this);
}

}  // namespace heddle::cuda
