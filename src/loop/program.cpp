#include "loop/program.h"

#include <algorithm>

namespace heddle::loop {

ExprProgram::ExprProgram(const Expr& e, const std::unordered_map<uint64_t, uint32_t>& slots) {
  flatten(e, slots);
}

void ExprProgram::flatten(const Expr& e, const std::unordered_map<uint64_t, uint32_t>& slots) {
  if (e.kind() == ExprKind::constant) {
    steps_.push_back({ExprKind::constant, *e.constant()});
    return;
  }
  if (e.kind() == ExprKind::symbol) {
    auto it = slots.find(e.symbol()->id);
    HD_CHECK(it != slots.end(), "kernel uses the unbound symbol ", e.symbol()->name);
    steps_.push_back({ExprKind::symbol, it->second});
    return;
  }
  for (const Expr& o : e.operands()) flatten(o, slots);
  steps_.push_back({e.kind(), static_cast<int64_t>(e.operands().size())});
}

int64_t ExprProgram::eval(const std::vector<int64_t>& slots) const {
  if (steps_.size() == 1) {
    const Step& s = steps_[0];
    return s.kind == ExprKind::constant ? s.value : slots[static_cast<size_t>(s.value)];
  }
  thread_local std::vector<int64_t> stack;
  stack.clear();
  for (const Step& s : steps_) {
    if (s.kind == ExprKind::constant) {
      stack.push_back(s.value);
      continue;
    }
    if (s.kind == ExprKind::symbol) {
      stack.push_back(slots[static_cast<size_t>(s.value)]);
      continue;
    }
    auto n = static_cast<size_t>(s.value);
    size_t base = stack.size() - n;
    int64_t v = stack[base];
    for (size_t k = 1; k < n; ++k) {
      int64_t o = stack[base + k];
      switch (s.kind) {
        case ExprKind::add:
          v += o;
          break;
        case ExprKind::mul:
          v *= o;
          break;
        case ExprKind::min:
          v = std::min(v, o);
          break;
        case ExprKind::max:
          v = std::max(v, o);
          break;
        default: {
          HD_CHECK(o != 0, "index expression divides by zero");
          int64_t r = v % o;
          int64_t m = r != 0 && (r < 0) != (o < 0) ? r + o : r;
          v = s.kind == ExprKind::mod ? m : (v - m) / o;
        }
      }
    }
    stack.resize(base);
    stack.push_back(v);
  }
  return stack.back();
}

uint32_t KernelProgram::slot(const SymbolRef& symbol) {
  auto [it, fresh] = slots_.emplace(symbol->id, slot_count);
  if (fresh) ++slot_count;
  return it->second;
}

AxisProgram KernelProgram::axis(const ir::Axis& a) {
  AxisProgram p;
  p.extent = ExprProgram(a.extent, slots_);
  p.slot = slot(a.var);
  p.kind = a.kind;
  return p;
}

PhaseProgram KernelProgram::phase(const ir::Phase& from) {
  PhaseProgram p;
  for (const ir::Axis& a : from.inner) p.inner.push_back(axis(a));
  p.scanned = !from.inner.empty() && from.inner.back().kind == ir::AxisKind::scan;
  p.nodes = from.body.nodes;
  for (const SymbolRef& s : from.body.symbols) {
    p.bind_slots.push_back(slot(s));
    p.lower.push_back(s->lower);
    p.upper.push_back(s->upper);
  }
  for (ir::Node& n : p.nodes) {
    if (n.op == ir::ScalarOp::constant) n.bits = canonical(n.type, n.bits).bits;
    if (n.op == ir::ScalarOp::scan) {
      p.scans.push_back({from.body.scans[n.payload].op, n.type});
      n.payload = static_cast<uint32_t>(p.scans.size() - 1);
    }
  }
  for (const Expr& e : from.body.exprs) p.exprs.emplace_back(e, slots_);
  for (const ir::Access& a : from.body.accesses) {
    AccessProgram access{a.buffer, {}};
    for (const Expr& e : a.coords) access.coords.emplace_back(e, slots_);
    p.accesses.push_back(std::move(access));
  }
  p.rows = from.body.rows;
  p.stores = from.body.stores;
  p.reductions = from.reductions;
  return p;
}

std::vector<StmtProgram> KernelProgram::stmts(const std::vector<ir::Stmt>& list) {
  std::vector<StmtProgram> out;
  for (const ir::Stmt& s : list) {
    StmtProgram p;
    p.kind = s.kind;
    p.barrier = s.barrier;
    if (s.kind == ir::StmtKind::nest) {
      NestProgram nest;
      for (const ir::Axis& a : s.nest->outer) nest.outer.push_back(axis(a));
      for (const ir::Phase& ph : s.nest->phases) nest.phases.push_back(phase(ph));
      p.nest = static_cast<uint32_t>(nests.size());
      nests.push_back(std::move(nest));
    }
    p.first = stmts(s.first);
    p.second = stmts(s.second);
    p.predicate = s.predicate;
    p.counter = s.counter;
    p.a = s.a;
    p.b = s.b;
    p.has_count_buffer = s.has_count_buffer;
    p.count = ExprProgram(s.count, slots_);
    out.push_back(std::move(p));
  }
  return out;
}

KernelProgram::KernelProgram(const ir::Kernel& kernel) : name(kernel.name) {
  for (const SymbolRef& s : kernel.symbols) argument_slots.push_back(slot(s));
  // A row_local's extents may name loop symbols, known only where it is used: its program is made
  // after the nests.
  body = stmts(kernel.body);
  for (const ir::Buffer& b : kernel.buffers) {
    BufferProgram p{b.name, b.dtype, b.role, b.extents, {}};
    for (const Expr& e : b.extents) p.extent_programs.emplace_back(e, slots_);
    buffers.push_back(std::move(p));
  }
}

}  // namespace heddle::loop
