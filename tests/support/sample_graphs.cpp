#include "support/sample_graphs.h"

#include "ops/opdef.h"

#include <heddle/heddle.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace heddle::test {

namespace {

Tensor literal(Graph& graph, DType dtype, std::vector<int64_t> shape,
               const std::vector<uint8_t>& bytes) {
  auto raw = std::as_bytes(std::span(bytes));
  auto data =
      ir::make_literal(dtype, std::move(shape), std::vector<std::byte>(raw.begin(), raw.end()));
  return graph.impl()->tensor(ops::add_constant(*graph.impl(), std::move(data)));
}

Tensor floats(Graph& graph, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return literal(graph, f32, {static_cast<int64_t>(values.size())}, bytes);
}

Graph arithmetic() {
  Graph graph;
  Dim n("n", 1, 1000);
  Tensor x = graph.placeholder(f32, {n, 3}, "x \"quoted\" \\ \n");
  Tensor y = graph.placeholder(f32, {3}, "y");
  Tensor z = (x * y + 2.5).named("z");
  sigmoid(reshape(z, {n * 3}) - 1e-30).named("end");
  return graph;
}

Graph shapes() {
  Graph graph;
  Dim n("n"), m("m", 0, 77);
  Tensor x = graph.placeholder(f64, {n, m, 4}, "x");
  Tensor extents = concat({shape_of(x), shape_of(x)}, 0);
  reshape(x, slice(extents, {.starts = {1}, .stops = {4}}));
  reshape(x, {n * m, 4});
  slice(x, {.starts = {0, 1, 0}, .stops = {n, m, 4}, .strides = {1, 2, 3}});
  Tensor open = graph.placeholder(Type{}, "open");
  exp(open + open);
  exp(graph.placeholder(Type{f16, std::nullopt}, "open rank"));
  return graph;
}

Graph constants() {
  Graph graph;
  float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  floats(graph, {0.0f, -0.0f, 0.1f, 1e-45f, 3.4028235e38f, inf, -inf});
  floats(graph, {nan, 1.0f});
  literal(graph, DType::i4, {3}, {0x21, 0x0f});
  literal(graph, f16, {2}, {1, 2, 3, 4});
  literal(graph, bool_, {3}, {1, 0, 1});
  literal(graph, c64, {1}, {1, 2, 3, 4, 5, 6, 7, 8});
  literal(graph, u64, {1}, {255, 255, 255, 255, 255, 255, 255, 255});
  literal(graph, i8, {2, 0}, {});
  literal(graph, f64, {}, {1, 2, 3, 4, 5, 6, 7, 8});
  graph.constant(1.0 / 3.0, bf16, {4, 4});
  return graph;
}

Graph loops() {
  Graph graph;
  Tensor x = graph.placeholder(f32, {4}, "x");
  Tensor limit = graph.placeholder(f32, {}, "limit");
  Tensors r = while_loop(
      {x, limit}, [&](const Tensors& v) { return v[1] < 10.0; },
      [&](const Tensors& v) {
        Tensor next = cond(v[1] < limit, [&] { return v[0] * x; }, [&] { return v[0] + 1.0; });
        return Tensors{next, v[1] + 1.0};
      });
  for_loop(Expr(3), {r[0]},
           [&](const Tensor& i, const Tensors& v) { return Tensors{v[0] * cast(i, f32)}; });
  scan({limit}, {x}, [](const Tensors& v, const Tensors& slices) {
    Tensor total = v[0] + slices[0];
    return ScanResult{{total}, {total * 2.0, slices[0]}};
  });
  Graph callee;
  Tensor a = callee.placeholder(f32, {4}, "a");
  call(callee, {exp(a)}, {x});
  return graph;
}

Graph effects() {
  Graph graph;
  ops::HostTensor zero(f32, {2});
  // As Graph::variable makes it, which needs an Array on a device.
  Tensor v =
      ops::apply_all("variable", {}, {{"initial", ops::to_literal(zero)}, {"id", int64_t{7}}}, {},
                     graph.impl())[0]
          .named("state");
  Tensor x = graph.placeholder(f32, {2}, "x");
  Operation first = assign(v, read_variable(v) + x);
  Tensor seen = with_dependencies({first}, [&] { return read_variable(v) * 2.0; });
  Tensor flag = graph.placeholder(bool_, {}, "flag");
  cond(
      flag,
      [&] {
        Operation inner = assign(v, x);
        return with_dependencies({inner}, [&] { return read_variable(v); });
      },
      [&] { return seen; });
  return graph;
}

DType dtype_for(uint32_t dtypes) {
  for (DType d : {f32, i32, bool_, DType::i4}) {
    if (ops::in_class(d, dtypes)) return d;
  }
  return c64;
}

// One application of every operation that says how, on the shapes of its first sample.
std::vector<Graph> every_operation() {
  std::vector<Graph> graphs;
  for (const ops::OpDef* def : ops::all_ops()) {
    if (def->samples.empty() || def->operands.empty()) continue;
    Graph graph;
    Tensors operands;
    const ops::Sample& sample = def->samples[0];
    for (size_t i = 0; i < sample.shapes.size(); ++i) {
      const ops::OperandSpec& spec = def->operands[std::min(i, def->operands.size() - 1)];
      Shape shape(sample.shapes[i].begin(), sample.shapes[i].end());
      operands.push_back(graph.placeholder(dtype_for(spec.dtypes), shape));
    }
    try {
      ops::apply_all(def->name, operands, sample.attrs);
    } catch (const GraphError&) {
      continue;  // wants dtypes that depend on each other
    }
    graphs.push_back(graph);
  }
  return graphs;
}

}  // namespace

std::vector<Graph> sample_graphs() {
  std::vector<Graph> graphs = every_operation();
  for (Graph (*make)() : {arithmetic, shapes, constants, loops, effects}) graphs.push_back(make());
  return graphs;
}

}  // namespace heddle::test
