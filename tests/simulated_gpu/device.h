// A GPU that is this process: device memory is host memory, each stream is a thread, a kernel is
// the interpreter's run of its loop nests. It is loaded in place of libcuda.so.1 and knows what
// Heddle calls of the driver, with the driver's own rules: work is asynchronous, parameters are
// copied when it is given, addresses of a graph are fixed when it is instantiated, memory is not
// zero, and a fault of the work is told by every call that comes after it.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend_cuda/simulated_code.h"
#include "target/host_kernel.h"

namespace heddle::simulated {

using Work = std::function<void()>;  // throws std::exception: a fault of the device

// ---- faults (memory.cpp)

// The first one stays: the device is lost. It is also written to stderr.
void fault(const std::string& text);
CUresult state();  // CUDA_SUCCESS, or the code of the fault
// Runs work that the device does; a throw becomes the fault. Nothing runs after a fault.
void perform(const Work& work);

// ---- memory (memory.cpp)

// Throws std::runtime_error where the bytes are no memory that was allocated; `what` is named.
void check_memory(const void* pointer, size_t bytes, const char* what);
bool is_pinned(const void* pointer);

// ---- streams (streams.cpp)

struct Graph;

// A point in the work of a stream: done once the ticket is reached.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t recorded = 0, reached = 0;
  void reach(uint64_t ticket);
  void wait(uint64_t ticket);
};

class Stream {
 public:
  Stream();
  ~Stream();
  // In order; while the stream is captured, a node of the graph.
  void give(Work work);
  void synchronize();
  void capture(Graph* graph, CUgraphNode tail);
  Graph* captured() const { return graph_; }
  CUgraphNode* tail() { return &tail_; }

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  bool stop_ = false, busy_ = false;
  Graph* graph_ = nullptr;
  CUgraphNode tail_ = nullptr;
  std::thread thread_;
};
Stream& stream_of(CUstream stream);
void synchronize_all();

// ---- kernels (modules.cpp)

// A function of a module, and what its launches must look like.
struct Function {
  std::string name;
  std::shared_ptr<const target::HostKernel> kernel;
  // Without a kernel: a function written by hand, else what sets the condition of a graph.
  std::shared_ptr<const test::SimulatedCode> code;
  size_t words = 0;                                          // parameters of such a function
  std::map<std::string, std::shared_ptr<Function>> entries;  // of a module of such functions
  size_t buffers = 0, symbols = 0;
  unsigned block = 1, shared = 0;
  bool cooperative = false;
  // Checks launches and runs them.
  std::function<void(const std::vector<void*>& buffers, const std::vector<int64_t>& symbols,
                     unsigned* fault_record)>
      run;
};

// A launch with its parameters as they were when it was given.
struct Launch {
  const Function* function = nullptr;
  unsigned grid = 0, block = 0, shared = 0;
  bool cooperative = false;
  std::vector<void*> buffers;
  std::vector<int64_t> symbols;
  std::vector<uintptr_t> words;
  unsigned* fault_record = nullptr;
  unsigned* condition = nullptr;  // of the function without a kernel; its predicate is buffers[0]
  void read_parameters(void** parameters);
  void run() const;
};

// ---- graphs (graphs.cpp)

// Adds work of a captured stream after `tail` and moves it there.
void add_captured(Graph& graph, CUgraphNode* tail, Work work);

}  // namespace heddle::simulated
