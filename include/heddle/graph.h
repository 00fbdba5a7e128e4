// Graph: what the user says. Executable: what runs.
#pragma once

#include <heddle/array.h>
#include <heddle/device.h>
#include <heddle/tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

struct Feed {
  Tensor tensor;
  std::optional<Type> type;  // given: overrides the placeholder's, and re-infers its users
  Feed(Tensor t) : tensor(std::move(t)) {}  // NOLINT(google-explicit-constructor)
  Feed(Tensor t, Type fed) : tensor(std::move(t)), type(std::move(fed)) {}
};

struct CompileSpec {
  std::vector<Feed> feeds = {};
  std::vector<Tensor> targets = {};        // fetched, in this order
  std::vector<Operation> operations = {};  // run for their effect
};

enum class LoopRecording : uint8_t { automatic, host, device_graph, single_kernel };

struct CompileOptions {
  int threads = 0;             // 0: by the work; 1: everything on the caller's thread
  bool fusion = true;          // false: one op a kernel (HEDDLE_FUSION=off)
  bool deterministic = false;  // refuses claims that cannot promise the same bits
  bool autotune = false;
  bool check_bounds = false;  // emitters check every access (HEDDLE_CHECK=bounds)
  bool claims = true;         // false: own kernels only
  LoopRecording loops = LoopRecording::automatic;
};

class Executable;
class CommandBuffer;

struct RunOptions {
  const Queue* queue = nullptr;  // default: the device's own
  std::vector<std::pair<Event, uint64_t>> wait_for = {}, signal = {};
  std::function<void(std::vector<Array>, std::exception_ptr)> completion =
      {};  // run_async: called once, from a helper thread
};

struct GraphCacheStats {
  int64_t compiles = 0, hits = 0, entries = 0, bytes = 0, evictions = 0;
};

namespace ir {
class Graph;
}

// Threads may build, compile and run one graph at the same time: what one adds is complete before
// another goes on, and a block (of cond, for_loop, ..., with_dependencies) is built as a whole, so
// a block must not wait for another thread that builds in the same graph. Handles that another
// thread made are passed on as any data are.
class Graph {
 public:
  Graph();
  explicit Graph(std::shared_ptr<ir::Graph> impl);

  Tensor placeholder(DType dtype, Shape shape, std::string name = "");
  Tensor placeholder(Type type, std::string name);  // dtype or shape may be open
  Tensor constant(const Array& data);               // copies
  Tensor constant(double value, DType dtype = f32, const Shape& shape = {});
  Tensor constant(int64_t value, DType dtype, const Shape& shape = {});
  // A value that persists between runs, per (graph, device).
  Tensor variable(const Array& initial, std::string name = "");
  template <std::integral T>
  Tensor constant(T value, DType dtype, const Shape& shape = {});

  // What can be fed: in order, the arguments of a graph read from text, then placeholders.
  std::vector<Tensor> placeholders() const;
  // The tensor with this name; GraphError where there is none, or several. Names inside blocks do
  // not count.
  Tensor find(std::string_view name) const;
  // What the graph yields: the targets of a graph read from text; none where a program builds it.
  std::vector<Tensor> targets() const;
  // What changes variables, outside of blocks: assigns, and loops and branches that hold some; in
  // program order. With these a graph that was read can be run:
  //
  //   Graph g = Graph::from_text(text);
  //   g.compile({.feeds = {g.find("x")}, .targets = g.targets(), .operations = g.operations()});
  std::vector<Operation> operations() const;

  Executable compile(const CompileSpec& spec, const Device& device = default_device(),
                     const CompileOptions& options = {});
  // Compiles on first use; executables are kept in a cache bounded by bytes.
  std::vector<Array> run(const std::vector<std::pair<Tensor, Array>>& feeds,
                         const std::vector<Tensor>& targets,
                         const std::vector<Operation>& operations = {},
                         const Device& device = default_device());
  GraphCacheStats cache_stats() const;
  void set_cache_limit(int64_t bytes);
  void clear_cache();

  std::string to_text() const;
  static Graph from_text(std::string_view text);  // GraphError with line and column
  uint64_t structural_hash() const;
  void verify() const;  // InternalError names the broken invariant
  const std::shared_ptr<ir::Graph>& impl() const { return impl_; }

 private:
  std::shared_ptr<ir::Graph> impl_;
};

template <std::integral T>
Tensor Graph::constant(T value, DType dtype, const Shape& shape) {
  // All 64 bits of u64 can be said in an int64_t.
  if (std::in_range<int64_t>(value) || dtype == u64)
    return constant(static_cast<int64_t>(value), dtype, shape);
  return constant(static_cast<double>(value), dtype, shape);
}

// Immutable and thread-safe. Inputs and results are in the order of the spec.
class Executable {
 public:
  Executable() = default;
  std::vector<Array> run(const std::vector<Array>& inputs, const RunOptions& options = {}) const;
  // Results go to the given arrays (any strides; dtype and shape must match).
  void run_into(const std::vector<Array>& inputs, const std::vector<Array>& outputs,
                const RunOptions& options = {}) const;
  // Returns at once. Reading a result waits for the run and throws its error (Array::wait); feeding
  // it to another run, on any queue, orders the two.
  std::vector<Array> run_async(const std::vector<Array>& inputs, const RunOptions& options) const;
  void encode(CommandBuffer& buffer, const std::vector<Array>& inputs,
              const std::vector<Array>& outputs) const;

  std::vector<Type> input_types() const;
  std::vector<Type> output_types() const;
  std::vector<Type> output_types(const std::vector<Type>& inputs) const;  // for these fed types
  std::string describe() const;  // kernels, bytes, operations, claims and why
  int kernel_count() const;      // kernels of the plan, regions included
  Device device() const;
  struct Impl;
  explicit Executable(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// Records runs, then commits them together, in order, on one queue.
class CommandBuffer {
 public:
  explicit CommandBuffer(const Queue& queue);
  void commit();  // once
  void wait();    // for the queue; GraphError before commit()
  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Process-wide counters, for tests and describe().
struct RuntimeCounters {
  int64_t graph_compiles = 0, kernel_compiles = 0, kernel_cache_hits = 0, driver_calls = 0,
          launches = 0;
};
RuntimeCounters counters();

}  // namespace heddle
