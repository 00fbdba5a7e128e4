// cast between all dtypes, cast_like, constant_like, identity, stop_gradient.
#include "ops/cast.h"

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/storage.h"
#include "ops/support.h"

#include <heddle/error.h>
#include <heddle/ops/elementwise.h>

#include <cmath>
#include <limits>

namespace heddle {
namespace ops {

using base::cat;
using ir::BodyBuilder;
using ir::NodeId;
using ir::ScalarOp;
using ir::Val;

namespace {

bool is_half(DType d) { return d == f16 || d == bf16; }

// value: f32, f64, an integer or boolean; the result is an f32 that the half type holds.
NodeId round_to_half(BodyBuilder& b, NodeId value, DType half) {
  DType from = b.type(value);
  NodeId wide = from == f64 ? round_to_odd(b, value) : b.cast(value, f32);
  if (from == bool_ || from == i8 || from == u8) return wide;  // both half types hold them
  return b.cast(b.cast(wide, half), f32);
}

// A real scalar of compute type to the real dtype `to`.
NodeId convert_real(BodyBuilder& b, NodeId value, DType to) {
  if (is_half(to)) return round_to_half(b, value, to);
  if (is_small_float(to)) {
    DType t = b.type(value);
    if (t != f32 && t != f64) value = b.cast(value, f64);
    return encode_storage(b, to, value);
  }
  if (is_storage_only(to)) {
    if (is_real_float(b.type(value))) value = b.cast(value, i32);
    return encode_storage(b, to, value);
  }
  return b.cast(value, to);
}

}  // namespace

Val cast_scalar(BodyBuilder& b, Val value, DType from, DType to) {
  if (from == to) return value;
  if (is_storage_only(from)) {
    value.re = decode_storage(b, from, value.re);
    from = decoded_type(from);
  }
  if (is_complex(to)) {
    DType part = real_part(to);
    Val result{convert_real(b, value.re, part), ir::kNoNode};
    result.im =
        value.complex() ? convert_real(b, value.im, part) : b.constant(b.type(result.re), 0);
    return result;
  }
  if (to == bool_ && value.complex()) {
    NodeId re = b.cast(value.re, bool_), im = b.cast(value.im, bool_);
    return {b.binary(ScalarOp::bit_or, re, im)};
  }
  return {convert_real(b, value.re, to)};
}

// ----------------------------------------------------------------------------------------------
// the judge

namespace {

// kConvertRule of ir/body.h; the caller wraps to the dtype's bits.
int64_t float_to_integer(double x, DType to) {
  if (to == bool_) return x != 0 ? 1 : 0;
  if (std::isnan(x)) return 0;
  bool is_unsigned = to == u32 || to == u64;
  int bits = to == i64 || to == u64 ? 64 : 32;
  double low = is_unsigned ? 0 : -std::ldexp(1.0, bits - 1);
  double high = std::ldexp(1.0, is_unsigned ? bits : bits - 1);  // exclusive
  x = std::trunc(x);
  if (x >= high) {
    uint64_t all = bits == 64 ? UINT64_MAX : UINT32_MAX;
    return static_cast<int64_t>(is_unsigned ? all : all >> 1);
  }
  if (x <= low) return static_cast<int64_t>(low);
  return is_unsigned ? static_cast<int64_t>(static_cast<uint64_t>(x)) : static_cast<int64_t>(x);
}

double integer_to_float(int64_t x, DType from, DType to) {
  bool is_unsigned = from == u64;
  auto u = static_cast<uint64_t>(x);
  if (to == f64 || is_small_float(to) || to == DType::c128) {
    return is_unsigned ? static_cast<double>(u) : static_cast<double>(x);
  }
  return is_unsigned ? static_cast<float>(u) : static_cast<float>(x);
}

std::vector<HostTensor> judge_cast(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  const HostTensor& x = *ctx.in[0];
  int64_t count = x.size();
  for (int64_t n = 0; n < count; ++n) {
    auto k = static_cast<size_t>(n);
    double real = !x.f.empty()   ? x.f[k]
                  : !x.c.empty() ? x.c[k].real()
                                 : integer_to_float(x.i[k], x.dtype, out.dtype);
    if (!out.f.empty()) out.f[k] = real;
    if (!out.c.empty()) out.c[k] = x.c.empty() ? Complex(real, 0) : x.c[k];
    if (out.i.empty()) continue;
    if (!x.i.empty()) {
      out.i[k] = out.dtype == bool_ ? (x.i[k] != 0) : x.i[k];
    } else {
      bool imaginary = out.dtype == bool_ && !x.c.empty() && x.c[k].imag() != 0;
      out.i[k] = imaginary ? 1 : float_to_integer(real, out.dtype);
    }
  }
  return {out};
}

// ----------------------------------------------------------------------------------------------
// entries

// Can `to` hold every value of `from`, so that a cast through it changes nothing in a later cast?
bool passes_through(DType from, DType middle, DType to) {
  if (is_storage_only(from) || is_storage_only(middle)) return false;
  if (from == bool_) return middle != bool_;
  if (is_integer(from)) {
    if (!is_integer(middle) || bit_width(middle) < bit_width(from)) return false;
    if (is_signed_integer(from) == is_signed_integer(middle)) return true;
    return is_unsigned_integer(from) && bit_width(middle) > bit_width(from);
  }
  if (middle == bool_ || is_integer(middle)) return false;
  if (is_complex(from) != is_complex(middle))
    return is_complex(middle) && is_complex(to) && real_part(middle) == f64;
  DType a = real_part(from), m = real_part(middle);
  return m == f64 || (m == f32 && a != f64);
}

std::optional<Tensors> simplify_cast(const ir::Op& op, const Tensors& operands) {
  DType to = op.attrs.get<DType>("dtype"), from = operands[0].dtype();
  if (from == DType::unknown) return std::nullopt;
  if (from == to) return Tensors{operands[0]};
  const ir::Op* inner = producer(operands[0]);
  if (inner == nullptr || inner->name != "cast") return std::nullopt;
  Tensor source = operands[0].graph()->tensor(inner->operands[0]);
  if (source.dtype() == DType::unknown || !passes_through(source.dtype(), from, to))
    return std::nullopt;
  return Tensors{cast(source, to)};
}

std::vector<ir::InferredResult> infer_cast(const InferContext& ctx) {
  DType to = ctx.attrs.get<DType>("dtype");
  if (to == DType::unknown) ctx.fail("attribute 'dtype' expects an element type, given 'unknown'");
  ir::InferredResult result{type(to, ctx.shape(0)), std::nullopt};
  bool kept = (to == i32 || to == i64) && is_integer(ctx.dtype(0));
  if (kept) result.elements = ctx.elements(0);
  return {result};
}

const Register cast_entry({
    .name = "cast",
    .kind = Kind::elementwise,
    .doc = "x in another dtype. Floats round to nearest even, once; 64-bit integers reach f16, "
           "bf16 and c32 through f32. "
           "Float to integer truncates: NaN gives 0, 32- and 64-bit types saturate, smaller ones "
           "take the low bits of the "
           "i32. Integers wrap. To bool: x != 0. Complex to real drops the imaginary part. FP8 and "
           "FP4 as described at "
           "their dtypes.",
    .operands = {{"x", kAnyStored}},
    .attrs = {{.name = "dtype",
               .doc = "dtype of the result",
               .type = ir::attr_type<DType>,
               .domain = {.kind = AttrDomain::Kind::dtype, .dtypes = kAny}}},
    .infer = infer_cast,
    .judge = judge_cast,
    .gradient = [](const GradientContext& g) -> Tensors {
      DType dtype = g.in[0].dtype();
      if (dtype == DType::unknown) return {ops::apply("cast_like", {g.upstream[0], g.in[0]})};
      if (!is_floating(dtype)) return {Tensor{}};
      return {cast(g.upstream[0], dtype)};
    },
    .simplify = simplify_cast,
    .scalar = [](ScalarContext& c) { return cast_scalar(c.b, c.in[0], c.in_dtypes[0], c.dtype); },
    .samples = {{.shapes = {{3, 5}}, .attrs = {{"dtype", f32}}},
                {.shapes = {{3, 5}}, .attrs = {{"dtype", i8}}, .low = -200, .high = 200},
                {.shapes = {{4}}, .attrs = {{"dtype", f16}}},
                {.shapes = {{}}, .attrs = {{"dtype", DType::c64}}}},
});

DType cast_like_dtype(const Type& x, const Type& like, bool promoted) {
  return promoted ? promote(x.dtype, like.dtype) : like.dtype;
}

const Register cast_like_entry({
    .name = "cast_like",
    .kind = Kind::composite,
    .doc = "x in the dtype of `like`, or with `promote` in the common dtype of both. For dtypes "
           "that are still open when the "
           "graph is built.",
    .operands = {{"x", kAnyStored}, {"like", kAnyStored}},
    .attrs = {{.name = "promote", .doc = "the common dtype of x and like", .fallback = false}},
    .infer = [](const InferContext& ctx) -> std::vector<ir::InferredResult> {
      DType to = cast_like_dtype(ctx.type(0), ctx.type(1), ctx.attrs.get<bool>("promote"));
      if (to == DType::unknown) ctx.fail("no common dtype of " + describe_operands(ctx));
      return {{type(to, ctx.shape(0)), std::nullopt}};
    },
    .judge = judge_cast,
    .gradient = [](const GradientContext& g) -> Tensors {
      return {ops::apply("cast_like", {g.upstream[0], g.in[0]}), Tensor{}};
    },
    .decompose = [](const ir::Graph& graph, const ir::Op& op, const Tensors& operands) -> Tensors {
      return {cast(operands[0], graph.value(op.results[0]).type.dtype)};
    },
    .samples = {{.shapes = {{3}, {2}}}},
});

HostTensor filled_scalar(DType dtype, double value) {
  HostTensor t(dtype, {});
  if (!t.f.empty()) t.f[0] = value;
  if (!t.c.empty()) t.c[0] = value;
  if (t.i.empty()) return t;
  t.i[0] = whole_number(value);
  return t;
}

std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

void check_fits(DType dtype, double value) {
  if (representable(value, dtype)) return;
  throw GraphError(cat("constant_like: ", number(value), " is not a value of ", name(dtype),
                       ", the dtype of x: cast x to a dtype that holds it"));
}

const Register constant_like_entry({
    .name = "constant_like",
    .kind = Kind::composite,
    .doc = "The scalar `value` in the dtype of x. For dtypes that are still open when the graph is "
           "built.",
    .operands = {{"x", kAnyStored}},
    .attrs = {{.name = "value", .doc = "the number", .type = ir::attr_type<double>}},
    .infer = [](const InferContext& ctx) -> std::vector<ir::InferredResult> {
      check_fits(ctx.dtype(0), ctx.attrs.get<double>("value"));
      return {{type(ctx.dtype(0), {}), std::nullopt}};
    },
    .judge = [](const JudgeContext& ctx) -> std::vector<HostTensor> {
      return {filled_scalar(ctx.result_types[0].dtype, ctx.attrs.get<double>("value"))};
    },
    .no_gradient = true,
    .decompose = [](const ir::Graph&, const ir::Op& op, const Tensors& operands) -> Tensors {
      return {constant_like(operands[0], op.attrs.get<double>("value"))};
    },
    .samples = {{.shapes = {{2}}, .attrs = {{"value", 2.0}}}},
});

std::vector<HostTensor> judge_identity(const JudgeContext& ctx) { return {*ctx.in[0]}; }
Val identity_scalar(ScalarContext& c) { return c.in[0]; }
std::optional<Tensors> simplify_identity(const ir::Op&, const Tensors& operands) {
  return operands;
}
std::vector<ir::InferredResult> infer_identity(const InferContext& ctx) {
  return {{ctx.type(0), ctx.elements(0)}};
}

const Register identity_entry({
    .name = "identity",
    .kind = Kind::elementwise,
    .doc = "x.",
    .operands = {{"x", kAnyStored}},
    .infer = infer_identity,
    .judge = judge_identity,
    .gradient = [](const GradientContext& g) -> Tensors { return {g.upstream[0]}; },
    .simplify = simplify_identity,
    .scalar = identity_scalar,
    .samples = {{.shapes = {{3}}}},
});

const Register stop_gradient_entry({
    .name = "stop_gradient",
    .kind = Kind::elementwise,
    .doc = "x, as a constant to gradients.",
    .operands = {{"x", kAnyStored}},
    .infer = infer_identity,
    .judge = judge_identity,
    .no_gradient = true,
    .simplify = simplify_identity,
    .scalar = identity_scalar,
    .samples = {{.shapes = {{3}}}},
});

}  // namespace
}  // namespace ops

Tensor cast(const Tensor& x, DType dtype) {
  ops::check_valid("cast", {x});
  if (x.dtype() == dtype && dtype != DType::unknown) return x;
  return ops::apply("cast", {x}, {{"dtype", dtype}});
}

Tensor identity(const Tensor& x) {
  ops::check_valid("identity", {x});
  return ops::apply("identity", {x});
}
Tensor stop_gradient(const Tensor& x) {
  ops::check_valid("stop_gradient", {x});
  return ops::apply("stop_gradient", {x});
}

Tensor constant_like(const Tensor& x, double value) {
  ops::check_valid("constant_like", {x});
  if (x.dtype() == DType::unknown) return ops::apply("constant_like", {x}, {{"value", value}});
  ops::check_fits(x.dtype(), value);
  ops::HostTensor scalar = ops::filled_scalar(x.dtype(), value);
  ops::round_to_dtype(scalar);
  return x.graph()->tensor(ops::add_constant(*x.graph(), ops::to_literal(scalar)));
}

}  // namespace heddle
