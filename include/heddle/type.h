// Types of graph values: element type and shape, either of which may still be open.
#pragma once

#include <heddle/dtype.h>
#include <heddle/expr.h>

#include <optional>
#include <string>
#include <vector>

namespace heddle {

// Extents, slowest axis first. Brace lists work: {batch, 3, 224, 224}.
using Shape = std::vector<Expr>;

inline constexpr int kMaxRank = 16;

// dtype == unknown or shape == nullopt: open until compile() is told the fed types. An open extent
// is an unnamed Dim.
struct Type {
  DType dtype = DType::unknown;
  std::optional<Shape> shape;

  bool known() const { return dtype != DType::unknown && shape.has_value(); }
  int rank() const { return shape ? static_cast<int>(shape->size()) : -1; }
  friend bool operator==(const Type& a, const Type& b) = default;
};

inline Type type(DType dtype, Shape shape) { return {dtype, std::move(shape)}; }

Expr element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // "[8,batch,16]"
std::string to_string(
    const Type& type);  // "f32[8,16]", "f32[*]" unknown rank, "?[...]" unknown dtype
// NumPy broadcasting; GraphError names `op` and both shapes. Undecidable symbolic pairs are an
// error naming both.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

}  // namespace heddle
