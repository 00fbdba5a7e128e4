// Matrix products.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <algorithm>

namespace heddle::ops {
namespace {

using base::cat;
using ir::InferredResult;

struct MatmulShape {
  bool ta = false, tb = false;
  size_t batch_a = 0, batch_b = 0;  // numbers of batch axes
  // Axes of m and k in a, of k and n in b.
  size_t m = 0, ka = 0, kb = 0, n = 0;
};

MatmulShape matmul_shape(const ir::Attrs& attrs, size_t rank_a, size_t rank_b) {
  MatmulShape s;
  s.ta = attrs.get<bool>("transpose_a");
  s.tb = attrs.get<bool>("transpose_b");
  s.batch_a = rank_a - 2;
  s.batch_b = rank_b - 2;
  s.m = s.batch_a + (s.ta ? 1 : 0);
  s.ka = s.batch_a + (s.ta ? 0 : 1);
  s.kb = s.batch_b + (s.tb ? 1 : 0);
  s.n = s.batch_b + (s.tb ? 0 : 1);
  return s;
}

std::vector<InferredResult> infer_matmul(const InferContext& c) {
  const Shape& a = c.shape(0);
  const Shape& b = c.shape(1);
  for (size_t i = 0; i < 2; ++i)
    if (c.shape(i).size() < 2)
      c.fail(cat(i == 0 ? "lhs " : "rhs ", to_string(c.shape(i)), " has rank ", c.shape(i).size(),
                 ", expected 2 or more: reshape it first"));
  if (c.dtype(0) != c.dtype(1))
    c.fail(cat("dtypes differ: lhs is ", name(c.dtype(0)), ", rhs is ", name(c.dtype(1))));
  MatmulShape s = matmul_shape(c.attrs, a.size(), b.size());
  if (is_equal(a[s.ka], b[s.kb]) != Ordering::yes) {
    auto side = [](const Shape& x, bool transposed) {
      return to_string(x) + (transposed ? " transposed" : "");
    };
    c.fail(cat("inner extents differ: lhs ", side(a, s.ta), " has ", a[s.ka].to_string(), ", rhs ",
               side(b, s.tb), " has ", b[s.kb].to_string()));
  }
  Shape batch_a(a.begin(), a.end() - 2);
  Shape batch_b(b.begin(), b.end() - 2);
  Shape out = broadcast_shapes(batch_a, batch_b, c.op);
  out.push_back(a[s.m]);
  out.push_back(b[s.n]);
  return {{{c.dtype(0), std::move(out)}, std::nullopt}};
}

// Coordinates in an operand with `batch` batch axes and the last two given, at `coords` of the
// result.
template <class T, class Extent>
std::vector<T> operand_coords(const std::vector<T>& coords, const std::vector<Extent>& shape,
                              size_t row_axis, const T& row, const T& column) {
  size_t batch = shape.size() - 2;
  size_t lead = coords.size() - 2 - batch;
  std::vector<T> at;
  for (size_t k = 0; k < batch; ++k) at.push_back(shape[k] == Extent(1) ? T(0) : coords[lead + k]);
  at.push_back(row_axis == batch ? row : column);
  at.push_back(row_axis == batch ? column : row);
  return at;
}

std::vector<HostTensor> judge_matmul(const JudgeContext& c) {
  const HostTensor& a = *c.in[0];
  const HostTensor& b = *c.in[1];
  MatmulShape s = matmul_shape(c.attrs, a.shape.size(), b.shape.size());
  HostTensor out(a.dtype, concrete_shape(c.result_types[0]));
  int64_t depth = a.shape[s.ka];
  // Distances from one k to the next.
  int64_t step_a = row_major_strides(a.shape)[s.ka];
  int64_t step_b = row_major_strides(b.shape)[s.kb];
  for_each_index(out.shape, [&](const std::vector<int64_t>& at, int64_t flat) {
    int64_t row = at[at.size() - 2], column = at.back(), first = 0;
    int64_t in_a = flat_index(operand_coords(at, a.shape, s.m, row, first), a.shape);
    int64_t in_b = flat_index(operand_coords(at, b.shape, s.kb, first, column), b.shape);
    JudgeScalar total;
    for (int64_t k = 0; k < depth; ++k) {
      JudgeScalar x = load(a, in_a + k * step_a);
      total = judge_add(total, judge_multiply(x, load(b, in_b + k * step_b)));
    }
    store(out, flat, total);
  });
  return {out};
}

Tensors matmul_gradient(const GradientContext& c) {
  bool ta = c.op.attrs.get<bool>("transpose_a");
  bool tb = c.op.attrs.get<bool>("transpose_b");
  const Tensor& u = c.upstream[0];
  Tensors out(2);
  if (c.wanted[0]) {
    Tensor b = conjugate_if_complex(c.in[1]);
    out[0] = ta ? matmul(b, u, {.transpose_a = tb, .transpose_b = true})
                : matmul(u, b, {.transpose_b = !tb});
  }
  if (c.wanted[1]) {
    Tensor a = conjugate_if_complex(c.in[0]);
    out[1] = tb ? matmul(u, a, {.transpose_a = true, .transpose_b = ta})
                : matmul(a, u, {.transpose_a = !ta});
  }
  return out;
}

ReduceRule matmul_rule() {
  ReduceRule rule;
  rule.op = ir::ReduceOp::sum;
  rule.inner = [](const ir::Graph& graph, const ir::Op& op) -> Shape {
    const Shape& a = *graph.value(op.operands[0]).type.shape;
    size_t rank_b = graph.value(op.operands[1]).type.shape->size();
    return {a[matmul_shape(op.attrs, a.size(), rank_b).ka]};
  };
  rule.value = [](ElementContext& c, const std::vector<Expr>& inner) {
    MatmulShape s = matmul_shape(c.op.attrs, c.shape(0).size(), c.shape(1).size());
    const Expr& row = c.coords[c.coords.size() - 2];
    ir::Val x = c.at(0, operand_coords(c.coords, c.shape(0), s.m, row, inner[0]), ir::kNoNode, {});
    ir::Val y = c.at(1, operand_coords(c.coords, c.shape(1), s.kb, inner[0], c.coords.back()),
                     ir::kNoNode, {});
    return multiply(c.b, x, y);
  };
  return rule;
}

const Register matmul_entry({
    .name = "matmul",
    .kind = Kind::library,
    .doc = "Matrix product of the last two axes; the axes before them broadcast. Half types are "
           "summed in f32.",
    .operands = {{"lhs", kNumber}, {"rhs", kNumber}},
    .attrs = {{"transpose_a", "exchanges the last two axes of lhs", false},
              {"transpose_b", "exchanges the last two axes of rhs", false}},
    .infer = infer_matmul,
    .judge = judge_matmul,
    .gradient = matmul_gradient,
    .reduce = matmul_rule(),
    .samples = {{.shapes = {{3, 5}, {5, 4}}},
                {.shapes = {{5, 3}, {4, 5}},
                 .attrs = {{"transpose_a", true}, {"transpose_b", true}}},
                {.shapes = {{2, 1, 1, 2}, {2, 2, 1}}},
                {.shapes = {{2, 0}, {0, 3}}}},
});

}  // namespace
}  // namespace heddle::ops

namespace heddle {

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  Tensors operands{a, b};
  ops::check_valid("matmul", operands);
  ops::promote_operands("matmul", operands);
  return ops::apply("matmul", operands,
                    {{"transpose_a", options.transpose_a}, {"transpose_b", options.transpose_b}});
}

}  // namespace heddle
