#include "ir/attr_parser.h"

#include "base/check.h"

#include <heddle/error.h>

#include <cstring>
#include <limits>

namespace heddle::ir {

using base::cat;

namespace {

// Products of sums multiply out in the normal form: bounds for what a text may ask for.
constexpr int kMaxExprTokens = 256;
constexpr int kMaxExprDepth = 32;
constexpr size_t kMaxTerms = 64;

size_t term_count(const Expr& e) { return e.kind() == ExprKind::add ? e.operands().size() : 1; }

}  // namespace

void AttrParser::add_symbol(std::string name, SymbolRef symbol) {
  size_t at = in_.position();
  if (!symbols_.emplace(name, std::move(symbol)).second) {
    in_.fail_at(at, cat("symbol '", name, "' is declared twice"));
  }
}

template <class T, class F>
std::vector<T> AttrParser::list(F item) {
  std::vector<T> result;
  in_.expect('[');
  if (in_.accept(']')) return result;
  do {
    result.push_back(item());
  } while (in_.accept(','));
  in_.expect(']');
  return result;
}

Attr AttrParser::attr() {
  char c = in_.peek();
  if (c == '"') return in_.quoted();
  if (c == '?') {
    DType open = dtype();
    return in_.peek() == '[' ? Attr(type_of(open)) : Attr(open);
  }
  return in_.at_identifier() ? word_attr() : number_attr();
}

Attr AttrParser::number_attr() {
  size_t at = in_.position();
  std::string_view text = in_.number("a value");
  int64_t integer = 0;
  if (parse_number(text, integer)) return integer;
  double real = 0;
  bool is_real = text.find_first_of(".einf") != std::string_view::npos;
  if (is_real && parse_number(text, real)) return real;
  in_.fail_at(at, cat("'", text, "' is not a number of 64 bits"));
}

Attr AttrParser::word_attr() {
  size_t at = in_.position();
  auto real = [&] {
    size_t here = in_.position();
    double value = 0;
    if (!parse_number(in_.number("a number"), value)) in_.fail_at(here, "expected a number");
    return value;
  };
  if (in_.accept_word("true")) return true;
  if (in_.accept_word("false")) return false;
  if (in_.accept_word("ints")) {
    return list<int64_t>([&] { return in_.integer("an integer"); });
  }
  if (in_.accept_word("reals")) return list<double>(real);
  if (in_.accept_word("extents")) {
    return list<Expr>([&] { return expr(); });
  }
  if (in_.accept_word("extent")) {
    in_.expect('(');
    Expr e = expr();
    in_.expect(')');
    return e;
  }
  if (in_.accept_word("data")) return literal();
  if (in_.accept_word("inf")) return std::numeric_limits<double>::infinity();
  std::string_view word = in_.identifier("a value");
  if (word == "nan") {
    if (in_.peek() != '(') return std::numeric_limits<double>::quiet_NaN();
    in_.expect('(');
    double value = 0;
    std::string bits = cat("nan(", in_.number("the bits of a NaN"), ")");
    in_.expect(')');
    if (!parse_number(bits, value)) in_.fail_at(at, "these are not the bits of a NaN");
    return value;
  }
  std::optional<DType> d = parse_dtype(word);
  if (!d || *d == DType::unknown) in_.fail_at(at, cat("'", word, "' is not a value"));
  return in_.peek() == '[' ? Attr(type_of(*d)) : Attr(*d);
}

DType AttrParser::dtype() {
  if (in_.accept('?')) return DType::unknown;
  size_t at = in_.position();
  std::string_view word = in_.identifier("a dtype");
  std::optional<DType> d = parse_dtype(word);
  if (!d || *d == DType::unknown) in_.fail_at(at, cat("'", word, "' is not a dtype"));
  return *d;
}

Type AttrParser::type() { return type_of(dtype()); }

Type AttrParser::type_of(DType dtype) {
  size_t at = in_.position();
  in_.expect('[');
  Type result{dtype, Shape{}};
  if (in_.accept(']')) return result;
  if (in_.accept('*')) {
    result.shape.reset();
    in_.expect(']');
    return result;
  }
  do {
    if (result.rank() == kMaxRank) in_.fail_at(at, cat("rank is greater than ", kMaxRank));
    size_t here = in_.position();
    result.shape->push_back(expr());
    if (result.shape->back().upper() < 0) in_.fail_at(here, "an extent is negative");
  } while (in_.accept(','));
  in_.expect(']');
  return result;
}

Expr AttrParser::expr() {
  expr_tokens_ = 0;
  return sum(0);
}

Expr AttrParser::combine(char op, const Expr& a, const Expr& b, size_t position) {
  size_t terms = op == '*' ? term_count(a) * term_count(b) : term_count(a) + term_count(b);
  if (terms > kMaxTerms) in_.fail_at(position, "the expression is too large");
  try {
    switch (op) {
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        return a * b;
      case '/':
        return a / b;
      default:
        return a % b;
    }
  } catch (const GraphError& e) {
    in_.fail_at(position, e.what());
  }
}

Expr AttrParser::sum(int depth) {
  Expr result = product(depth);
  while (in_.peek() == '+' || in_.peek() == '-') {
    size_t at = in_.position();
    char op = in_.accept('+') ? '+' : '-';
    if (op == '-') in_.expect('-');
    result = combine(op, result, product(depth), at);
  }
  return result;
}

Expr AttrParser::product(int depth) {
  Expr result = atom(depth);
  while (in_.peek() == '*' || in_.peek() == '/' || in_.peek() == '%') {
    size_t at = in_.position();
    char op = in_.peek();
    in_.expect(op);
    result = combine(op, result, atom(depth), at);
  }
  return result;
}

Expr AttrParser::atom(int depth) {
  if (depth > kMaxExprDepth) in_.fail("the expression is nested too deep");
  if (++expr_tokens_ > kMaxExprTokens) in_.fail("the expression is too long");
  if (in_.accept('(')) {
    Expr e = sum(depth + 1);
    in_.expect(')');
    return e;
  }
  if (!in_.at_identifier()) return in_.integer("an extent");
  bool is_min = in_.accept_word("min");
  if (is_min || in_.accept_word("max")) {
    in_.expect('(');
    Expr e = sum(depth + 1);
    while (in_.accept(',')) {
      Expr next = sum(depth + 1);
      e = is_min ? min(e, next) : max(e, next);
    }
    in_.expect(')');
    return e;
  }
  size_t at = in_.position();
  std::string_view name = in_.identifier("an extent");
  auto symbol = symbols_.find(name);
  if (symbol == symbols_.end()) in_.fail_at(at, cat("symbol '", name, "' is not declared"));
  return Expr(symbol->second);
}

LiteralRef AttrParser::literal() {
  size_t at = in_.position();
  DType d = dtype();
  if (d == DType::unknown) in_.fail_at(at, "data has a dtype");
  std::vector<int64_t> shape = list<int64_t>([&] { return in_.integer("an extent"); });
  if (shape.size() > kMaxRank) in_.fail_at(at, cat("rank is greater than ", kMaxRank));
  // The text holds every element, so that its length bounds what is allocated.
  int64_t count = 1, most = static_cast<int64_t>(in_.size()) * 4;
  bool empty = false;
  for (int64_t n : shape) {
    if (n < 0) in_.fail_at(at, "an extent is negative");
    empty |= n == 0;
    if (n > most) in_.fail_at(at, "data is shorter than its shape says");
  }
  for (int64_t n : shape) {
    count *= empty ? 0 : n;
    if (count > most) in_.fail_at(at, "data is shorter than its shape says");
  }
  std::vector<std::byte> bytes = in_.peek() == '"' ? hex_bytes() : elements(d, count);
  if (static_cast<int64_t>(bytes.size()) != byte_size(d, count)) {
    in_.fail_at(at, cat("data has ", bytes.size(), " bytes, expected ", byte_size(d, count)));
  }
  return make_literal(d, std::move(shape), std::move(bytes));
}

namespace {

// Bytes of one number; false where the token does not fit the dtype.
bool append_element(std::string_view token, DType dtype, std::vector<std::byte>& bytes) {
  auto append = [&](const auto& value, size_t size) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), raw, raw + size);
  };
  size_t size = static_cast<size_t>(bit_width(dtype)) / 8;
  if (dtype == DType::f64 || dtype == DType::f32) {
    double wide = 0;
    float narrow = 0;
    bool ok = dtype == DType::f64 ? parse_number(token, wide) : parse_number(token, narrow);
    if (ok) dtype == DType::f64 ? append(wide, size) : append(narrow, size);
    return ok;
  }
  if (is_signed_integer(dtype)) {
    int64_t value = 0;
    int unused = 64 - bit_width(dtype);
    if (!parse_number(token, value) || (value << unused >> unused) != value) return false;
    append(value, size);
    return true;
  }
  uint64_t value = 0;
  uint64_t largest = dtype == DType::boolean ? 1 : UINT64_MAX >> (64 - bit_width(dtype));
  if (!parse_number(token, value) || value > largest) return false;
  append(value, size);
  return true;
}

}  // namespace

std::vector<std::byte> AttrParser::elements(DType dtype, int64_t count) {
  size_t at = in_.position();
  bool decimal =
      dtype == DType::f64 || dtype == DType::f32 || is_integer(dtype) || dtype == DType::boolean;
  if (!decimal) in_.fail(cat(name(dtype), " data is given as a string of hexadecimal bytes"));
  std::vector<std::byte> bytes;
  int64_t given = 0;
  in_.expect('[');
  while (in_.peek() != ']') {
    if (given > 0) in_.expect(',');
    size_t here = in_.position();
    std::string_view token = in_.number("a number");
    if (!append_element(token, dtype, bytes)) {
      in_.fail_at(here, cat("'", token, "' is not a value of ", name(dtype)));
    }
    ++given;
  }
  in_.expect(']');
  if (given != count) in_.fail_at(at, cat("data has ", given, " elements, expected ", count));
  return bytes;
}

std::vector<std::byte> AttrParser::hex_bytes() {
  size_t at = in_.position();
  std::string text = in_.quoted();
  if (text.size() % 2 != 0) in_.fail_at(at, "an odd number of hexadecimal digits");
  auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
    in_.fail_at(at, "data is not hexadecimal");
  };
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return bytes;
}

}  // namespace heddle::ir
