// Attributes of operations: a small sorted map of named values.
#pragma once

#include <heddle/dtype.h>
#include <heddle/type.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::ir {

// Constant data: packed, row-major, immutable, shared between graphs.
struct Literal {
  DType dtype = DType::unknown;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  uint64_t content_hash = 0;  // of dtype, shape, bytes; set by make_literal
};
using LiteralRef = std::shared_ptr<const Literal>;
// Normal form: unused bits of the last byte are 0, booleans are 0 or 1. InternalError where the
// sizes do not fit.
LiteralRef make_literal(DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes);
bool operator==(const Literal& a, const Literal& b);

using Attr = std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>,
                          std::vector<double>, Expr, std::vector<Expr>, Type, LiteralRef>;
// Floats by bit pattern (NaN equals itself, -0 is not 0), literals by content, symbols by identity.
bool equal(const Attr& a, const Attr& b);
uint64_t hash(const Attr& attr);
// The attribute with every expression in it (extents of types included) mapped.
Attr map_exprs(const Attr& attr, const std::function<Expr(const Expr&)>& f);
// Index of an alternative of Attr, for AttrSpec::type: attr_type<int64_t>.
template <class T, size_t I = 0>
constexpr int attr_index() {
  if constexpr (std::is_same_v<T, std::variant_alternative_t<I, Attr>>)
    return static_cast<int>(I);
  else
    return attr_index<T, I + 1>();
}
template <class T>
inline constexpr int attr_type = attr_index<T>();
std::string_view attr_type_name(int type);  // "integer", "list of extents", ...

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> items);
  void set(std::string name, Attr value);
  const Attr* find(std::string_view name) const;
  template <class T>
  const T& get(std::string_view name) const {  // InternalError where absent or of another type
    const Attr* a = find(name);
    if (a == nullptr || !std::holds_alternative<T>(*a)) missing(name);
    return std::get<T>(*a);
  }
  template <class T>
  T get_or(std::string_view name, T fallback) const {
    const Attr* a = find(name);
    return a != nullptr && std::holds_alternative<T>(*a) ? std::get<T>(*a) : fallback;
  }
  const std::vector<std::pair<std::string, Attr>>& items() const { return items_; }
  uint64_t hash() const;  // extents' symbols by identity
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  [[noreturn]] static void missing(std::string_view name);
  std::vector<std::pair<std::string, Attr>> items_;  // sorted by name
};

}  // namespace heddle::ir
