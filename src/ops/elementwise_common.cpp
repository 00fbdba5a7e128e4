#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/support.h"

#include <heddle/error.h>
#include <heddle/ops/elementwise.h>

#include <cmath>

namespace heddle::ops {

using ir::Val;

// ----------------------------------------------------------------------------------------------
// inference

std::string describe_operands(const InferContext& ctx) {
  const OpDef* def = find_op(ctx.op);
  std::string text;
  for (size_t i = 0; i < ctx.operands.size(); ++i) {
    if (i > 0) text += ", ";
    if (def != nullptr && i < def->operands.size()) text += def->operands[i].name + " ";
    text += to_string(ctx.type(i));
  }
  return text;
}

namespace {

Shape broadcast_all(const InferContext& ctx) {
  Shape shape = ctx.shape(0);
  for (size_t i = 1; i < ctx.operands.size(); ++i)
    shape = broadcast_shapes(shape, ctx.shape(i), ctx.op);
  return shape;
}

void check_equal_dtypes(const InferContext& ctx, size_t first) {
  for (size_t i = first + 1; i < ctx.operands.size(); ++i)
    if (ctx.dtype(i) != ctx.dtype(first))
      ctx.fail("operands need one dtype, given " + describe_operands(ctx));
}

// Elements of operand i at the positions of a result of `count` elements, or nullopt.
std::optional<std::vector<Expr>> broadcast_elements(const InferContext& ctx, size_t i,
                                                    int64_t count) {
  if (!ctx.elements(i)) return std::nullopt;
  std::vector<Expr> e = *ctx.elements(i);
  if (e.size() == 1) e.resize(static_cast<size_t>(count), e[0]);
  if (static_cast<int64_t>(e.size()) != count) return std::nullopt;
  return e;
}

}  // namespace

std::vector<ir::InferredResult> infer_same_from(const InferContext& ctx, size_t first) {
  check_equal_dtypes(ctx, first);
  return {{type(ctx.dtype(first), broadcast_all(ctx)), std::nullopt}};
}
std::vector<ir::InferredResult> infer_same(const InferContext& ctx) {
  return infer_same_from(ctx, 0);
}

std::vector<ir::InferredResult> infer_compare(const InferContext& ctx) {
  check_equal_dtypes(ctx, 0);
  return {{type(bool_, broadcast_all(ctx)), std::nullopt}};
}

Infer infer_unary(std::function<DType(DType)> result) {
  return [result = std::move(result)](const InferContext& ctx) -> std::vector<ir::InferredResult> {
    return {{type(result(ctx.dtype(0)), ctx.shape(0)), std::nullopt}};
  };
}

Infer infer_arithmetic(ElementFunction f) {
  return [f = std::move(f)](const InferContext& ctx) {
    auto results = infer_same(ctx);
    const Type& t = results[0].type;
    if ((t.dtype != i32 && t.dtype != i64) || t.rank() > 1) return results;
    if (!may_know_elements(t)) return results;
    int64_t count = *element_count(*t.shape).constant();
    auto a = broadcast_elements(ctx, 0, count), b = broadcast_elements(ctx, 1, count);
    if (!a || !b) return results;
    std::vector<Expr> elements;
    for (size_t k = 0; k < a->size(); ++k) {
      std::optional<Expr> e = f((*a)[k], (*b)[k]);
      if (!e) return results;
      elements.push_back(*e);
    }
    results[0].elements = std::move(elements);
    return results;
  };
}

// ----------------------------------------------------------------------------------------------
// the judge

std::vector<int64_t> broadcast_indices(const std::vector<int64_t>& in,
                                       const std::vector<int64_t>& out) {
  HD_CHECK(in.size() <= out.size(), "operand of higher rank than the result");
  std::vector<int64_t> strides(out.size(), 0), own = row_major_strides(in);
  size_t lead = out.size() - in.size();
  for (size_t k = 0; k < in.size(); ++k) strides[lead + k] = in[k] == 1 ? 0 : own[k];
  std::vector<int64_t> indices(static_cast<size_t>(element_count(out)));
  for_each_index(out, [&](const std::vector<int64_t>& at, int64_t flat) {
    int64_t index = 0;
    for (size_t k = 0; k < at.size(); ++k) index += at[k] * strides[k];
    indices[static_cast<size_t>(flat)] = index;
  });
  return indices;
}

std::vector<int64_t> concrete_shape(const Type& type) {
  std::vector<int64_t> shape;
  for (const Expr& e : *type.shape) {
    HD_CHECK(e.is_constant(), "the judge got the open extent ", e.to_string());
    shape.push_back(*e.constant());
  }
  return shape;
}

HostTensor judge_result(const JudgeContext& ctx) {
  const Type& type = ctx.result_types[0];
  return HostTensor(type.dtype, concrete_shape(type));
}

Judge judge_unary(UnaryRules rules) {
  return [rules](const JudgeContext& ctx) -> std::vector<HostTensor> {
    HostTensor out = judge_result(ctx);
    const HostTensor& x = *ctx.in[0];
    for (size_t k = 0; k < x.f.size(); ++k) out.f[k] = rules.f(x.f[k]);
    for (size_t k = 0; k < x.i.size(); ++k) out.i[k] = rules.i(x.i[k], x.dtype);
    for (size_t k = 0; k < x.c.size(); ++k) out.c[k] = rules.c(x.c[k]);
    return {out};
  };
}

Judge judge_binary(BinaryRules rules) {
  return [rules](const JudgeContext& ctx) -> std::vector<HostTensor> {
    HostTensor out = judge_result(ctx);
    const HostTensor &a = *ctx.in[0], &b = *ctx.in[1];
    auto ia = broadcast_indices(a.shape, out.shape), ib = broadcast_indices(b.shape, out.shape);
    for (size_t k = 0; k < ia.size(); ++k) {
      auto p = static_cast<size_t>(ia[k]), q = static_cast<size_t>(ib[k]);
      if (!out.f.empty()) out.f[k] = rules.f(a.f[p], b.f[q]);
      if (!out.i.empty()) out.i[k] = rules.i(a.i[p], b.i[q], out.dtype);
      if (!out.c.empty()) out.c[k] = rules.c(a.c[p], b.c[q]);
    }
    return {out};
  };
}

Judge judge_compare(CompareRules rules) {
  return [rules](const JudgeContext& ctx) -> std::vector<HostTensor> {
    HostTensor out = judge_result(ctx);
    const HostTensor &a = *ctx.in[0], &b = *ctx.in[1];
    auto ia = broadcast_indices(a.shape, out.shape), ib = broadcast_indices(b.shape, out.shape);
    for (size_t k = 0; k < ia.size(); ++k) {
      auto p = static_cast<size_t>(ia[k]), q = static_cast<size_t>(ib[k]);
      bool holds = false;
      if (!a.f.empty()) holds = rules.f(a.f[p], b.f[q]);
      if (!a.i.empty()) holds = rules.i(a.i[p], b.i[q], a.dtype);
      if (!a.c.empty()) holds = rules.c(a.c[p], b.c[q]);
      out.i[k] = holds ? 1 : 0;
    }
    return {out};
  };
}

bool integer_less(int64_t a, int64_t b, DType dtype) {
  if (dtype == u64) return static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
  return a < b;
}

int64_t floor_quotient(int64_t a, int64_t b, DType dtype) {
  if (b == 0) return 0;
  if (dtype == u64)
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  if (b == -1) return static_cast<int64_t>(uint64_t{0} - static_cast<uint64_t>(a));
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// In long double, whose exponent holds every square of a double.
Complex complex_quotient(Complex x, Complex y) {
  long double a = x.real(), b = x.imag(), c = y.real(), d = y.imag();
  long double length = c * c + d * d;
  if (length == 0)
    return {static_cast<double>(a / std::fabs(c)), static_cast<double>(b / std::fabs(c))};
  if (std::isinf(length) && std::isfinite(x.real()) && std::isfinite(x.imag())) return {0, 0};
  return {static_cast<double>((a * c + b * d) / length),
          static_cast<double>((b * c - a * d) / length)};
}

// ----------------------------------------------------------------------------------------------
// scalar rules

DType scalar_type(DType dtype) {
  if (is_storage_only(dtype)) return u8;
  return real_part(compute_type(dtype));
}

ScalarRule unary_node(ir::ScalarOp op) {
  return [op](ScalarContext& c) { return Val{c.b.unary(op, c.in[0].re)}; };
}
ScalarRule binary_node(ir::ScalarOp op) {
  return [op](ScalarContext& c) { return Val{c.b.binary(op, c.in[0].re, c.in[1].re)}; };
}

// ----------------------------------------------------------------------------------------------
// simplification

Simplify drop_neutral(double for_floats, double for_integers, bool commutative) {
  return [=](const ir::Op&, const Tensors& operands) -> std::optional<Tensors> {
    for (size_t neutral : {size_t{1}, size_t{0}}) {
      if (neutral == 0 && !commutative) break;
      const Tensor& kept = operands[1 - neutral];
      DType dtype = kept.dtype();
      if (!kept.type().known() || is_complex(dtype) || operands[neutral].dtype() != dtype) continue;
      double value = is_integer(dtype) ? for_integers : for_floats;
      if (!is_filled_with(operands[neutral], value)) continue;
      if (broadcast_shapes(kept.shape(), operands[neutral].shape(), "") != kept.shape()) continue;
      return Tensors{kept};
    }
    return std::nullopt;
  };
}

// ----------------------------------------------------------------------------------------------
// building

void check_valid(std::string_view op, const Tensors& operands) {
  const OpDef* def = find_op(op);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].valid()) continue;
    std::string argument =
        def != nullptr && i < def->operands.size() ? def->operands[i].name : std::to_string(i);
    throw GraphError(std::string(op) + ": argument " + argument +
                     " is an empty Tensor, expected a value of a graph");
  }
}

namespace {
// Casts what differs from the others while dtypes are still open: decided when they become known.
void promote_open(Tensors& operands, size_t first) {
  Tensors before = operands;
  for (size_t i = first; i < operands.size(); ++i)
    for (size_t j = first; j < before.size(); ++j)
      if (i != j && !before[i].is(before[j]))
        operands[i] = ops::apply("cast_like", {operands[i], before[j]}, {{"promote", true}});
}
}  // namespace

void promote_operands(std::string_view op, Tensors& operands, size_t first) {
  check_valid(op, operands);
  DType common = operands[first].dtype();
  bool open = common == DType::unknown, differ = false;
  for (size_t i = first + 1; i < operands.size(); ++i) {
    DType next = operands[i].dtype();
    open = open || next == DType::unknown;
    if (next == common || open) continue;
    differ = true;
    DType both = promote(common, next);
    if (both == DType::unknown) {
      throw GraphError(std::string(op) + ": no common dtype of " + std::string(name(common)) +
                       " and " + std::string(name(next)) + ": cast one of them first");
    }
    common = both;
  }
  if (open) return promote_open(operands, first);
  if (!differ) return;
  for (size_t i = first; i < operands.size(); ++i) operands[i] = cast(operands[i], common);
}

Tensor binary(std::string_view op, const Tensor& a, const Tensor& b) {
  Tensors operands = {a, b};
  promote_operands(op, operands);
  return ops::apply(op, operands);
}

Tensor as_floating(std::string_view op, const Tensor& x) {
  check_valid(op, {x});
  bool exact = is_integer(x.dtype()) || x.dtype() == bool_;
  return exact ? cast(x, f32) : x;
}

Tensor conjugate_if_complex(const Tensor& x) {
  return x.dtype() == DType::unknown || is_complex(x.dtype()) ? conjugate(x) : x;
}

}  // namespace heddle::ops
