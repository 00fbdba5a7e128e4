// make_complex real imaginary conjugate.
#include "ops/elementwise.h"

#include <heddle/error.h>
#include <heddle/ops/elementwise.h>

namespace heddle {
namespace ops {
namespace {

using ir::ScalarOp;
using ir::Val;

const std::vector<Sample> kUnarySamples = {{.shapes = {{3, 5}}}, {.shapes = {{}}}};

DType complex_of(DType part) {
  if (part == f16) return DType::c32;
  if (part == f32) return DType::c64;
  return part == f64 ? DType::c128 : DType::unknown;
}

std::vector<ir::InferredResult> infer_make_complex(const InferContext& ctx) {
  auto results = infer_same(ctx);
  DType to = complex_of(ctx.dtype(0));
  if (to == DType::unknown)
    ctx.fail("expects parts of f16, f32 or f64, given " + describe_operands(ctx));
  results[0].type.dtype = to;
  return results;
}

const Register make_complex_entry({
    .name = "make_complex",
    .kind = Kind::elementwise,
    .doc = "real + i imaginary. f16 gives c32, f32 c64, f64 c128.",
    .operands = {{"real", kRealFloat}, {"imaginary", kRealFloat}},
    .infer = infer_make_complex,
    .judge = [](const JudgeContext& ctx) -> std::vector<HostTensor> {
      HostTensor out = judge_result(ctx);
      const HostTensor &a = *ctx.in[0], &b = *ctx.in[1];
      auto ia = broadcast_indices(a.shape, out.shape), ib = broadcast_indices(b.shape, out.shape);
      for (size_t k = 0; k < ia.size(); ++k)
        out.c[k] = {a.f[static_cast<size_t>(ia[k])], b.f[static_cast<size_t>(ib[k])]};
      return {out};
    },
    .gradient = [](const GradientContext& g) -> Tensors {
      return {real(g.upstream[0]), imaginary(g.upstream[0])};
    },
    .scalar = [](ScalarContext& c) { return Val{c.in[0].re, c.in[1].re}; },
    .samples = {{.shapes = {{2, 3}, {2, 3}}}, {.shapes = {{4, 1}, {3}}}},
});

// Real numbers are their own real parts and conjugates.
std::optional<Tensors> simplify_real(const ir::Op&, const Tensors& operands) {
  DType d = operands[0].dtype();
  if (d == DType::unknown || is_complex(d)) return std::nullopt;
  return operands;
}

OpDef part(std::string name, std::string doc, bool is_imaginary) {
  return {
      .name = std::move(name),
      .kind = Kind::elementwise,
      .doc = std::move(doc),
      .operands = {{"x", kNumber}},
      .infer = infer_unary([](DType d) { return real_part(d); }),
      .judge = [is_imaginary](const JudgeContext& ctx) -> std::vector<HostTensor> {
        HostTensor out = judge_result(ctx);
        const HostTensor& x = *ctx.in[0];
        for (size_t k = 0; k < x.c.size(); ++k)
          out.f[k] = is_imaginary ? x.c[k].imag() : x.c[k].real();
        if (!is_imaginary && !is_complex(x.dtype)) return {x};
        return {out};
      },
      .gradient = [is_imaginary](const GradientContext& g) -> Tensors {
        const Tensor& up = g.upstream[0];
        if (!is_complex(g.in[0].dtype())) return {is_imaginary ? Tensor{} : up};
        Tensor zero = constant_like(up, 0);
        return {is_imaginary ? make_complex(zero, up) : make_complex(up, zero)};
      },
      .simplify = is_imaginary ? Simplify{} : simplify_real,
      .scalar =
          [is_imaginary](ScalarContext& c) {
            if (!is_imaginary) return Val{c.in[0].re};
            if (c.in[0].complex()) return Val{c.in[0].im};
            return Val{c.b.constant_bits(c.b.type(c.in[0].re), 0)};
          },
      .samples = kUnarySamples,
  };
}
const Register real_entry(part("real", "The real part; a real x itself.", false));
const Register imaginary_entry(part("imaginary", "The imaginary part; zeros for a real x.", true));

const Register conjugate_entry({
    .name = "conjugate",
    .kind = Kind::elementwise,
    .doc = "The complex conjugate; a real x itself.",
    .operands = {{"x", kNumber}},
    .infer = infer_unary([](DType d) { return d; }),
    .judge = [](const JudgeContext& ctx) -> std::vector<HostTensor> {
      HostTensor out = *ctx.in[0];
      for (Complex& z : out.c) z = std::conj(z);
      return {out};
    },
    .gradient = [](const GradientContext& g) -> Tensors {
      return {conjugate_if_complex(g.upstream[0])};
    },
    .simplify = simplify_real,
    .scalar =
        [](ScalarContext& c) {
          Val r = c.in[0];
          if (r.complex()) r.im = c.b.unary(ScalarOp::neg, r.im);
          return r;
        },
    .samples = kUnarySamples,
});

Tensor unary(std::string_view op, const Tensor& x) {
  check_valid(op, {x});
  return ops::apply(op, {x});
}

}  // namespace
}  // namespace ops

Tensor make_complex(const Tensor& real, const Tensor& imaginary) {
  Tensors operands = {real, imaginary};
  ops::promote_operands("make_complex", operands);
  return ops::apply("make_complex", {ops::as_floating("make_complex", operands[0]),
                                     ops::as_floating("make_complex", operands[1])});
}
Tensor real(const Tensor& x) { return ops::unary("real", x); }
Tensor imaginary(const Tensor& x) { return ops::unary("imaginary", x); }
Tensor conjugate(const Tensor& x) { return ops::unary("conjugate", x); }

}  // namespace heddle
