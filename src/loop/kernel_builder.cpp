#include "loop/kernel_builder.h"

#include "base/check.h"
#include "loop/prove.h"

#include <algorithm>
#include <set>

namespace heddle::loop {

using ir::BufferId;
using ir::BufferRole;
using ir::ValueId;

BufferId KernelBuilder::buffer(ValueId v, BufferRole role) {
  auto [it, fresh] = of_value_.try_emplace(v, static_cast<BufferId>(kernel_.buffers.size()));
  if (fresh) {
    const ir::Value& value = graph_.value(v);
    std::string name = value.name.empty() ? "v" + std::to_string(v) : value.name;
    kernel_.buffers.push_back(
        {name, memory_type(value.type.dtype), memory_extents(value.type), role});
    values_.push_back(v);
  }
  return it->second;
}

BufferId KernelBuilder::input(ValueId v) { return buffer(v, BufferRole::input); }
BufferId KernelBuilder::output(ValueId v) {
  BufferId b = buffer(v, BufferRole::output);
  kernel_.buffers[b].role = BufferRole::output;
  return b;
}
BufferId KernelBuilder::scratch(std::string name, DType dtype, std::vector<Expr> extents) {
  return local(std::move(name), dtype, std::move(extents), BufferRole::scratch);
}
BufferId KernelBuilder::local(std::string name, DType dtype, std::vector<Expr> extents,
                              BufferRole role) {
  kernel_.buffers.push_back({std::move(name), dtype, std::move(extents), role});
  values_.push_back(ir::kNone);
  return static_cast<BufferId>(kernel_.buffers.size() - 1);
}

void KernelBuilder::add(ir::Nest nest) {
  nest.locations = locations_;
  ir::Stmt s;
  s.kind = ir::StmtKind::nest;
  s.nest = std::make_shared<const ir::Nest>(std::move(nest));
  kernel_.body.push_back(std::move(s));
}

void KernelBuilder::barrier() {
  ir::Stmt s;
  s.kind = ir::StmtKind::barrier;
  s.barrier = ir::BarrierScope::grid;
  kernel_.body.push_back(std::move(s));
}

BoundKernel KernelBuilder::finish(std::string name, std::vector<std::string> notes) {
  kernel_.name = std::move(name);
  kernel_.symbols = free_symbols(kernel_);
  BoundKernel out;
  for (size_t k = 0; k < kernel_.buffers.size(); ++k) {
    BufferRole role = kernel_.buffers[k].role;
    if (role != BufferRole::scalar_local && role != BufferRole::row_local)
      out.bindings.push_back(values_[k]);
  }
  std::string broken = ir::verify(kernel_);
  HD_CHECK(broken.empty(), "scheduled kernel ", kernel_.name, ": ", broken, "\n",
           ir::print(kernel_));
  prove_scheduled(kernel_);
  out.kernel = std::move(kernel_);
  out.notes = std::move(notes);
  return out;
}

namespace {

class SymbolCollector {
 public:
  void expr(const Expr& e) {
    std::vector<SymbolRef> all;
    collect_symbols(e, all);
    for (const SymbolRef& s : all) {
      if (s->kind != SymbolKind::extent && s->kind != SymbolKind::defined) continue;
      if (seen_.insert(s->id).second) out_.push_back(s);
    }
  }
  void axes(const std::vector<ir::Axis>& list) {
    for (const ir::Axis& a : list) expr(a.extent);
  }
  void statements(const std::vector<ir::Stmt>& list) {
    for (const ir::Stmt& s : list) {
      expr(s.count);
      if (s.nest != nullptr) {
        axes(s.nest->outer);
        for (const ir::Phase& p : s.nest->phases) {
          axes(p.inner);
          for (const Expr& e : p.body.exprs) expr(e);
          for (const ir::Access& a : p.body.accesses) {
            for (const Expr& e : a.coords) expr(e);
          }
        }
      }
      statements(s.first);
      statements(s.second);
    }
  }
  std::vector<SymbolRef> take() { return std::move(out_); }

 private:
  std::set<uint64_t> seen_;
  std::vector<SymbolRef> out_;
};

}  // namespace

std::vector<SymbolRef> free_symbols(const ir::Kernel& kernel) {
  SymbolCollector c;
  for (const ir::Buffer& b : kernel.buffers) {
    for (const Expr& e : b.extents) c.expr(e);
  }
  c.statements(kernel.body);
  return c.take();
}

std::vector<ir::Axis> to_axes(const std::vector<LoopAxis>& axes, ir::AxisKind kind) {
  std::vector<ir::Axis> out;
  for (const LoopAxis& a : axes) out.push_back({a.var, a.extent, kind});
  return out;
}

}  // namespace heddle::loop
