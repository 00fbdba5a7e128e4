// Invariants of the kernel level.
#include "base/check.h"
#include "ir/kernel.h"

#include <set>

namespace heddle::ir {

namespace {

struct Broken {
  std::string what;
};
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw Broken{base::cat(parts...)};
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel) {
    for (const SymbolRef& s : kernel.symbols) scope_.insert(s->id);
    for (const Buffer& b : kernel.buffers) {
      require(b.dtype != DType::unknown && !is_storage_only(b.dtype) && !is_complex(b.dtype),
              "buffer-type: ", b.name, " has element type ", heddle::name(b.dtype));
      for (const Expr& e : b.extents) expr(e, "extent of a buffer");
      if (b.role == BufferRole::scalar_local)
        require(b.extents.empty(), "scalar-local: ", b.name, " has axes");
    }
    statements(kernel.body, 0);
  }

 private:
  void expr(const Expr& e, const char* where) {
    std::vector<SymbolRef> symbols;
    collect_symbols(e, symbols);
    for (const SymbolRef& s : symbols) {
      require(scope_.contains(s->id), "scope: ", where, " uses symbol ", s->name,
              " outside its scope");
    }
  }

  void buffer(BufferId id, const char* where) {
    require(id < kernel_.buffers.size(), "buffer-id: ", where, " names buffer ", id);
  }

  void access(const Access& a, bool write) {
    buffer(a.buffer, "access");
    const Buffer& b = kernel_.buffers[a.buffer];
    require(a.coords.size() == b.extents.size(), "access-rank: ", b.name, " has rank ",
            b.extents.size(), ", access ", a.coords.size());
    require(!write || b.role != BufferRole::input, "write-input: ", b.name);
    for (const Expr& e : a.coords) expr(e, "access");
  }

  void axes(const std::vector<Axis>& list, bool outer) {
    for (const Axis& axis : list) {
      expr(axis.extent, "extent of an axis");
      require(!outer || axis.kind == AxisKind::mapped, "outer-axis: not mapped");
      scope_.insert(axis.var->id);
    }
    for (size_t k = 0; k < list.size(); ++k) {
      require(list[k].kind != AxisKind::scan || k + 1 == list.size(),
              "scan-axis: must be the last inner axis");
    }
  }

  void node(const Nest& nest, size_t phase, const Body& b, NodeId id) {
    const Node& n = b.nodes[id];
    for (NodeId o : {n.a, n.b, n.c})
      require(o == kNoNode || o < id, "ssa-order: node ", id, " uses ", o);
    auto type = [&](NodeId o) { return o == kNoNode ? DType::unknown : b.nodes[o].type; };
    switch (n.op) {
      case ScalarOp::load:
        require(n.payload < b.accesses.size(), "payload: node ", id);
        access(b.accesses[n.payload], false);
        require(n.type == kernel_.buffers[b.accesses[n.payload].buffer].dtype, "load-type: node ",
                id);
        require((n.a == kNoNode) == (n.b == kNoNode), "load-mask: node ", id);
        require(n.a == kNoNode || (type(n.a) == bool_ && type(n.b) == n.type),
                "load-mask: types of node ", id);
        return;
      case ScalarOp::index:
        require(n.payload < b.exprs.size() && n.type == i64, "index: node ", id);
        expr(b.exprs[n.payload], "index");
        return;
      case ScalarOp::bind:
        require(n.payload < b.symbols.size() && type(n.a) == i64, "bind: node ", id);
        scope_.insert(b.symbols[n.payload]->id);
        return;
      case ScalarOp::row: {
        require(n.payload < b.rows.size(), "payload: node ", id);
        const RowRef& r = b.rows[n.payload];
        require(r.phase < phase && r.reduction < nest.phases[r.phase].reductions.size(),
                "row: node ", id);
        return;
      }
      case ScalarOp::scan:
        require(n.payload < b.scans.size() && type(n.a) == n.type, "scan: node ", id);
        require(!nest.phases[phase].inner.empty() &&
                    nest.phases[phase].inner.back().kind == AxisKind::scan,
                "scan: node ", id, " outside a scan axis");
        order(b.scans[n.payload].position, nest.phases[phase].inner,
              nest.phases[phase].inner.size() - 1, "a scan");
        return;
      case ScalarOp::select:
        require(type(n.a) == bool_ && type(n.b) == n.type && type(n.c) == n.type,
                "select: types of node ", id);
        return;
      case ScalarOp::cast:
      case ScalarOp::constant:
      case ScalarOp::call:
        return;
      case ScalarOp::bitcast:
        require(bit_width(type(n.a)) == bit_width(n.type), "bitcast: widths of node ", id);
        return;
      default:
        break;
    }
    require(type(n.a) != f16 && type(n.a) != bf16, "half-arithmetic: node ", id, " ", name(n.op));
    if (n.b != kNoNode)
      require(type(n.a) == type(n.b), "operand-types: node ", id, " ", name(n.op));
  }

  // Loops run in the order that the operation asks for, from a point on that may differ by block.
  void order(const std::optional<Expr>& position, const std::vector<Axis>& axes, size_t first,
             const char* what) {
    if (!position) return;
    expr(*position, "position");
    Expr at(0);
    for (size_t k = first; k < axes.size(); ++k) at = at * axes[k].extent + Expr(axes[k].var);
    Expr start = *position - at;
    for (const Axis& axis : axes) {
      require(!uses(start, *axis.var), "order: ", what, " asks for its elements in the order ",
              position->to_string(), ", its loops run through ", at.to_string());
    }
  }

  void nest(const Nest& n) {
    std::set<uint64_t> outside = scope_;
    axes(n.outer, true);
    for (size_t p = 0; p < n.phases.size(); ++p) {
      std::set<uint64_t> outer_scope = scope_;
      const Phase& phase = n.phases[p];
      axes(phase.inner, false);
      for (NodeId id = 0; id < phase.body.nodes.size(); ++id) node(n, p, phase.body, id);
      for (const Store& s : phase.body.stores) {
        require(s.access < phase.body.accesses.size() && s.value < phase.body.nodes.size(),
                "store: operands");
        access(phase.body.accesses[s.access], true);
        require(phase.body.nodes[s.value].type ==
                    kernel_.buffers[phase.body.accesses[s.access].buffer].dtype,
                "store-type: into ", kernel_.buffers[phase.body.accesses[s.access].buffer].name);
        require(s.mask == kNoNode || phase.body.nodes[s.mask].type == bool_, "store-mask: type");
      }
      for (const Reduction& r : phase.reductions) {
        require(r.value < phase.body.nodes.size(), "reduction: operand");
        require(phase.body.nodes[r.value].type == r.type, "reduction: type");
        require((r.op == ReduceOp::value) == phase.inner.empty(), "reduction: ", name(r.op),
                " over ", phase.inner.size(), " inner axes");
        order(r.position, phase.inner, 0, "an arg fold");
      }
      scope_ = outer_scope;
    }
    scope_ = outside;
  }

  void statements(const std::vector<Stmt>& list, int depth) {
    require(depth < 64, "depth: control nested too deeply");
    for (const Stmt& s : list) {
      switch (s.kind) {
        case StmtKind::nest:
          require(s.nest != nullptr, "nest: missing");
          nest(*s.nest);
          break;
        case StmtKind::swap: {
          buffer(s.a, "swap");
          buffer(s.b, "swap");
          const Buffer &a = kernel_.buffers[s.a], &b = kernel_.buffers[s.b];
          require(a.dtype == b.dtype && a.extents == b.extents, "swap: ", a.name, " and ", b.name,
                  " differ");
          break;
        }
        case StmtKind::for_loop:
          buffer(s.counter, "for");
          require(kernel_.buffers[s.counter].dtype == i64, "for: counter is not i64");
          if (s.has_count_buffer) {
            buffer(s.predicate, "for");
          } else {
            expr(s.count, "count of a loop");
          }
          break;
        case StmtKind::while_loop:
        case StmtKind::if_else:
          buffer(s.predicate, "control");
          require(kernel_.buffers[s.predicate].dtype == bool_, "predicate: not boolean");
          break;
        case StmtKind::barrier:
          break;
      }
      statements(s.first, depth + 1);
      statements(s.second, depth + 1);
    }
  }

  const Kernel& kernel_;
  std::set<uint64_t> scope_;
};

}  // namespace

std::string verify(const Kernel& kernel) {
  try {
    Verifier verifier(kernel);
  } catch (const Broken& broken) {
    return broken.what;
  }
  return "";
}

namespace {

Expr product(const std::vector<Axis>& axes) {
  Expr n(1);
  for (const Axis& a : axes) n = n * a.extent;
  return n;
}

void add_cost(const Kernel& kernel, const std::vector<Stmt>& list, std::set<BufferId>& read,
              std::set<BufferId>& written, KernelCost& total) {
  for (const Stmt& s : list) {
    add_cost(kernel, s.first, read, written, total);
    add_cost(kernel, s.second, read, written, total);
    if (s.kind != StmtKind::nest) continue;
    Expr rows = product(s.nest->outer);
    for (const Phase& phase : s.nest->phases) {
      total.points = total.points + rows * product(phase.inner);
      total.ops_per_point += static_cast<int64_t>(phase.body.nodes.size());
      for (const Node& n : phase.body.nodes) {
        if (n.op == ScalarOp::load) read.insert(phase.body.accesses[n.payload].buffer);
      }
      for (const Store& store : phase.body.stores)
        written.insert(phase.body.accesses[store.access].buffer);
    }
  }
}

}  // namespace

KernelCost cost(const Kernel& kernel) {
  KernelCost total{Expr(0), Expr(0), Expr(0), 0};
  std::set<BufferId> read, written;
  add_cost(kernel, kernel.body, read, written, total);
  auto bytes = [&](BufferId id) {
    const Buffer& b = kernel.buffers[id];
    if (b.role == BufferRole::scalar_local || b.role == BufferRole::row_local) return Expr(0);
    Expr n(static_cast<int64_t>(bit_width(b.dtype) / 8));
    for (const Expr& e : b.extents) n = n * e;
    return n;
  };
  for (BufferId id : read) total.bytes_read = total.bytes_read + bytes(id);
  for (BufferId id : written) total.bytes_written = total.bytes_written + bytes(id);
  return total;
}

}  // namespace heddle::ir
