// Padding in all boundary modes.
#include "base/check.h"
#include "ops/boundary.h"

#include <heddle/ops.h>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;

const std::vector<Expr>& pads(const ir::Attrs& attrs, const char* side) {
  return attrs.get<std::vector<Expr>>(side);
}

std::vector<InferredResult> infer_pad(const InferContext& c) {
  check_padding_mode(c, "mode");
  PaddingMode mode = padding_mode(c.attrs, "mode");
  const Shape& shape = c.shape(0);
  for (const char* side : {"before", "after"})
    if (pads(c.attrs, side).size() != shape.size())
      c.fail(cat(side, " has ", pads(c.attrs, side).size(),
                 " numbers, expected one for each of the ", shape.size(), " axes of x ",
                 to_string(shape)));
  if (c.dtype(0) == DType::boolean && mode == PaddingMode::anti_periodic)
    c.fail("x is boolean, which anti_periodic cannot negate");
  if (mode == PaddingMode::constant) check_fill(c, "value", c.attrs.get<double>("value"));
  Shape out;
  for (size_t k = 0; k < shape.size(); ++k) {
    const Expr& b = pads(c.attrs, "before")[k];
    const Expr& a = pads(c.attrs, "after")[k];
    check_distance(c, "before", b);
    check_distance(c, "after", a);
    Expr n = shape[k] + b + a;
    c.require_at_least(n, 0,
                       cat("before ", b.to_string(), " and after ", a.to_string(),
                           " crop more than the extent ", shape[k].to_string(), " of axis ", k));
    out.push_back(n.lower() < 0 ? max(n, Expr(0)) : n);
    if (!fills(mode))
      c.require_at_least(shape[k], min(out.back(), Expr(1)),
                         cat("axis ", k, " of x ", to_string(shape),
                             " is empty, which only constant and zero can pad"));
  }
  return {{{c.dtype(0), std::move(out)}, std::nullopt}};
}

std::vector<HostTensor> judge_pad(const JudgeContext& c) {
  PaddingMode mode = padding_mode(c.attrs, "mode");
  auto value = c.attrs.get<double>("value");
  if (c.in[0]->dtype == DType::boolean) value = value != 0 ? 1 : 0;
  HostTensor out(c.in[0]->dtype, concrete_shape(c.result_types[0]));
  std::vector<int64_t> before;
  for (const Expr& e : pads(c.attrs, "before")) before.push_back(c.number(e));
  for_each_index(out.shape, [&](std::vector<int64_t> at, int64_t flat) {
    for (size_t k = 0; k < at.size(); ++k) at[k] -= before[k];
    JudgeScalar v = judge_boundary_read(*c.in[0], mode, value, at);
    if (out.dtype == DType::boolean) v.i = v.i != 0;
    store(out, flat, v);
  });
  return {out};
}

ir::Val pad_element(ElementContext& c) {
  std::vector<Expr> positions;
  for (size_t k = 0; k < c.coords.size(); ++k)
    positions.push_back(c.coords[k] - pads(c.op.attrs, "before")[k]);
  double value = c.op.attrs.get<double>("value");
  if (c.dtype(0) == DType::boolean) value = value != 0;
  return boundary_read(c, 0, padding_mode(c.op.attrs, "mode"), value, {}, positions);
}

Sample pad_sample(std::vector<int64_t> shape, std::vector<Expr> before, std::vector<Expr> after,
                  const char* mode, double value = 0) {
  return {.shapes = {std::move(shape)},
          .attrs = {{"before", std::move(before)},
                    {"after", std::move(after)},
                    {"mode", std::string(mode)},
                    {"value", value}}};
}

const AttrDomain kPadDomain = {
    .kind = AttrDomain::Kind::per_axis, .low = -2, .high = 5, .may_be_empty = false};

const Register pad_entry({
    .name = "pad",
    .kind = Kind::view,
    .doc = "x with more elements before and after along each axis; negative numbers crop. Wide "
           "pads repeat as in NumPy.",
    .operands = {{"x", kAny}},
    .attrs = {{.name = "before",
               .doc = "elements before each axis",
               .type = attr_type<std::vector<Expr>>,
               .domain = kPadDomain},
              {.name = "after",
               .doc = "elements after each axis",
               .type = attr_type<std::vector<Expr>>,
               .domain = kPadDomain},
              {.name = "mode",
               .doc = "constant, reflect, symmetric, clamp_to_edge, zero, periodic or "
                      "anti_periodic",
               .fallback = std::string("constant"),
               .domain = boundary_domain()},
              {"value", "outside, for mode constant", 0.0}},
    .infer = infer_pad,
    .judge = judge_pad,
    .gradient = [](const GradientContext& c) -> Tensors {
      return {pad_transpose(c.upstream[0], *known_type(c.in[0], "gradients of pad", "x").shape,
                            pads(c.op.attrs, "before"), padding_mode(c.op.attrs, "mode"))};
    },
    .simplify = [](const ir::Op& op, const Tensors& operands) -> std::optional<Tensors> {
      for (const char* side : {"before", "after"})
        for (const Expr& e : pads(op.attrs, side))
          if (!e.is(0)) return std::nullopt;
      return operands;
    },
    .element = pad_element,
    .samples = {pad_sample({2, 3}, {1, 2}, {0, 1}, "constant", 2),
                pad_sample({2, 3}, {1, 2}, {0, 1}, "zero"),
                pad_sample({4, 3}, {1, 2}, {3, 1}, "reflect"), pad_sample({3}, {5}, {7}, "reflect"),
                pad_sample({3, 2}, {1, 2}, {3, 1}, "symmetric"),
                pad_sample({2}, {5}, {3}, "symmetric"),
                pad_sample({2, 3}, {3, 0}, {1, 2}, "clamp_to_edge"),
                pad_sample({3, 2}, {2, 1}, {1, 5}, "periodic"),
                pad_sample({3, 2}, {4, 1}, {1, 5}, "anti_periodic"),
                pad_sample({6, 5}, {-1, 2}, {1, -2}, "reflect")},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor pad(const Tensor& x, const PadOptions& options) {
  return ops::apply("pad", {x},
                    {{"before", ops::to_exprs(options.before)},
                     {"after", ops::to_exprs(options.after)},
                     {"mode", std::string(ops::name(options.mode))},
                     {"value", options.value}});
}

}  // namespace heddle
