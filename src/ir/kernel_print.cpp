// Text of bodies and kernels: readable for people (names), canonical for keys (numbers by first
// occurrence).
#include "base/hash.h"
#include "ir/kernel.h"
#include "ir/scalar_eval.h"

#include <cstdio>
#include <map>
#include <sstream>

namespace heddle::ir {

namespace {

class Printer {
 public:
  explicit Printer(bool canonical) : canonical_(canonical) {}

  std::string expr(const Expr& e) {
    return to_string(e, [this](const Symbol& s) { return symbol(s); });
  }

  std::string symbol(const Symbol& s) {
    auto [it, fresh] = symbols_.try_emplace(s.id, symbols_.size());
    std::string number = std::to_string(it->second);
    if (!canonical_) return s.name.empty() ? "s" + number : s.name + "_" + number;
    if (!fresh) return "s" + number;
    // Kinds and bounds are part of the structure: they decide what code may assume.
    return "s" + number + "{" + std::to_string(static_cast<int>(s.kind)) + "," +
           std::to_string(s.lower) + "," + std::to_string(s.upper) +
           (s.extent != nullptr ? "," + expr(*s.extent) : "") + "}";
  }

  std::string buffer(const std::vector<std::string>& names, BufferId id) const {
    std::string number = "b" + std::to_string(id);
    return canonical_ || id >= names.size() || names[id].empty() ? number
                                                                 : names[id] + "." + number;
  }

  std::string access(const Access& a, const std::vector<std::string>& names) {
    std::string s = buffer(names, a.buffer) + "[";
    for (size_t k = 0; k < a.coords.size(); ++k) s += (k > 0 ? ", " : "") + expr(a.coords[k]);
    return s + "]";
  }

  void body(const Body& b, const std::vector<std::string>& names, const std::string& indent,
            std::ostream& out) {
    for (size_t k = 0; k < b.nodes.size(); ++k) {
      out << indent << "%" << k << " = ";
      node(b, b.nodes[k], names, out);
      out << "\n";
    }
    for (const Store& s : b.stores) {
      out << indent << (s.kind == StoreKind::add ? "add " : "store ")
          << access(b.accesses[s.access], names) << ", %" << s.value;
      if (s.mask != kNoNode) out << " if %" << s.mask;
      out << "\n";
    }
  }

  void kernel(const Kernel& k, std::ostream& out) {
    std::vector<std::string> names;
    for (const Buffer& b : k.buffers) names.push_back(b.name);
    out << "kernel";
    if (!canonical_) out << " " << k.name;
    out << " (";
    for (size_t i = 0; i < k.symbols.size(); ++i)
      out << (i > 0 ? ", " : "") << symbol(*k.symbols[i]);
    out << ") {\n";
    for (BufferId id = 0; id < k.buffers.size(); ++id) {
      const Buffer& b = k.buffers[id];
      static constexpr const char* kRoles[] = {"input", "output", "scratch", "scalar_local",
                                               "row_local"};
      out << "  " << kRoles[static_cast<size_t>(b.role)] << " " << buffer(names, id) << ": "
          << heddle::name(b.dtype) << "[";
      for (size_t i = 0; i < b.extents.size(); ++i)
        out << (i > 0 ? ", " : "") << expr(b.extents[i]);
      out << "]\n";
    }
    statements(k.body, names, "  ", out);
    out << "}\n";
  }

 private:
  void node(const Body& b, const Node& n, const std::vector<std::string>& names,
            std::ostream& out) {
    out << name(n.op) << " " << heddle::name(n.type);
    switch (n.op) {
      case ScalarOp::constant: {
        char bits[32];
        std::snprintf(bits, sizeof bits, " 0x%llx", static_cast<unsigned long long>(n.bits));
        out << bits;
        if (!canonical_) out << " (" << bits_to_double(n.type, n.bits) << ")";
        return;
      }
      case ScalarOp::index:
        out << " " << expr(b.exprs[n.payload]);
        return;
      case ScalarOp::load:
        out << " " << access(b.accesses[n.payload], names);
        break;
      case ScalarOp::bind:
        out << " " << symbol(*b.symbols[n.payload]);
        break;
      case ScalarOp::row: {
        const RowRef& r = b.rows[n.payload];
        out << " phase " << r.phase << " reduction " << r.reduction << " component " << r.component;
        return;
      }
      case ScalarOp::scan:
        out << " " << name(b.scans[n.payload].op);
        break;
      case ScalarOp::call:
        out << " " << name(static_cast<LibraryFunction>(n.payload));
        break;
      default:
        break;
    }
    for (NodeId o : {n.a, n.b, n.c}) {
      if (o != kNoNode) out << " %" << o;
    }
  }

  void axes(const std::vector<Axis>& list, std::ostream& out) {
    static constexpr const char* kKinds[] = {"mapped", "reduced", "scan", "scattered"};
    for (size_t k = 0; k < list.size(); ++k) {
      out << (k > 0 ? ", " : "") << symbol(*list[k].var) << ": "
          << kKinds[static_cast<size_t>(list[k].kind)] << " " << expr(list[k].extent);
    }
  }

  void nest(const Nest& n, const std::vector<std::string>& names, const std::string& indent,
            std::ostream& out) {
    out << indent << "nest (";
    axes(n.outer, out);
    out << ") {";
    if (!canonical_ && !n.locations.empty()) {
      out << "  //";
      for (const std::string& l : n.locations) out << " " << l;
    }
    out << "\n";
    for (size_t p = 0; p < n.phases.size(); ++p) {
      const Phase& phase = n.phases[p];
      out << indent << "  phase " << p << " (";
      axes(phase.inner, out);
      out << ") {\n";
      body(phase.body, names, indent + "    ", out);
      for (const Reduction& r : phase.reductions) {
        out << indent << "    reduce " << name(r.op) << " " << heddle::name(r.type) << " %"
            << r.value << "\n";
      }
      out << indent << "  }\n";
    }
    out << indent << "}\n";
  }

  void statements(const std::vector<Stmt>& list, const std::vector<std::string>& names,
                  const std::string& indent, std::ostream& out) {
    for (const Stmt& s : list) {
      switch (s.kind) {
        case StmtKind::nest:
          nest(*s.nest, names, indent, out);
          break;
        case StmtKind::barrier: {
          static constexpr const char* kScopes[] = {"none", "block", "grid"};
          out << indent << "barrier " << kScopes[static_cast<size_t>(s.barrier)] << "\n";
          break;
        }
        case StmtKind::swap:
          out << indent << "swap " << buffer(names, s.a) << ", " << buffer(names, s.b) << "\n";
          break;
        case StmtKind::for_loop:
          out << indent << "for " << buffer(names, s.counter) << " < "
              << (s.has_count_buffer ? buffer(names, s.predicate) : expr(s.count)) << " {\n";
          statements(s.first, names, indent + "  ", out);
          out << indent << "}\n";
          break;
        case StmtKind::while_loop:
        case StmtKind::if_else:
          out << indent << (s.kind == StmtKind::while_loop ? "while " : "if ")
              << buffer(names, s.predicate) << " {\n";
          statements(s.first, names, indent + "  ", out);
          out << indent << (s.kind == StmtKind::while_loop ? "} do {\n" : "} else {\n");
          statements(s.second, names, indent + "  ", out);
          out << indent << "}\n";
          break;
      }
    }
  }

  bool canonical_;
  std::map<uint64_t, size_t> symbols_;
};

}  // namespace

std::string print(const Body& body, const std::vector<std::string>& buffer_names) {
  std::ostringstream out;
  Printer(false).body(body, buffer_names, "", out);
  return out.str();
}

std::string print(const Kernel& kernel) {
  std::ostringstream out;
  Printer(false).kernel(kernel, out);
  return out.str();
}

std::string canonical_text(const Kernel& kernel) {
  std::ostringstream out;
  Printer(true).kernel(kernel, out);
  return out.str();
}

uint64_t structural_hash(const Kernel& kernel) { return base::hash_string(canonical_text(kernel)); }
bool structurally_equal(const Kernel& a, const Kernel& b) {
  return canonical_text(a) == canonical_text(b);
}

}  // namespace heddle::ir
