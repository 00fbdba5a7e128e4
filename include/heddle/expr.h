// Symbolic integers: extents of shapes, and index expressions inside kernels.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

class Expr;

enum class SymbolKind : uint8_t {
  extent,    // size of a tensor axis, known when a run starts; at least 0
  loop,      // loop variable of a kernel: 0 <= v < extent
  indirect,  // integer computed by a kernel's body (a gathered index), within its stated bounds
  defined,   // size known only on the device, at most its upper bound
};

// A named unknown integer. Identity is the object: two symbols of one name differ.
struct Symbol {
  uint64_t id = 0;  // process-wide counter; orders terms deterministically
  SymbolKind kind = SymbolKind::extent;
  std::string name;
  int64_t lower = 0;  // inclusive
  int64_t upper = INT64_MAX;
  std::shared_ptr<const Expr>
      extent;  // loop: v <= extent - 1, where `upper` is not known as a number
};
using SymbolRef = std::shared_ptr<const Symbol>;

enum class ExprKind : uint8_t { constant, symbol, add, mul, floordiv, mod, min, max };

namespace detail {
struct ExprNode;
}

// An immutable integer expression, always in normal form, so that equal() is structural.
// Normal form: a sum of products with integer coefficients over sorted terms; floordiv and mod are
// simplified with the bounds of their operands. Division and modulo are floor-based; a zero divisor
// is an error when evaluated. Cheap to copy. Overflow beyond 64 bits saturates bounds and throws in
// evaluate().
//
//   Dim n("n");  Expr e = (n * 4 + 3) / 4;   // == n
class Expr {
 public:
  Expr() : Expr(int64_t{0}) {}
  // From every integer type; GraphError for an unsigned number above 2^63 - 1.
  template <class T>
    requires(std::integral<T> && !std::same_as<T, bool>)
  Expr(T value) : Expr(of(value)) {}  // NOLINT(google-explicit-constructor)
  explicit Expr(SymbolRef symbol);

  ExprKind kind() const;
  bool is_constant() const { return kind() == ExprKind::constant; }
  bool is(int64_t value) const;
  std::optional<int64_t> constant() const;
  int64_t constant_or(int64_t fallback) const;
  const SymbolRef& symbol() const;  // kind() == symbol
  std::span<const Expr> operands()
      const;              // add: terms; mul: factors (constant first, if any); else two
  int64_t lower() const;  // inclusive bounds, from the symbols'
  int64_t upper() const;
  uint64_t hash() const;

  friend bool operator==(const Expr& a, const Expr& b);
  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr operator/(const Expr& a, const Expr& b);  // floor division
  friend Expr operator%(const Expr& a, const Expr& b);  // floor modulo
  friend Expr operator-(const Expr& a);
  friend Expr min(const Expr& a, const Expr& b);
  friend Expr max(const Expr& a, const Expr& b);

  std::string to_string() const;

 private:
  static Expr number(int64_t value);
  static Expr large_number(uint64_t value);  // GraphError
  template <class T>
  static Expr of(T value) {
    return std::in_range<int64_t>(value) ? number(static_cast<int64_t>(value))
                                         : large_number(static_cast<uint64_t>(value));
  }
  friend struct detail::ExprNode;
  explicit Expr(std::shared_ptr<const detail::ExprNode> node) : node_(std::move(node)) {}
  std::shared_ptr<const detail::ExprNode> node_;
};

// An extent that is a symbol: `hd::Dim batch("batch");`. `upper` bounds it (a promise checked at
// each run).
class Dim : public Expr {
 public:
  explicit Dim(std::string name, int64_t lower = 0, int64_t upper = INT64_MAX);
  Dim();  // an unnamed extent, unlike every other
};

SymbolRef make_symbol(SymbolKind kind, std::string name, int64_t lower, int64_t upper,
                      std::shared_ptr<const Expr> extent = nullptr);
// A loop variable with 0 <= v < extent.
SymbolRef make_loop_symbol(std::string name, const Expr& extent);

using Substitution = std::function<std::optional<Expr>(const SymbolRef&)>;
Expr substitute(const Expr& e, const Substitution& map);
Expr substitute(const Expr& e, const SymbolRef& symbol, const Expr& value);
// Throws GraphError for an unbound symbol, a zero divisor, or an overflow.
int64_t evaluate(const Expr& e, const std::function<std::optional<int64_t>(const Symbol&)>& value);
void collect_symbols(const Expr& e,
                     std::vector<SymbolRef>& out);  // each once, in order of first occurrence
bool uses(const Expr& e, const Symbol& symbol);
// The coefficient c of e = c * symbol + rest with `rest` (and c) free of symbol; nullopt where e is
// not affine in it.
std::optional<std::pair<Expr, Expr>> affine_in(const Expr& e, const SymbolRef& symbol);
// Simplifies knowing lo <= symbol <= hi (expressions free of the symbol).
Expr simplify_in_range(const Expr& e, const SymbolRef& symbol, const Expr& lo, const Expr& hi);

// Printing with the caller's names for the symbols.
std::string to_string(const Expr& e, const std::function<std::string(const Symbol&)>& symbol_name);

enum class Ordering : uint8_t { yes, no, undecided };
Ordering is_equal(const Expr& a, const Expr& b);       // for all values of the symbols
Ordering is_less_equal(const Expr& a, const Expr& b);  // yes: always; no: never

}  // namespace heddle
