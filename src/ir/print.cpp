// The text form of graphs:
//
//   graph 1 {
//     symbol s0 "batch" extent 0..
//     body(%0 "x": f32[s0,3], %1: f32[]) {
//       %2 "y" = add(%0, %1) : f32[s0,3]
//       %3 = reshape(%2) {shape = extents[s0 * 3]} : f32[s0 * 3]
//       @0: assign(%4, %3) after @1 loc "step"
//       %5, %6 = cond(%7) region() {
//         yield %2, %3
//       } region() { ... } : f32[s0,3], f32[s0 * 3]
//       yield %3
//     }
//   }
//
// Attributes: true, 5, 5.0 (floats always have a point or an exponent), "text", f32 (dtype),
// f32[2,s0] (type), ints[1, 2], reals[1.5], extent(s0 + 1), extents[s0, 3], data f32[2] [1.0, 2.0]
// or data f16[2] "hex of the bytes". Comments run from // to the end of the line.
#include "base/check.h"
#include "ir/describe.h"
#include "ir/graph.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace heddle::ir {

namespace {

constexpr size_t kMaxReadableElements = 64;

std::string quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The shortest digits that read back as the same value.
template <class T>
std::string print_float(T value) {
  if (std::isnan(value)) {
    double quiet = std::numeric_limits<double>::quiet_NaN();
    auto bits = std::bit_cast<uint64_t>(static_cast<double>(value));
    if (bits == std::bit_cast<uint64_t>(quiet)) return "nan";
    char buffer[32];
    auto end = std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr;
    return "nan(0x" + std::string(buffer, end) + ")";
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class T>
T read_element(const Literal& literal, size_t i) {
  T value;
  std::memcpy(&value, literal.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

std::string print_element(const Literal& literal, size_t i) {
  switch (literal.dtype) {
    case DType::f64:
      return print_float(read_element<double>(literal, i));
    case DType::f32:
      return print_float(read_element<float>(literal, i));
    case DType::i8:
      return std::to_string(read_element<int8_t>(literal, i));
    case DType::i16:
      return std::to_string(read_element<int16_t>(literal, i));
    case DType::i32:
      return std::to_string(read_element<int32_t>(literal, i));
    case DType::i64:
      return std::to_string(read_element<int64_t>(literal, i));
    case DType::boolean:
    case DType::u8:
      return std::to_string(read_element<uint8_t>(literal, i));
    case DType::u16:
      return std::to_string(read_element<uint16_t>(literal, i));
    case DType::u32:
      return std::to_string(read_element<uint32_t>(literal, i));
    default:
      return std::to_string(read_element<uint64_t>(literal, i));
  }
}

// Few elements of a dtype whose decimals are exact; a NaN has bits that decimals do not show.
bool is_readable(const Literal& literal, size_t count) {
  bool decimal = literal.dtype == DType::f64 || literal.dtype == DType::f32 ||
                 is_integer(literal.dtype) || literal.dtype == DType::boolean;
  if (!decimal || count > kMaxReadableElements) return false;
  for (size_t i = 0; i < count; ++i) {
    if (literal.dtype == DType::f64 && std::isnan(read_element<double>(literal, i))) return false;
    if (literal.dtype == DType::f32 && std::isnan(read_element<float>(literal, i))) return false;
  }
  return true;
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string run() {
    collect(kTopRegion);
    line() += "body";
    region(kTopRegion);
    out_ += '\n';
    std::string body = std::move(out_);
    out_ = "graph 1 {\n";
    for (const SymbolRef& s : order_) {
      line() += base::cat("symbol ", symbols_.at(s->id), ' ', quote(s->name), ' ',
                          s->kind == SymbolKind::defined ? "defined " : "extent ", s->lower, "..");
      if (s->upper != INT64_MAX) out_ += std::to_string(s->upper);
      out_ += '\n';
    }
    return out_ + body + "}\n";
  }

  std::string number(ValueId v) {
    collect(kTopRegion);
    return value(v);
  }

 private:
  std::string& line() { return out_.append(static_cast<size_t>(2 * depth_), ' '); }

  // Numbers values, labels the operations that others wait for.
  void collect(RegionId id) {
    const Region& r = graph_.region(id);
    for (ValueId v : r.arguments) values_.emplace(v, values_.size());
    for (OpId op_id : r.ops) {
      const Op& op = graph_.op(op_id);
      for (OpId before : op.after) labels_.emplace(before, labels_.size());
      for (RegionId inner : op.regions) collect(inner);
      for (ValueId v : op.results) values_.emplace(v, values_.size());
    }
  }

  // "%?" for what is not defined: broken graphs are printed too.
  std::string value(ValueId v) const {
    auto at = values_.find(v);
    return at == values_.end() ? "%?" : "%" + std::to_string(at->second);
  }

  void value_list(const std::vector<ValueId>& list) {
    for (size_t i = 0; i < list.size(); ++i) out_ += (i > 0 ? ", " : "") + value(list[i]);
  }
  void definition(ValueId v) {
    out_ += value(v);
    if (!graph_.value(v).name.empty()) out_ += ' ' + quote(graph_.value(v).name);
  }

  // "(arguments) { ... }", without a newline at the end.
  void region(RegionId id) {
    const Region& r = graph_.region(id);
    out_ += '(';
    for (size_t i = 0; i < r.arguments.size(); ++i) {
      if (i > 0) out_ += ", ";
      definition(r.arguments[i]);
      out_ += ": " + type(graph_.value(r.arguments[i]).type);
    }
    out_ += ") {\n";
    ++depth_;
    for (OpId op_id : r.ops) op(op_id);
    line() += "yield";
    if (!r.results.empty()) out_ += ' ';
    value_list(r.results);
    out_ += '\n';
    --depth_;
    line() += '}';
  }

  void op(OpId id) {
    const Op& op = graph_.op(id);
    line();
    if (labels_.count(id) != 0) out_ += "@" + std::to_string(labels_.at(id)) + ": ";
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (i > 0) out_ += ", ";
      definition(op.results[i]);
    }
    if (!op.results.empty()) out_ += " = ";
    out_ += std::string(op.name) + "(";
    value_list(op.operands);
    out_ += ')';
    attrs(op.attrs);
    for (RegionId r : op.regions) {
      out_ += " region";
      region(r);
    }
    for (size_t i = 0; i < op.after.size(); ++i) {
      out_ += (i > 0 ? ", @" : " after @") + std::to_string(labels_.at(op.after[i]));
    }
    for (size_t i = 0; i < op.locations.size(); ++i) {
      out_ += (i > 0 ? ", " : " loc ") + quote(op.locations[i]);
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      out_ += (i > 0 ? ", " : " : ") + type(graph_.value(op.results[i]).type);
    }
    out_ += '\n';
  }

  void attrs(const Attrs& attrs) {
    if (attrs.items().empty()) return;
    out_ += " {";
    bool first = true;
    for (const auto& [name, value] : attrs.items()) {
      out_ += (first ? "" : ", ") + name + " = " + attr(value);
      first = false;
    }
    out_ += '}';
  }

  template <class T, class F>
  static std::string join(const std::vector<T>& list, F print) {
    std::string text;
    for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + print(list[i]);
    return text;
  }

  std::string attr(const Attr& a) {
    struct Visitor {
      Printer& p;
      std::string operator()(bool v) { return v ? "true" : "false"; }
      std::string operator()(int64_t v) { return std::to_string(v); }
      std::string operator()(double v) { return print_float(v); }
      std::string operator()(const std::string& v) { return quote(v); }
      std::string operator()(DType v) { return dtype(v); }
      std::string operator()(const std::vector<int64_t>& v) {
        return "ints[" + join(v, [](int64_t x) { return std::to_string(x); }) + "]";
      }
      std::string operator()(const std::vector<double>& v) {
        return "reals[" + join(v, [](double x) { return print_float(x); }) + "]";
      }
      std::string operator()(const Expr& v) { return "extent(" + p.expr(v) + ")"; }
      std::string operator()(const std::vector<Expr>& v) {
        return "extents[" + join(v, [&](const Expr& x) { return p.expr(x); }) + "]";
      }
      std::string operator()(const Type& v) { return p.type(v); }
      std::string operator()(const LiteralRef& v) { return literal(*v); }
    };
    return std::visit(Visitor{*this}, a);
  }

  static std::string dtype(DType d) { return d == DType::unknown ? "?" : std::string(name(d)); }

  std::string type(const Type& t) {
    if (!t.shape) return dtype(t.dtype) + "[*]";
    std::string text = dtype(t.dtype) + "[";
    for (size_t i = 0; i < t.shape->size(); ++i) text += (i > 0 ? "," : "") + expr((*t.shape)[i]);
    return text + "]";
  }

  static std::string literal(const Literal& l) {
    std::string text = "data " + dtype(l.dtype) + "[";
    size_t count = 1;
    for (size_t i = 0; i < l.shape.size(); ++i) {
      text += (i > 0 ? "," : "") + std::to_string(l.shape[i]);
      count *= static_cast<size_t>(l.shape[i]);
    }
    if (is_readable(l, count)) {
      text += "] [";
      for (size_t i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + print_element(l, i);
      return text + "]";
    }
    static constexpr char kHex[] = "0123456789abcdef";
    text += "] \"";
    for (std::byte b : l.bytes) {
      text += kHex[static_cast<unsigned>(b) >> 4];
      text += kHex[static_cast<unsigned>(b) & 15];
    }
    return text + '"';
  }

  // Sums and products, with everything else as an atom.
  std::string expr(const Expr& e) {
    std::span<const Expr> operands = e.operands();
    auto list = [&](const char* separator, bool nested) {
      std::string text;
      for (const Expr& operand : operands) {
        if (!text.empty()) text += separator;
        bool sum = operand.kind() == ExprKind::add || operand.kind() == ExprKind::mul;
        text += nested && sum ? "(" + expr(operand) + ")" : expr(operand);
      }
      return text;
    };
    switch (e.kind()) {
      case ExprKind::constant:
        return std::to_string(*e.constant());
      case ExprKind::symbol:
        return symbol(e.symbol());
      case ExprKind::add:
        return list(" + ", false);
      case ExprKind::mul:
        return list(" * ", true);
      case ExprKind::floordiv:
        return "(" + list(" / ", true) + ")";
      case ExprKind::mod:
        return "(" + list(" % ", true) + ")";
      case ExprKind::min:
        return "min(" + list(", ", false) + ")";
      case ExprKind::max:
        return "max(" + list(", ", false) + ")";
    }
    return "";
  }

  std::string symbol(const SymbolRef& s) {
    auto [at, added] = symbols_.emplace(s->id, "s" + std::to_string(symbols_.size()));
    if (added) order_.push_back(s);
    return at->second;
  }

  const Graph& graph_;
  std::string out_;
  int depth_ = 1;
  std::map<ValueId, size_t> values_;
  std::map<OpId, size_t> labels_;
  std::map<uint64_t, std::string> symbols_;
  std::vector<SymbolRef> order_;
};

}  // namespace

std::string printed_number(const Graph& graph, ValueId value) {
  return Printer(graph).number(value);
}

std::string print(const Graph& graph) { return Printer(graph).run(); }

}  // namespace heddle::ir
