// Attributes of operations: a small sorted map of named values.
#pragma once

#include <heddle/dtype.h>
#include <heddle/type.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::ir {

class Graph;

// Constant data: packed, row-major, immutable, shared between graphs.
struct Literal {
  DType dtype = DType::unknown;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  uint64_t content_hash = 0;  // of dtype, shape, bytes; set by make_literal
};
using LiteralRef = std::shared_ptr<const Literal>;
LiteralRef make_literal(DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes);
bool operator==(const Literal& a, const Literal& b);

using Attr = std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>, std::vector<double>, Expr,
                          std::vector<Expr>, Type, LiteralRef>;

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
  uint64_t hash() const;                              // extents' symbols by identity
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  [[noreturn]] static void missing(std::string_view name);
  std::vector<std::pair<std::string, Attr>> items_;  // sorted by name
};

}  // namespace heddle::ir
