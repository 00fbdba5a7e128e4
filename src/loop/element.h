// Values at coordinates: builds the scalar body that computes one element of a graph value, calling
// the rules of the operations that are inlined and asking the owner about all other values.
#pragma once

#include "ir/body.h"
#include "ir/graph.h"
#include "ops/opdef.h"

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace heddle::loop {

// How a value lies in a kernel's buffer: complex as pairs of reals, storage-only types as bytes.
DType memory_type(DType d);
std::vector<Expr> memory_extents(const Type& type);
// Elements in one byte of a sub-byte type, else 1.
int64_t elements_per_byte(DType d);
Expr flat_coordinate(const std::vector<Expr>& coords, const Shape& shape);
// Loads and stores of one element, in compute type (half types as f32, storage-only types as u8
// codes).
ir::Val load_value(ir::BodyBuilder& b, const Type& type, ir::BufferId buffer,
                   const std::vector<Expr>& coords, ir::NodeId mask);
void store_value(ir::BodyBuilder& b, const Type& type, ir::BufferId buffer,
                 const std::vector<Expr>& coords, ir::Val v, ir::NodeId mask = ir::kNoNode,
                 ir::StoreKind kind = ir::StoreKind::set);
ir::Val zero_value(ir::BodyBuilder& b, DType dtype);
ir::Val cast_value(ir::BodyBuilder& b, ir::Val v, DType dtype);  // to the compute type of dtype
ir::Val select_value(ir::BodyBuilder& b, ir::NodeId predicate, ir::Val x, ir::Val y);
ir::NodeId both(ir::BodyBuilder& b, ir::NodeId x, ir::NodeId y);  // kNoNode is "always"

// Coordinates of an elementwise operand of `shape` for the result's coordinates.
std::vector<Expr> broadcast_coords(const std::vector<Expr>& coords, const Shape& shape);
// The value of a constant whose elements are all the same, or at coordinates that are numbers (the
// weights of a window that is written out).
std::optional<ir::Val> constant_element(ir::BodyBuilder& b, const ir::Graph& graph, ir::ValueId v,
                                        const std::vector<Expr>& coords);

// The way an operation is lowered here.
enum class Lowering : uint8_t { none, scalar, element, reduce, scan, scatter };
Lowering lowering_of(const ir::Graph& graph, ir::OpId op);

// What the owner says of a value at coordinates: where it comes from, or nullopt: inline its
// operation.
struct Leaf {
  ir::Val val;
  bool zero_outside = false;  // val is already zero where the mask is false
};
using LeafRule = std::function<std::optional<Leaf>(ir::ValueId, const std::vector<Expr>& coords,
                                                   ir::NodeId mask)>;

class ElementBuilder {
 public:
  ElementBuilder(const ir::Graph& graph, ir::BodyBuilder& b, LeafRule leaf)
      : graph_(graph), b_(b), leaf_(std::move(leaf)) {}

  // An element of v, valid where the mask holds.
  ir::Val element(ir::ValueId v, const std::vector<Expr>& coords, ir::NodeId mask = ir::kNoNode);
  // The same by v's operation, without asking about v itself.
  ir::Val inlined(ir::ValueId v, const std::vector<Expr>& coords, ir::NodeId mask = ir::kNoNode);
  // The element that a reduction folds.
  ir::Val folded(ir::OpId op, const std::vector<Expr>& coords, const std::vector<Expr>& inner);
  const std::vector<ir::OpId>& visited() const { return visited_; }

 private:
  struct Key {
    ir::ValueId value;
    std::vector<Expr> coords;
    ir::NodeId mask;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const;
  };
  struct Found {
    ir::Val val;
    bool zero_outside = false;
  };
  Found find(ir::ValueId v, const std::vector<Expr>& coords, ir::NodeId mask);
  ops::ElementContext context(ir::OpId op, int result, const std::vector<Expr>& coords,
                              ir::NodeId mask);
  ir::Val scalar_op(const ir::Op& op, ir::ValueId v, const std::vector<Expr>& coords,
                    ir::NodeId mask);

  const ir::Graph& graph_;
  ir::BodyBuilder& b_;
  LeafRule leaf_;
  std::unordered_map<Key, Found, KeyHash> memo_;
  std::vector<ir::OpId> visited_;
};

}  // namespace heddle::loop
