// Text form, structural hash and equality.
#include "ir/graph.h"
#include "ops/opdef.h"
#include "support/sample_graphs.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using ir::parse;
using ir::print;

std::string error_of(std::string_view text) {
  try {
    parse(text, ops::op_table());
  } catch (const GraphError& e) {
    return e.what();
  }
  return "";
}

TEST(Text, RoundTripsEverySample) {
  for (const Graph& graph : test::sample_graphs()) {
    std::string text = print(*graph.impl());
    std::shared_ptr<ir::Graph> back;
    ASSERT_NO_THROW(back = parse(text, ops::op_table())) << text;
    EXPECT_EQ(print(*back), text);
    EXPECT_TRUE(ir::structurally_equal(*graph.impl(), *back)) << text;
    EXPECT_EQ(ir::structural_hash(*graph.impl()), ir::structural_hash(*back)) << text;
    EXPECT_EQ(ir::verify(*back), "") << text;
    EXPECT_EQ(ir::verify(*graph.impl()), "") << text;
  }
}

TEST(Text, HandWrittenTextNeedsNoTypesAndGetsDefaults) {
  auto graph = parse(R"(graph 1 {  // a comment
    body(%0: f32[2,3]) { %1 = softmax(%0) yield %1 }
  })",
                     ops::op_table());
  const ir::Op& op = graph->op(graph->region(ir::kTopRegion).ops.at(0));
  EXPECT_EQ(op.attrs.get<int64_t>("axis"), -1);
  EXPECT_EQ(to_string(graph->value(op.results[0]).type), "f32[2,3]");
}

TEST(Text, ExtentsKeepTheirMeaning) {
  auto graph = parse(R"(graph 1 {
    symbol s0 "n" extent 0..
    symbol s1 "m" extent 2..9
    body(%0: f32[s0 * s1 + 3, (s0 + 7) / 4, (s1 * 3) % 5, min(s0, s1), max(s0, 2)]) { yield %0 }
  })",
                     ops::op_table());
  auto again = parse(print(*graph), ops::op_table());
  EXPECT_TRUE(ir::structurally_equal(*graph, *again)) << print(*graph);
}

TEST(Text, ErrorsHaveLineAndColumn) {
  EXPECT_EQ(error_of(""), "line 1, column 1: expected 'graph'");
  EXPECT_EQ(error_of("graph 2 {"), "line 1, column 7: only version 1 is known");
  EXPECT_EQ(error_of("graph 1 {\n  body() {\n    %0 = nonsense()\n"),
            "line 3, column 10: operation 'nonsense' is not known");
  EXPECT_EQ(error_of("graph 1 {\n body(%0: f32[2]) {\n  %1 = add(%0, %7)\n"),
            "line 3, column 16: value %7 is not defined before");
  EXPECT_EQ(error_of("graph 1 { body(%0: f32[2], %0: f32[2]) { yield } }"),
            "line 1, column 28: value %0 is defined twice");
  EXPECT_EQ(error_of("graph 1 { body(%0: f32[2]) { %1 = softmax(%0) {axiz = 1} yield } }"),
            "line 1, column 30: softmax: has no attribute 'axiz'");
  EXPECT_EQ(error_of("graph 1 { body(%0: f32[2]) { %1 = softmax(%0) {axis = \"x\"} yield } }"),
            "line 1, column 30: softmax: attribute 'axis' expects integer, given string");
  EXPECT_EQ(error_of("graph 1 { body(%0: f32[2]) { %1 = softmax(%0) : f32[3] yield } }"),
            "line 1, column 30: softmax: the result is f32[2], the text says f32[3]");
  EXPECT_EQ(error_of("graph 1 { body(%0: f32[q]) { yield } }"),
            "line 1, column 24: symbol 'q' is not declared");
  EXPECT_EQ(
      error_of(
          "graph 1 { body() { %0 = constant() {value = data f32[9999999999] \"00\"} yield } }"),
      "line 1, column 50: data is shorter than its shape says");
  EXPECT_EQ(error_of("graph 1 { body() { %0 = constant() {value = data u8[2] [1, 256]} yield } }"),
            "line 1, column 60: '256' is not a value of u8");
  EXPECT_EQ(error_of("graph 1 { body() { yield } } x"),
            "line 1, column 30: expected the end of the text");
}

TEST(Text, DepthAndSizesAreBounded) {
  std::string deep(5000, '(');
  EXPECT_NE(
      error_of("graph 1 { symbol s0 \"\" extent 0.. body(%0: f32[" + deep).find("nested too deep"),
      std::string::npos);
  std::string product = "s0";
  for (int i = 1; i < 20; ++i) product = "(s0 + 1 + s" + std::to_string(i) + ") * " + product;
  std::string symbols;
  for (int i = 0; i < 20; ++i) symbols += "symbol s" + std::to_string(i) + " \"\" extent 0..\n";
  EXPECT_NE(error_of("graph 1 { " + symbols + " body(%0: f32[" + product + "]) { yield } }")
                .find("too large"),
            std::string::npos);
  std::string regions = "graph 1 { body(%0: bool[]) {";
  for (int i = 0; i < 500; ++i) regions += " cond(%0) region() {";
  EXPECT_NE(error_of(regions).find("nested more than"), std::string::npos);
  EXPECT_NE(error_of("graph 1 { body(%0: f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]) { yield } }")
                .find("rank"),
            std::string::npos);
}

TEST(Hash, IgnoresNamesAndSymbolsIdentity) {
  auto build = [](const char* dim, const char* name, bool swap_symbols) {
    Graph graph;
    std::optional<Dim> first, second;
    if (swap_symbols) second.emplace(dim);
    first.emplace(dim);
    if (!swap_symbols) second.emplace(dim);
    Tensor x = graph.placeholder(f32, {*first, *second}, name);
    reshape(x, {*first * *second}).named(name);
    return graph;
  };
  Graph a = build("n", "x", false), b = build("m", "y", false), c = build("m", "y", true);
  EXPECT_EQ(a.structural_hash(), b.structural_hash());
  EXPECT_TRUE(ir::structurally_equal(*a.impl(), *b.impl()));
  EXPECT_EQ(a.structural_hash(), c.structural_hash());
  EXPECT_TRUE(ir::structurally_equal(*a.impl(), *c.impl()));
}

TEST(Hash, SeesWhatDiffers) {
  auto hash_and_text = [](const std::function<void(Graph&, const Tensor&)>& f) {
    Graph graph;
    f(graph, graph.placeholder(f32, {Dim("n"), 3}, "x"));
    return graph;
  };
  std::vector<Graph> graphs = {
      hash_and_text([](Graph&, const Tensor& x) { softmax(x, 0); }),
      hash_and_text([](Graph&, const Tensor& x) { softmax(x, 1); }),
      hash_and_text([](Graph&, const Tensor& x) { exp(x); }),
      hash_and_text([](Graph&, const Tensor& x) { x - x; }),
      hash_and_text([](Graph&, const Tensor& x) { x * 0.0; }),
      hash_and_text([](Graph&, const Tensor& x) { x * -0.0; }),
      hash_and_text([](Graph& g, const Tensor& x) { g.placeholder(f32, {x.shape()[0]}); }),
      hash_and_text([](Graph& g, const Tensor&) { g.placeholder(f32, {Dim("m")}); }),
      hash_and_text([](Graph& g, const Tensor&) { g.placeholder(f32, {Dim("m", 0, 5)}); }),
  };
  for (size_t i = 0; i < graphs.size(); ++i) {
    for (size_t j = i + 1; j < graphs.size(); ++j) {
      EXPECT_NE(graphs[i].structural_hash(), graphs[j].structural_hash()) << i << " " << j;
      EXPECT_FALSE(ir::structurally_equal(*graphs[i].impl(), *graphs[j].impl())) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace heddle
