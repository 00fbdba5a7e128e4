// What a device must offer. No vendor's header, no operation's name.
#pragma once

#include "ir/graph.h"
#include "ir/kernel.h"

#include <heddle/array.h>
#include <heddle/device.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace heddle::target {

// What code is generated for; needs no live device.
struct DeviceDescription {
  std::string kind;  // "cpu", "cuda", "judge"
  std::string arch;  // "x86-64-v4", "x86-64-v3", "sm_90"
  std::map<std::string, std::string>
      features;        // "name", "driver", library versions: part of cache keys
  int processors = 1;  // threads, or multiprocessors
  int64_t shared_memory = 0, l2_bytes = 0;  // per block; whole device
  int vector_bytes = 32;
};

struct EmitOptions {
  bool check_bounds = false;
  int threads = 0;
};

struct KernelArgs {
  std::span<void* const> buffers;    // in the order of Kernel::buffers without the locals
  std::span<const int64_t> symbols;  // in the order of Kernel::symbols
};

class CompiledKernel {  // immutable, shared between threads
 public:
  virtual ~CompiledKernel() = default;
  virtual std::string code() const = 0;  // source or assembly, for HEDDLE_DUMP=code
  virtual int64_t code_bytes() const = 0;
};

class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual std::shared_ptr<const CompiledKernel> compile(const ir::Kernel& kernel,
                                                        const EmitOptions& options) = 0;
};

// An op that a library runs. Stateless between runs, thread-safe.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  virtual std::string describe() const = 0;  // "oneDNN matmul f32"
  virtual int64_t workspace_bytes(std::span<const int64_t> symbols) const = 0;
};
struct ClaimOffer {
  std::shared_ptr<const LibraryCall> call;
  std::vector<ir::ValueId> inputs, outputs;  // graph values, packed row-major
  std::vector<SymbolRef> symbols;            // extents that the call wants at run time
  std::vector<ir::OpId> absorbed;            // further ops computed by the call
  double cost = 0;                           // estimated microseconds
  bool deterministic = true, recordable = true;
  // Why kernels are as fast at this size, which the call could compute; empty: it is worth taking.
  std::string too_small;
};
struct Refusal {
  std::string reason;
};
using ClaimResult = std::variant<ClaimOffer, Refusal>;
struct Claim {
  std::string name;  // "oneDNN.matmul"
  std::string op;    // root
  std::function<ClaimResult(const ir::Graph&, ir::OpId)> offer;
};

// The one way to give work to a device: in order on a stream, or into a device graph.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void launch(const CompiledKernel& kernel, const KernelArgs& args) = 0;
  virtual void call(const LibraryCall& call, std::span<void* const> buffers,
                    std::span<const int64_t> symbols, void* workspace) = 0;
  virtual void copy(void* dst, const void* src, int64_t bytes) = 0;  // same device, not overlapping
  virtual void fill(void* dst, uint8_t byte, int64_t bytes) = 0;
  // Host-driven control flow: waits for the work so far and reads. UnsupportedError while recording
  // a graph.
  virtual void read_back(void* host, const void* src, int64_t bytes) = 0;
  // Control flow on the device's own timeline; only where control_flow() is true. `predicate`: one
  // boolean on the device.
  virtual bool control_flow() const = 0;
  virtual void while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                          const std::function<void(Recorder&)>& after) = 0;
  virtual void if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
                       const std::function<void(Recorder&)>& else_block) = 0;
};

// A recorded device graph that can be launched again on other addresses of the same sizes.
class Recording {
 public:
  virtual ~Recording() = default;
};

// A point in the work of a stream. Not used after the stream has gone.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual void wait() = 0;  // rethrows DeviceError of the work before it
};

class Stream {  // work in order
 public:
  virtual ~Stream() = default;
  virtual Recorder& recorder() = 0;
  virtual void copy_from_host(void* dst, const void* src,
                              int64_t bytes) = 0;  // src is free on return
  virtual void copy_to_host(void* dst, const void* src, int64_t bytes) = 0;  // waits
  virtual void synchronize() = 0;  // rethrows DeviceError of the work
  // After all work given so far; null: only synchronize() tells.
  virtual std::unique_ptr<Mark> mark() { return nullptr; }
  virtual void run_on_host(std::function<void()> f) = 0;  // in order with the work, never on the
                                                          // thread that gave the work
  // Threads that host kernels and library calls given from now on may use; 0: by the work.
  virtual void limit_threads(int /*threads*/) {}
  virtual bool can_record() const { return false; }
  virtual std::unique_ptr<Recording> record(const std::function<void(Recorder&)>& /*body*/) {
    return nullptr;
  }
  // `body` is replayed against the recording: same nodes, new addresses patched in place; false:
  // topology differs.
  virtual bool update(Recording& /*recording*/, const std::function<void(Recorder&)>& /*body*/) {
    return false;
  }
  virtual void launch(Recording& /*recording*/) {}
  virtual void* native() const { return nullptr; }
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual const DeviceDescription& description() const = 0;
  virtual std::string summary() const = 0;
  virtual bool host_memory() const = 0;  // buffers can be read by the host directly
  virtual void* allocate(
      int64_t bytes,
      Stream* stream) = 0;  // 256-byte aligned; DeviceError with requested, live, limit
  virtual void release(void* pointer, int64_t bytes, Stream* stream) noexcept = 0;
  virtual MemoryStats memory() const = 0;
  virtual void set_memory_limit(int64_t bytes) = 0;
  virtual void trim() = 0;
  virtual std::unique_ptr<Stream> create_stream() = 0;
  virtual std::unique_ptr<Stream> wrap_stream(void* native) = 0;
  virtual Emitter& emitter() = 0;
  virtual std::span<const Claim> claims() const = 0;
};

// The entry point of a backend's shared library libheddle_<name>.so, next to libheddle.so:
//   extern "C" const heddle::target::BackendEntry* heddle_backend_entry();
inline constexpr const char* kBackendEntry = "heddle_backend_entry";
struct BackendEntry {
  const char* core_build;  // HEDDLE_ABI_HASH of the backend's own build (generated/build_info.h)
                           // must equal core_build_id()
  const char* name;
  // Devices that work now, and reports for those that do not.
  std::vector<std::shared_ptr<Device>> (*devices)(std::vector<DeviceReport>& reports);
  // Code for a described device without having one (nullptr where unsupported).
  std::unique_ptr<Emitter> (*emitter)(const DeviceDescription& description);
};
using BackendEntryFunction = const BackendEntry* (*)();
const char* core_build_id();

}  // namespace heddle::target
