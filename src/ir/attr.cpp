#include "ir/attr.h"

#include "base/check.h"
#include "base/hash.h"

#include <algorithm>
#include <bit>

namespace heddle::ir {

namespace {

int64_t literal_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) {
    HD_CHECK(extent >= 0, "extent ", extent);
    HD_CHECK(!__builtin_mul_overflow(count, extent, &count), "literal too large");
  }
  return count;
}

uint64_t hash_value(bool v) { return v; }
uint64_t hash_value(int64_t v) { return static_cast<uint64_t>(v); }
uint64_t hash_value(double v) { return std::bit_cast<uint64_t>(v); }
uint64_t hash_value(DType v) { return static_cast<uint64_t>(v); }
uint64_t hash_value(const std::string& v) { return base::hash_string(v); }
uint64_t hash_value(const Expr& v) { return v.hash(); }
uint64_t hash_value(const LiteralRef& v) { return v ? v->content_hash : 0; }
template <class T>
uint64_t hash_value(const std::vector<T>& v) {
  uint64_t h = v.size();
  for (const T& item : v) h = base::mix(h, hash_value(item));
  return h;
}
uint64_t hash_value(const Type& v) {
  uint64_t h = base::mix(hash_value(v.dtype), v.shape.has_value());
  return v.shape ? base::mix(h, hash_value(*v.shape)) : h;
}

bool equal_value(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}
bool equal_value(const LiteralRef& a, const LiteralRef& b) {
  return a == b || (a && b && *a == *b);
}
template <class T>
bool equal_value(const T& a, const T& b) {
  return a == b;
}
bool equal_value(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return equal_value(x, y); });
}

}  // namespace

LiteralRef make_literal(DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes) {
  HD_CHECK(dtype != DType::unknown);
  int64_t count = literal_count(shape);
  HD_CHECK(static_cast<int64_t>(bytes.size()) == byte_size(dtype, count), name(dtype), " x ", count,
           " in ", bytes.size(), " bytes");
  if (dtype == DType::boolean) {
    for (std::byte& b : bytes) b = std::byte{b != std::byte{0}};
  }
  int64_t used_bits = count * bit_width(dtype) % 8;
  if (is_sub_byte(dtype) && used_bits != 0) {
    bytes.back() &= static_cast<std::byte>((1 << used_bits) - 1);
  }
  auto literal = std::make_shared<Literal>();
  uint64_t h = base::mix(static_cast<uint64_t>(dtype), shape.size());
  for (int64_t extent : shape) h = base::mix(h, static_cast<uint64_t>(extent));
  literal->content_hash = base::hash_bytes(bytes.data(), bytes.size(), h);
  literal->dtype = dtype;
  literal->shape = std::move(shape);
  literal->bytes = std::move(bytes);
  return literal;
}

bool operator==(const Literal& a, const Literal& b) {
  return a.content_hash == b.content_hash && a.dtype == b.dtype && a.shape == b.shape &&
         a.bytes == b.bytes;
}

bool equal(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& x) { return equal_value(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
}

uint64_t hash(const Attr& attr) {
  return base::mix(attr.index(), std::visit([](const auto& x) { return hash_value(x); }, attr));
}

Attr map_exprs(const Attr& attr, const std::function<Expr(const Expr&)>& f) {
  auto map_all = [&](const std::vector<Expr>& in) {
    std::vector<Expr> out;
    out.reserve(in.size());
    for (const Expr& e : in) out.push_back(f(e));
    return out;
  };
  if (const auto* e = std::get_if<Expr>(&attr)) return f(*e);
  if (const auto* list = std::get_if<std::vector<Expr>>(&attr)) return map_all(*list);
  if (const auto* t = std::get_if<Type>(&attr)) {
    return t->shape ? Type{t->dtype, map_all(*t->shape)} : *t;
  }
  return attr;
}

std::string_view attr_type_name(int type) {
  static constexpr std::string_view kNames[] = {
      "boolean",         "integer", "number",          "string", "dtype",        "list of integers",
      "list of numbers", "extent",  "list of extents", "type",   "constant data"};
  static_assert(std::size(kNames) == std::variant_size_v<Attr>);
  return type >= 0 && type < static_cast<int>(std::size(kNames)) ? kNames[type] : "any";
}

Attrs::Attrs(std::initializer_list<std::pair<std::string, Attr>> items) {
  for (const auto& [name, value] : items) set(name, value);
}

void Attrs::set(std::string name, Attr value) {
  auto at = std::lower_bound(items_.begin(), items_.end(), name,
                             [](const auto& item, const auto& key) { return item.first < key; });
  if (at != items_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    items_.emplace(at, std::move(name), std::move(value));
  }
}

const Attr* Attrs::find(std::string_view name) const {
  for (const auto& item : items_) {
    if (item.first == name) return &item.second;
  }
  return nullptr;
}

uint64_t Attrs::hash() const {
  uint64_t h = items_.size();
  for (const auto& [name, value] : items_) {
    h = base::mix(base::hash_string(name, h), ir::hash(value));
  }
  return h;
}

bool operator==(const Attrs& a, const Attrs& b) {
  return std::equal(
      a.items_.begin(), a.items_.end(), b.items_.begin(), b.items_.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && equal(x.second, y.second); });
}

void Attrs::missing(std::string_view name) {
  throw InternalError(base::cat("attribute '", name, "' is absent or of another type"));
}

}  // namespace heddle::ir
