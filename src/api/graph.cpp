// Graph: compiling, and running with a cache of executables bounded by bytes.
#include <heddle/graph.h>

#include "base/check.h"
#include "base/env.h"
#include "base/hash.h"
#include "runtime/executable.h"

#include <heddle/error.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>

namespace heddle {

namespace {

// What tells one executable of Graph::run from another.
struct RunKey {
  const target::Device* device = nullptr;
  std::vector<uint32_t> feeds, targets, operations;
  std::vector<std::pair<DType, std::vector<int64_t>>>
      open_types;  // fed types of placeholders that left them open
  auto operator<=>(const RunKey&) const = default;
};

constexpr int64_t kDefaultCacheLimit = int64_t{1} << 30;  // bytes

// Lives in ir::Graph::attachment.
struct GraphState {
  struct Entry {
    RunKey key;
    Executable executable;
    int64_t bytes = 0;
  };
  std::mutex mutex;
  std::map<const target::Device*, std::shared_ptr<runtime::VariableState>> variables;
  std::mutex compile_mutex;  // one compilation at a time for Graph::run: a key is compiled once
  std::list<Entry> recent;   // most recently used first
  std::map<RunKey, std::list<Entry>::iterator> entries;
  GraphCacheStats stats;
  int64_t limit = kDefaultCacheLimit;

  std::shared_ptr<runtime::VariableState> variables_of(
      const std::shared_ptr<target::Device>& device) {
    std::lock_guard lock(mutex);
    std::shared_ptr<runtime::VariableState>& state = variables[device.get()];
    if (!state) state = std::make_shared<runtime::VariableState>(device);
    return state;
  }

  std::optional<Executable> find(const RunKey& key) {
    std::lock_guard lock(mutex);
    auto it = entries.find(key);
    if (it == entries.end()) return std::nullopt;
    ++stats.hits;
    recent.splice(recent.begin(), recent, it->second);
    return it->second->executable;
  }

  void add(RunKey key, const Executable& executable) {
    std::lock_guard lock(mutex);
    ++stats.compiles;
    recent.push_front({key, executable, executable.impl()->bytes});
    entries.emplace(std::move(key), recent.begin());
    stats.bytes += recent.front().bytes;
    base::verbose("cache", base::cat("graph cache: executable ", entries.size(), " of ",
                                     recent.front().bytes, " bytes"));
    shrink();
  }

  // The newest entry stays even where it alone is above the limit.
  void shrink() {
    while (stats.bytes > limit && recent.size() > 1) {
      stats.bytes -= recent.back().bytes;
      entries.erase(recent.back().key);
      recent.pop_back();
      ++stats.evictions;
    }
    stats.entries = static_cast<int64_t>(entries.size());
  }
};

GraphState& state_of(ir::Graph& graph) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!graph.attachment) graph.attachment = std::make_shared<GraphState>();
  return *static_cast<GraphState*>(graph.attachment.get());
}

Type type_of(const Array& array) {
  return Type{array.dtype(), Shape(array.shape().begin(), array.shape().end())};
}

RunKey make_key(const std::shared_ptr<ir::Graph>& graph,
                const std::vector<std::pair<Tensor, Array>>& feeds,
                const std::vector<Tensor>& targets, const std::vector<Operation>& operations,
                const Device& device) {
  RunKey key;
  key.device = device.impl().get();
  for (size_t i = 0; i < feeds.size(); ++i) {
    const auto& [tensor, array] = feeds[i];
    if (!tensor.valid()) throw GraphError(base::cat("run: feed ", i, " is an empty Tensor"));
    if (tensor.graph() != graph)
      throw GraphError(base::cat("run: feed ", i, " belongs to another graph"));
    key.feeds.push_back(tensor.id());
    if (!tensor.type().known()) {
      if (!array.valid()) throw GraphError(base::cat("run: feed ", i, ": the array holds no data"));
      key.open_types.emplace_back(array.dtype(), array.shape());
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!targets[i].valid()) throw GraphError(base::cat("run: target ", i, " is an empty Tensor"));
    if (targets[i].graph() != graph)
      throw GraphError(base::cat("run: target ", i, " belongs to another graph"));
    key.targets.push_back(targets[i].id());
  }
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].graph() == nullptr)
      throw GraphError(base::cat("run: operation ", i, " is an empty Operation"));
    if (operations[i].graph() != graph)
      throw GraphError(base::cat("run: operation ", i, " belongs to another graph"));
    key.operations.push_back(operations[i].id());
  }
  return key;
}

}  // namespace

Executable Graph::compile(const CompileSpec& spec, const Device& device,
                          const CompileOptions& options) {
  return Executable(
      runtime::compile(impl_, spec, device, options, state_of(*impl_).variables_of(device.impl())));
}

std::vector<Array> Graph::run(const std::vector<std::pair<Tensor, Array>>& feeds,
                              const std::vector<Tensor>& targets,
                              const std::vector<Operation>& operations, const Device& device) {
  GraphState& state = state_of(*impl_);
  RunKey key = make_key(impl_, feeds, targets, operations, device);
  std::vector<Array> inputs;
  for (const auto& [tensor, array] : feeds) inputs.push_back(array);
  std::optional<Executable> executable = state.find(key);
  if (!executable) {
    std::lock_guard lock(state.compile_mutex);
    executable = state.find(key);
    if (!executable) {
      CompileSpec spec;
      for (const auto& [tensor, array] : feeds) {
        if (tensor.type().known()) {
          spec.feeds.emplace_back(tensor);
        } else {
          spec.feeds.emplace_back(tensor, type_of(array));
        }
      }
      spec.targets = targets;
      spec.operations = operations;
      executable = compile(spec, device);
      state.add(std::move(key), *executable);
    }
  }
  return executable->run(inputs);
}

GraphCacheStats Graph::cache_stats() const {
  GraphState& state = state_of(*impl_);
  std::lock_guard lock(state.mutex);
  return state.stats;
}

void Graph::set_cache_limit(int64_t bytes) {
  if (bytes < 0)
    throw GraphError(base::cat("set_cache_limit: ", bytes, " bytes, expected at least 0"));
  GraphState& state = state_of(*impl_);
  std::lock_guard lock(state.mutex);
  state.limit = bytes;
  state.shrink();
}

void Graph::clear_cache() {
  GraphState& state = state_of(*impl_);
  std::lock_guard lock(state.mutex);
  state.stats.evictions += static_cast<int64_t>(state.entries.size());
  state.entries.clear();
  state.recent.clear();
  state.stats.bytes = state.stats.entries = 0;
}

}  // namespace heddle
