// cumulative_sum.
#include "base/check.h"
#include "ops/elementwise.h"

#include <heddle/error.h>
#include <heddle/ops/reduce.h>

namespace heddle {
namespace ops {
namespace {

using base::cat;

size_t axis_of(const ir::Attrs& attrs, size_t rank) {
  int64_t axis = attrs.get<int64_t>("axis");
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

std::vector<ir::InferredResult> infer_scan(const InferContext& ctx) {
  int64_t axis = ctx.attrs.get<int64_t>("axis"), rank = ctx.type(0).rank();
  if (axis < -rank || axis >= rank)
    ctx.fail(cat("axis ", axis, " is not one of x ", to_string(ctx.type(0)), " of rank ", rank));
  return {{ctx.type(0), std::nullopt}};
}

// One line of elements along the axis at a time, each in extended precision.
struct Total {
  long double re = 0, im = 0;
  uint64_t whole = 0;
  void add(const HostTensor& x, size_t k) {
    if (!x.f.empty()) re += x.f[k];
    if (!x.c.empty()) re += x.c[k].real(), im += x.c[k].imag();
    if (!x.i.empty()) whole += static_cast<uint64_t>(x.i[k]);
  }
  void store(HostTensor& out, size_t k) const {
    if (!out.f.empty()) out.f[k] = static_cast<double>(re);
    if (!out.c.empty()) out.c[k] = {static_cast<double>(re), static_cast<double>(im)};
    if (!out.i.empty()) out.i[k] = static_cast<int64_t>(whole);
  }
};

std::vector<HostTensor> judge_cumulative_sum(const JudgeContext& ctx) {
  HostTensor out = judge_result(ctx);
  const HostTensor& x = *ctx.in[0];
  size_t axis = axis_of(ctx.attrs, x.shape.size());
  bool exclusive = ctx.attrs.get<bool>("exclusive"), reverse = ctx.attrs.get<bool>("reverse");
  int64_t extent = x.shape[axis], stride = row_major_strides(x.shape)[axis];
  for_each_index(x.shape, [&](const std::vector<int64_t>& at, int64_t start) {
    if (at[axis] != 0) return;
    Total total;
    for (int64_t n = 0; n < extent; ++n) {
      auto k = static_cast<size_t>(start + (reverse ? extent - 1 - n : n) * stride);
      if (!exclusive) total.add(x, k);
      total.store(out, k);
      if (exclusive) total.add(x, k);
    }
  });
  return {out};
}

const Register cumulative_sum_entry({
    .name = "cumulative_sum",
    .kind = Kind::scan,
    .doc = "Sums of the elements up to each along an axis (exclusive: before each; reverse: from "
           "the end). Half types are "
           "summed in f32, integers wrap in their own dtype.",
    .operands = {{"x", kNumber}},
    .attrs = {{.name = "axis",
               .doc = "axis to sum along, may be negative",
               .fallback = int64_t{-1},
               .domain = {.kind = AttrDomain::Kind::axis}},
              {.name = "exclusive", .doc = "without the element itself", .fallback = false},
              {.name = "reverse", .doc = "from the end", .fallback = false}},
    .infer = infer_scan,
    .judge = judge_cumulative_sum,
    .gradient = [](const GradientContext& g) -> Tensors {
      const ir::Attrs& attrs = g.op.attrs;
      return {ops::apply("cumulative_sum", {g.upstream[0]},
                         {{"axis", attrs.get<int64_t>("axis")},
                          {"exclusive", attrs.get<bool>("exclusive")},
                          {"reverse", !attrs.get<bool>("reverse")}})};
    },
    .scan = [](const ir::Graph& graph, const ir::Op& op) -> ScanRule {
      auto rank = static_cast<size_t>(graph.value(op.operands[0]).type.rank());
      return {.op = ir::ReduceOp::sum,
              .axis = static_cast<int>(axis_of(op.attrs, rank)),
              .exclusive = op.attrs.get<bool>("exclusive"),
              .reverse = op.attrs.get<bool>("reverse")};
    },
    .samples = {{.shapes = {{3, 4}}, .attrs = {{"axis", int64_t{0}}}},
                {.shapes = {{3, 4}}, .attrs = {{"exclusive", true}}},
                {.shapes = {{7}}, .attrs = {{"exclusive", true}, {"reverse", true}}}},
});

}  // namespace
}  // namespace ops

Tensor cumulative_sum(const Tensor& x, const CumulativeOptions& options) {
  ops::check_valid("cumulative_sum", {x});
  if (x.dtype() == bool_) {
    throw GraphError("cumulative_sum: argument x is " + to_string(x.type()) +
                     ", expected a number: cast it to an integer dtype that holds the count");
  }
  int64_t axis = options.axis;
  if (x.rank() > 0 && axis < 0 && axis >= -x.rank()) axis += x.rank();
  return ops::apply(
      "cumulative_sum", {x},
      {{"axis", axis}, {"exclusive", options.exclusive}, {"reverse", options.reverse}});
}

}  // namespace heddle
