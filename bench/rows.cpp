#include "rows.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

namespace heddle::bench {

namespace {

bool gpu(const Device& device) { return device.name().rfind("cuda", 0) == 0; }

Array filled_host(DType dtype, const std::vector<int64_t>& shape, uint64_t seed) {
  Array host = Array::empty(dtype, shape);
  std::mt19937 rng(static_cast<uint32_t>(seed));
  std::uniform_real_distribution<float> uniform(-1.5F, 1.5F);
  int64_t n = host.size();
  std::vector<float> block(1 << 16);
  for (float& v : block) v = uniform(rng);
  if (dtype == f32) {
    auto* p = static_cast<float*>(host.data());
    for (int64_t k = 0; k < n; ++k) p[k] = block[static_cast<size_t>((k * 7 + k / 65521) & 65535)];
  } else if (dtype == f16) {  // the upper bits of a positive half: values in [0.5, 2)
    auto* p = static_cast<uint16_t*>(host.data());
    for (int64_t k = 0; k < n; ++k)
      p[k] = static_cast<uint16_t>(0x3800 + ((k * 2654435761U) >> 21 & 0x7ff));
  }
  return host;
}

Array filled(DType dtype, const std::vector<int64_t>& shape, const Device& device, uint64_t seed) {
  return filled_host(dtype, shape, seed).to(device);
}

constexpr int64_t kCached = int64_t{16} << 20;  // bytes: less may stay in a cache between runs

int64_t bytes_of(const Array& a) { return byte_size(a.dtype(), a.size()); }

struct Made {
  std::vector<Tensor> feeds, targets;
};

// Compiles and makes rotating sets of inputs (random unless given) and outputs.
Row finish(const std::string& name, Graph& graph, const Made& made, const Device& device, int sets,
           const std::vector<Array>& given = {}) {
  Row row;
  row.name = name;
  CompileSpec spec;
  for (const Tensor& t : made.feeds) spec.feeds.emplace_back(t);
  spec.targets = made.targets;
  row.executable = graph.compile(spec, device);
  auto sizes = [](const Type& t) {
    std::vector<int64_t> s;
    for (const Expr& e : *t.shape) s.push_back(e.constant_or(1));
    return s;
  };
  for (int k = 0; k < sets; ++k) {
    Row::Set set;
    for (size_t i = 0; i < made.feeds.size(); ++i) {
      const Type& t = made.feeds[i].type();
      bool have = i < given.size() && given[i].valid();
      set.inputs.push_back(
          have ? given[i] : filled(t.dtype, sizes(t), device, static_cast<uint64_t>(k) * 31 + i));
    }
    for (const Type& t : row.executable.output_types())
      set.outputs.push_back(Array::empty(t.dtype, sizes(t), device));
    row.sets.push_back(std::move(set));
  }
  for (const Array& a : row.sets[0].inputs) row.read += bytes_of(a);
  for (const Array& a : row.sets[0].outputs) row.written += bytes_of(a);
  if (row.read + row.written < kCached) row.read = row.written = 0;
  return row;
}

int rotation(const Device& device) { return gpu(device) ? 3 : 1; }

Tensor chain_graph(const Tensor& x) {
  return (1.0 - square(tanh(exp(x * x * -0.5) * 1.5 + x))) * x + 0.5;
}

Row chain(const Device& d) {
  Graph g;
  Tensor x = g.placeholder(f32, {int64_t{gpu(d) ? 64 : 16} << 20}, "x");
  return finish("chain", g, {{x}, {chain_graph(x)}}, d, rotation(d));
}

Row lrn(const Device& d) {
  Graph g;
  Tensor x = g.placeholder(f32, {gpu(d) ? 128 : 16, 96, 55, 55}, "x");
  return finish(
      "lrn", g,
      {{x}, {local_response_norm(x, {.size = 5, .alpha = 1e-4, .beta = 0.75, .bias = 1.0})}}, d,
      rotation(d));
}

Shape row_shape(const Device& d) { return gpu(d) ? Shape{16384, 4096} : Shape{4096, 4096}; }

Row softmax_row(const Device& d) {
  Graph g;
  Tensor x = g.placeholder(gpu(d) ? f16 : f32, row_shape(d), "x");
  return finish("softmax", g, {{x}, {softmax(x)}}, d, rotation(d));
}

Row layer_norm_row(const Device& d) {
  Graph g;
  DType t = gpu(d) ? f16 : f32;
  Tensor x = g.placeholder(t, row_shape(d), "x"), w = g.placeholder(t, {4096}, "w"),
         b = g.placeholder(t, {4096}, "b");
  return finish("layer_norm", g, {{x, w, b}, {layer_norm(x, w, b)}}, d, rotation(d));
}

Row nhwc(const Device& d) {
  Graph g;
  Tensor x = g.placeholder(f32, {gpu(d) ? 64 : 16, 128, 56, 56}, "x");
  return finish("nhwc", g, {{x}, {transpose(x, {0, 2, 3, 1})}}, d, rotation(d));
}

Row sum_row(const Device& d, const std::string& name, std::vector<int> axes) {
  Graph g;
  Tensor x = g.placeholder(f32, gpu(d) ? Shape{16384, 8192} : Shape{8192, 4096}, "x");
  return finish(name, g, {{x}, {sum(x, {.axes = std::move(axes)})}}, d, rotation(d));
}

Row cumsum(const Device& d) {
  Graph g;
  Tensor x = g.placeholder(f32, {int64_t{gpu(d) ? 16 : 4} << 20}, "x");
  return finish("cumsum", g, {{x}, {cumulative_sum(x)}}, d, rotation(d));
}

Row laplacian(const Device& d) {
  Graph g;
  int64_t n = gpu(d) ? 4096 : 2048;
  Tensor x = g.placeholder(f32, {3, n, n}, "x");
  std::vector<float> w = gpu(d) ? std::vector<float>{1, 1, 1, 1, -8, 1, 1, 1, 1}
                                : std::vector<float>{0, 1, 0, 1, -4, 1, 0, 1, 0};
  Tensor weights = g.constant(Array::from<float>({3, 3}, w));
  Tensor y = gpu(d) ? abs(stencil(x * x, weights)) : stencil(x, weights);
  return finish("laplacian", g, {{x}, {y}}, d, rotation(d));
}

// Numbers of rows, evenly drawn.
Array drawn_rows(int64_t count, int64_t rows, const Device& d) {
  Array indices = Array::empty(i64, {count});
  std::mt19937_64 rng(5);
  for (int64_t k = 0; k < count; ++k)
    static_cast<int64_t*>(indices.data())[k] =
        static_cast<int64_t>(rng() % static_cast<uint64_t>(rows));
  return indices.to(d);
}

Row gather_row(const Device& d) {
  Graph g;
  int64_t table = 100000, width = gpu(d) ? 1024 : 64, count = gpu(d) ? 65536 : int64_t{1} << 20;
  Tensor w = g.placeholder(f32, {table, width}, "w"), i = g.placeholder(i64, {count}, "i");
  Row row =
      finish("gather", g, {{w, i}, {gather(w, i)}}, d, 1, {Array{}, drawn_rows(count, table, d)});
  row.read = count * width * 4 + count * 8;
  return row;
}

Row scatter_row(const Device& d, const char* name, int64_t rows, int64_t count) {
  Graph g;
  Tensor x = g.placeholder(f32, {rows}, "x"), i = g.placeholder(i64, {count}, "i"),
         u = g.placeholder(f32, {count}, "u");
  Row row = finish(name, g, {{x, i, u}, {scatter_add(x, i, u)}}, d, 1,
                   {Array{}, drawn_rows(count, rows, d), Array{}});
  row.read = rows * 4 + count * 12;
  row.written = rows * 4;
  return row;
}

// The gradient of an embedding by its table.
Row embedding(const Device& d) {
  Graph g;
  int64_t rows = 50000, width = 256, count = 8192;
  Tensor w = g.placeholder(f32, {rows, width}, "w"), i = g.placeholder(i64, {count}, "i"),
         u = g.placeholder(f32, {count, width}, "u");
  Tensor y = gradients({gather(w, i)}, {w}, {u})[0];
  Row row = finish("embedding", g, {{i, u}, {y}}, d, 1, {drawn_rows(count, rows, d), Array{}});
  row.read = count * (width * 4 + 8);
  row.written = rows * width * 4;
  return row;
}

Row poisson(const Device& d) {
  Graph g;
  int64_t iterations = gpu(d) ? 1000 : 80;
  Tensor u = g.placeholder(f32, {3, 512, 512}, "u"), b = g.placeholder(f32, {3, 512, 512}, "b");
  Tensor m = g.placeholder(bool_, {512, 512}, "m");
  Tensor limit = g.placeholder(f32, {}, "limit");
  Tensor cross = g.constant(Array::from<float>({3, 3}, {0, 1, 0, 1, 0, 1, 0, 1, 0}));
  Tensors r = while_loop(
      {g.constant(int64_t{0}, i32), u, g.constant(1.0)},
      [&](const Tensors& v) {
        return logical_and(v[0] < static_cast<double>(iterations), v[2] >= limit);
      },
      [&](const Tensors& v) {
        Tensor t = (stencil(v[1], cross, {.boundary = PaddingMode::periodic}) + b) * 0.25;
        Tensor next = select(m, t, v[1]);
        return Tensors{v[0] + 1.0, next, reduce_max(abs(next - v[1]))};
      });
  Array mask = Array::empty(bool_, {512, 512});
  std::mt19937 rng(9);
  for (int k = 0; k < 512 * 512; ++k)
    static_cast<uint8_t*>(mask.data())[k] = rng() % 10 >= 3 ? 1 : 0;
  Row row = finish("poisson", g, {{u, b, m, limit}, {r[1]}}, d, 1,
                   {Array{}, Array{}, mask.to(d), Array::from<float>({}, {-1.0F}).to(d)});
  row.divisor = gpu(d) ? iterations : 1;
  return row;
}

Row scalar_while(const Device& d) {
  Graph g;
  Tensor x = g.placeholder(f32, {}, "x"), k = g.placeholder(f32, {}, "k"),
         limit = g.placeholder(f32, {}, "limit");
  Tensors r = while_loop(
      {g.constant(int64_t{0}, i32), x},
      [&](const Tensors& v) { return logical_and(v[0] < 10000.0, v[1] < limit); },
      [&](const Tensors& v) { return Tensors{v[0] + 1.0, v[1] * k}; });
  auto scalar = [&](float v) { return Array::from<float>({}, {v}).to(d); };
  Row row = finish("scalar_while", g, {{x, k, limit}, {r[1]}}, d, 1,
                   {scalar(1), scalar(1.0001F), scalar(10)});
  row.divisor = gpu(d) ? 10000 : 1;
  return row;
}

// Cross entropy of a two-layer net, its gradients, and the new weights: one executable.
Row mlp(const Device& d) {
  Graph g;
  Tensor w1 = g.placeholder(f32, {784, 128}, "w1"), b1 = g.placeholder(f32, {128}, "b1");
  Tensor w2 = g.placeholder(f32, {128, 10}, "w2"), b2 = g.placeholder(f32, {10}, "b2");
  Tensor x = g.placeholder(f32, {32, 784}, "x"), y = g.placeholder(i32, {32}, "y");
  Tensor hidden = relu(matmul(x * 0.05, w1) + b1);
  Tensor logits = matmul(hidden, w2) + b2;
  Tensor shifted = logits - reduce_max(logits, {.axes = {1}, .keep_axes = true});
  Tensor log_sum = log(sum(exp(shifted), {.axes = {1}, .keep_axes = true}));
  Tensor hot = equal(coordinate_like(logits, 1, i32), expand_dims(y, {1}));
  Tensor loss = mean(sum(select(hot, log_sum - shifted, constant_like(logits, 0)), {.axes = {1}}));
  Tensors parameters = {w1, b1, w2, b2};
  Tensors grads = gradients(loss, parameters);
  Made made{{w1, b1, w2, b2, x, y}, {}};
  for (size_t k = 0; k < 4; ++k) made.targets.push_back(parameters[k] - grads[k] * 0.01);
  std::vector<int32_t> labels(32);
  for (int k = 0; k < 32; ++k) labels[static_cast<size_t>(k)] = k * 7 % 10;
  return finish(
      "mlp", g, made, d, 1,
      {Array{}, Array{}, Array{}, Array{}, Array{}, Array::from<int32_t>({32}, labels).to(d)});
}

double us_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t).count();
}

Row tiny(const Device& d, bool fresh) {
  Graph g;
  Tensor a = g.placeholder(f32, {4}, "a"), b = g.placeholder(f32, {4}, "b");
  Row row = finish(fresh ? "tiny_fresh" : "tiny_given", g, {{a, b}, {a + b}}, d, 1);
  Executable e = row.executable;
  Row::Set set = row.sets[0];
  row.once = [e, set, fresh] {
    constexpr int kRuns = 1000;
    auto t = std::chrono::steady_clock::now();
    for (int k = 0; k < kRuns; ++k) {
      if (fresh) {
        static_cast<void>(e.run(set.inputs));
      } else {
        e.run_into(set.inputs, set.outputs);
      }
    }
    return us_since(t) / kRuns;
  };
  return row;
}

// Many runs are given before one is waited for: what the host spends on a run.
Row tiny_queued(const Device& d) {
  Graph g;
  Tensor a = g.placeholder(f32, {4}, "a"), b = g.placeholder(f32, {4}, "b");
  return finish("tiny_queued", g, {{a, b}, {a + b}}, d, 1);
}

// The forward pass of 784-512-512-10 at 25 batch sizes that the executable has not seen: 6 to 30.
Row new_size(const Device& d) {
  auto g = std::make_shared<Graph>();
  Dim n("n");
  Tensor x = g->placeholder(f32, {n, 784}, "x");
  auto weights = [&](int64_t a, int64_t b) {
    Array values = filled_host(f32, {a, b}, 3);
    for (int64_t k = 0; k < a * b; ++k) static_cast<float*>(values.data())[k] *= 0.03F;
    return g->constant(values);
  };
  Tensor h = relu(matmul(x, weights(784, 512)));
  Tensor y = softmax(matmul(relu(matmul(h, weights(512, 512))), weights(512, 10)));
  Row row;
  row.name = "new_size";
  Array all = filled(f32, {64, 784}, d, 1);
  row.once = [g, x, y, all, d] {
    constexpr int kSizes = 25, kSmallest = 6;
    Executable fresh = g->compile({.feeds = {x}, .targets = {y}}, d);
    static_cast<void>(fresh.run({all.slice(0, 0, kSmallest - 1)}));
    auto t = std::chrono::steady_clock::now();
    for (int k = 0; k < kSizes; ++k) static_cast<void>(fresh.run({all.slice(0, 0, kSmallest + k)}));
    return us_since(t) / kSizes;
  };
  return row;
}

// Build and compile in this process, once the device is awake (a GPU's context takes 100 ms):
// meaningful once a process, without a disk cache or with one that knows the kernel.
Row cold(const Device& d, bool norm) {
  Row row;
  row.name = norm ? "cold_layer_norm" : "cold_chain";
  row.once = [d, norm] {
    static_cast<void>(filled(f32, {4}, d, 1));
    auto t = std::chrono::steady_clock::now();
    Graph g;
    Tensor x = g.placeholder(f32, {64, 512}, "x");
    Tensor y = norm ? layer_norm(x, Tensor{}, Tensor{}) : chain_graph(x);
    Executable e = g.compile({.feeds = {x}, .targets = {y}}, d);
    return us_since(t);
  };
  return row;
}

}  // namespace

const std::vector<RowMaker>& rows() {
  static const std::vector<RowMaker> kRows = {
      {"cold_chain", "compile of the pointwise chain in a fresh process",
       [](const Device& d) { return cold(d, false); }},
      {"cold_layer_norm", "compile of layer norm, after one kernel",
       [](const Device& d) { return cold(d, true); }},
      {"chain", "10-op pointwise chain with exp and tanh", chain},
      {"lrn", "local response norm, size 5", lrn},
      {"softmax", "softmax of rows of 4096", softmax_row},
      {"layer_norm", "layer norm of rows of 4096, affine", layer_norm_row},
      {"nhwc", "NCHW to NHWC", nhwc},
      {"sum_axis0", "column sums", [](const Device& d) { return sum_row(d, "sum_axis0", {0}); }},
      {"sum_axis1", "row sums", [](const Device& d) { return sum_row(d, "sum_axis1", {1}); }},
      {"sum_all", "full sum", [](const Device& d) { return sum_row(d, "sum_all", {}); }},
      {"cumsum", "cumulative sum of one long row", cumsum},
      {"laplacian", "3x3 stencil", laplacian},
      {"gather", "rows of a table", gather_row},
      {"scatter_one", "one update added to a million floats",
       [](const Device& d) { return scatter_row(d, "scatter_one", 1000003, 1); }},
      {"scatter_many", "two million updates added to a thousand floats",
       [](const Device& d) { return scatter_row(d, "scatter_many", 1000, 2000000); }},
      {"embedding", "gradient of 8192 rows of a table of 50,000 by 256", embedding},
      {"poisson", "masked relaxation with a residual test each iteration", poisson},
      {"scalar_while", "scalar loop of 10,000 iterations", scalar_while},
      {"mlp", "SGD step of 784-128-10, batch 32", mlp},
      {"tiny_given", "4-element add, outputs given",
       [](const Device& d) { return tiny(d, false); }},
      {"tiny_fresh", "4-element add, fresh result", [](const Device& d) { return tiny(d, true); }},
      {"tiny_queued", "4-element add, outputs given, waited for now and then", tiny_queued},
      {"new_size", "first run at a new batch size, symbolic", new_size},
  };
  return kRows;
}

}  // namespace heddle::bench
