#include "backend_cuda/graphs.h"

#include "base/check.h"
#include "ops/judge.h"
#include "support/numeric.h"
#include "support/random_graph.h"

#include "backend_cuda/simulator.h"

#include <random>

namespace heddle::test {

namespace {

struct Builder {
  GraphCase c;
  std::mt19937_64 rng{17};
  explicit Builder(std::string name) { c.name = std::move(name); }
  Tensor feed(DType dtype, Shape shape, double low = -2, double high = 2) {
    std::vector<int64_t> numbers;
    for (const Expr& e : shape) numbers.push_back(*e.constant());
    c.feeds.push_back(c.graph.placeholder(dtype, shape));
    c.values.push_back(random_tensor(dtype, numbers, rng, low, high));
    return c.feeds.back();
  }
  GraphCase done(Tensors targets) {
    c.targets = std::move(targets);
    return std::move(c);
  }
};

GraphCase chain(int64_t n) {
  Builder b("chain");
  Tensor x = b.feed(f32, {n, n}), y = b.feed(f32, {n, n});
  Tensor v = tanh(exp(x * 0.5) + y) * x - sigmoid(y);
  return b.done({v * v + x * 0.25});
}
GraphCase softmax_case(int64_t n, DType d) {
  Builder b("softmax_" + std::string(name(d)));
  Tensor x = b.feed(d, {n, 4 * n});
  return b.done({softmax(x)});
}
GraphCase layer_norm_case(int64_t n, DType d) {
  Builder b("layer_norm_" + std::string(name(d)));
  Tensor x = b.feed(d, {n, 4 * n}), g = b.feed(d, {4 * n}), bias = b.feed(d, {4 * n});
  return b.done({layer_norm(x, g, bias)});
}
GraphCase lrn(int64_t n) {
  Builder b("lrn");
  Tensor x = b.feed(f32, {2, 12, n, n});
  return b.done({local_response_norm(x)});
}
GraphCase nhwc(int64_t n) {
  Builder b("nhwc");
  Tensor x = b.feed(f32, {2, 40, n, n});
  return b.done({transpose(x, {0, 2, 3, 1}) + 1.0});
}
GraphCase sums(int64_t n) {
  Builder b("sums");
  Tensor x = b.feed(f32, {4 * n, 2 * n});
  return b.done({sum(x, {.axes = {0}}), sum(x, {.axes = {1}}), sum(x), argmax(x, {.axis = 1}),
                 mean(x, {.axes = {0}})});
}
GraphCase long_sums(int64_t n) {
  Builder b("long_sums");
  Tensor x = b.feed(f32, {7, 2048 * n});
  return b.done({sum(x), reduce_max(x), sum(x * x, {.axes = {1}}), sum(x, {.axes = {0}})});
}
GraphCase scans(int64_t n) {
  Builder b("scans");
  Tensor x = b.feed(f32, {3, 10 * n}), y = b.feed(i32, {n, 33});
  return b.done({cumulative_sum(x, {.axis = 1}), cumulative_sum(y, {.axis = 0}),
                 cumulative_sum(y, {.axis = 1}) * 2});
}
GraphCase gathers(int64_t n) {
  Builder b("gathers");
  Tensor x = b.feed(f32, {50, 2 * n}), at = b.feed(i32, {3 * n}, -50, 49),
         u = b.feed(f32, {3 * n, 2 * n});
  Tensor g = gather(x, at, {.axis = 0});
  return b.done({g + 1.0, scatter_add(x, at, u, {.axis = 0})});
}
GraphCase laplacian(int64_t n) {
  Builder b("laplacian");
  Tensor x = b.feed(f32, {3 * n, 2 * n}), w = b.feed(f32, {3, 3});
  return b.done({abs(stencil(x * x, w))});
}
GraphCase jacobi(int64_t n) {
  Builder b("jacobi");
  Tensor x = b.feed(f32, {n, n + 1}), f = b.feed(f32, {n, n + 1}), w = b.feed(f32, {3, 3}, 0, 0.1);
  Tensor r0 = b.feed(f32, {}, 10, 11);
  Tensors r = while_loop(
      {x, r0}, [](const Tensors& v) { return greater(v[1], constant_like(v[1], 0.5)); },
      [&](const Tensors& v) {
        Tensor next = stencil(v[0], w) + f;
        return Tensors{next, reduce_max(abs(next - v[0]))};
      });
  return b.done(r);
}
GraphCase scalar_while() {
  Builder b("scalar_while");
  Tensor x = b.feed(f32, {}, 1, 2);
  return b.done(while_loop(
      {x}, [](const Tensors& v) { return less(v[0], constant_like(v[0], 100.0)); },
      [](const Tensors& v) { return Tensors{v[0] * 1.5}; }));
}
GraphCase recurrent(int64_t n) {
  Builder b("recurrent");
  Tensor h = b.feed(f32, {4, n}), xs = b.feed(f32, {5, 4, n}), w = b.feed(f32, {n, n}, -0.1, 0.1);
  ScanResult r = scan({h}, {xs}, [&](const Tensors& v, const Tensors& s) {
    Tensor next = tanh(matmul(v[0], w) + s[0]);
    return ScanResult{{next}, {next}};
  });
  return b.done({r.carried[0], r.stacked[0]});
}
GraphCase training(int64_t n) {
  Builder b("training");
  Tensor x = b.feed(f32, {32, n}), w = b.feed(f32, {n, 10}, -0.1, 0.1), bias = b.feed(f32, {10}),
         t = b.feed(f32, {32, 10}, 0, 1);
  Tensor e = softmax(matmul(x, w) + bias) - t;
  Tensor loss = sum(e * e);
  Tensors g = gradients(loss, {w, bias});
  return b.done({loss, w - g[0] * 0.1, bias - g[1] * 0.1});
}
GraphCase nested(int64_t n) {
  Builder b("nested");
  Tensor x = b.feed(f32, {4, n}), p = b.feed(f32, {}, 1, 2);
  Tensors r = for_loop(Expr(3), {x}, [&](const Tensor& i, const Tensors& v) {
    Tensors inner = while_loop(
        {v[0], i}, [](const Tensors& u) { return less(u[1], constant_like(u[1], 3)); },
        [](const Tensors& u) { return Tensors{u[0] * 0.5 + mean(u[0]), u[1] + 1.0}; });
    return Tensors{cond(
        greater(p, constant_like(p, 0.0)), [&] { return inner[0]; },
        [&] { return relu(inner[0]) - cast(i, f32); })};
  });
  return b.done(r);
}

GraphCase border(PaddingMode mode, DType d, Shape shape, const std::string& name) {
  Builder b("border_" + name);
  Tensor x = b.feed(d, shape), w = b.feed(d, {3, 3}), m = b.feed(bool_, shape, 0, 1);
  Tensor y = stencil(x * x, w, {.boundary = mode, .constant = 0.5});
  b.c.exact = true;
  return b.done({select(m, abs(y), x)});
}
// Windows whose results are stored and folded.
GraphCase folded_windows(PaddingMode mode, DType d, Shape shape, const std::string& name) {
  Builder b("folded_" + name);
  Tensor x = b.feed(d, shape), w = b.feed(d, {3, 3}), m = b.feed(bool_, shape, 0, 1);
  Tensor y = select(m, stencil(x, w, {.boundary = mode}), x);
  return b.done({y, reduce_max(abs(y - x)), sum(y * y)});
}
GraphCase wide_window(Shape shape, const std::string& name) {
  Builder b("wide_" + name);
  Tensor x = b.feed(f32, shape), w = b.feed(f32, {3, 5});
  b.c.exact = true;
  return b.done({stencil(x, w, {.strides = {1, 2}}), stencil(x, w, {.dilations = {2, 1}})});
}
GraphCase channels(int64_t images, int64_t count, DType d) {
  Builder b("channels_" + std::to_string(count));
  Tensor x = b.feed(d, {images, count, 5, 7});
  b.c.exact = true;
  return b.done({local_response_norm(x, {.size = 5, .beta = 0.75})});
}
// Tiles of vectors, whole and in part, beside what is read along the last axis.
GraphCase turned(DType d, int64_t images, int64_t count, int64_t points) {
  Builder b(base::cat("turned_", name(d), "_", count, "_", points));
  Tensor x = b.feed(d, {images, count, points}), y = b.feed(d, {images, points, count});
  Tensor bias = b.feed(d, {count});
  b.c.exact = true;
  return b.done({transpose(x, {0, 2, 1}) * bias + y, transpose(x, {0, 2, 1})});
}
GraphCase table_rows(DType d, int64_t rows, int64_t width) {
  Builder b("table_" + std::string(name(d)) + std::to_string(width));
  Tensor x = b.feed(d, {50, width}), at = b.feed(i64, {rows}, -60, 60);
  b.c.exact = true;
  return b.done({gather(x, at, {.axis = 0})});
}
// Quotients from tiny to huge, of both zeros, infinities and NaN.
GraphCase shared_divisor(DType d) {
  Builder b("divisor_" + std::string(name(d)));
  Tensor x = b.feed(d, {6, 1024}), y = b.feed(d, {6, 1024}, 1, 3);
  std::vector<double>& v = b.c.values[0].f;
  const std::vector<double> odd = {0.0, -0.0,     INFINITY,  -INFINITY,
                                   NAN, 0x1p-120, -0x1p-149, 0x1p100};
  for (size_t k = 0; k < 2048; ++k) v[k] *= std::ldexp(1.0, static_cast<int>(k % 251) - 125);
  for (size_t k = 0; k < odd.size(); ++k) v[3000 + 37 * k] = odd[k];
  if (d == f16) {
    for (double& e : v) e = std::fabs(e) > 60000 ? 1 : std::fabs(e) < 0x1p-14 ? 0 : e;
  }
  ops::round_to_dtype(b.c.values[0]);
  for (size_t k = 0; k < 1024; ++k) b.c.values[1].f[5 * 1024 + k] = d == f16 ? 0x1p-10 : 0x1p-40;
  b.c.exact = true;
  return b.done({x / reduce_max(y, {.axes = {1}, .keep_axes = true})});
}
GraphCase long_scan(DType d, int64_t rows, int64_t n, CumulativeOptions options) {
  Builder b(base::cat("long_scan_", name(d), "_", n));
  Tensor x = b.feed(d, {rows, n}, is_integer(d) ? -9 : -1, is_integer(d) ? 9 : 1);
  Tensor y = b.feed(d, {rows, n}, 1, 2);
  b.c.exact = is_integer(d);
  return b.done({cumulative_sum(x, options) * y});
}

// A scanned row that later phases of the kernel read: its last tile is hardly used.
GraphCase scan_then_folds(int64_t n) {
  Builder b(base::cat("scan_then_folds_", n));
  Tensor x = b.feed(f32, {5, n});
  Tensor y = cumulative_sum(x, {.axis = 1});
  Tensor e = exp(y - reduce_max(y, {.axes = {1}, .keep_axes = true}));
  return b.done({e / sum(e, {.axes = {1}, .keep_axes = true}) + y});
}

bool same(const ops::HostTensor& a, const ops::HostTensor& b) {
  if (a.i != b.i || a.f.size() != b.f.size()) return false;
  for (size_t k = 0; k < a.f.size(); ++k) {
    bool both_nan = std::isnan(a.f[k]) && std::isnan(b.f[k]);
    if (!both_nan && (a.f[k] != b.f[k] || std::signbit(a.f[k]) != std::signbit(b.f[k])))
      return false;
  }
  return true;
}

std::string differences(const std::vector<ops::HostTensor>& got,
                        const std::vector<ops::HostTensor>& want) {
  for (size_t k = 0; k < want.size(); ++k) {
    Tolerance t = tolerance(want[k].dtype, 4096, 8);
    t.relative *= 16;
    std::string d = difference(got[k], want[k], t);
    if (!d.empty()) return base::cat("target ", k, ": ", d);
  }
  return "";
}

// Many operations on few elements: vectors that are loaded before the first is computed; of blocks
// that are whole, or not.
GraphCase many_operations(DType d, int64_t n) {
  Builder b("many_operations_" + std::string(name(d)) + "_" + std::to_string(n));
  Tensor x = b.feed(d, {n}), scale = b.feed(d, {});
  b.c.exact = true;
  return b.done({tanh(exp(x * 0.5) * scale + x)});
}
GraphCase many_operations_of_two(int64_t n) {
  Builder b("many_operations_of_two");
  Tensor x = b.feed(f32, {n}), y = b.feed(f32, {n});
  b.c.exact = true;
  return b.done({tanh(sigmoid(x)) + tanh(exp(y))});
}

}  // namespace

std::vector<GraphCase> graph_cases(int64_t n) {
  std::vector<GraphCase> all;
  all.push_back(chain(n));
  all.push_back(softmax_case(n, f32));
  all.push_back(softmax_case(n, f16));
  all.push_back(layer_norm_case(n, f16));
  all.push_back(lrn(n));
  all.push_back(nhwc(n));
  all.push_back(sums(n));
  all.push_back(long_sums(n));
  all.push_back(scans(n));
  for (int64_t row : {1, 31, 33, 300, 2049}) all.push_back(scan_then_folds(row));
  all.push_back(gathers(n));
  all.push_back(laplacian(n));
  all.push_back(jacobi(n));
  all.push_back(scalar_while());
  all.push_back(recurrent(n));
  all.push_back(training(n));
  all.push_back(nested(n));
  return all;
}

std::vector<GraphCase> shared_work_cases(int64_t scale) {
  std::vector<GraphCase> all;
  all.push_back(border(PaddingMode::zero, f32, {2 * scale, 12, 32}, "zero"));
  all.push_back(border(PaddingMode::periodic, f32, {2 * scale, 12, 32}, "periodic"));
  all.push_back(border(PaddingMode::reflect, f32, {10 * scale, 16}, "reflect"));
  all.push_back(border(PaddingMode::clamp_to_edge, f64, {8 * scale, 16}, "clamp"));
  all.push_back(border(PaddingMode::constant, f16, {8 * scale, 64}, "constant"));
  all.push_back(border(PaddingMode::zero, f32, {7, 31}, "odd"));
  all.push_back(folded_windows(PaddingMode::periodic, f32, {2 * scale, 64, 128}, "periodic"));
  all.push_back(folded_windows(PaddingMode::zero, f16, {2 * scale, 64, 128}, "zero"));
  all.push_back(wide_window({12 * scale, 32}, "even"));
  all.push_back(wide_window({9 * scale, 20}, "odd"));
  all.push_back(channels(2 * scale, 12, f32));
  all.push_back(channels(2, 7, f32));
  all.push_back(channels(2 * scale, 3, f16));
  all.push_back(table_rows(f32, 60 * scale, 40));
  all.push_back(table_rows(f16, 31, 24));
  all.push_back(table_rows(i64, 60 * scale, 7));
  all.push_back(turned(f32, 2, 48, 100 * scale));
  all.push_back(turned(f32, 1, 100, 60));
  all.push_back(turned(f16, 1, 72, 136));
  all.push_back(turned(f64, 1, 34, 50));
  all.push_back(turned(u8, 2, 80, 72));
  all.push_back(turned(f32, 1, 33, 70));
  all.push_back(shared_divisor(f32));
  all.push_back(shared_divisor(f16));
  all.push_back(many_operations(f32, 8192));
  all.push_back(many_operations(f32, 5004));
  all.push_back(many_operations(f16, 9000));
  all.push_back(many_operations_of_two(4100));
  return all;
}

std::vector<GraphCase> long_scan_cases() {
  std::vector<GraphCase> all;
  all.push_back(long_scan(f32, 1, 90'000, {}));
  all.push_back(long_scan(f32, 2, 70'001, {.reverse = true}));
  all.push_back(long_scan(i64, 1, 66'000, {.exclusive = true}));
  all.push_back(long_scan(i32, 3, 65'540, {}));
  all.push_back(long_scan(f16, 1, 65'536, {}));
  return all;
}

std::string run_case(const GraphCase& c, const Execute& execute) {
  static const target::DeviceDescription device = described_gpu();
  std::shared_ptr<ir::Graph> g = prepare(c.graph, c.feeds, c.targets);
  ScheduledOptions options{.fuse_loops = true, .device = &device};
  ScheduledRun want = run_scheduled(*g, c.values, options);
  options.execute = execute;
  ScheduledRun got = run_scheduled(*g, c.values, options);
  std::string d = differences(got.results, want.results);
  for (size_t k = 0; c.exact && d.empty() && k < want.results.size(); ++k) {
    if (!same(got.results[k], want.results[k])) d = base::cat("target ", k, ": other bits");
  }
  return d.empty() ? "" : base::cat(c.name, ": ", d, "\n", got.text);
}

std::string run_random(uint64_t seed, const Execute& execute) {
  static const target::DeviceDescription device = described_gpu();
  RandomGraph random = random_graph(seed);
  Verdict verdict = judge_random_graph(random);
  std::shared_ptr<ir::Graph> g = prepare(random.graph, random.feeds, random.targets);
  ScheduledRun r = run_scheduled(
      *g, random.values, {.fuse_loops = seed % 2 == 0, .device = &device, .execute = execute});
  std::vector<Array> results;
  for (const ops::HostTensor& t : r.results) results.push_back(to_array(t));
  std::string d = compare_with(verdict, results);
  return d.empty() ? "" : base::cat("seed ", seed, ": ", d, "\n", ir::print(*g), "\n", r.text);
}

}  // namespace heddle::test
