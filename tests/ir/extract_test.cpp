// Extraction: what is reached, how it is typed by the feeds, which effects stay.
#include "ir/graph.h"
#include "ops/judge.h"
#include "ops/opdef.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using ir::kTopRegion;

std::vector<std::string> op_names(const ir::Graph& graph, ir::RegionId region = kTopRegion) {
  std::vector<std::string> names;
  for (ir::OpId id : graph.region(region).ops) names.emplace_back(graph.op(id).name);
  return names;
}

std::shared_ptr<ir::Graph> extract(const Tensors& feeds, const Tensors& targets,
                                   const std::vector<Operation>& operations = {},
                                   const std::map<size_t, Type>& types = {}) {
  ir::FeedList list;
  for (size_t i = 0; i < feeds.size(); ++i) {
    auto at = types.find(i);
    list.emplace_back(feeds[i].id(),
                      at == types.end() ? std::nullopt : std::optional<Type>(at->second));
  }
  std::vector<ir::ValueId> values;
  for (const Tensor& t : targets) values.push_back(t.id());
  std::vector<ir::OpId> ops;
  for (const Operation& op : operations) ops.push_back(op.id());
  const ir::Graph& graph = targets.empty() ? *operations[0].graph() : *targets[0].graph();
  auto result = ir::extract(graph, list, values, ops).graph;
  EXPECT_EQ(ir::verify(*result), "");
  return result;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const GraphError& e) {
    return e.what();
  }
  return "";
}

std::string result_type(const ir::Graph& graph, size_t i = 0) {
  return to_string(graph.value(graph.region(kTopRegion).results.at(i)).type);
}

Tensor make_variable(Graph& g, int64_t id) {
  return ops::apply_all("variable", {},
                        {{"initial", ops::to_literal(ops::HostTensor(f32, {}))}, {"id", id}}, {},
                        g.impl())[0];
}

TEST(Extract, KeepsOnlyWhatTheTargetsNeed) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x"), unused = g.placeholder(f32, {2}, "unused");
  Tensor y = exp(x);
  log(unused);
  auto e = extract({x}, {y});
  EXPECT_EQ(op_names(*e), std::vector<std::string>{"exp"});
  EXPECT_EQ(e->value(e->region(kTopRegion).arguments[0]).name, "x");
}

TEST(Extract, FeedsCutTheGraphAnywhere) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x");
  Tensor y = exp(x), z = log(y);
  EXPECT_EQ(op_names(*extract({y}, {z})), std::vector<std::string>{"log"});
  auto same = extract({x}, {x, x});
  EXPECT_EQ(same->region(kTopRegion).results.size(), 2u);
}

TEST(Extract, MistakesAreNamed) {
  Graph g;
  Tensor x = g.placeholder(f32, {Dim("n", 1, 8), 3}, "x");
  Tensor y = exp(x);
  EXPECT_EQ(error_of([&] { extract({}, {y}); }),
            "placeholder 'x' is needed by the targets but not fed");
  EXPECT_EQ(error_of([&] { extract({x, x}, {y}); }), "feed 'x' is given twice");
  EXPECT_EQ(error_of([&] { extract({x}, {y}, {}, {{0, type(f64, {2, 3})}}); }),
            "feed 'x': declared f32[n,3], given f64[2,3]");
  EXPECT_EQ(error_of([&] { extract({x}, {y}, {}, {{0, type(f32, {2, 4})}}); }),
            "feed 'x': declared f32[n,3], given f32[2,4]");
  EXPECT_EQ(error_of([&] { extract({x}, {y}, {}, {{0, type(f32, {9, 3})}}); }),
            "feed 'x': extent n is 9, which is outside of its bounds 1 to 8");
}

TEST(Extract, NumbersReplaceSymbolsEverywhere) {
  Graph g;
  Dim n("n"), m("m");
  Tensor x = g.placeholder(f32, {n, 2 * m}, "x"), other = g.placeholder(f32, {m, n}, "other");
  Tensor y = reshape(x, {n * m, 2});
  auto e = extract({x, other}, {y, transpose(other, {1, 0})}, {}, {{0, type(f32, {4, 6})}});
  EXPECT_EQ(result_type(*e, 0), "f32[12,2]");
  EXPECT_EQ(result_type(*e, 1), "f32[4,3]");
  EXPECT_EQ(error_of([&] { extract({x}, {y}, {}, {{0, type(f32, {4, 7})}}); }),
            "feed 'x': declared f32[n,2 * m], given f32[4,7]");
}

TEST(Extract, OpenTypesAreInferredFromTheFeeds) {
  Graph g;
  Tensor x = g.placeholder(Type{}, "x");
  Tensor limit = g.placeholder(f32, {}, "limit");
  EXPECT_FALSE(exp(x).type().known());
  Tensor in_loop = while_loop(
      {x, limit}, [](const Tensors& v) { return v[1] < 3.0; },
      [](const Tensors& v) { return Tensors{exp(v[0]), v[1] + 1.0}; })[0];
  Tensor y = softmax(in_loop);
  EXPECT_FALSE(y.type().known());
  auto e = extract({x, limit}, {y}, {}, {{0, type(f64, {5, 3})}});
  EXPECT_EQ(result_type(*e), "f64[5,3]");
  const ir::Op& loop = e->op(e->region(kTopRegion).ops[0]);
  EXPECT_EQ(to_string(e->value(e->region(loop.regions[0]).arguments[0]).type), "f64[5,3]");
}

TEST(Extract, MistakesThatOpenTypesHidAreFoundThen) {
  Graph g;
  Tensor x = g.placeholder(Type{}, "x"), y = g.placeholder(f32, {4}, "y");
  Tensor z = x + y;
  EXPECT_NE(error_of([&] { extract({x, y}, {z}, {}, {{0, type(f32, {3})}}); }).find("add"),
            std::string::npos);
}

TEST(Extract, AssignsRunOnlyAsTargetsOrDependencies) {
  Graph g;
  Tensor v = make_variable(g, 0), x = g.placeholder(f32, {}, "x");
  Operation first = assign(v, x);
  Tensor before = read_variable(v);
  Tensor after = with_dependencies({first}, [&] { return exp(x); });
  using Names = std::vector<std::string>;
  EXPECT_EQ(op_names(*extract({x}, {before})), (Names{"variable", "read"}));
  EXPECT_EQ(op_names(*extract({x}, {before}, {first})), (Names{"variable", "assign", "read"}));
  auto e = extract({x}, {after});
  EXPECT_EQ(op_names(*e), (Names{"variable", "assign", "exp"}));
  EXPECT_EQ(e->op(e->region(kTopRegion).ops[2]).after,
            std::vector<ir::OpId>{e->region(kTopRegion).ops[1]});
}

TEST(Extract, EffectsInNeededRegionsStayInOrder) {
  Graph g;
  Tensor v = make_variable(g, 0), x = g.placeholder(f32, {}, "x"),
         p = g.placeholder(bool_, {}, "p");
  Tensor y = cond(
      p,
      [&] {
        assign(v, x);
        exp(x);  // not needed
        assign(v, x * 2.0);
        return x;
      },
      [&] { return x; });
  auto e = extract({x, p}, {y});
  const ir::Op& op = e->op(e->region(kTopRegion).ops.back());
  using Names = std::vector<std::string>;
  EXPECT_EQ(op_names(*e, op.regions[0]), (Names{"assign", "constant", "multiply", "assign"}));
  EXPECT_EQ(op_names(*e), (Names{"variable", "cond"}));
}

TEST(Judge, RunsVariablesLoopsAndSymbols) {
  Graph g;
  Dim n("n");
  Tensor v = make_variable(g, 3), x = g.placeholder(f32, {n}, "x");
  Tensor total = for_loop(n, {read_variable(v)}, [&](const Tensor& i, const Tensors& c) {
    return Tensors{c[0] + cast(i, f32)};
  })[0];
  Operation update = assign(v, total);
  auto e = extract({x}, {total}, {update});
  std::map<int64_t, ops::HostTensor> state;
  ops::HostTensor feed(f32, {5});
  EXPECT_EQ(ops::judge(*e, {feed}, &state)[0].f[0], 10.0);
  EXPECT_EQ(ops::judge(*e, {feed}, &state)[0].f[0], 20.0);
  EXPECT_EQ(state.at(3).f[0], 20.0);
  EXPECT_THROW(ops::judge(*e, {feed}, &state, {.max_iterations = 2}), DeviceError);
  EXPECT_THROW(ops::judge(*e, {}), GraphError);
  EXPECT_THROW(ops::judge(*e, {ops::HostTensor(f32, {5, 1})}), GraphError);
}

}  // namespace
}  // namespace heddle
