#include "support/evaluate.h"

#include "base/check.h"
#include "ir/graph.h"
#include "ops/judge.h"
#include "ops/opdef.h"
#include "support/numeric.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>

namespace heddle::test {

using ops::HostTensor;

HostTensor floats(std::vector<int64_t> shape, std::vector<double> values, DType dtype) {
  HostTensor t(dtype, std::move(shape));
  t.f = std::move(values);
  return t;
}

HostTensor integers(std::vector<int64_t> shape, std::vector<int64_t> values, DType dtype) {
  HostTensor t(dtype, std::move(shape));
  t.i = std::move(values);
  return t;
}

HostTensor complexes(std::vector<int64_t> shape, std::vector<std::complex<double>> values,
                     DType dtype) {
  HostTensor t(dtype, std::move(shape));
  t.c = std::move(values);
  return t;
}

namespace {

Type type_of(const HostTensor& t) { return {t.dtype, Shape(t.shape.begin(), t.shape.end())}; }

std::shared_ptr<ir::Graph> extracted(const std::vector<Fed>& feeds, const Tensors& targets) {
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
  for (const Fed& f : feeds) fed.emplace_back(f.tensor.id(), type_of(f.value));
  std::vector<ir::ValueId> wanted;
  for (const Tensor& t : targets) wanted.push_back(t.id());
  return ir::extract(*targets[0].graph(), fed, wanted, {}).graph;
}

std::vector<HostTensor> values_of(const std::vector<Fed>& feeds) {
  std::vector<HostTensor> out;
  for (const Fed& f : feeds) out.push_back(f.value);
  return out;
}

// The real numbers of a float or complex tensor, parts one after another.
std::span<double> reals(HostTensor& t) {
  if (t.c.empty()) return t.f;
  return {reinterpret_cast<double*>(t.c.data()), 2 * t.c.size()};
}
std::span<const double> reals(const HostTensor& t) { return reals(const_cast<HostTensor&>(t)); }

// Real part of sum(conj(b) * a).
double dot(const HostTensor& a, const HostTensor& b) {
  double total = 0;
  for (size_t i = 0; i < reals(a).size(); ++i) total += reals(a)[i] * reals(b)[i];
  return total;
}

std::vector<HostTensor> random_like(const Tensors& ts, std::mt19937_64& rng) {
  std::uniform_real_distribution<double> uniform(0.5, 1.5);
  std::vector<HostTensor> out;
  for (const Tensor& t : ts) {
    std::vector<int64_t> shape;
    for (const Expr& e : t.shape()) shape.push_back(e.constant().value());
    out.emplace_back(t.dtype(), shape);
    for (double& v : reals(out.back())) v = (rng() % 2 == 0 ? 1 : -1) * uniform(rng);
  }
  return out;
}

Tensor constant(const Tensor& like, const HostTensor& value) {
  return like.graph()->tensor(ops::add_constant(*like.graph(), ops::to_literal(value)));
}

// Where the device's values of the targets differ from the judge's; empty: nowhere.
std::string device_difference(const std::vector<Fed>& feeds, const Tensors& targets,
                              const std::vector<HostTensor>& expected, const Device& device) {
  Graph graph(targets[0].graph());
  CompileSpec spec{.feeds = {}, .targets = targets, .operations = {}};
  std::vector<Array> values;
  double scale = 1;
  for (const Fed& f : feeds) {
    spec.feeds.emplace_back(f.tensor, type_of(f.value));
    values.push_back(to_array(f.value));
  }
  for (const HostTensor& t : expected)
    for (double v : reals(t)) scale = std::isfinite(v) ? std::max(scale, std::abs(v)) : scale;
  std::vector<Array> results = graph.compile(spec, device).run(values);
  for (size_t k = 0; k < expected.size(); ++k) {
    std::string d =
        difference(to_host(results[k]), expected[k], tolerance(expected[k].dtype, 64, scale));
    if (!d.empty()) return base::cat("target ", k, " on ", device.name(), ": ", d);
  }
  return "";
}

// Compares the tensors `gradients` with differences of sum over i of dot(targets[i], weights[i]).
std::string compare(const std::vector<Fed>& feeds, const Tensors& targets,
                    const std::vector<HostTensor>& weights, const Tensors& gradients,
                    const GradientCheck& options, const char* order) {
  std::shared_ptr<ir::Graph> forward = extracted(feeds, targets);
  std::vector<HostTensor> given = ops::judge(*extracted(feeds, gradients), values_of(feeds));
  auto loss = [&](const std::vector<HostTensor>& xs) {
    std::vector<HostTensor> ys = ops::judge(*forward, xs);
    double total = 0;
    for (size_t i = 0; i < ys.size(); ++i) total += dot(ys[i], weights[i]);
    return total;
  };
  if (options.compiled) {
    std::string different = device_difference(feeds, gradients, given, device("interpreter"));
    if (!different.empty()) return base::cat(order, " gradient, ", different);
  }
  std::vector<HostTensor> xs = values_of(feeds);
  double scale = 1;
  for (const HostTensor& g : given)
    for (double v : reals(g)) scale = std::max(scale, std::abs(v));
  for (size_t n = 0; n < xs.size(); ++n) {
    for (size_t i = 0; i < reals(xs[n]).size(); ++i) {
      double& moved = reals(xs[n])[i];
      double x = moved;
      moved = x + options.step;
      double above = loss(xs);
      moved = x - options.step;
      double below = loss(xs);
      moved = x;
      double expected = (above - below) / (2 * options.step);
      double found = reals(given[n])[i];
      if (!(std::abs(found - expected) <= options.tolerance * scale))
        return base::cat(order, " gradient of input ", n, " at ", i, " is ", found,
                         ", differences give ", expected);
    }
  }
  return "";
}

}  // namespace

std::vector<HostTensor> evaluate(const std::vector<Fed>& feeds, const Tensors& targets) {
  std::vector<HostTensor> values = ops::judge(*extracted(feeds, targets), values_of(feeds));
  std::string different = device_difference(feeds, targets, values, test_device());
  if (!different.empty()) throw std::runtime_error(different);
  return values;
}

std::string text(const HostTensor& t) {
  std::ostringstream out;
  out << name(t.dtype) << "[";
  for (size_t k = 0; k < t.shape.size(); ++k) out << (k == 0 ? "" : ",") << t.shape[k];
  out << "]";
  for (double v : t.f) out << " " << v;
  for (int64_t v : t.i) out << " " << v;
  for (const auto& v : t.c) out << " " << v.real() << (v.imag() < 0 ? "" : "+") << v.imag() << "i";
  return out.str();
}

std::string graph_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const GraphError& e) {
    return e.what();
  }
  return "no error";
}

std::string check_gradient(const Function& f, const std::vector<HostTensor>& xs,
                           const GradientCheck& options) {
  std::mt19937_64 rng(7);
  Graph graph;
  std::vector<Fed> feeds;
  Tensors inputs;
  for (const HostTensor& x : xs) {
    inputs.push_back(graph.placeholder(type_of(x), "x"));
    feeds.push_back({inputs.back(), x});
  }
  Tensor y = f(graph, inputs);
  std::vector<HostTensor> r = random_like({y}, rng);
  Tensors first = gradients(y, inputs, constant(y, r[0]));
  std::string wrong = ir::verify(*graph.impl());
  if (wrong.empty()) wrong = compare(feeds, {y}, r, first, options, "first");
  if (!wrong.empty() || !options.second) return wrong;
  std::vector<HostTensor> s = random_like(first, rng);
  Tensors seeds;
  for (const HostTensor& t : s) seeds.push_back(constant(y, t));
  Tensors second = gradients(first, inputs, seeds);
  wrong = ir::verify(*graph.impl());
  return wrong.empty() ? compare(feeds, first, s, second, options, "second") : wrong;
}

}  // namespace heddle::test
