// What the files of elementwise operations share: inference, the judge's broadcasting, promotion of
// operands.
#pragma once

#include "ops/opdef.h"

#include <complex>
#include <functional>
#include <string>
#include <vector>

namespace heddle::ops {

// ---- inference
// All operands (from `first` on) have one dtype, and that is the result's, at the broadcast shape.
std::vector<ir::InferredResult> infer_same(const InferContext& ctx);
std::vector<ir::InferredResult> infer_same_from(const InferContext& ctx, size_t first);
// As infer_same, with a boolean result.
std::vector<ir::InferredResult> infer_compare(const InferContext& ctx);
// One operand; the result has the dtype that `result` makes of the operand's.
Infer infer_unary(std::function<DType(DType)> result);
// infer_same that also computes known elements (i32 and i64 tensors of rank 0 and 1). `f` gives
// nullopt where the result is not an expression.
using ElementFunction = std::function<std::optional<Expr>(const Expr&, const Expr&)>;
Infer infer_arithmetic(ElementFunction f);
// Names of the operands with dtypes and shapes: "lhs f32[2,3], rhs i32[3]".
std::string describe_operands(const InferContext& ctx);

// ---- the judge
// For each element of `out` (row-major), the flat index of the element of `in` that is broadcast
// there.
std::vector<int64_t> broadcast_indices(const std::vector<int64_t>& in,
                                       const std::vector<int64_t>& out);
std::vector<int64_t> concrete_shape(const Type& type);
HostTensor judge_result(const JudgeContext& ctx);  // zeros of the result's type

using Complex = std::complex<double>;
// One function a class of dtypes; integers come sign or zero extended (u64: the bit pattern) with
// their dtype, booleans as 0 or 1 by the integer function.
struct UnaryRules {
  double (*f)(double) = nullptr;
  int64_t (*i)(int64_t, DType) = nullptr;
  Complex (*c)(Complex) = nullptr;
};
struct BinaryRules {
  double (*f)(double, double) = nullptr;
  int64_t (*i)(int64_t, int64_t, DType) = nullptr;
  Complex (*c)(Complex, Complex) = nullptr;
};
Judge judge_unary(UnaryRules rules);
Judge judge_binary(BinaryRules rules);
// Comparisons: the functions give 0 or 1.
struct CompareRules {
  bool (*f)(double, double) = nullptr;
  bool (*i)(int64_t, int64_t, DType) = nullptr;
  bool (*c)(Complex, Complex) = nullptr;
};
Judge judge_compare(CompareRules rules);
// Integer quotient rounded down; 0 where the divisor is 0; MIN / -1 wraps.
int64_t floor_quotient(int64_t a, int64_t b, DType dtype);
bool integer_less(int64_t a, int64_t b, DType dtype);
Complex complex_quotient(Complex a, Complex b);  // a zero divisor gives infinities

// ---- scalar rules
// The real type in which values of `dtype` are computed: f32 for f16, bf16, c32 and c64, f64 for
// c128; storage-only types are codes of type u8.
DType scalar_type(DType dtype);
// A scalar rule that applies one node to real operands.
ScalarRule unary_node(ir::ScalarOp op);
ScalarRule binary_node(ir::ScalarOp op);

// ---- simplification
// x op e = x (and e op x = x, where commutative) for the neutral element e. Real dtypes only:
// products with complex 1 are not exact for infinities. Sums of floats have -0, not 0.
Simplify drop_neutral(double for_floats, double for_integers, bool commutative);

// ---- building
// Casts the tensors to their common dtype; GraphError names the op and both where there is none.
void promote_operands(std::string_view op, Tensors& operands, size_t first = 0);
Tensor binary(std::string_view op, const Tensor& a, const Tensor& b);
// Integers and booleans become f32.
Tensor as_floating(std::string_view op, const Tensor& x);
Tensor conjugate_if_complex(const Tensor& x);
void check_valid(std::string_view op, const Tensors& operands);

}  // namespace heddle::ops
