// sqrt rsqrt exp log tanh sigmoid erf power.
#include "ops/complex_scalar.h"
#include "ops/elementwise.h"
#include "ops/math_functions.h"

#include <heddle/ops/elementwise.h>

#include <cmath>
#include <numbers>

namespace heddle {
namespace ops {
namespace {

using ir::BodyBuilder;
using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

const std::vector<Sample> kAll = {{.shapes = {{3, 5}}, .low = -4, .high = 4}, {.shapes = {{}}}};
const std::vector<Sample> kPositive = {{.shapes = {{3, 5}}, .low = 0.1, .high = 9},
                                       {.shapes = {{}}, .low = 0.1}};

// The upstream gradient times the (conjugate) derivative that `slope` builds from operand and
// result.
Gradient chain(Tensor (*slope)(const Tensor& x, const Tensor& y)) {
  return [slope](const GradientContext& g) -> Tensors {
    return {g.upstream[0] * conjugate_if_complex(slope(g.in[0], g.out[0]))};
  };
}

struct Function {
  std::string name, doc;
  uint32_t accepted = kFloating;
  double (*f)(double);
  Complex (*c)(Complex) = nullptr;
  NodeId (*real)(BodyBuilder&, NodeId);
  Val (*complex)(BodyBuilder&, Val) = nullptr;
  Tensor (*slope)(const Tensor& x, const Tensor& y);
  std::vector<Sample> samples;
};

OpDef define(Function d) {
  return {
      .name = std::move(d.name),
      .kind = Kind::elementwise,
      .doc = std::move(d.doc),
      .operands = {{"x", d.accepted}},
      .infer = infer_unary([](DType dtype) { return dtype; }),
      .judge = judge_unary({d.f, nullptr, d.c}),
      .gradient = chain(d.slope),
      .scalar =
          [real = d.real, complex = d.complex](ScalarContext& c) {
            return c.in[0].complex() ? complex(c.b, c.in[0]) : Val{real(c.b, c.in[0].re)};
          },
      .samples = std::move(d.samples),
  };
}

NodeId sqrt_node(BodyBuilder& b, NodeId x) { return b.unary(ScalarOp::sqrt, x); }
NodeId one_like(BodyBuilder& b, NodeId x) { return b.constant(b.type(x), 1); }
// 1 / sqrt(x), both IEEE: 1.5 ULP.
NodeId rsqrt_node(BodyBuilder& b, NodeId x) {
  return b.binary(ScalarOp::div, one_like(b, x), sqrt_node(b, x));
}
Val complex_one(BodyBuilder& b, NodeId like) {
  return {one_like(b, like), b.constant(b.type(like), 0)};
}
Val complex_rsqrt(BodyBuilder& b, Val x) {
  return complex_divide(b, complex_one(b, x.re), complex_sqrt(b, x));
}
Val complex_sigmoid(BodyBuilder& b, Val x) {
  Val one = complex_one(b, x.re);
  Val e = complex_exp(b, {b.unary(ScalarOp::neg, x.re), b.unary(ScalarOp::neg, x.im)});
  return complex_divide(b, one, {b.binary(ScalarOp::add, e.re, one.re), e.im});
}
double sigmoid_f64(double x) {
  double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

const Register sqrt_entry(define({
    .name = "sqrt",
    .doc = "The square root; NaN below 0. Complex: the root with a real part that is not negative.",
    .f = [](double x) { return std::sqrt(x); },
    .c = [](Complex x) { return std::sqrt(x); },
    .real = sqrt_node,
    .complex = complex_sqrt,
    .slope = [](const Tensor&, const Tensor& y) { return 0.5 / y; },
    .samples = kPositive,
}));
const Register rsqrt_entry(define({
    .name = "rsqrt",
    .doc = "1 / sqrt(x); infinite at 0, with its sign.",
    .f = [](double x) { return 1 / std::sqrt(x); },
    .c = [](Complex x) { return 1.0 / std::sqrt(x); },
    .real = rsqrt_node,
    .complex = complex_rsqrt,
    .slope = [](const Tensor&, const Tensor& y) { return y * y * y * -0.5; },
    .samples = kPositive,
}));
const Register exp_entry(define({
    .name = "exp",
    .doc = "e to the power x.",
    .f = [](double x) { return std::exp(x); },
    .c = [](Complex x) { return std::exp(x); },
    .real = exp_node,
    .complex = complex_exp,
    .slope = [](const Tensor&, const Tensor& y) { return y; },
    .samples = kAll,
}));
const Register log_entry(define({
    .name = "log",
    .doc =
        "The natural logarithm; -infinity at 0, NaN below. Complex: imaginary part in [-pi, pi].",
    .f = [](double x) { return x == 0 ? -INFINITY : std::log(x); },
    .c = [](Complex x) { return std::log(x); },
    .real = log_node,
    .complex = complex_log,
    .slope = [](const Tensor& x, const Tensor&) { return 1.0 / x; },
    .samples = kPositive,
}));
const Register tanh_entry(define({
    .name = "tanh",
    .doc = "The hyperbolic tangent.",
    .f = [](double x) { return std::tanh(x); },
    .c = [](Complex x) { return std::tanh(x); },
    .real = tanh_node,
    .complex = complex_tanh,
    .slope = [](const Tensor&, const Tensor& y) { return 1.0 - y * y; },
    .samples = kAll,
}));
const Register sigmoid_entry(define({
    .name = "sigmoid",
    .doc = "1 / (1 + exp(-x)).",
    .f = sigmoid_f64,
    .c = [](Complex x) { return 1.0 / (1.0 + std::exp(-x)); },
    .real = sigmoid_node,
    .complex = complex_sigmoid,
    .slope = [](const Tensor&, const Tensor& y) { return y * (1.0 - y); },
    .samples = kAll,
}));
const Register erf_entry(define({
    .name = "erf",
    .doc = "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    .accepted = kRealFloat,
    .f = [](double x) { return std::erf(x); },
    .real = erf_node,
    .slope = [](const Tensor& x,
                const Tensor&) { return exp(negate(x * x)) * (2 * std::numbers::inv_sqrtpi); },
    .samples = kAll,
}));

// ----------------------------------------------------------------------------------------------
// power

int64_t judge_integer_power(int64_t x, int64_t y, DType dtype) {
  if (is_signed_integer(dtype) && y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(x);
  for (auto left = static_cast<uint64_t>(y); left != 0; left >>= 1, square *= square)
    if ((left & 1) != 0) result *= square;
  return static_cast<int64_t>(result);
}

Complex judge_complex_power(Complex x, Complex y) {
  if (y == 0.0) return 1;
  if (x == 0.0) return y.real() > 0 ? Complex(0) : Complex(NAN, NAN);
  // In extended precision: the error of the logarithm grows with the exponent.
  using Wide = std::complex<long double>;
  return Complex(std::exp(Wide(y) * std::log(Wide(x))));
}

// As PyTorch: no gradient to the base where the exponent is 0; none to the exponent where the base
// is 0 and the exponent is not negative. What is not chosen is kept finite, so that the second
// derivative has no 0 * infinity.
Tensors power_gradient(const GradientContext& g) {
  const Tensor &x = g.in[0], &y = g.in[1], &up = g.upstream[0];
  Tensor zero = constant_like(up, 0);
  Tensors result(2);
  if (g.wanted[0]) {
    Tensor flat = equal(y, constant_like(y, 0));
    Tensor exponent = select(flat, constant_like(y, 1), y);
    Tensor slope = exponent * power(x, exponent - 1.0);
    result[0] = select(flat, zero, up * conjugate_if_complex(slope));
  }
  if (g.wanted[1]) {
    Tensor size = real(y);
    Tensor flat = logical_and(equal(x, constant_like(x, 0)), size >= 0.0);
    Tensor base = select(flat, constant_like(x, 1), x);
    result[1] = select(flat, zero, up * conjugate_if_complex(g.out[0] * log(base)));
  }
  return result;
}

const Register power_entry({
    .name = "power",
    .kind = Kind::elementwise,
    .doc = "lhs to the power rhs, with the special cases of C's pow: x^0 = 1^y = 1, a negative "
           "base needs a whole exponent. "
           "Integers wrap; a negative exponent gives 1 / lhs^-rhs truncated, 0 for lhs = 0. "
           "Complex: exp(rhs log lhs), whose relative error grows with |rhs log lhs|.",
    .operands = {{"lhs", kNumber}, {"rhs", kNumber}},
    .infer = infer_same,
    .judge = judge_binary({[](double a, double b) { return std::pow(a, b); }, judge_integer_power,
                           judge_complex_power}),
    .gradient = power_gradient,
    .scalar =
        [](ScalarContext& c) {
          if (c.in[0].complex()) return complex_power(c.b, c.in[0], c.in[1]);
          bool whole = is_integer(c.dtype);
          return Val{whole ? integer_power_node(c.b, c.in[0].re, c.in[1].re)
                           : power_node(c.b, c.in[0].re, c.in[1].re)};
        },
    // Small, since the error of a complex power grows with |rhs log lhs|.
    .samples = {{.shapes = {{2, 3}, {2, 3}}, .low = 0.3, .high = 1.2},
                {.shapes = {{4, 1, 3}, {5, 1}}, .low = 0.3, .high = 1.2}},
});

// Integers and booleans are computed as f32.
Tensor floating(std::string_view op, const Tensor& x) {
  return ops::apply(op, {as_floating(op, x)});
}

}  // namespace
}  // namespace ops

Tensor sqrt(const Tensor& x) { return ops::floating("sqrt", x); }
Tensor rsqrt(const Tensor& x) { return ops::floating("rsqrt", x); }
Tensor exp(const Tensor& x) { return ops::floating("exp", x); }
Tensor log(const Tensor& x) { return ops::floating("log", x); }
Tensor tanh(const Tensor& x) { return ops::floating("tanh", x); }
Tensor sigmoid(const Tensor& x) { return ops::floating("sigmoid", x); }
Tensor erf(const Tensor& x) { return ops::floating("erf", x); }
Tensor power(const Tensor& a, const Tensor& b) { return ops::binary("power", a, b); }

}  // namespace heddle
