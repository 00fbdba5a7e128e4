// Collects a kernel's buffers, bindings and symbols while its nests are built.
#pragma once

#include "loop/element.h"
#include "loop/schedule.h"
#include "loop/unify.h"

#include <map>
#include <string>
#include <vector>

namespace heddle::loop {

class KernelBuilder {
 public:
  explicit KernelBuilder(const ir::Graph& graph) : graph_(graph) {}

  // The buffer of a graph value: an input until it is written.
  ir::BufferId input(ir::ValueId v);
  ir::BufferId output(ir::ValueId v);
  ir::BufferId scratch(std::string name, DType dtype, std::vector<Expr> extents);
  ir::BufferId local(std::string name, DType dtype, std::vector<Expr> extents, ir::BufferRole role);
  const Type& type(ir::ValueId v) const { return graph_.value(v).type; }
  const ir::Graph& graph() const { return graph_; }

  void set_locations(std::vector<std::string> locations) { locations_ = std::move(locations); }
  void add(ir::Nest nest);
  void barrier();
  void set_body(std::vector<ir::Stmt> body) { kernel_.body = std::move(body); }
  const ir::Buffer& at(ir::BufferId b) const { return kernel_.buffers[b]; }

  // Fills in the symbols, checks the invariants.
  BoundKernel finish(std::string name, std::vector<std::string> notes);

 private:
  ir::BufferId buffer(ir::ValueId v, ir::BufferRole role);
  const ir::Graph& graph_;
  ir::Kernel kernel_;
  std::vector<std::string> locations_;
  std::vector<ir::ValueId> values_;  // of each buffer, kNone: scratch or local
  std::map<ir::ValueId, ir::BufferId> of_value_;
};

// The symbols that a kernel's expressions use without binding them, in order of first use.
std::vector<SymbolRef> free_symbols(const ir::Kernel& kernel);
std::vector<ir::Axis> to_axes(const std::vector<LoopAxis>& axes, ir::AxisKind kind);

}  // namespace heddle::loop
