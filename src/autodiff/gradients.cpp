// The public face of automatic differentiation.
#include "autodiff/reverse.h"
#include "base/check.h"
#include "ir/describe.h"
#include "ops/support.h"

#include <heddle/ops.h>

namespace heddle {

using autodiff::GraphRef;
using base::cat;

namespace {

void check(const Tensors& ts, const GraphRef& graph, const char* what) {
  for (size_t i = 0; i < ts.size(); ++i) {
    if (!ts[i].valid()) throw GraphError(cat("gradients: ", what, "[", i, "] is an empty Tensor"));
    if (ts[i].graph() != graph)
      throw GraphError(cat("gradients: ", what, "[", i, "] belongs to another graph"));
    if (!graph->visible(ts[i].id(), graph->insertion_region()))
      throw GraphError(cat("gradients: ", what, "[", i, "] belongs to another block"));
    if (!autodiff::carries_gradient(ts[i].type()))
      throw GraphError(cat("gradients: ", what, "[", i, "] is ", to_string(ts[i].type()),
                           ", expected a float or complex type"));
  }
}

Tensor seed_of(const Tensor& y, const Tensor& seed, size_t i) {
  if (!seed.valid())
    return y.rank() == 0 ? constant_like(y, 1) : broadcast_like(constant_like(y, 1), y);
  if (seed.graph() != y.graph())
    throw GraphError(cat("gradients: seeds[", i, "] belongs to another graph"));
  if (seed.type() != y.type())
    throw GraphError(cat("gradients: seeds[", i, "] is ", to_string(seed.type()), ", expected ",
                         to_string(y.type()), " as ys[", i, "]"));
  return seed;
}

}  // namespace

Tensors gradients(const Tensors& ys, const Tensors& xs, const Tensors& seeds,
                  const GradientOptions& options) {
  if (ys.empty()) throw GraphError("gradients: ys is empty, expected at least one tensor");
  if (!seeds.empty() && seeds.size() != ys.size())
    throw GraphError(cat("gradients: given ", seeds.size(), " seeds for ", ys.size(), " ys"));
  const GraphRef& graph = ops::graph_of(ys, "gradients");
  auto building = graph->lock();
  check(ys, graph, "ys");
  check(xs, graph, "xs");
  std::vector<ir::ValueId> from, to;
  Tensors upstream;
  for (size_t i = 0; i < ys.size(); ++i) {
    from.push_back(ys[i].id());
    upstream.push_back(seed_of(ys[i], seeds.empty() ? Tensor{} : seeds[i], i));
  }
  for (const Tensor& x : xs) to.push_back(x.id());
  Tensors out = autodiff::reverse(graph, from, upstream, to, false);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].valid()) continue;
    if (options.refuse_unrelated)
      throw GraphError(cat("gradients: no y depends on xs[", i, "] ",
                           ir::describe(*graph, xs[i].id()), " (refuse_unrelated)"));
    out[i] = ops::zeros_like(xs[i]);
  }
  return out;
}

Tensors gradients(const Tensor& y, const Tensors& xs, const Tensor& seed,
                  const GradientOptions& options) {
  return gradients(Tensors{y}, xs, Tensors{seed}, options);
}

}  // namespace heddle
