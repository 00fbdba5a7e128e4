// Helpers that the families of views, windows, indices and control share.
#pragma once

#include "ops/elementwise.h"
#include "ops/opdef.h"

#include <array>
#include <complex>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace heddle::ops {

// ---- attributes and inference
// The axis counted from 0; fails with "<argument> -5 is outside a tensor of rank 3".
int resolve_axis(const InferContext& c, int64_t axis, int rank,
                 const std::string& argument = "axis");
// The same for an op whose inference passed.
int resolved_axis(int64_t axis, int rank);
std::vector<int64_t> to_ints(const std::vector<int>& v);
std::vector<Expr> to_exprs(const std::vector<int64_t>& v);
std::string list(const std::vector<int64_t>& v);  // "[1,2]"
// The name of an enumerator; "unknown" for a number that is none, so that inference can refuse it.
template <class Enum, size_t N>
std::string_view name_at(const std::array<std::string_view, N>& names, Enum e) {
  auto k = static_cast<size_t>(e);
  return k < N ? names[k] : "unknown";
}

// FP8, E8M0 and FP4: stored as codes of a float.
constexpr bool is_small_float(DType d) { return is_storage_only(d) && d < DType::i2; }

// Whether a value given as a double is one of `dtype`'s: any for floats (they round), whole numbers
// in range for integers.
bool representable(double value, DType dtype);
// The bits of a whole number below 2^64 as an integer element holds them; 0 for anything else.
int64_t whole_number(double value);
// For a value that fills x's outside; booleans take any number. Fails with "<argument> 300 is not a
// value of u8, ...".
void check_fill(const InferContext& c, const std::string& argument, double value);
// Fails where the shapes differ for all sizes; where that depends on them, each run checks it.
void require_shape(const InferContext& c, const Shape& given, const Shape& expected,
                   const std::string& message);
// Distances of this many elements at most keep index arithmetic inside of 64 bits.
inline constexpr int64_t kMaxDistance = int64_t{1} << 48;
void check_distance(const InferContext& c, const std::string& argument, const Expr& distance);

// ---- known elements of small integer tensors
inline constexpr int64_t kMaxKnownElements = 64;
// Whether a result of this type may carry known elements: an integer type, at most
// kMaxKnownElements of them, all extents numbers.
bool may_know_elements(const Type& type);
// ---- the judge
void copy_element(const HostTensor& from, int64_t i, HostTensor& to, int64_t j);
void fill(HostTensor& t, double value);
// A result of `type` whose element at `coords` is x[source(coords)], or 0 where source gives
// nothing.
HostTensor judge_view(
    const HostTensor& x, const Type& type,
    const std::function<std::optional<int64_t>(const std::vector<int64_t>&)>& source);
int64_t flat_index(const std::vector<int64_t>& coords, const std::vector<int64_t>& shape);
// Element-type-blind arithmetic of the judge: one of the three by the dtype.
struct JudgeScalar {
  double f = 0;
  int64_t i = 0;
  std::complex<double> c;
};
JudgeScalar judge_scalar(double value);  // the integer is 0 where the value does not fit
JudgeScalar load(const HostTensor& t, int64_t i);
void store(HostTensor& t, int64_t i, const JudgeScalar& v);
JudgeScalar judge_multiply(const JudgeScalar& a, const JudgeScalar& b);  // integers wrap
JudgeScalar judge_add(const JudgeScalar& a, const JudgeScalar& b);
JudgeScalar judge_negate(const JudgeScalar& a);

// ---- lowering
ir::Val constant_val(ir::BodyBuilder& b, DType dtype, double value);
ir::Val add(ir::BodyBuilder& b, ir::Val x, ir::Val y);
ir::Val multiply(ir::BodyBuilder& b, ir::Val x, ir::Val y);
ir::Val conjugate(ir::BodyBuilder& b, ir::Val x);
ir::Val negate(ir::BodyBuilder& b, ir::Val x);
ir::Val select(ir::BodyBuilder& b, ir::NodeId predicate, ir::Val x, ir::Val y);
// Whether lo <= e < hi; kNoNode where that always holds.
ir::NodeId in_range(ir::BodyBuilder& b, const Expr& e, const Expr& lo, const Expr& hi);
// Conjunction; kNoNode is "always".
ir::NodeId both(ir::BodyBuilder& b, ir::NodeId x, ir::NodeId y);

// ---- building graphs
Tensor zeros_of(const std::shared_ptr<ir::Graph>& graph, const Type& type);
Tensor zeros_like(const Tensor& x);
Tensor scalar_constant(const std::shared_ptr<ir::Graph>& graph, DType dtype, double value);
Tensor index_constant(const std::shared_ptr<ir::Graph>& graph,
                      const std::vector<int64_t>& values);  // i64[n]
// Known type of a tensor; GraphError "<op>: <argument> has an open type" otherwise.
const Type& known_type(const Tensor& x, const std::string& op, const std::string& argument);
std::shared_ptr<ir::Graph> graph_of(const Tensors& xs, const std::string& op);

// Builds a region: opens it with arguments of these types, runs `body`, closes it with what it
// gives; abandons it when `body` throws. `op` and `block` are for messages.
ir::RegionId build_region(const std::shared_ptr<ir::Graph>& graph,
                          const std::vector<Type>& argument_types, const std::string& op,
                          const std::string& block,
                          const std::function<Tensors(const Tensors&)>& body);

}  // namespace heddle::ops
