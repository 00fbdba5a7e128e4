// minimum and maximum, clamp, relu, comparisons, logical and bitwise operations, select.
#include "base/check.h"
#include "ops/elementwise.h"

#include <heddle/error.h>
#include <heddle/ops/elementwise.h>

#include <cmath>

namespace heddle {
namespace ops {
namespace {

using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

const std::vector<Sample> kBinarySamples = {
    {.shapes = {{2, 3}, {2, 3}}}, {.shapes = {{4, 1, 3}, {5, 1}}}, {.shapes = {{}, {7}}}};
const std::vector<Sample> kUnarySamples = {{.shapes = {{3, 5}}}, {.shapes = {{}}}};

Tensor zero_like(const Tensor& x) { return constant_like(x, 0); }
Tensor half(const Tensor& x) { return x * 0.5; }

// ----------------------------------------------------------------------------------------------
// extremes

// Whether `a` is the extreme of two that are not NaN: -0 < +0.
bool wins(double a, double b, bool larger) {
  if (a == b) return std::signbit(a) != larger;
  return larger ? a > b : a < b;
}
double propagate(double a, double b, bool larger) {
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return wins(a, b, larger) ? a : b;
}
double number_wins(double a, double b, bool larger) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return wins(a, b, larger) ? a : b;
}
int64_t smaller(int64_t a, int64_t b, DType t) { return integer_less(a, b, t) ? a : b; }
int64_t larger(int64_t a, int64_t b, DType t) { return integer_less(a, b, t) ? b : a; }

// Booleans: the minimum is "and", the maximum "or".
ScalarRule extreme_node(ScalarOp op, bool is_maximum) {
  return [op, is_maximum](ScalarContext& c) {
    ScalarOp used = op;
    if (c.dtype == bool_) used = is_maximum ? ScalarOp::bit_or : ScalarOp::bit_and;
    return Val{c.b.binary(used, c.in[0].re, c.in[1].re)};
  };
}

// The winner gets the gradient; each gets half where they are equal; both get it where one is NaN
// (as PyTorch).
Gradient shared_gradient(bool is_maximum) {
  return [is_maximum](const GradientContext& g) -> Tensors {
    const Tensor &a = g.in[0], &b = g.in[1], &up = g.upstream[0];
    Tensor shared = select(equal(a, b), half(up), up), zero = zero_like(up);
    Tensor a_loses = is_maximum ? less(a, b) : greater(a, b),
           b_loses = is_maximum ? less(b, a) : greater(b, a);
    return {select(a_loses, zero, shared), select(b_loses, zero, shared)};
  };
}
// lhs gets it where it is at least as good or rhs is NaN, else rhs (as PyTorch's fmin and fmax).
Gradient first_gradient(bool is_maximum) {
  return [is_maximum](const GradientContext& g) -> Tensors {
    const Tensor &a = g.in[0], &b = g.in[1], &up = g.upstream[0];
    Tensor better = is_maximum ? greater_equal(a, b) : less_equal(a, b);
    Tensor first = logical_or(better, not_equal(b, b)), zero = zero_like(up);
    return {select(first, up, zero), select(first, zero, up)};
  };
}

OpDef extreme(std::string name, std::string doc, bool is_maximum, ScalarOp op, BinaryRules rules,
              Gradient gradient) {
  ElementFunction known = [is_maximum](const Expr& a, const Expr& b) {
    return is_maximum ? max(a, b) : min(a, b);
  };
  return {
      .name = std::move(name),
      .kind = Kind::elementwise,
      .doc = std::move(doc),
      .operands = {{"lhs", kReal | kBool}, {"rhs", kReal | kBool}},
      .infer = infer_arithmetic(known),
      .judge = judge_binary(rules),
      .gradient = std::move(gradient),
      .commutative = true,
      .scalar = extreme_node(op, is_maximum),
      .samples = kBinarySamples,
  };
}

const Register minimum_entry(extreme(
    "minimum", "The smaller of lhs and rhs; NaN where one of them is NaN; -0 is below +0.", false,
    ScalarOp::min, {[](double a, double b) { return propagate(a, b, false); }, smaller, nullptr},
    shared_gradient(false)));
const Register maximum_entry(extreme(
    "maximum", "The larger of lhs and rhs; NaN where one of them is NaN; -0 is below +0.", true,
    ScalarOp::max, {[](double a, double b) { return propagate(a, b, true); }, larger, nullptr},
    shared_gradient(true)));
const Register minimum_number_entry(
    extreme("minimum_number", "The smaller of lhs and rhs; where one is NaN, the other.", false,
            ScalarOp::min_num,
            {[](double a, double b) { return number_wins(a, b, false); }, smaller, nullptr},
            first_gradient(false)));
const Register maximum_number_entry(
    extreme("maximum_number", "The larger of lhs and rhs; where one is NaN, the other.", true,
            ScalarOp::max_num,
            {[](double a, double b) { return number_wins(a, b, true); }, larger, nullptr},
            first_gradient(true)));

// ---- clamp

std::vector<HostTensor> judge_clamp(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  std::vector<std::vector<int64_t>> at;
  for (const HostTensor* t : ctx.in) at.push_back(broadcast_indices(t->shape, out.shape));
  for (size_t k = 0; k < at[0].size(); ++k) {
    auto x = static_cast<size_t>(at[0][k]), low = static_cast<size_t>(at[1][k]),
         high = static_cast<size_t>(at[2][k]);
    if (!out.f.empty()) {
      out.f[k] =
          propagate(propagate(ctx.in[0]->f[x], ctx.in[1]->f[low], true), ctx.in[2]->f[high], false);
    } else {
      int64_t raised = larger(ctx.in[0]->i[x], ctx.in[1]->i[low], out.dtype);
      out.i[k] = smaller(raised, ctx.in[2]->i[high], out.dtype);
    }
  }
  return {out};
}

// As PyTorch: x keeps the gradient at the bounds; `high` wins where the bounds cross.
Tensors clamp_gradient(const GradientContext& g) {
  const Tensor &x = g.in[0], &low = g.in[1], &high = g.in[2], &up = g.upstream[0];
  Tensor zero = zero_like(up);
  Tensors result(3);
  Tensor outside = logical_or(less(x, low), greater(x, high));
  result[0] = select(outside, zero, up);
  if (g.wanted[1]) result[1] = select(logical_and(less(low, high), less(x, low)), up, zero);
  if (g.wanted[2]) result[2] = select(logical_or(greater(x, high), greater(low, high)), up, zero);
  return result;
}

const Register clamp_entry({
    .name = "clamp",
    .kind = Kind::elementwise,
    .doc = "minimum(maximum(x, low), high). NaN in any of them gives NaN.",
    .operands = {{"x", kReal}, {"low", kReal}, {"high", kReal}},
    .infer = infer_same,
    .judge = judge_clamp,
    .gradient = clamp_gradient,
    .scalar =
        [](ScalarContext& c) {
          NodeId raised = c.b.binary(ScalarOp::max, c.in[0].re, c.in[1].re);
          return Val{c.b.binary(ScalarOp::min, raised, c.in[2].re)};
        },
    .samples = {{.shapes = {{3, 4}, {}, {}}}, {.shapes = {{2, 2}, {1, 2, 2}, {2}}}},
});

// ---- relu

const Register relu_entry({
    .name = "relu",
    .kind = Kind::elementwise,
    .doc = "x where it is above 0, else 0. NaN stays NaN; the derivative at 0 is 0.",
    .operands = {{"x", kReal}},
    .infer = infer_unary([](DType d) { return d; }),
    .judge = judge_unary({[](double a) { return a <= 0 ? 0.0 : a; },
                          [](int64_t a, DType t) { return t == u64 || a > 0 ? a : int64_t{0}; },
                          nullptr}),
    .gradient = [](const GradientContext& g) -> Tensors {
      const Tensor& up = g.upstream[0];
      return {select(g.in[0] <= 0.0, zero_like(up), up)};
    },
    .scalar =
        [](ScalarContext& c) {
          if (is_unsigned_integer(c.dtype)) return c.in[0];
          DType t = c.b.type(c.in[0].re);
          NodeId zero = c.b.constant_bits(t, 0);
          return Val{c.b.select(c.b.binary(ScalarOp::le, c.in[0].re, zero), zero, c.in[0].re)};
        },
    .samples = kUnarySamples,
});

// ----------------------------------------------------------------------------------------------
// comparisons

NodeId compare(ir::BodyBuilder& b, ScalarOp op, Val x, Val y) {
  NodeId re = b.binary(op, x.re, y.re);
  if (!x.complex()) return re;
  NodeId im = b.binary(op, x.im, y.im);
  return b.binary(op == ScalarOp::eq ? ScalarOp::bit_and : ScalarOp::bit_or, re, im);
}

OpDef comparison(std::string name, std::string doc, ScalarOp op, CompareRules rules) {
  bool equality = rules.c != nullptr;
  uint32_t accepted = equality ? kAny : kReal | kBool;
  return {
      .name = std::move(name),
      .kind = Kind::elementwise,
      .doc = std::move(doc),
      .operands = {{"lhs", accepted}, {"rhs", accepted}},
      .infer = infer_compare,
      .judge = judge_compare(rules),
      .no_gradient = true,
      .commutative = equality,
      .scalar = [op](ScalarContext& c) { return Val{compare(c.b, op, c.in[0], c.in[1])}; },
      .samples = kBinarySamples,
  };
}

const Register equal_entry(comparison("equal", "lhs == rhs; false where one is NaN.", ScalarOp::eq,
                                      {[](double a, double b) { return a == b; },
                                       [](int64_t a, int64_t b, DType) { return a == b; },
                                       [](Complex a, Complex b) { return a == b; }}));
const Register not_equal_entry(comparison("not_equal", "lhs != rhs; true where one is NaN.",
                                          ScalarOp::ne,
                                          {[](double a, double b) { return a != b; },
                                           [](int64_t a, int64_t b, DType) { return a != b; },
                                           [](Complex a, Complex b) { return a != b; }}));
const Register less_entry(comparison("less", "lhs < rhs; false where one is NaN.", ScalarOp::lt,
                                     {[](double a, double b) { return a < b; }, integer_less,
                                      nullptr}));
const Register less_equal_entry(
    comparison("less_equal", "lhs <= rhs; false where one is NaN.", ScalarOp::le,
               {[](double a, double b) { return a <= b; },
                [](int64_t a, int64_t b, DType t) { return !integer_less(b, a, t); }, nullptr}));
const Register greater_entry(
    comparison("greater", "lhs > rhs; false where one is NaN.", ScalarOp::gt,
               {[](double a, double b) { return a > b; },
                [](int64_t a, int64_t b, DType t) { return integer_less(b, a, t); }, nullptr}));
const Register greater_equal_entry(
    comparison("greater_equal", "lhs >= rhs; false where one is NaN.", ScalarOp::ge,
               {[](double a, double b) { return a >= b; },
                [](int64_t a, int64_t b, DType t) { return !integer_less(a, b, t); }, nullptr}));

// ----------------------------------------------------------------------------------------------
// logic, bits

OpDef bits_op(std::string name, std::string doc, uint32_t accepted, ScalarOp op,
              BinaryRules rules) {
  return {
      .name = std::move(name),
      .kind = Kind::elementwise,
      .doc = std::move(doc),
      .operands = {{"lhs", accepted}, {"rhs", accepted}},
      .infer = infer_same,
      .judge = judge_binary(rules),
      .no_gradient = true,
      .commutative = true,
      .scalar = binary_node(op),
      .samples = kBinarySamples,
  };
}

const BinaryRules kAnd = {nullptr, [](int64_t a, int64_t b, DType) { return a & b; }, nullptr};
const BinaryRules kOr = {nullptr, [](int64_t a, int64_t b, DType) { return a | b; }, nullptr};
const BinaryRules kXor = {nullptr, [](int64_t a, int64_t b, DType) { return a ^ b; }, nullptr};
constexpr uint32_t kBits = kInteger | kBool;

const Register logical_and_entry(bits_op("logical_and", "Both hold.", kBool, ScalarOp::bit_and,
                                         kAnd));
const Register logical_or_entry(bits_op("logical_or", "At least one holds.", kBool,
                                        ScalarOp::bit_or, kOr));
const Register logical_xor_entry(bits_op("logical_xor", "Exactly one holds.", kBool,
                                         ScalarOp::bit_xor, kXor));
const Register bitwise_and_entry(bits_op("bitwise_and", "lhs & rhs.", kBits, ScalarOp::bit_and,
                                         kAnd));
const Register bitwise_or_entry(bits_op("bitwise_or", "lhs | rhs.", kBits, ScalarOp::bit_or, kOr));
const Register bitwise_xor_entry(bits_op("bitwise_xor", "lhs ^ rhs.", kBits, ScalarOp::bit_xor,
                                         kXor));

OpDef complement(std::string name, std::string doc, uint32_t accepted) {
  return {
      .name = std::move(name),
      .kind = Kind::elementwise,
      .doc = std::move(doc),
      .operands = {{"x", accepted}},
      .infer = infer_unary([](DType d) { return d; }),
      .judge = judge_unary(
          {nullptr, [](int64_t a, DType t) { return t == bool_ ? int64_t{a == 0} : ~a; }, nullptr}),
      .no_gradient = true,
      .scalar =
          [](ScalarContext& c) {
            return Val{c.b.unary(c.dtype == bool_ ? ScalarOp::logical_not : ScalarOp::bit_not,
                                 c.in[0].re)};
          },
      .samples = kUnarySamples,
  };
}
const Register logical_not_entry(complement("logical_not", "True where x is false.", kBool));
const Register bitwise_not_entry(complement("bitwise_not", "All bits inverted; bool: logical_not.",
                                            kBits));

// ----------------------------------------------------------------------------------------------
// select

std::vector<HostTensor> judge_select(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  std::vector<std::vector<int64_t>> at;
  for (const HostTensor* t : ctx.in) at.push_back(broadcast_indices(t->shape, out.shape));
  for (size_t k = 0; k < at[0].size(); ++k) {
    size_t chosen = ctx.in[0]->i[static_cast<size_t>(at[0][k])] != 0 ? 1 : 2;
    const HostTensor& from = *ctx.in[chosen];
    auto p = static_cast<size_t>(at[chosen][k]);
    if (!out.f.empty()) out.f[k] = from.f[p];
    if (!out.i.empty()) out.i[k] = from.i[p];
    if (!out.c.empty()) out.c[k] = from.c[p];
  }
  return {out};
}

const Register select_entry({
    .name = "select",
    .kind = Kind::elementwise,
    .doc = "if_true where the predicate holds, else if_false. What is not chosen does not matter, "
           "NaN included.",
    .operands = {{"predicate", kBool}, {"if_true", kAnyStored}, {"if_false", kAnyStored}},
    .infer = [](const InferContext& ctx) { return infer_same_from(ctx, 1); },
    .judge = judge_select,
    .gradient = [](const GradientContext& g) -> Tensors {
      const Tensor& up = g.upstream[0];
      Tensor zero = zero_like(up);
      return {Tensor{}, select(g.in[0], up, zero), select(g.in[0], zero, up)};
    },
    .scalar =
        [](ScalarContext& c) {
          Val r{c.b.select(c.in[0].re, c.in[1].re, c.in[2].re)};
          if (c.in[1].complex()) r.im = c.b.select(c.in[0].re, c.in[1].im, c.in[2].im);
          return r;
        },
    .samples = {{.shapes = {{2, 3}, {2, 3}, {2, 3}}}, {.shapes = {{2, 1}, {1, 3}, {}}}},
});

// x != 0, so that any number may stand for a truth value.
Tensor truth(std::string_view op, const Tensor& x) {
  check_valid(op, {x});
  return cast(x, bool_);
}
Tensor logical(std::string_view op, const Tensor& a, const Tensor& b) {
  return ops::apply(op, {truth(op, a), truth(op, b)});
}

}  // namespace
}  // namespace ops

Tensor minimum(const Tensor& a, const Tensor& b) { return ops::binary("minimum", a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return ops::binary("maximum", a, b); }
Tensor minimum_number(const Tensor& a, const Tensor& b) {
  return ops::binary("minimum_number", a, b);
}
Tensor maximum_number(const Tensor& a, const Tensor& b) {
  return ops::binary("maximum_number", a, b);
}

Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  Tensors operands = {x, low, high};
  ops::promote_operands("clamp", operands);
  return ops::apply("clamp", operands);
}

Tensor relu(const Tensor& x) {
  ops::check_valid("relu", {x});
  return ops::apply("relu", {x});
}

Tensor equal(const Tensor& a, const Tensor& b) { return ops::binary("equal", a, b); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return ops::binary("not_equal", a, b); }
Tensor less(const Tensor& a, const Tensor& b) { return ops::binary("less", a, b); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return ops::binary("less_equal", a, b); }
Tensor greater(const Tensor& a, const Tensor& b) { return ops::binary("greater", a, b); }
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return ops::binary("greater_equal", a, b);
}

Tensor logical_and(const Tensor& a, const Tensor& b) { return ops::logical("logical_and", a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return ops::logical("logical_or", a, b); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return ops::logical("logical_xor", a, b); }
Tensor logical_not(const Tensor& x) {
  return ops::apply("logical_not", {ops::truth("logical_not", x)});
}
Tensor bitwise_and(const Tensor& a, const Tensor& b) { return ops::binary("bitwise_and", a, b); }
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return ops::binary("bitwise_or", a, b); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) { return ops::binary("bitwise_xor", a, b); }
Tensor bitwise_not(const Tensor& x) {
  ops::check_valid("bitwise_not", {x});
  return ops::apply("bitwise_not", {x});
}

Tensor select(const Tensor& predicate, const Tensor& if_true, const Tensor& if_false) {
  Tensors operands = {predicate, if_true, if_false};
  ops::promote_operands("select", operands, 1);
  return ops::apply("select", operands);
}

}  // namespace heddle
