#include "loop/named_blocks.h"

#include "loop/unify.h"

#include <map>

namespace heddle::loop {

namespace {

class Renamer {
 public:
  void find(const std::vector<ir::Stmt>& list);
  bool any() const { return !sizes_.empty(); }
  std::vector<ir::Stmt> stmts(const std::vector<ir::Stmt>& list);
  Expr expr(const Expr& e);

 private:
  void find(const std::vector<ir::Axis>& axes);
  SymbolRef symbol(const SymbolRef& s);
  void axes(std::vector<ir::Axis>& list);
  void phase(ir::Phase& p);

  std::vector<std::pair<Expr, Expr>> sizes_;  // what it is, its name
  std::map<uint64_t, SymbolRef> symbols_;     // loops whose extent holds one
};

// An axis inside of blocks has min(size of a block, what is left) points.
void Renamer::find(const std::vector<ir::Axis>& axes) {
  for (const ir::Axis& a : axes) {
    if (a.extent.kind() != ExprKind::min) continue;
    for (const Expr& size : a.extent.operands()) {
      if (size.kind() != ExprKind::max || !only_uses(size, {}, {}) || size.lower() < 1) continue;
      bool known = false;
      for (const auto& [from, to] : sizes_) known = known || from == size;
      if (known) continue;
      SymbolRef name =
          make_symbol(SymbolKind::extent, size.to_string(), size.lower(), size.upper());
      sizes_.emplace_back(size, Expr(name));
    }
  }
}

void Renamer::find(const std::vector<ir::Stmt>& list) {
  for (const ir::Stmt& s : list) {
    find(s.first);
    find(s.second);
    if (s.nest == nullptr) continue;
    for (const ir::Phase& p : s.nest->phases) find(p.inner);
  }
}

Expr Renamer::expr(const Expr& e) {
  for (const auto& [size, name] : sizes_) {
    if (e == size) return name;
  }
  if (e.kind() == ExprKind::symbol) return Expr(symbol(e.symbol()));
  if (e.operands().empty()) return e;
  std::vector<Expr> operands;
  for (const Expr& o : e.operands()) operands.push_back(expr(o));
  return combined(e.kind(), operands);
}

SymbolRef Renamer::symbol(const SymbolRef& s) {
  if (s->extent == nullptr) return s;
  auto [it, fresh] = symbols_.try_emplace(s->id, s);
  if (!fresh) return it->second;
  Expr extent = expr(*s->extent);
  if (extent == *s->extent) return s;
  SymbolRef renamed =
      make_symbol(s->kind, s->name, s->lower, s->upper, std::make_shared<const Expr>(extent));
  symbols_[s->id] = renamed;
  return renamed;
}

void Renamer::axes(std::vector<ir::Axis>& list) {
  for (ir::Axis& a : list) a = {symbol(a.var), expr(a.extent), a.kind};
}

void Renamer::phase(ir::Phase& p) {
  axes(p.inner);
  for (SymbolRef& s : p.body.symbols) s = symbol(s);
  for (Expr& e : p.body.exprs) e = expr(e);
  for (ir::Access& a : p.body.accesses) {
    for (Expr& e : a.coords) e = expr(e);
  }
}

std::vector<ir::Stmt> Renamer::stmts(const std::vector<ir::Stmt>& list) {
  std::vector<ir::Stmt> out = list;
  for (ir::Stmt& s : out) {
    s.first = stmts(s.first);
    s.second = stmts(s.second);
    s.count = expr(s.count);
    if (s.nest == nullptr) continue;
    ir::Nest n = *s.nest;
    axes(n.outer);
    for (ir::Phase& p : n.phases) phase(p);
    s.nest = std::make_shared<const ir::Nest>(std::move(n));
  }
  return out;
}

}  // namespace

ir::Kernel with_named_blocks(const ir::Kernel& kernel) {
  Renamer r;
  r.find(kernel.body);
  if (!r.any()) return kernel;
  ir::Kernel out = kernel;
  for (ir::Buffer& b : out.buffers) {
    for (Expr& e : b.extents) e = r.expr(e);
  }
  out.body = r.stmts(kernel.body);
  return out;
}

}  // namespace heddle::loop
