// add subtract multiply divide floor_modulo negate abs square, floor.
#include "ops/complex_scalar.h"
#include "ops/elementwise.h"

#include <heddle/ops/elementwise.h>

#include <cmath>

namespace heddle {
namespace ops {
namespace {

using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

const std::vector<OperandSpec> kTwoNumbers = {{"lhs", kNumber}, {"rhs", kNumber}};
const std::vector<Sample> kBinarySamples = {
    {.shapes = {{2, 3}, {2, 3}}}, {.shapes = {{4, 1, 3}, {5, 1}}}, {.shapes = {{}, {7}}}};
const std::vector<Sample> kUnarySamples = {{.shapes = {{3, 5}}}, {.shapes = {{}}}};

uint64_t bits(int64_t v) { return static_cast<uint64_t>(v); }
int64_t wrapped(uint64_t v) { return static_cast<int64_t>(v); }
int64_t add_integers(int64_t a, int64_t b, DType) { return wrapped(bits(a) + bits(b)); }
int64_t subtract_integers(int64_t a, int64_t b, DType) { return wrapped(bits(a) - bits(b)); }
int64_t multiply_integers(int64_t a, int64_t b, DType) { return wrapped(bits(a) * bits(b)); }
int64_t negate_integer(int64_t a, DType) { return wrapped(0 - bits(a)); }

// ---- add, subtract, multiply

ScalarRule pairwise(ScalarOp op) {
  return [op](ScalarContext& c) {
    Val r{c.b.binary(op, c.in[0].re, c.in[1].re)};
    if (c.in[0].complex()) r.im = c.b.binary(op, c.in[0].im, c.in[1].im);
    return r;
  };
}

const Register add_entry({
    .name = "add",
    .kind = Kind::elementwise,
    .doc = "lhs + rhs. Integers wrap.",
    .operands = kTwoNumbers,
    .infer = infer_arithmetic([](const Expr& a, const Expr& b) { return a + b; }),
    .judge = judge_binary({[](double a, double b) { return a + b; }, add_integers,
                           [](Complex a, Complex b) { return a + b; }}),
    .gradient = [](const GradientContext& g) -> Tensors { return {g.upstream[0], g.upstream[0]}; },
    .commutative = true,
    .simplify = drop_neutral(-0.0, 0, true),
    .scalar = pairwise(ScalarOp::add),
    .samples = kBinarySamples,
});

const Register subtract_entry({
    .name = "subtract",
    .kind = Kind::elementwise,
    .doc = "lhs - rhs. Integers wrap.",
    .operands = kTwoNumbers,
    .infer = infer_arithmetic([](const Expr& a, const Expr& b) { return a - b; }),
    .judge = judge_binary({[](double a, double b) { return a - b; }, subtract_integers,
                           [](Complex a, Complex b) { return a - b; }}),
    .gradient = [](const GradientContext& g) -> Tensors {
      return {g.upstream[0], g.wanted[1] ? negate(g.upstream[0]) : Tensor{}};
    },
    .simplify = drop_neutral(0, 0, false),
    .scalar = pairwise(ScalarOp::sub),
    .samples = kBinarySamples,
});

const Register multiply_entry({
    .name = "multiply",
    .kind = Kind::elementwise,
    .doc = "lhs * rhs. Integers wrap.",
    .operands = kTwoNumbers,
    .infer = infer_arithmetic([](const Expr& a, const Expr& b) { return a * b; }),
    .judge = judge_binary({[](double a, double b) { return a * b; }, multiply_integers,
                           [](Complex a, Complex b) {
                             return Complex(a.real() * b.real() - a.imag() * b.imag(),
                                            a.real() * b.imag() + a.imag() * b.real());
                           }}),
    .gradient = [](const GradientContext& g) -> Tensors {
      const Tensor& up = g.upstream[0];
      return {g.wanted[0] ? up * conjugate_if_complex(g.in[1]) : Tensor{},
              g.wanted[1] ? up * conjugate_if_complex(g.in[0]) : Tensor{}};
    },
    .commutative = true,
    .simplify = drop_neutral(1, 1, true),
    .scalar =
        [](ScalarContext& c) {
          if (c.in[0].complex()) return complex_multiply(c.b, c.in[0], c.in[1]);
          return Val{c.b.binary(ScalarOp::mul, c.in[0].re, c.in[1].re)};
        },
    .samples = kBinarySamples,
});

// ---- divide, floor_modulo

// The truncated quotient, one less where the signs differ and the division leaves a rest.
NodeId floor_divide(ir::BodyBuilder& b, NodeId x, NodeId y) {
  DType t = b.type(x);
  NodeId quotient = b.binary(ScalarOp::div, x, y);
  if (is_unsigned_integer(t)) return quotient;
  NodeId zero = b.constant_int(t, 0), rest = b.binary(ScalarOp::rem, x, y);
  NodeId inexact = b.binary(ScalarOp::ne, rest, zero);
  NodeId negative = b.binary(ScalarOp::lt, b.binary(ScalarOp::bit_xor, x, y), zero);
  NodeId lower = b.binary(ScalarOp::sub, quotient, b.constant_int(t, 1));
  return b.select(b.binary(ScalarOp::bit_and, inexact, negative), lower, quotient);
}

std::optional<Expr> divide_elements(const Expr& a, const Expr& b) {
  if (b.lower() <= 0 && b.upper() >= 0)
    return b.is(0) ? std::optional<Expr>(Expr(0)) : std::nullopt;
  return a / b;
}
std::optional<Expr> modulo_elements(const Expr& a, const Expr& b) {
  if (b.lower() <= 0 && b.upper() >= 0)
    return b.is(0) ? std::optional<Expr>(Expr(0)) : std::nullopt;
  return a % b;
}

const Register divide_entry({
    .name = "divide",
    .kind = Kind::elementwise,
    .doc = "lhs / rhs. Floats: IEEE division. Integers: rounded down, 0 where rhs is 0; the "
           "smallest integer / -1 wraps.",
    .operands = kTwoNumbers,
    .infer = infer_arithmetic(divide_elements),
    .judge = judge_binary({[](double a, double b) { return a / b; }, floor_quotient,
                           complex_quotient}),
    .gradient = [](const GradientContext& g) -> Tensors {
      const Tensor& up = g.upstream[0];
      Tensor divisor = conjugate_if_complex(g.in[1]);
      Tensor first = up / divisor;
      return {first, g.wanted[1] ? negate(first * conjugate_if_complex(g.out[0])) : Tensor{}};
    },
    .simplify = drop_neutral(1, 1, false),
    .scalar =
        [](ScalarContext& c) {
          if (c.in[0].complex()) return complex_divide(c.b, c.in[0], c.in[1]);
          if (is_integer(c.dtype)) return Val{floor_divide(c.b, c.in[0].re, c.in[1].re)};
          return Val{c.b.binary(ScalarOp::div, c.in[0].re, c.in[1].re)};
        },
    .samples = kBinarySamples,
});

double judge_floor_modulo(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

NodeId floor_modulo_node(ir::BodyBuilder& b, NodeId x, NodeId y) {
  DType t = b.type(x);
  NodeId rest = b.binary(ScalarOp::rem, x, y);
  if (is_unsigned_integer(t)) return rest;
  bool is_float = is_real_float(t);
  NodeId zero = is_float ? b.constant(t, 0) : b.constant_int(t, 0);
  NodeId differs =
      b.binary(ScalarOp::ne, b.binary(ScalarOp::lt, rest, zero), b.binary(ScalarOp::lt, y, zero));
  NodeId moved = b.select(differs, b.binary(ScalarOp::add, rest, y), rest);
  // A zero remainder: 0 with the divisor's sign, as NumPy. (0 * y is NaN for an infinite y: hence
  // the select.)
  NodeId nothing = zero;
  if (is_float) nothing = b.select(b.binary(ScalarOp::lt, y, zero), b.constant(t, -0.0), zero);
  return b.select(b.binary(ScalarOp::eq, rest, zero), nothing, moved);
}

const Register floor_modulo_entry({
    .name = "floor_modulo",
    .kind = Kind::elementwise,
    .doc = "lhs - floor(lhs / rhs) * rhs, with the sign of rhs. Integers: 0 where rhs is 0. "
           "Floats: exact remainder, NaN "
           "where rhs is 0 or lhs infinite.",
    .operands = {{"lhs", kReal}, {"rhs", kReal}},
    .infer = infer_arithmetic(modulo_elements),
    .judge = judge_binary({judge_floor_modulo,
                           [](int64_t a, int64_t b, DType t) {
                             if (b == 0) return int64_t{0};
                             return wrapped(bits(a) - bits(floor_quotient(a, b, t)) * bits(b));
                           },
                           nullptr}),
    .gradient = [](const GradientContext& g) -> Tensors {
      const Tensor& up = g.upstream[0];
      return {up, g.wanted[1] ? negate(up * floor(g.in[0] / g.in[1])) : Tensor{}};
    },
    .scalar = [](ScalarContext& c) { return Val{floor_modulo_node(c.b, c.in[0].re, c.in[1].re)}; },
    .samples = kBinarySamples,
});

// ---- unary

DType same(DType d) { return d; }

const Register negate_entry({
    .name = "negate",
    .kind = Kind::elementwise,
    .doc = "-x. Integers wrap.",
    .operands = {{"x", kNumber}},
    .infer = infer_unary(same),
    .judge = judge_unary({[](double a) { return -a; }, negate_integer,
                          [](Complex a) { return -a; }}),
    .gradient = [](const GradientContext& g) -> Tensors { return {negate(g.upstream[0])}; },
    .scalar =
        [](ScalarContext& c) {
          Val r{c.b.unary(ScalarOp::neg, c.in[0].re)};
          if (c.in[0].complex()) r.im = c.b.unary(ScalarOp::neg, c.in[0].im);
          return r;
        },
    .samples = kUnarySamples,
});

Tensor zero_like(const Tensor& x) { return constant_like(x, 0); }

// The derivative at 0 is 0; complex: up * x / |x|.
Tensors abs_gradient(const GradientContext& g) {
  const Tensor &x = g.in[0], &up = g.upstream[0];
  if (!is_complex(x.dtype())) {
    Tensor below = select(x < 0.0, negate(up), zero_like(up));
    return {select(x > 0.0, up, below)};
  }
  Tensor nothing = equal(g.out[0], zero_like(g.out[0]));
  Tensor length = select(nothing, constant_like(g.out[0], 1), g.out[0]);
  return {cast(up / length, x.dtype()) * x};
}

std::vector<HostTensor> judge_abs(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  const HostTensor& x = *ctx.in[0];
  for (size_t k = 0; k < x.f.size(); ++k) out.f[k] = std::fabs(x.f[k]);
  for (size_t k = 0; k < x.c.size(); ++k) out.f[k] = std::hypot(x.c[k].real(), x.c[k].imag());
  for (size_t k = 0; k < x.i.size(); ++k)
    out.i[k] = is_signed_integer(x.dtype) && x.i[k] < 0 ? negate_integer(x.i[k], x.dtype) : x.i[k];
  return {out};
}

const Register abs_entry({
    .name = "abs",
    .kind = Kind::elementwise,
    .doc = "|x|. Complex: the length, a real number. The smallest integer of a signed type stays "
           "as it is.",
    .operands = {{"x", kNumber}},
    .infer = infer_unary([](DType d) { return real_part(d); }),
    .judge = judge_abs,
    .gradient = abs_gradient,
    .scalar =
        [](ScalarContext& c) {
          if (c.in[0].complex()) return Val{complex_abs(c.b, c.in[0])};
          if (is_unsigned_integer(c.dtype)) return c.in[0];
          return Val{c.b.unary(ScalarOp::abs, c.in[0].re)};
        },
    .samples = kUnarySamples,
});

const Register square_entry({
    .name = "square",
    .kind = Kind::elementwise,
    .doc = "x * x. Integers wrap.",
    .operands = {{"x", kNumber}},
    .infer = infer_unary(same),
    .judge = judge_unary({[](double a) { return a * a; },
                          [](int64_t a, DType t) { return multiply_integers(a, a, t); },
                          [](Complex a) {
                            return Complex(a.real() * a.real() - a.imag() * a.imag(),
                                           2 * a.real() * a.imag());
                          }}),
    .gradient = [](const GradientContext& g) -> Tensors {
      return {g.upstream[0] * (conjugate_if_complex(g.in[0]) * 2.0)};
    },
    .scalar =
        [](ScalarContext& c) {
          if (c.in[0].complex()) return complex_multiply(c.b, c.in[0], c.in[0]);
          return Val{c.b.binary(ScalarOp::mul, c.in[0].re, c.in[0].re)};
        },
    .samples = kUnarySamples,
});

const Register floor_entry({
    .name = "floor",
    .kind = Kind::elementwise,
    .doc = "The largest integer that is not above x. Integers stay.",
    .operands = {{"x", kReal}},
    .infer = infer_unary(same),
    .judge = judge_unary({[](double a) { return std::floor(a); },
                          [](int64_t a, DType) { return a; }, nullptr}),
    .no_gradient = true,
    .scalar =
        [](ScalarContext& c) {
          if (is_integer(c.dtype)) return c.in[0];
          return Val{c.b.unary(ScalarOp::floor, c.in[0].re)};
        },
    .samples = kUnarySamples,
});

Tensor unary(std::string_view op, const Tensor& x) {
  check_valid(op, {x});
  return ops::apply(op, {x});
}

}  // namespace
}  // namespace ops

Tensor add(const Tensor& a, const Tensor& b) { return ops::binary("add", a, b); }
Tensor subtract(const Tensor& a, const Tensor& b) { return ops::binary("subtract", a, b); }
Tensor multiply(const Tensor& a, const Tensor& b) { return ops::binary("multiply", a, b); }
Tensor divide(const Tensor& a, const Tensor& b) { return ops::binary("divide", a, b); }
Tensor floor_modulo(const Tensor& a, const Tensor& b) { return ops::binary("floor_modulo", a, b); }
Tensor negate(const Tensor& x) { return ops::unary("negate", x); }
Tensor abs(const Tensor& x) { return ops::unary("abs", x); }
Tensor square(const Tensor& x) { return ops::unary("square", x); }
Tensor floor(const Tensor& x) { return ops::unary("floor", x); }

}  // namespace heddle
