// Building graphs, regions, captures, the verifier.
#include "ir/graph.h"
#include "ops/opdef.h"
#include "support/sample_graphs.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using ir::kTopRegion;

template <class F>
std::string graph_error(F f) {
  try {
    f();
  } catch (const GraphError& e) {
    return e.what();
  }
  return "";
}

TEST(GraphBuilding, WrongArgumentsAreNamed) {
  Graph g, other;
  Tensor x = g.placeholder(f32, {2, 3}, "x");
  EXPECT_EQ(graph_error([&] { ops::apply("softmax", {Tensor{}}); }),
            "softmax: argument 'x' is an empty Tensor");
  EXPECT_EQ(graph_error([&] { ops::apply("select", {x, x, x}); }).substr(0, 51),
            "select: argument 'predicate' expects bool, given f3");
  EXPECT_EQ(graph_error([&] { ops::apply_all("softmax", {x, x}); }),
            "softmax: expects 1 argument, given 2");
  EXPECT_NE(graph_error([&] { add(x, other.placeholder(f32, {3})); }).find("another graph"),
            std::string::npos);
  EXPECT_NE(graph_error([&] { softmax(x, 7); }).find("softmax: axis 7"), std::string::npos);
}

TEST(GraphBuilding, ValuesOfClosedBlocksStayInside) {
  Graph g;
  Tensor p = g.placeholder(bool_, {}, "p"), x = g.placeholder(f32, {2}, "x");
  Tensor inner;
  auto block = [&] { return inner = exp(x); };
  cond(p, block, block);
  EXPECT_NE(graph_error([&] { log(inner); }).find("belongs to another region"), std::string::npos);
  EXPECT_EQ(ir::verify(*g.impl()), "");
}

TEST(GraphBuilding, ABlockThatThrowsLeavesTheGraphUsable) {
  Graph g;
  Tensor p = g.placeholder(bool_, {}, "p"), x = g.placeholder(f32, {2}, "x");
  EXPECT_THROW(cond(
                   p, [&]() -> Tensor { throw std::runtime_error("user"); }, [&] { return x; }),
               std::runtime_error);
  EXPECT_EQ(g.impl()->insertion_region(), kTopRegion);
  exp(x);
  EXPECT_EQ(ir::verify(*g.impl()), "");
}

TEST(GraphBuilding, CapturesInOrderOfUse) {
  Graph g;
  Tensor p = g.placeholder(bool_, {}, "p"), x = g.placeholder(f32, {2}, "x"),
         y = g.placeholder(f32, {2}, "y");
  cond(p, [&] { return cond(p, [&] { return y * x; }, [&] { return x; }); }, [&] { return y; });
  const ir::Graph& graph = *g.impl();
  const ir::Op& op = graph.op(graph.region(kTopRegion).ops.back());
  EXPECT_EQ(graph.captures(op.regions[0]), (std::vector<ir::ValueId>{p.id(), y.id(), x.id()}));
  EXPECT_EQ(graph.captures(op.regions[1]), std::vector<ir::ValueId>{y.id()});
}

TEST(GraphBuilding, ReferencesStayValidWhileTheGraphGrows) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x");
  const Shape& shape = x.shape();
  Tensor y = x;
  for (int i = 0; i < 5000; ++i) y = exp(y);
  EXPECT_TRUE(shape[0].is(2));
}

TEST(GraphBuilding, BlocksNestToALimit) {
  Graph g;
  Tensor p = g.placeholder(bool_, {}, "p");
  std::function<Tensor()> nest = [&] { return cond(p, nest, nest); };
  EXPECT_NE(graph_error([&] { nest(); }).find("nested more than"), std::string::npos);
}

TEST(Broadcast, Shapes) {
  Dim n("n"), m("m");
  auto text = [](const Shape& a, const Shape& b) {
    return to_string(broadcast_shapes(a, b, "op"));
  };
  EXPECT_EQ(text({1, 3}, {2, 1}), "[2,3]");
  EXPECT_EQ(text({}, {2, 1}), "[2,1]");
  EXPECT_EQ(text({5, n, 1}, {n, m}), "[5,n,m]");
  EXPECT_EQ(text({0}, {1}), "[0]");
  EXPECT_NE(graph_error([&] { broadcast_shapes({2, 3}, {4}, "op"); }).find("[2,3] and [4]"),
            std::string::npos);
  EXPECT_NE(graph_error([&] { broadcast_shapes({n}, {m}, "op"); }).find("n and m"),
            std::string::npos);
  EXPECT_NE(graph_error([&] { broadcast_shapes({n}, {4}, "op"); }).find("op: "), std::string::npos);
}

// Each corruption breaks one rule; the verifier names it.
TEST(Verify, FindsBrokenGraphs) {
  struct Case {
    const char* expected;
    std::function<void(ir::Graph&)> corrupt;
  };
  auto top = [](ir::Graph& g) -> ir::Region& { return g.region(kTopRegion); };
  auto last = [&](ir::Graph& g) -> ir::Op& { return g.op(top(g).ops.back()); };
  const Case cases[] = {
      {"before its definition",
       [&](ir::Graph& g) { std::reverse(top(g).ops.begin(), top(g).ops.end()); }},
      {"does not exist", [&](ir::Graph& g) { last(g).operands[0] = 12345; }},
      {"occurs twice", [&](ir::Graph& g) { top(g).ops.push_back(top(g).ops.back()); }},
      {"does not exist", [&](ir::Graph& g) { top(g).ops.push_back(999); }},
      {"parent is another region", [&](ir::Graph& g) { last(g).parent = 1; }},
      {"inference says", [&](ir::Graph& g) { g.value(last(g).results[0]).type.dtype = f64; }},
      {"inference says", [&](ir::Graph& g) { g.value(last(g).results[0]).type.shape = Shape{7}; }},
      {"waits for an operation", [&](ir::Graph& g) { last(g).after.push_back(top(g).ops.back()); }},
      {"another owner", [&](ir::Graph& g) { g.region(1).owner = 0; }},
      {"attributes are not complete", [&](ir::Graph& g) { g.op(top(g).ops[2]).attrs = {}; }},
      {"outside its region",
       [&](ir::Graph& g) { top(g).results = {g.op(g.region(1).ops[0]).results[0]}; }},
      {"defined elsewhere", [&](ir::Graph& g) { g.value(last(g).results[0]).index = 3; }},
      {"inference says", [&](ir::Graph& g) { g.value(0).type.shape = Shape(17, Expr(1)); }},
      {"no definition", [&](ir::Graph& g) { last(g).def = nullptr; }},
  };
  for (const Case& c : cases) {
    Graph g;
    Tensor p = g.placeholder(bool_, {}, "p"), x = g.placeholder(f32, {2, 3}, "x");
    Tensor y = softmax(x);
    exp(cond(p, [&] { return exp(y); }, [&] { return y; }));
    ASSERT_EQ(ir::verify(*g.impl()), "");
    c.corrupt(*g.impl());
    EXPECT_NE(ir::verify(*g.impl()).find(c.expected), std::string::npos)
        << c.expected << " / " << ir::verify(*g.impl());
  }
}

}  // namespace
}  // namespace heddle
