// Bodies of loops and branches that fold one vector more than once, with stored values in between:
// scratch of one nest must not reach the next one, nor a block that does not come after it.
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/cpu_target.h"
#include "harness.h"
#include "runtime/host_device.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace heddle::test {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// A function of one vector as graph and in f64.
struct Body {
  const char* name;
  Tensor (*graph)(const Tensor& v);
  Vector (*reference)(const Vector& v);
};

Vector reference_softmax(const Vector& v) {
  double top = *std::max_element(v.begin(), v.end()), all = 0;
  Vector y;
  for (double x : v) y.push_back(std::exp(x - top)), all += y.back();
  for (double& x : y) x /= all;
  return y;
}

Vector reference_layer_norm(const Vector& v) {
  auto n = static_cast<double>(v.size());
  double mean = std::accumulate(v.begin(), v.end(), 0.0) / n, square = 0;
  for (double x : v) square += (x - mean) * (x - mean) / n;
  Vector y;
  for (double x : v) y.push_back((x - mean) / std::sqrt(square + 1e-5));
  return y;
}

// Half a step of conjugate gradients with residual r = v + 1 and matrix diag(2 + v), and the next
// direction.
Tensor gradient_step(const Tensor& v) {
  Tensor r = v + 1.0, q = r * 2.0 + v * r;
  Tensor alpha = 0.5 * sum(r * r) / sum(r * q);
  Tensor next = r - alpha * q;
  return next + sum(next * next) / sum(r * r) * r;
}
Vector reference_gradient_step(const Vector& v) {
  Vector r, q, next;
  for (double x : v) r.push_back(x + 1), q.push_back((x + 1) * (2 + x));
  double alpha = 0.5 * dot(r, r) / dot(r, q);
  for (size_t k = 0; k < v.size(); ++k) next.push_back(r[k] - alpha * q[k]);
  double beta = dot(next, next) / dot(r, r);
  for (size_t k = 0; k < v.size(); ++k) next[k] += beta * r[k];
  return next;
}

Tensor scaled(const Tensor& v) { return v / sum(v * v); }
Vector reference_scaled(const Vector& v) {
  Vector y = v;
  for (double& x : y) x /= dot(v, v);
  return y;
}

// A step up the slope of sum(v / mean(v * v)) / 4: 1 / m - 2 v mean(v) / m^2 with m = mean(v * v).
Tensor slope_step(const Tensor& v) { return v + gradients(sum(v / mean(v * v)) * 0.25, {v})[0]; }
Vector reference_slope_step(const Vector& v) {
  auto n = static_cast<double>(v.size());
  double m = dot(v, v) / n, middle = std::accumulate(v.begin(), v.end(), 0.0) / n;
  Vector y = v;
  for (double& x : y) x += 0.25 * (1 / m - 2 * x * middle / (m * m));
  return y;
}

constexpr Body kBodies[] = {
    {"softmax", [](const Tensor& v) { return softmax(v); }, reference_softmax},
    {"layer_norm", [](const Tensor& v) { return layer_norm(v, {}, {}); }, reference_layer_norm},
    {"gradient step", gradient_step, reference_gradient_step},
    {"scaled", scaled, reference_scaled},
    {"slope step", slope_step, reference_slope_step},
};

enum class Form { for_loop, while_loop, scan, cond, nested };
constexpr Form kForms[] = {Form::for_loop, Form::while_loop, Form::scan, Form::cond, Form::nested};

// x, twice through f, or once in a branch.
Tensor applied(Graph& g, Form form, const Body& f, const Tensor& x) {
  auto once = [&](const Tensor&, const Tensors& v) { return Tensors{f.graph(v[0])}; };
  switch (form) {
    case Form::for_loop:
      return for_loop(Expr(2), {x}, once)[0];
    case Form::while_loop: {
      Tensor i = g.constant(int64_t{0}, i64);
      return while_loop(
          {x, i}, [](const Tensors& v) { return less(v[1], constant_like(v[1], int64_t{2})); },
          [&](const Tensors& v) { return Tensors{f.graph(v[0]), v[1] + 1}; },
          {.max_iterations = 3})[0];
    }
    case Form::scan: {
      Tensor rows = broadcast_to(constant_like(x, 0), Shape{2});
      return scan({x}, {rows},
                  [&](const Tensors& v, const Tensors& row) -> ScanResult {
                    Tensor y = f.graph(v[0] + row[0]);
                    return {{y}, {sum(y)}};
                  })
          .carried[0];
    }
    case Form::cond:
      return cond(
          less(sum(x), constant_like(sum(x), 1e30)), [&] { return f.graph(x); },
          [&] { return f.graph(x * 2.0) + 1.0; });
    case Form::nested:  // a branch in a loop, with nests of its own before and after
      return for_loop(Expr(2), {x}, [&](const Tensor& i, const Tensors& v) {
        Tensor y = f.graph(v[0]);
        Tensor z =
            cond(equal(i, constant_like(i, 0)), [&] { return f.graph(y); }, [&] { return y; });
        return Tensors{f.graph(z)};
      })[0];
  }
  return x;
}

Vector expected(Form form, const Body& f, const Vector& x) {
  switch (form) {
    case Form::cond:
      return f.reference(x);
    case Form::nested: {
      Vector first = f.reference(f.reference(f.reference(x)));
      return f.reference(f.reference(first));
    }
    default:
      return f.reference(f.reference(x));
  }
}

Device cpu_of(const std::string& arch) {
  runtime::HostDeviceParts parts;
  parts.name = "cpu";
  parts.description.kind = "cpu";
  parts.description.arch = arch;
  parts.description.processors = 2;
  parts.description.vector_bytes = cpu::target_for(arch).vector_bytes;
  parts.emitter = std::make_unique<cpu::CpuEmitter>(cpu::target_for(arch), true);
  return Device(std::make_shared<runtime::HostDevice>(std::move(parts)));
}

Vector numbers(int64_t n) {
  std::mt19937_64 rng(static_cast<uint64_t>(n));
  std::uniform_real_distribution<double> uniform(0.5, 2);
  Vector x(static_cast<size_t>(n));
  for (double& v : x) v = uniform(rng);
  return x;
}

Array array_of(const Vector& x, DType dtype) {
  ops::HostTensor t(dtype, {static_cast<int64_t>(x.size())});
  t.f = x;
  ops::round_to_dtype(t);
  return to_array(t);
}

// The largest difference over the largest right value.
double error(const Vector& got, const Vector& right) {
  double worst = 0, size = 1e-30;
  for (double v : right) size = std::max(size, std::fabs(v));
  for (size_t k = 0; k < right.size(); ++k)
    worst = std::max(worst, std::isfinite(got[k]) ? std::fabs(got[k] - right[k]) / size : INFINITY);
  return worst;
}

constexpr LoopRecording kLoops[] = {LoopRecording::automatic, LoopRecording::host,
                                    LoopRecording::device_graph, LoopRecording::single_kernel};

struct Setting {
  std::string arch;
  DType dtype;
  int64_t length;
  bool open;
};

void check(const Body& f, Form form, const Setting& s) {
  SCOPED_TRACE(std::string(f.name) + ", form " + std::to_string(static_cast<int>(form)) + ", " +
               s.arch + " " + std::string(name(s.dtype)) + " of " + std::to_string(s.length) +
               (s.open ? ", open" : ""));
  Graph g;
  Tensor x = g.placeholder(s.dtype, {s.open ? Expr(Dim("n")) : Expr(s.length)}, "x");
  Tensor y = applied(g, form, f, x);
  Tensor slope = gradients(sum(y * x * x), {x})[0];
  Vector input = to_host(array_of(numbers(s.length), s.dtype)).f;
  Array fed = array_of(input, s.dtype);
  std::vector<ops::HostTensor> judged;
  for (const Array& a :
       g.compile({.feeds = {x}, .targets = {y, slope}}, device("judge")).run({fed}))
    judged.push_back(to_host(a));
  double allowed = s.dtype == f32 ? 2e-3 : 1e-11;
  EXPECT_LT(error(judged[0].f, expected(form, f, input)), allowed);
  for (LoopRecording loops : kLoops) {
    std::vector<Array> got =
        g.compile({.feeds = {x}, .targets = {y, slope}}, cpu_of(s.arch), {.loops = loops})
            .run({fed});
    EXPECT_LT(error(to_host(got[0]).f, expected(form, f, input)), allowed);
    EXPECT_LT(error(to_host(got[1]).f, judged[1].f), allowed);
  }
}

TEST(VectorBodies, InEveryControlForm) {
  std::mt19937_64 rng(test_seed(5));
  std::vector<std::string> archs = runnable_archs();
  for (const Body& f : kBodies) {
    for (Form form : kForms) {
      for (int64_t length : {1, 2, 5, 64, 65, 1000, 5000})
        check(f, form,
              {archs[rng() % archs.size()], rng() % 2 ? f32 : f64, length, rng() % 2 == 0});
    }
  }
}

}  // namespace
}  // namespace heddle::test
