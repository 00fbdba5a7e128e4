// Work recorded as a CUDA graph: a chain of nodes, with conditional nodes for control flow on the
// device.
#pragma once

#include "backend/cuda/stream.h"

#include <optional>
#include <vector>

namespace heddle::cuda {

enum class NodeKind : uint8_t { kernel, copy, fill, library, condition };

// One recorded command and what it was recorded with.
struct NodeRecord {
  NodeKind kind = NodeKind::kernel;
  CUgraphNode node = nullptr;
  bool nested = false;  // inside a conditional body
  CUfunction function = nullptr;
  unsigned grid = 0, block = 0, shared = 0;
  std::vector<uint64_t>
      words;  // parameters; addresses and sizes of copies and fills; buffers of a call
  const target::LibraryCall* call = nullptr;
};

// Kernels use the workspace of the stream that the recording is launched on, so that an idle
// recording holds none. Not every driver patches nodes inside conditional bodies: a recording with
// such has a workspace of its own.
class CudaRecording : public target::Recording {
 public:
  // `workspace`: of a stream; null: its own.
  CudaRecording(std::shared_ptr<CudaDevice> device, void* workspace);
  ~CudaRecording() override;

  void instantiate();
  void launch(CudaStream& stream);
  bool has_conditions() const;
  // Gives a kernel's node what its record says.
  CUresult patch(NodeRecord& record);

  CudaDevice& device() { return *device_; }
  CUgraph graph() const { return graph_; }
  CUgraphExec exec() const { return exec_; }
  void* workspace() const { return reinterpret_cast<void*>(workspace_); }
  std::vector<NodeRecord> nodes;

 private:
  std::shared_ptr<CudaDevice> device_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  void bind(void* workspace);

  CUdeviceptr workspace_ = 0;
  bool owns_workspace_ = false;
};

// Adds commands to a graph (or a conditional body of it), each after the one before.
class GraphRecorder : public target::Recorder {
 public:
  GraphRecorder(CudaRecording& recording, CUgraph graph, bool nested)
      : recording_(recording), graph_(graph), nested_(nested) {}
  void launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) override;
  void call(const target::LibraryCall& call, std::span<void* const> buffers,
            std::span<const int64_t> symbols, void* workspace) override;
  void copy(void* dst, const void* src, int64_t bytes) override;
  void fill(void* dst, uint8_t byte, int64_t bytes) override;
  void read_back(void* host, const void* src, int64_t bytes) override;
  bool control_flow() const override { return true; }
  void while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                  const std::function<void(Recorder&)>& after) override;
  void if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
               const std::function<void(Recorder&)>& else_block) override;

 private:
  CUgraphNode add(CUgraphNodeParams& params, const std::string& step);
  NodeRecord& note(NodeKind kind, CUgraphNode node);
  void set_condition(CUgraphConditionalHandle handle, const void* predicate);
  CUgraphConditionalHandle new_handle();

  CudaRecording& recording_;
  CUgraph graph_;
  bool nested_;
  CUgraphNode last_ = nullptr;
};

// Replays commands against a recording and patches what differs. `same` turns false where that is
// not possible.
class GraphUpdater : public target::Recorder {
 public:
  explicit GraphUpdater(CudaRecording& recording) : recording_(recording) {}
  bool finish() const { return same_ && at_ == recording_.nodes.size(); }
  void launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) override;
  void call(const target::LibraryCall& call, std::span<void* const> buffers,
            std::span<const int64_t> symbols, void* workspace) override;
  void copy(void* dst, const void* src, int64_t bytes) override;
  void fill(void* dst, uint8_t byte, int64_t bytes) override;
  void read_back(void* host, const void* src, int64_t bytes) override;
  bool control_flow() const override { return true; }
  void while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                  const std::function<void(Recorder&)>& after) override;
  void if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
               const std::function<void(Recorder&)>& else_block) override;

 private:
  NodeRecord* next(NodeKind kind);
  void condition(const void* predicate);
  void patched(CUresult code);

  CudaRecording& recording_;
  size_t at_ = 0;
  bool same_ = true;
};

}  // namespace heddle::cuda
