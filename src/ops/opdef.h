// The registry: everything that Heddle knows of an operation is in its OpDef, in one source file.
#pragma once

#include "ir/body.h"
#include "ir/graph.h"
#include "ops/control_ops.h"
#include "ops/host_tensor.h"

#include <heddle/tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::ops {

enum class Kind : uint8_t {
  elementwise,
  reduction,
  scan,
  view,
  index,
  composite,
  library,
  structural,
  source
};

// Classes of dtypes that an operand accepts; a set of bits.
enum DTypeClass : uint32_t {
  kRealFloat = 1,
  kComplex = 2,
  kInteger = 4,
  kBool = 8,
  kStorage = 16,
  kFloating = kRealFloat | kComplex,
  kNumber = kFloating | kInteger,
  kReal = kRealFloat | kInteger,
  kAny = kNumber | kBool,
  kAnyStored = kAny | kStorage,
};
bool in_class(DType dtype, uint32_t dtype_class);

// Optional operands come last and are left out from the end; a variadic one (any number) is the
// last.
struct OperandSpec {
  std::string name;
  uint32_t dtypes = kAny;
  bool optional = false, variadic = false;
};
// What values an attribute takes beyond its type: read by whatever makes programs by itself, such
// as the generator of random programs.
struct AttrDomain {
  enum class Kind : uint8_t {
    by_type,      // numbers in [low, high], both booleans
    choice,       // one of `choices`
    dtype,        // of the classes `dtypes`
    axis,         // of operand 0; negative ones count from the end
    axes,         // different axes of operand 0, maybe none
    permutation,  // of the axes of operand 0
    per_axis,     // a number in [low, high] for each axis of operand `operand`, or an empty list
    reshaped,     // extents that hold as many elements as operand 0
    broadcast,    // extents that operand 0 broadcasts to
    extents,      // any extents
  };
  Kind kind = Kind::by_type;
  std::vector<std::string> choices = {};
  uint32_t dtypes = 0;
  int operand = 0;
  double low = -3, high = 3;
  bool may_be_empty = true;  // per_axis
};
struct AttrSpec {
  std::string name;
  std::string doc;
  std::optional<ir::Attr> fallback;  // default; absent: required
  int type = -1;  // of an attribute without default: ir::attr_type<T>; -1 there: not checked
  bool optional = false;  // without default: may be absent
  AttrDomain domain = {};
};

// ---- inference
// What the sizes of a run must fulfil where symbols left it open: value == bound, or value >=
// bound.
struct Requirement {
  Expr value, bound;
  bool equal = false;
  std::string message;  // "<op>: ..."
};
struct InferContext {
  const ir::Graph& graph;
  std::string_view op;
  const std::vector<ir::ValueId>& operands;
  const ir::Attrs& attrs;
  const std::vector<ir::RegionId>& regions;
  std::vector<Requirement>* open = nullptr;  // gets what cannot be decided yet
  const Type& type(size_t i) const { return graph.value(operands[i]).type; }
  DType dtype(size_t i) const { return type(i).dtype; }
  const Shape& shape(size_t i) const { return *type(i).shape; }
  const std::optional<std::vector<Expr>>& elements(size_t i) const {
    return graph.value(operands[i]).elements;
  }
  [[noreturn]] void fail(const std::string& message) const;  // GraphError "<op>: <message>"
  // Fail where the condition holds for no sizes; where it depends on them, each run checks it.
  void require_equal(const Expr& value, const Expr& bound, const std::string& message) const;
  void require_at_least(const Expr& value, const Expr& bound, const std::string& message) const;
};
// Called only when every operand's type is known (but see OpDef::infer_open); the number of
// operands, dtype classes and attributes were checked against the specs before. Values of
// attributes may be anything (graph text): check them. Structural ops check the number of regions,
// of their arguments and results.
using Infer = std::function<std::vector<ir::InferredResult>(const InferContext&)>;

// ---- the judge: plain loops over f64, exact integers, complex; sizes are numbers here
struct JudgeContext {
  const ir::Attrs& attrs;
  std::vector<const HostTensor*> in;
  std::vector<Type> result_types;              // with concrete shapes (symbols evaluated)
  std::function<int64_t(const Expr&)> number;  // value of a symbolic attribute
  // State of the variable that operand i denotes; made from its first value on first use.
  std::function<HostTensor&(size_t operand)> variable;
  // structural ops: evaluates a region with arguments
  std::function<std::vector<HostTensor>(int region, const std::vector<HostTensor>&)> run_region;
};
// Results before rounding; the caller rounds each to its dtype.
using Judge = std::function<std::vector<HostTensor>(const JudgeContext&)>;

// ---- lowering: one of these
// Elementwise: operands at one point, in compute type (f32 for half types; complex as pairs;
// boolean as boolean; storage-only types as their code, a u8 with sub-byte codes in its low bits:
// only cast and dequantize look inside, see storage.h, all others move codes).
struct ScalarContext {
  ir::BodyBuilder& b;
  const ir::Attrs& attrs;
  std::vector<ir::Val> in;
  std::vector<DType> in_dtypes;  // logical dtypes of the operands
  DType dtype;                   // logical dtype of the result
};
using ScalarRule = std::function<ir::Val(ScalarContext&)>;

// Views, pads, concat, gather, small windows, coordinates: result element at `coords`, reading
// operands anywhere.
struct ElementContext {
  ir::BodyBuilder& b;
  const ir::Graph& graph;
  const ir::Op& op;
  int result = 0;
  std::vector<Expr> coords;
  // Element of operand i. With a mask (boolean node): read only where it holds, else `other` (zeros
  // by default).
  std::function<ir::Val(int operand, const std::vector<Expr>& coords, ir::NodeId mask,
                        ir::Val other)>
      at;
  const Shape& shape(int operand) const { return *graph.value(op.operands[operand]).type.shape; }
  DType dtype(int operand) const { return graph.value(op.operands[operand]).type.dtype; }
};
using ElementRule = std::function<ir::Val(ElementContext&)>;

// Reductions: result[coords] = finish(fold over `inner` of value(coords, inner)).
struct ReduceRule {
  ir::ReduceOp op = ir::ReduceOp::sum;
  std::function<ir::ReduceOp(const ir::Op&)>
      choose;  // where set: in place of `op` (windows with a mode)
  // Extents of the folded axes.
  std::function<Shape(const ir::Graph&, const ir::Op&)> inner;
  // The folded element at (result coordinates in c.coords, inner coordinates). Complex sums fold
  // the parts apart.
  std::function<ir::Val(ElementContext& c, const std::vector<Expr>& inner)> value;
  // argmax, argmin: the result is the index (component 1), cast to the result's dtype.
};
// Scans: along `axis` of operand 0.
struct ScanRule {
  ir::ReduceOp op = ir::ReduceOp::sum;
  int axis = 0;
  bool exclusive = false, reverse = false;
};
// Scatter: result starts as operand `data`; for each j of the updates along `axis`, in order,
// kind-combines. A negative index of a signed type counts from the end once; an index that is then
// out of range is skipped.
struct ScatterRule {
  int data = 0, indices = 1, updates = 2, axis = 0;
  ir::StoreKind kind = ir::StoreKind::add;
};
using Decompose =
    std::function<Tensors(const ir::Graph& graph, const ir::Op& op, const Tensors& operands)>;

// ---- gradients: build graph ops
struct GradientContext {
  const ir::Op& op;
  Tensors in, out;           // operands and results (in the graph that is being built)
  Tensors upstream;          // one a result; an invalid Tensor where no gradient flows
  std::vector<bool> wanted;  // one an operand
  // What the op's regions capture and depends on an x: `gradient` has no way to give its gradient.
  std::vector<ir::ValueId> wanted_captures = {};
};
// One gradient an operand (invalid Tensor: none), not yet summed down over broadcast axes: the
// driver applies sum_to_like.
using Gradient = std::function<Tensors(const GradientContext&)>;

// A case for the generated op matrix: operand shapes and attributes; the matrix adds dtypes, views
// and edge shapes.
struct Sample {
  std::vector<std::vector<int64_t>> shapes;
  ir::Attrs attrs;
  double low = -2, high = 2;  // range of the values; integers are rounded
};

// An equal, simpler form of the op built in the graph of `operands` (their producers can be looked
// at there), or nullopt. Exact for every value (NaN, -0, overflow included), with the same result
// types.
using Simplify = std::function<std::optional<Tensors>(const ir::Op& op, const Tensors& operands)>;

using ir::Effect;

struct OpDef {
  std::string name;
  Kind kind = Kind::elementwise;
  std::string doc;
  std::vector<OperandSpec> operands;
  std::vector<AttrSpec> attrs;
  int results = 1;  // -1: by its regions or attributes
  Infer infer;
  bool infer_open =
      false;  // infer also sees open operand types (structural ops; required where results == -1)
  Judge judge;
  Gradient gradient;         // empty: not differentiable (see `no_gradient`)
  bool no_gradient = false;  // gradient is zero by definition (comparisons, shape_of)
  bool commutative = false;
  Effect effect = Effect::none;
  Role role = Role::none;
  // structural ops: how their regions run (see control_ops.h); the driver of gradients goes by it
  // too
  std::function<ControlInfo(const ir::Graph&, ir::OpId)> control;
  // structural ops: operands and attributes that say `info`, the inverse of `control`; where
  // absent, no carried value, slice or result of the op can go
  std::function<std::pair<std::vector<ir::ValueId>, ir::Attrs>(const ir::Op&,
                                                               const ControlInfo& info)>
      restate;
  // structural ops: types of the arguments of region `which`, for rebuilding a region when the
  // operands' types change; `regions` holds the regions before it, already rebuilt
  std::function<std::vector<Type>(const InferContext&, int which)> region_arguments;
  Simplify simplify;
  // lowering: exactly one, by kind
  ScalarRule scalar;
  ElementRule element;
  // Where set and true for an op, `reduce` is used in place of `element` (large windows).
  std::function<bool(const ir::Graph&, const ir::Op&)> prefer_reduce;
  std::optional<ReduceRule> reduce;
  std::function<ScanRule(const ir::Graph&, const ir::Op&)> scan;
  std::function<ScatterRule(const ir::Graph&, const ir::Op&)> scatter;
  Decompose decompose;
  std::vector<Sample> samples;
};

// Adds an entry at start-up; InternalError where a required field is missing or a name is taken.
//   static const Register softmax_entry({.name = "softmax", ...});
struct Register {
  explicit Register(OpDef def);
};
const OpDef* find_op(std::string_view name);
std::vector<const OpDef*> all_ops();  // sorted by name
const ir::OpTable& op_table();
// Forces the registration objects of every family to be linked in.
void link_all_ops();

// What inference left open in the graph's operations, each condition once.
std::vector<Requirement> requirements(const ir::Graph& graph);
// GraphError where one does not hold; symbols without a value leave it unchecked.
void check_requirements(const std::vector<Requirement>& requirements,
                        const std::function<std::optional<int64_t>(const Symbol&)>& value);

// Builds an op from public handles: checks that the tensors belong to one graph, fills default
// attributes, infers.
//   return apply("softmax", {x}, {{"axis", int64_t{-1}}});
Tensors apply_all(std::string_view op, const Tensors& operands, ir::Attrs attrs = {},
                  std::vector<ir::RegionId> regions = {},
                  const std::shared_ptr<ir::Graph>& graph = nullptr);
Tensor apply(std::string_view op, const Tensors& operands, ir::Attrs attrs = {});

// Constants are the op of Role::constant, whose attribute "value" is the LiteralRef.
ir::LiteralRef constant_value(const ir::Graph& graph, ir::ValueId value);  // null: not a constant
inline ir::LiteralRef constant_value(const Tensor& t) { return constant_value(*t.graph(), t.id()); }
bool is_filled_with(const Tensor& t,
                    double value);  // a constant whose elements all have this value (-0 is not 0)
ir::ValueId add_constant(ir::Graph& graph, ir::LiteralRef value);
ir::LiteralRef to_literal(const HostTensor& t);
HostTensor from_literal(const ir::Literal& literal);
// The op that produces a tensor, null for a region's argument; to look through chains in simplify
// rules.
const ir::Op* producer(const Tensor& t);

}  // namespace heddle::ops
