// Scalar bodies: what one point of a nest computes. SSA over real scalars; complex values are pairs
// of nodes.
#pragma once

#include <heddle/dtype.h>
#include <heddle/expr.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::ir {

using NodeId = uint32_t;
using BufferId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

// Types of nodes: f64, f32, i8..i64, u8..u64, boolean; f16 and bf16 only as results of load and
// operands of cast and store (arithmetic on them is done in f32). Integer arithmetic wraps. IEEE
// semantics, nothing contracted, no flush to zero.
enum class ScalarOp : uint8_t {
  constant,  // bits: the value's bit pattern in the low bytes
  index,     // value of exprs[payload] as i64
  load,  // accesses[payload]; a: mask (boolean) or none; b: value where the mask is false (required
         // with a mask)
  bind,  // defines the indirect symbol symbols[payload] as the i64 node a, which must lie in the
         // symbol's bounds
  row,   // result of an earlier phase of the nest: payload = RowRef index in Body::rows
  scan,  // running combination of a along the phase's scan axis: scans[payload], one entry a node;
         // inclusive of a
  // unary
  neg,
  abs,
  sqrt,
  inverse,  // 1 / a, IEEE, of a float; who makes the node knows that |a| is in 2^-100 .. 2^100, or
            // a is NaN
  floor,
  ceil,
  trunc,
  rint,
  bit_not,
  logical_not,
  is_nan,
  // binary
  add,
  sub,
  mul,
  div,  // div: IEEE for floats; for integers truncating, 0 where the divisor is 0, wraps at MIN /
        // -1
  rem,  // integers: truncating remainder, 0 where the divisor is 0; floats: fmod (exact)
  min,
  max,  // NaN propagates; -0 < +0
  min_num,
  max_num,  // the number wins (fmin, fmax); -0 < +0
  bit_and,
  bit_or,
  bit_xor,
  shl,
  shr,  // also on boolean (0/1); shr logical for unsigned; count taken modulo the width
  eq,
  ne,
  lt,
  le,
  gt,
  ge,  // result boolean; unordered comparisons are false but ne
  // ternary
  fma,     // a * b + c, rounded once
  select,  // a ? b : c, lazily harmless: both sides are evaluated
  // conversions
  cast,     // to `type`. float->int: truncates toward zero; out of range and NaN as documented at
            // convert_rule
  bitcast,  // same width
  call,     // library function payload = LibraryFunction, for f64 and rare functions: operands a, b
};

// float -> integer, the same on every device: NaN -> 0; f -> i32, i64, u32, u64: saturates;
// f -> i8, i16, u8, u16, via i32 (saturated), then wraps to the low bits. float -> boolean: x != 0
// (NaN is true).
inline constexpr const char* kConvertRule = "saturating to 32/64 bits, then wrapping";

enum class LibraryFunction : uint8_t { exp, log, tanh, erf, pow, sin, cos };  // f64 only

enum class ReduceOp : uint8_t {
  sum,
  product,
  max,
  min,
  max_num,
  min_num,
  any,
  all,
  argmax,
  argmin,
  value
};
// value: (phases without inner axes) exports a node to later phases.

struct Access {
  BufferId buffer = 0;
  std::vector<Expr>
      coords;  // one an axis of the buffer; must be inside its extents where the mask holds
  friend bool operator==(const Access&, const Access&) = default;
};
struct RowRef {
  uint32_t phase = 0, reduction = 0;
  uint32_t component = 0;  // argmax, argmin: 0 value, 1 index (i64, flat over the inner axes)
  friend bool operator==(const RowRef&, const RowRef&) = default;
};
struct ScanSpec {
  ReduceOp op = ReduceOp::sum;  // sum, product, max, min
  // What the operation asks for, by which verify() checks the loop: how many elements of its own
  // order come before the one at this point. It counts up with the scan axis.
  std::optional<Expr> position = {};
  friend bool operator==(const ScanSpec&, const ScanSpec&) = default;
};

struct Node {
  ScalarOp op = ScalarOp::constant;
  DType type = DType::unknown;
  NodeId a = kNoNode, b = kNoNode, c = kNoNode;
  uint32_t payload = 0;
  uint64_t bits = 0;
  friend bool operator==(const Node&, const Node&) = default;
};

enum class StoreKind : uint8_t {
  set,
  add,  // read, add, write in the order of the (serial) scatter axis
};
struct Store {
  uint32_t access = 0;
  NodeId value = kNoNode;
  NodeId mask = kNoNode;  // store only where true
  StoreKind kind = StoreKind::set;
};

// Complete and immutable once built; nodes are in an order in which each comes after its operands,
// binds before the accesses that use their symbols. Stores happen after all nodes, in order.
struct Body {
  std::vector<Node> nodes;
  std::vector<Expr> exprs;
  std::vector<Access> accesses;
  std::vector<SymbolRef> symbols;  // indirect symbols
  std::vector<RowRef> rows;
  std::vector<ScanSpec> scans;
  std::vector<Store> stores;
};

// Builds bodies; equal nodes are made once; constants fold; x*1, x+0 only where exact for every
// value (NaN, -0 included).
class BodyBuilder {
 public:
  NodeId constant(DType type, double value);       // floats and small integers
  NodeId constant_int(DType type, int64_t value);  // integers, boolean
  NodeId constant_bits(DType type, uint64_t bits);
  NodeId index(const Expr& e);
  NodeId load(DType type, Access access, NodeId mask = kNoNode, NodeId other = kNoNode);
  // A new indirect symbol with lower <= value <= upper, defined by `value` (i64); use Expr(symbol)
  // in coordinates.
  SymbolRef bind(NodeId value, int64_t lower, int64_t upper, const Expr* extent = nullptr);
  NodeId row(DType type, RowRef ref);
  NodeId scan(ScanSpec spec, NodeId value);
  NodeId unary(ScalarOp op, NodeId a);
  NodeId binary(ScalarOp op, NodeId a, NodeId b);  // operands of one type
  NodeId fma(NodeId a, NodeId b, NodeId c);
  NodeId select(NodeId predicate, NodeId a, NodeId b);
  NodeId cast(NodeId a, DType type);
  NodeId bitcast(NodeId a, DType type);
  NodeId call(LibraryFunction f, NodeId a, NodeId b = kNoNode);
  void store(Access access, NodeId value, NodeId mask = kNoNode, StoreKind kind = StoreKind::set);

  DType type(NodeId n) const { return body_.nodes[n].type; }
  const Body& body() const { return body_; }
  Body take();            // drops nodes that nothing uses (see `keep`)
  NodeId keep(NodeId n);  // marks a root that is neither stored nor used by another node (a
                          // reduction's operand); take() keeps its id valid through renumber()
  NodeId renumbered(NodeId n) const;  // after take()

 private:
  NodeId intern(Node n);
  NodeId fold(const Node& n);
  bool is_float_one(NodeId n) const;
  Body body_;
  std::vector<NodeId> kept_, renumber_;
  std::vector<std::vector<NodeId>> buckets_;
};

// A value of an operation at one point: real, or a complex pair.
struct Val {
  NodeId re = kNoNode, im = kNoNode;
  bool complex() const { return im != kNoNode; }
};

std::string print(const Body& body, const std::vector<std::string>& buffer_names);
std::string_view name(ScalarOp op);
std::string_view name(ReduceOp op);
std::string_view name(LibraryFunction f);

}  // namespace heddle::ir
