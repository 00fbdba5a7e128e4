#include "backend/cuda/stream.h"

#include "base/check.h"
#include "target/counters.h"

#include <algorithm>
#include <cstring>

namespace heddle::cuda {

namespace {

constexpr int64_t kChunk = int64_t{4} << 20;  // bytes of a pinned staging chunk
constexpr size_t kChunks = 3;

}  // namespace

const CudaKernel& cuda_kernel(const target::CompiledKernel& kernel) {
  auto* k = dynamic_cast<const CudaKernel*>(&kernel);
  HD_CHECK(k != nullptr, "a kernel of another device was given to a CUDA stream");
  return *k;
}

namespace {

void count_launch() { target::runtime_counters().launches.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

LaunchParameters::LaunchParameters(const target::KernelArgs& args, void* workspace)
    : words_{workspace, static_cast<std::byte*>(workspace) + kFaultAt,
             static_cast<std::byte*>(workspace) + kPartsAt} {
  size_t count = args.buffers.size() + args.symbols.size() + std::size(words_);
  if (count > std::size(few_)) many_.resize(count);
  pointers = many_.empty() ? few_ : many_.data();
  void** at = pointers;
  for (void* const& b : args.buffers) *at++ = const_cast<void**>(&b);
  for (const int64_t& s : args.symbols) *at++ = const_cast<int64_t*>(&s);
  for (void*& w : words_) *at++ = &w;
}

void StreamRecorder::launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) {
  const CudaKernel& k = cuda_kernel(kernel);
  stream_.device().enter();
  Launch l = k.prepare(args);
  if (l.grid == 0) return;
  LaunchParameters p(args, stream_.workspace());
  count_launch();
  if (l.cooperative) {
    HD_CU_AT(k.name(), cuLaunchCooperativeKernel, l.variant->function, l.grid, 1, 1, l.block, 1, 1,
             l.shared, stream_.handle(), p.pointers);
  } else {
    HD_CU_AT(k.name(), cuLaunchKernel, l.variant->function, l.grid, 1, 1, l.block, 1, 1, l.shared,
             stream_.handle(), p.pointers, nullptr);
  }
  if (k.checked()) stream_.note_checked(k.faults());
}

void StreamRecorder::call(const target::LibraryCall& call, std::span<void* const> buffers,
                          std::span<const int64_t> symbols, void* workspace) {
  auto* c = dynamic_cast<const CudaLibraryCall*>(&call);
  HD_CHECK(c != nullptr, "a library call of another device was given to a CUDA stream");
  stream_.device().enter();
  count_launch();
  c->run(stream_.device(), stream_.handle(), buffers, symbols, workspace);
}

void StreamRecorder::copy(void* dst, const void* src, int64_t bytes) {
  if (bytes == 0) return;
  stream_.device().enter();
  HD_CU_AT("copy", cuMemcpyDtoDAsync, reinterpret_cast<CUdeviceptr>(dst),
           reinterpret_cast<CUdeviceptr>(src), static_cast<size_t>(bytes), stream_.handle());
}

void StreamRecorder::fill(void* dst, uint8_t byte, int64_t bytes) {
  if (bytes == 0) return;
  stream_.device().enter();
  HD_CU_AT("fill", cuMemsetD8Async, reinterpret_cast<CUdeviceptr>(dst), byte,
           static_cast<size_t>(bytes), stream_.handle());
}

void StreamRecorder::read_back(void* host, const void* src, int64_t bytes) {
  stream_.copy_to_host(host, src, bytes);
}

void StreamRecorder::while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                                const std::function<void(Recorder&)>& after) {
  for (;;) {
    before(*this);
    uint8_t go = 0;
    read_back(&go, predicate, 1);
    if (go == 0) return;
    after(*this);
  }
}

void StreamRecorder::if_else(const void* predicate,
                             const std::function<void(Recorder&)>& then_block,
                             const std::function<void(Recorder&)>& else_block) {
  uint8_t chosen = 0;
  read_back(&chosen, predicate, 1);
  const auto& block = chosen != 0 ? then_block : else_block;
  if (block) block(*this);
}

// ---- host functions

HostRunner::~HostRunner() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (flag != nullptr) driver().cuMemFreeHost_(flag);
}

void HostRunner::submit(CUevent event, uint32_t ticket, std::function<void()> f,
                        CUcontext context) {
  std::lock_guard lock(mutex_);
  jobs_.push_back({event, ticket, std::move(f), context});
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
}

std::exception_ptr HostRunner::take_error() {
  std::lock_guard lock(mutex_);
  return std::exchange(error_, nullptr);
}

void HostRunner::loop() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    driver().cuCtxSetCurrent_(job.context);
    driver().cuEventSynchronize_(job.event);  // a failure of the work is reported at synchronize()
    driver().cuEventDestroy_(job.event);
    try {
      job.f();
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    std::atomic_ref<uint32_t>(*flag).store(job.ticket, std::memory_order_release);
  }
}

// ---- stream

CudaStream::CudaStream(std::shared_ptr<CudaDevice> device, CUstream stream, bool owned)
    : device_(std::move(device)), stream_(stream), owned_(owned), recorder_(*this) {
  workspace_ = reinterpret_cast<CUdeviceptr>(device_->allocator().allocate(kWorkspace, nullptr));
  HD_CU_AT("stream", cuMemsetD8Async, workspace_, 0, static_cast<size_t>(kWorkspace), stream_);
}

CudaStream::~CudaStream() {
  try {
    device_->enter();
    driver().cuStreamSynchronize_(stream_);
    host_.reset();
    for (Chunk& c : chunks_) {
      driver().cuMemFreeHost_(c.host);
      driver().cuEventDestroy_(c.done);
    }
    device_->allocator().forget(stream_);
    device_->allocator().release(workspace(), nullptr);
    if (owned_) driver().cuStreamDestroy_(stream_);
  } catch (const Error&) {
    // The context is lost; the driver frees what it held.
  }
}

void CudaStream::note_checked(std::shared_ptr<const FaultTable> table) {
  std::lock_guard lock(state_);
  checked_ = std::move(table);
}

CudaStream::Chunk& CudaStream::next_chunk() {
  if (chunks_.size() < kChunks) {
    Chunk c;
    void* host = nullptr;
    HD_CU_AT("staging memory", cuMemHostAlloc, &host, static_cast<size_t>(kChunk), 0);
    c.host = static_cast<std::byte*>(host);
    HD_CU_AT("staging memory", cuEventCreate, &c.done, CU_EVENT_DISABLE_TIMING);
    chunks_.push_back(c);
    chunk_ = chunks_.size() - 1;
    return chunks_.back();
  }
  chunk_ = (chunk_ + 1) % chunks_.size();
  Chunk& c = chunks_[chunk_];
  if (c.busy) HD_CU_AT("staging memory", cuEventSynchronize, c.done);
  c.busy = false;
  return c;
}

void CudaStream::copy_from_host(void* dst, const void* src, int64_t bytes) {
  device_->enter();
  std::lock_guard lock(staging_);
  for (int64_t at = 0; at < bytes; at += kChunk) {
    auto n = static_cast<size_t>(std::min(kChunk, bytes - at));
    Chunk& c = next_chunk();
    std::memcpy(c.host, static_cast<const std::byte*>(src) + at, n);
    HD_CU_AT("copy from the host", cuMemcpyHtoDAsync,
             reinterpret_cast<CUdeviceptr>(dst) + static_cast<size_t>(at), c.host, n, stream_);
    HD_CU_AT("copy from the host", cuEventRecord, c.done, stream_);
    c.busy = true;
  }
}

void CudaStream::copy_to_host(void* dst, const void* src, int64_t bytes) {
  device_->enter();
  std::lock_guard lock(staging_);
  struct Pending {
    Chunk* chunk;
    int64_t at;
    size_t bytes;
  };
  std::deque<Pending> pending;
  auto drain = [&] {
    Pending p = pending.front();
    pending.pop_front();
    HD_CU_AT("copy to the host", cuEventSynchronize, p.chunk->done);
    p.chunk->busy = false;
    std::memcpy(static_cast<std::byte*>(dst) + p.at, p.chunk->host, p.bytes);
  };
  for (int64_t at = 0; at < bytes; at += kChunk) {
    auto n = static_cast<size_t>(std::min(kChunk, bytes - at));
    if (pending.size() == kChunks - 1) drain();
    Chunk& c = next_chunk();
    HD_CU_AT("copy to the host", cuMemcpyDtoHAsync, c.host,
             reinterpret_cast<CUdeviceptr>(src) + static_cast<size_t>(at), n, stream_);
    HD_CU_AT("copy to the host", cuEventRecord, c.done, stream_);
    c.busy = true;
    pending.push_back({&c, at, n});
  }
  while (!pending.empty()) drain();
}

void CudaStream::synchronize() {
  device_->enter();
  HD_CU_AT("wait for the work of the stream", cuStreamSynchronize, stream_);
  check_faults();
  if (host_ != nullptr) {
    if (std::exception_ptr error = host_->take_error()) std::rethrow_exception(error);
  }
}

// An event after the work of a stream.
class CudaMark : public target::Mark {
 public:
  CudaMark(CudaStream& stream, CUevent event) : stream_(stream), event_(event) {}
  ~CudaMark() override { driver().cuEventDestroy_(event_); }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;
  void wait() override {
    if (stream_.tells_at_end()) return stream_.synchronize();
    stream_.device().enter();
    HD_CU_AT("wait for the work of the stream", cuEventSynchronize, event_);
  }

 private:
  CudaStream& stream_;
  CUevent event_;
};

std::unique_ptr<target::Mark> CudaStream::mark() {
  device_->enter();
  CUevent event = nullptr;
  if (driver().cuEventCreate_(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  auto mark = std::make_unique<CudaMark>(*this, event);
  count_driver_call();
  if (driver().cuEventRecord_(event, stream_) != CUDA_SUCCESS) return nullptr;
  return mark;
}

bool CudaStream::tells_at_end() {
  std::lock_guard lock(state_);
  return checked_ != nullptr || host_ != nullptr;
}

void CudaStream::check_faults() {
  std::shared_ptr<const FaultTable> table;
  {
    std::lock_guard lock(state_);
    table = std::exchange(checked_, nullptr);
  }
  if (table == nullptr) return;
  unsigned record[8] = {};
  copy_to_host(record, fault_record(), sizeof record);
  if (record[0] == 0) return;
  recorder_.fill(fault_record(), 0, sizeof record);
  throw InternalError(table->text(record));
}

void CudaStream::run_on_host(std::function<void()> f) {
  device_->enter();
  if (host_ == nullptr) {
    auto runner = std::make_unique<HostRunner>();
    void* flag = nullptr;
    HD_CU_AT("host function", cuMemHostAlloc, &flag, 64, CU_MEMHOSTALLOC_DEVICEMAP);
    runner->flag = static_cast<uint32_t*>(flag);
    *runner->flag = 0;
    HD_CU_AT("host function", cuMemHostGetDevicePointer, &runner->device_flag, flag, 0);
    host_ = std::move(runner);
  }
  CUevent event = nullptr;
  HD_CU_AT("host function", cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  HD_CU_AT("host function", cuEventRecord, event, stream_);
  uint32_t ticket = ++host_->next;
  host_->submit(event, ticket, std::move(f), device_->context());
  HD_CU_AT("host function", cuStreamWaitValue32, stream_, host_->device_flag, ticket,
           CU_STREAM_WAIT_VALUE_GEQ);
}

}  // namespace heddle::cuda
