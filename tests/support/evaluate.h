// Graphs through the judge, and gradients against central differences.
#pragma once

#include "ops/host_tensor.h"

#include <heddle/heddle.h>

#include <functional>
#include <string>
#include <vector>

namespace heddle::test {

ops::HostTensor floats(std::vector<int64_t> shape, std::vector<double> values, DType dtype = f64);
ops::HostTensor integers(std::vector<int64_t> shape, std::vector<int64_t> values,
                         DType dtype = i64);
ops::HostTensor complexes(std::vector<int64_t> shape, std::vector<std::complex<double>> values,
                          DType dtype = c128);

struct Fed {
  Tensor tensor;
  ops::HostTensor value;
};
// The judge's values of the targets; symbols of the feeds' types get the values' extents. Throws
// where the test device's values differ from them.
std::vector<ops::HostTensor> evaluate(const std::vector<Fed>& feeds, const Tensors& targets);
inline ops::HostTensor evaluate(const std::vector<Fed>& feeds, const Tensor& target) {
  return evaluate(feeds, Tensors{target})[0];
}
// "f64[2,3] 1 2 3 4 5 6": for readable comparisons.
std::string text(const ops::HostTensor& t);
// The message of the GraphError that `f` throws, or "no error".
std::string graph_error(const std::function<void()>& f);

using Function = std::function<Tensor(Graph& graph, const Tensors& xs)>;
struct GradientCheck {
  bool second = true;  // also gradients of the gradients
  double step = 1e-5;
  double tolerance = 2e-6;  // relative to the largest derivative, at least to 1
  bool compiled =
      true;  // the interpreter's values of the gradients must agree with the judge's too
};
// Compares gradients of Re sum(conj(r) * f(xs)) (random r) with central differences in f64 or c128,
// first and second order; empty where they agree, else the first difference.
std::string check_gradient(const Function& f, const std::vector<ops::HostTensor>& xs,
                           const GradientCheck& options = {});

}  // namespace heddle::test
