// Work in order on a GPU: launches, copies through pinned memory, recorded graphs.
#pragma once

#include "backend/cuda/device.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <thread>

namespace heddle::cuda {

class CudaStream;

const CudaKernel& cuda_kernel(
    const target::CompiledKernel& kernel);  // InternalError for another device's

// Pointers to the parameters of a kernel, in the order of its signature.
struct LaunchParameters {
  // `workspace`: kWorkspace bytes of the stream or recording, zero at first.
  LaunchParameters(const target::KernelArgs& args, void* workspace);
  LaunchParameters(const LaunchParameters&) = delete;
  LaunchParameters& operator=(const LaunchParameters&) = delete;
  void** pointers = nullptr;

 private:
  void* words_[3];  // barrier word, fault record, parts of a chain
  void* few_[32];
  std::vector<void*> many_;
};
// Bytes: barrier word and tickets, fault record, folds of the blocks of a chained row (8 bytes
// each, at most 4096 blocks), totals of tiles (two tagged words each).
inline constexpr int64_t kWorkspace = 256 + 8 * 4096 + 16 * kLookbackTiles;
inline constexpr int64_t kFaultAt = 64, kPartsAt = 256;

class StreamRecorder : public target::Recorder {
 public:
  explicit StreamRecorder(CudaStream& stream) : stream_(stream) {}
  void launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) override;
  void call(const target::LibraryCall& call, std::span<void* const> buffers,
            std::span<const int64_t> symbols, void* workspace) override;
  void copy(void* dst, const void* src, int64_t bytes) override;
  void fill(void* dst, uint8_t byte, int64_t bytes) override;
  void read_back(void* host, const void* src, int64_t bytes) override;
  bool control_flow() const override { return false; }
  void while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                  const std::function<void(Recorder&)>& after) override;
  void if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
               const std::function<void(Recorder&)>& else_block) override;

 private:
  CudaStream& stream_;
};

// Runs functions in order with a stream, on a thread of its own: the stream waits for a word that
// the thread sets.
class HostRunner {
 public:
  ~HostRunner();
  void submit(CUevent event, uint32_t ticket, std::function<void()> f, CUcontext context);
  std::exception_ptr take_error();
  uint32_t* flag = nullptr;  // pinned, mapped
  CUdeviceptr device_flag = 0;
  uint32_t next = 0;

 private:
  struct Job {
    CUevent event;
    uint32_t ticket;
    std::function<void()> f;
    CUcontext context;
  };
  void loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

class CudaStream : public target::Stream {
 public:
  CudaStream(std::shared_ptr<CudaDevice> device, CUstream stream, bool owned);
  ~CudaStream() override;

  target::Recorder& recorder() override { return recorder_; }
  void copy_from_host(void* dst, const void* src, int64_t bytes) override;
  void copy_to_host(void* dst, const void* src, int64_t bytes) override;
  void synchronize() override;
  std::unique_ptr<target::Mark> mark() override;
  void run_on_host(std::function<void()> f) override;
  bool can_record() const override { return true; }
  std::unique_ptr<target::Recording> record(
      const std::function<void(target::Recorder&)>& body) override;
  bool update(target::Recording& recording,
              const std::function<void(target::Recorder&)>& body) override;
  void launch(target::Recording& recording) override;
  void* native() const override { return stream_; }

  CudaDevice& device() { return *device_; }
  CUstream handle() const { return stream_; }
  void* workspace() const { return reinterpret_cast<void*>(workspace_); }
  void* fault_record() const { return reinterpret_cast<void*>(workspace_ + kFaultAt); }
  // Remembers the kernel, so that a fault record can be told.
  void note_checked(std::shared_ptr<const FaultTable> table);

 private:
  struct Chunk {
    std::byte* host = nullptr;
    CUevent done = nullptr;  // of the copy that uses it
    bool busy = false;
  };
  Chunk& next_chunk();
  void check_faults();
  friend class CudaMark;
  bool tells_at_end();  // of work whose errors only synchronize() finds

  std::shared_ptr<CudaDevice> device_;
  CUstream stream_;
  bool owned_;
  StreamRecorder recorder_;
  CUdeviceptr workspace_ = 0;
  std::mutex staging_;
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;
  std::mutex state_;
  std::shared_ptr<const FaultTable> checked_;  // of the last launch with checks
  std::unique_ptr<HostRunner> host_;
};

// A call on a CUDA library: launched on a stream, or captured into a graph through one.
class CudaLibraryCall : public target::LibraryCall {
 public:
  virtual void run(CudaDevice& device, CUstream stream, std::span<void* const> buffers,
                   std::span<const int64_t> symbols, void* workspace) const = 0;
};

}  // namespace heddle::cuda
