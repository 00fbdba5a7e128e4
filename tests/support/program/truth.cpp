#include "support/program/truth.h"

#include "ir/graph.h"
#include "ops/judge.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "support/numeric.h"

#include <cmath>
#include <limits>

namespace heddle::test {

using ops::HostTensor;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// GraphError where the sizes are not what operations ask for.
void check_sizes(const ir::Graph& graph, const Feeds& values) {
  ir::SymbolBindings symbols;
  const std::vector<ir::ValueId>& arguments = graph.region(ir::kTopRegion).arguments;
  for (size_t k = 0; k < arguments.size(); ++k) {
    Type actual{values[k].dtype, Shape(values[k].shape.begin(), values[k].shape.end())};
    ir::bind_symbols(graph.value(arguments[k]).type, actual, symbols, "feed");
  }
  ops::check_requirements(ops::requirements(graph), [&](const Symbol& s) -> std::optional<int64_t> {
    auto at = symbols.find(s.id);
    if (at == symbols.end()) return std::nullopt;
    return at->second.second.constant();
  });
}

std::vector<HostTensor> run(const ir::Graph& graph, const Feeds& values, int runs,
                            const ops::JudgeOptions& options) {
  std::map<int64_t, HostTensor> variables;
  std::vector<HostTensor> results;
  for (int k = 0; k < runs; ++k) results = ops::judge(graph, values, &variables, options);
  return results;
}

double distance(const HostTensor& a, const HostTensor& b) {
  if (a.shape != b.shape) return kInfinity;
  double gap = 0;
  for (size_t k = 0; k < a.i.size(); ++k) {
    if (a.i[k] != b.i[k]) return kInfinity;
  }
  auto part = [&](double x, double y) {
    if (std::isnan(x) && std::isnan(y)) return 0.0;
    if (!std::isfinite(x) || !std::isfinite(y)) return x == y ? 0.0 : kInfinity;
    return std::fabs(x - y);
  };
  for (size_t k = 0; k < a.f.size(); ++k) gap = std::max(gap, part(a.f[k], b.f[k]));
  for (size_t k = 0; k < a.c.size(); ++k) {
    gap = std::max(gap, part(a.c[k].real(), b.c[k].real()));
    gap = std::max(gap, part(a.c[k].imag(), b.c[k].imag()));
  }
  return gap;
}

}  // namespace

double largest_finite(const HostTensor& t) {
  double m = 0;
  for (double v : t.f) m = std::isfinite(v) ? std::max(m, std::fabs(v)) : m;
  for (const auto& v : t.c) m = std::isfinite(std::abs(v)) ? std::max(m, std::abs(v)) : m;
  return m;
}

std::shared_ptr<ir::Graph> needed_part(const Graph& graph, const Tensors& feeds,
                                       const Tensors& targets,
                                       const std::vector<Operation>& effects) {
  ir::FeedList fed;
  std::vector<ir::ValueId> wanted;
  std::vector<ir::OpId> operations;
  for (const Tensor& t : feeds) fed.emplace_back(t.id(), std::nullopt);
  for (const Tensor& t : targets) wanted.push_back(t.id());
  for (const Operation& o : effects) operations.push_back(o.id());
  return ir::extract(*graph.impl(), fed, wanted, operations).graph;
}

Evaluations evaluate_program(const Graph& graph, const Tensors& feeds, const Feeds& values,
                             const Tensors& targets, const std::vector<Operation>& effects,
                             int count, int runs, double amplitude) {
  auto whole = needed_part(graph, feeds, targets, effects);
  check_sizes(*whole, values);
  auto parts = passes::decompose(*passes::inline_calls(*whole), [](auto&, auto) { return false; });
  Evaluations e;
  ops::JudgeOptions exact;
  exact.round = false;
  e.all.push_back(run(*whole, values, runs, exact));
  e.all.push_back(run(*whole, values, runs, {}));
  for (int k = 0; k < count; ++k) {
    ops::JudgeOptions noisy;
    noisy.round = false;
    noisy.noise = amplitude;
    noisy.noise_seed = static_cast<uint64_t>(k) + 1;
    e.all.push_back(run(k % 2 == 0 ? *parts : *whole, values, runs, noisy));
  }
  return e;
}

double spread(const Evaluations& e, size_t target) {
  double gap = 0;
  for (size_t k = 1; k < e.all.size(); ++k)
    gap = std::max(gap, distance(e.all[0][target], e.all[k][target]));
  return gap;
}

bool is_stable(const Evaluations& e, size_t target) {
  const HostTensor& t = e.exact()[target];
  double gap = spread(e, target), unit = epsilon(t.dtype);
  double relative = unit > 0x1p-12 ? 0.1 : 2e-3;  // half types keep few digits
  return gap <= relative * std::max(largest_finite(t), 0.05);
}

Expected expected_values(const Evaluations& e) {
  Expected out;
  out.exact = e.exact();
  for (size_t k = 0; k < out.exact.size(); ++k) {
    const HostTensor& t = out.exact[k];
    if (!t.i.empty() || epsilon(t.dtype) == 0) {
      out.allowed.push_back(0);
      continue;
    }
    // Sums of terms that cancel exactly in f64 leave roundings of their own size, about 1 here.
    double unit = epsilon(t.dtype);
    out.allowed.push_back(16 * spread(e, k) + 64 * unit * std::max(largest_finite(t), 0.5));
  }
  return out;
}

std::string compare(const Expected& expected, const std::vector<Array>& results) {
  for (size_t k = 0; k < results.size(); ++k) {
    std::string d = difference(to_host(results[k]), expected.exact[k], {0, expected.allowed[k]});
    if (!d.empty()) return "target " + std::to_string(k) + ": " + d;
  }
  return "";
}

}  // namespace heddle::test
