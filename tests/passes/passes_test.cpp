// Each pass on small graphs: what must go, what must stay, and that results keep their bits.
#include "passes/passes.h"
#include "ir/graph.h"
#include "ops/judge.h"
#include "ops/opdef.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using ir::kTopRegion;
using passes::GraphRef;
using Names = std::vector<std::string>;

GraphRef extracted(const Tensors& feeds, const Tensors& targets,
                   const std::vector<Operation>& operations = {}) {
  ir::FeedList list;
  for (const Tensor& t : feeds) list.emplace_back(t.id(), std::nullopt);
  std::vector<ir::ValueId> values;
  for (const Tensor& t : targets) values.push_back(t.id());
  std::vector<ir::OpId> ops;
  for (const Operation& op : operations) ops.push_back(op.id());
  return ir::extract(*(feeds.empty() ? targets[0] : feeds[0]).graph(), list, values, ops).graph;
}

Names op_names(const ir::Graph& graph, ir::RegionId region = kTopRegion) {
  EXPECT_EQ(ir::verify(graph), "") << ir::print(graph);
  Names names;
  for (ir::OpId id : graph.region(region).ops) names.emplace_back(graph.op(id).name);
  return names;
}

const ir::Op& last_op(const ir::Graph& graph) {
  return graph.op(graph.region(kTopRegion).ops.back());
}

GraphRef clean(const GraphRef& graph) { return passes::eliminate_dead(*passes::simplify(*graph)); }

bool keep_nothing(const ir::Graph&, ir::OpId) { return false; }

// Both graphs give the same bits on random feeds.
void expect_same_results(const ir::Graph& a, const ir::Graph& b) {
  std::mt19937_64 rng(7);
  std::vector<ops::HostTensor> feeds;
  for (ir::ValueId v : a.region(kTopRegion).arguments) {
    const Type& type = a.value(v).type;
    std::vector<int64_t> shape;
    for (const Expr& e : *type.shape) shape.push_back(e.constant_or(3));
    feeds.push_back(test::random_tensor(type.dtype, shape, rng));
  }
  std::vector<ops::HostTensor> x = ops::judge(a, feeds), y = ops::judge(b, feeds);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].shape, y[i].shape);
    EXPECT_EQ(ops::to_bytes(x[i]), ops::to_bytes(y[i])) << "result " << i;
  }
}

TEST(Fold, SmallConstantsAndShapes) {
  Graph g;
  Tensor x = g.placeholder(f32, {2, 3}, "x");
  Tensor two = g.constant(2.0) * g.constant(0.5) + g.constant(1.0);
  Tensor shape = concat({shape_of(x), shape_of(x)}, 0);
  auto e = extracted({x}, {x * two, shape});
  auto folded = passes::eliminate_dead(*passes::fold_constants(*e));
  EXPECT_EQ(op_names(*folded), (Names{"constant", "constant", "multiply"}));
  expect_same_results(*e, *folded);
}

TEST(Fold, LeavesLargeAndSymbolicOnes) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f32, {n}, "x");
  Tensor large = broadcast_to(g.constant(1.0), {100, 100}),
         symbolic = broadcast_to(g.constant(1.0), {n});
  auto e = extracted({x}, {x + symbolic, large, shape_of(x)});
  EXPECT_EQ(op_names(*passes::eliminate_dead(*passes::fold_constants(*e))), op_names(*e));
}

TEST(Fold, RoundsToTheDtypeAndWraps) {
  Graph g;
  Tensor third = g.constant(1.0, f16) / g.constant(3.0, f16);
  Tensor wrapped = g.constant(int64_t{100}, i8) + g.constant(int64_t{100}, i8);
  auto folded = passes::fold_constants(*extracted({}, {third, wrapped}));
  const auto& results = folded->region(kTopRegion).results;
  EXPECT_EQ(ops::from_literal(*ops::constant_value(*folded, results[0])).f[0], 0.333251953125);
  EXPECT_EQ(ops::from_literal(*ops::constant_value(*folded, results[1])).i[0], -56);
}

TEST(Simplify, NeutralElements) {
  Graph g;
  Tensor x = g.placeholder(f32, {2, 3}, "x"), k = g.placeholder(i32, {4}, "k");
  auto names = [&](const Tensor& in, const Tensor& t) {
    return op_names(*clean(extracted({in}, {t})));
  };
  EXPECT_EQ(names(x, x * 1.0), Names{});
  EXPECT_EQ(names(x, 1.0 * x), Names{});
  EXPECT_EQ(names(x, x / 1.0), Names{});
  EXPECT_EQ(names(x, x - 0.0), Names{});
  EXPECT_EQ(names(x, x + -0.0), Names{});
  EXPECT_EQ(names(k, k + 0.0), Names{});
  EXPECT_EQ(names(x, x + 0.0).size(), 2u);  // -0 + 0 is 0
  EXPECT_EQ(names(x, 1.0 / x).size(), 2u);
  EXPECT_EQ(names(x, x * 0.0).size(), 2u);  // NaN
}

TEST(Simplify, ViewsAndCasts) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f32, {n, 3, 4}, "x");
  auto names = [&](const Tensor& t) { return op_names(*clean(extracted({x}, {t}))); };
  EXPECT_EQ(names(transpose(transpose(x, {1, 2, 0}), {2, 0, 1})), Names{});
  EXPECT_EQ(names(transpose(transpose(x, {1, 2, 0}), {1, 2, 0})), Names{"transpose"});
  EXPECT_EQ(names(reshape(reshape(x, {n * 12}), {n, 12})), Names{"reshape"});
  EXPECT_EQ(names(reshape(reshape(x, {n * 12}), {n, 3, 4})), Names{});
  EXPECT_EQ(names(broadcast_to(broadcast_to(x, {2, n, 3, 4}), {5, 2, n, 3, 4})),
            Names{"broadcast_to"});
  EXPECT_EQ(names(cast(x, f32)), Names{});
  EXPECT_EQ(names(cast(cast(x, f64), f32)), Names{});
  EXPECT_EQ(names(cast(cast(x, f16), f32)), (Names{"cast", "cast"}));
  EXPECT_EQ(names(cast(cast(x, i32), f32)), (Names{"cast", "cast"}));
}

TEST(Simplify, TakesTheKnownBranch) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x");
  Tensor yes = g.constant(int64_t{1}, bool_);
  Tensor y = cond(yes, [&] { return exp(x); }, [&] { return log(x); });
  EXPECT_EQ(op_names(*clean(extracted({x}, {y}))), Names{"exp"});
}

TEST(EliminateCommon, MergesPureOpsAndRegions) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x"), y = g.placeholder(f32, {2}, "y"),
         p = g.placeholder(bool_, {}, "p");
  auto branch = [&] { return cond(p, [&] { return exp(x); }, [&] { return x; }); };
  auto e = extracted({x, y, p}, {x + y, y + x, x - y, y - x, branch(), branch()});
  auto merged = passes::eliminate_dead(*passes::eliminate_common(*e));
  EXPECT_EQ(op_names(*merged), (Names{"add", "subtract", "subtract", "cond"}));
  expect_same_results(*e, *merged);
}

TEST(EliminateCommon, ARegionUsesWhatIsOutside) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x"), p = g.placeholder(bool_, {}, "p");
  Tensor outside = exp(x);
  Tensor y = cond(p, [&] { return exp(x) * 2.0; }, [&] { return log(x); });
  auto merged =
      passes::eliminate_dead(*passes::eliminate_common(*extracted({x, p}, {outside, y, log(x)})));
  const ir::Op& op = merged->op(merged->region(kTopRegion).ops[1]);
  EXPECT_EQ(op_names(*merged, op.regions[0]), (Names{"constant", "multiply"}));
  // What a branch computes is not there outside of it.
  EXPECT_EQ(op_names(*merged), (Names{"exp", "cond", "log"}));
}

TEST(Effects, SurviveEveryPassInOrder) {
  Graph g;
  Tensor v = ops::apply_all(
      "variable", {}, {{"initial", ops::to_literal(ops::HostTensor(f32, {}))}, {"id", int64_t{0}}},
      {}, g.impl())[0];
  Tensor x = g.placeholder(f32, {}, "x"), p = g.placeholder(bool_, {}, "p");
  Tensor first = read_variable(v);
  Operation add_x = assign(v, first + x);
  Tensor second = read_variable(v);
  Tensor branch = cond(
      p,
      [&] {
        assign(v, x);
        assign(v, x * 1.0);
        return x;
      },
      [&] { return x; });
  Tensor third = with_dependencies({add_x, Operation(branch)}, [&] { return read_variable(v); });
  auto e = extracted({x, p}, {first, second, third}, {add_x, Operation(branch)});
  auto done = passes::optimize(*e, keep_nothing);
  EXPECT_EQ(op_names(*done), (Names{"variable", "read", "add", "assign", "read", "cond", "read"}));
  const auto& ops = done->region(kTopRegion).ops;
  EXPECT_EQ(op_names(*done, done->op(ops[5]).regions[0]), (Names{"assign", "assign"}));
  EXPECT_EQ(done->op(ops[6]).after, (std::vector<ir::OpId>{ops[3], ops[5]}));
}

TEST(Effects, EqualVariablesStayTwo) {
  Graph g;
  auto variable = [&](int64_t id) {
    return ops::apply_all("variable", {},
                          {{"initial", ops::to_literal(ops::HostTensor(f32, {}))}, {"id", id}}, {},
                          g.impl())[0];
  };
  auto e = extracted({}, {read_variable(variable(0)), read_variable(variable(1))});
  EXPECT_EQ(op_names(*passes::optimize(*e, keep_nothing)),
            (Names{"variable", "read", "variable", "read"}));
}

TEST(Decompose, CompositesGoUnlessKept) {
  Graph g;
  Tensor x = g.placeholder(f32, {4, 8}, "x");
  Tensor y = softmax(x).named("probabilities");
  auto e = extracted({x}, {y});
  auto kept = passes::optimize(
      *e, [](const ir::Graph& graph, ir::OpId id) { return graph.op(id).name == "softmax"; });
  EXPECT_EQ(op_names(*kept), Names{"softmax"});
  auto primitive = passes::optimize(*e, keep_nothing);
  for (ir::OpId id : primitive->region(kTopRegion).ops) {
    const ir::Op& op = primitive->op(id);
    EXPECT_NE(op.def->kind, ops::Kind::composite) << op.name;
    EXPECT_EQ(op.locations, std::vector<std::string>{"probabilities"}) << op.name;
  }
  EXPECT_EQ(primitive->value(primitive->region(kTopRegion).results[0]).name, "probabilities");
}

TEST(InlineCalls, PutsTheCalleeInPlace) {
  Graph callee, g;
  Tensor a = callee.placeholder(f32, {2}, "a");
  Tensor result = exp(a);
  Tensor x = g.placeholder(f32, {2}, "x");
  Tensor y = call(callee, {result}, {call(callee, {result}, {x})[0]})[0];
  auto e = extracted({x}, {y});
  EXPECT_EQ(op_names(*e), (Names{"call", "call"}));
  auto inlined = passes::inline_calls(*e);
  EXPECT_EQ(op_names(*inlined), (Names{"exp", "exp"}));
  expect_same_results(*e, *inlined);
}

TEST(EliminateDead, InsideRegionsToo) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x");
  Tensor r = for_loop(Expr(3), {x}, [&](const Tensor& i, const Tensors& v) {
    exp(cast(i, f32));
    return Tensors{v[0] + x};
  })[0];
  auto dead = passes::eliminate_dead(*extracted({x}, {r}));
  EXPECT_EQ(op_names(*dead, last_op(*dead).regions[0]), Names{"add"});
}

// Operands, region arguments and results of the last op.
struct Parts {
  size_t operands, results;
  std::vector<size_t> arguments, region_results;
  friend bool operator==(const Parts&, const Parts&) = default;
};
std::ostream& operator<<(std::ostream& out, const Parts& p) {
  out << p.operands << " operands, " << p.results << " results, regions";
  for (size_t r = 0; r < p.arguments.size(); ++r)
    out << " " << p.arguments[r] << "->" << p.region_results[r];
  return out;
}

Parts parts_of(const ir::Graph& graph, const ir::Op& op) {
  EXPECT_EQ(ir::verify(graph), "") << ir::print(graph);
  Parts p{op.operands.size(), op.results.size(), {}, {}};
  for (ir::RegionId r : op.regions) {
    p.arguments.push_back(graph.region(r).arguments.size());
    p.region_results.push_back(graph.region(r).results.size());
  }
  return p;
}

// What remains of the last op of the graph of these targets, whose values stay.
Parts remaining(const Tensors& feeds, const Tensors& targets,
                const std::vector<Operation>& operations = {}) {
  auto before = extracted(feeds, targets, operations);
  auto after = passes::eliminate_dead(*before);
  if (operations.empty()) expect_same_results(*before, *after);
  EXPECT_TRUE(ir::structurally_equal(*after, *passes::eliminate_dead(*after)));
  return parts_of(*after, last_op(*after));
}

TEST(EliminateDead, CarriedValuesWithTheirChains) {
  for (int64_t count : {0, 1, 3}) {
    Graph g;
    Tensor x = g.placeholder(f32, {2}, "x");
    // 0 is read by 1, 1 by none but itself, 2 by 3.
    Tensors r = for_loop(count, {x, x * 2.0, x + 1.0, x}, [&](const Tensor&, const Tensors& v) {
      return Tensors{v[0] + 1.0, v[1] * v[0], exp(v[2]), v[3] + v[2]};
    });
    EXPECT_EQ(remaining({x}, {r[0]}), (Parts{1, 1, {2}, {1}}));
    EXPECT_EQ(remaining({x}, {r[1]}), (Parts{2, 2, {3}, {2}}));
    EXPECT_EQ(remaining({x}, {r[3]}), (Parts{2, 2, {3}, {2}}));
    EXPECT_EQ(remaining({x}, {r[0], r[2]}), (Parts{2, 2, {3}, {2}}));
    EXPECT_EQ(remaining({x}, r), (Parts{4, 4, {5}, {4}}));
  }
}

TEST(EliminateDead, RowsThatNobodyReads) {
  for (int64_t count : {0, 1, 3}) {
    Graph g;
    Tensor c = g.placeholder(f32, {2}, "c"), x = g.placeholder(f32, {count, 2}, "x"),
           y = g.placeholder(f32, {count, 2}, "y");
    ScanResult r = scan({c, c}, {x, y}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      return {{s[0] + v[0], s[1] * 2.0}, {exp(v[1]), s[0], v[0] * s[1]}};
    });
    Tensors all = {c, x, y};
    EXPECT_EQ(remaining(all, {r.carried[0]}), (Parts{2, 1, {3}, {1}}));
    EXPECT_EQ(remaining(all, {r.carried[1]}), (Parts{1, 1, {2}, {1}}));
    EXPECT_EQ(remaining(all, {r.stacked[0]}), (Parts{1, 1, {2}, {1}}));
    EXPECT_EQ(remaining(all, {r.stacked[1]}), (Parts{2, 2, {3}, {2}}));
    EXPECT_EQ(remaining(all, {r.stacked[2]}), (Parts{2, 2, {3}, {2}}));
    EXPECT_EQ(remaining(all, {r.stacked[0], r.carried[1]}), (Parts{2, 2, {3}, {2}}));
  }
}

TEST(EliminateDead, PartsOfWhileLoops) {
  Graph g;
  Tensor x = g.placeholder(f32, {}, "x"), y = g.placeholder(f32, {2}, "y");
  // The predicate reads carried value 0; of the values in between 0 and 1 are carried on, 2 is not.
  Tensors r = while_loop_general(
      {x, y},
      [&](const Tensors& v) {
        return LoopResult{v[0] < 5.0, {v[0] + 1.0, v[1] * 2.0, v[1] * v[0]}};
      },
      [&](const Tensors& u) { return Tensors{u[0] + 1.0, u[1]}; }, {.max_iterations = 10});
  EXPECT_EQ(remaining({x, y}, {r[0]}), (Parts{1, 1, {1, 1}, {2, 1}}));
  EXPECT_EQ(remaining({x, y}, {r[1]}), (Parts{2, 2, {2, 2}, {3, 2}}));
  EXPECT_EQ(remaining({x, y}, {r[2]}), (Parts{2, 3, {2, 3}, {4, 2}}));
}

TEST(EliminateDead, ResultsOfBranches) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x");
  Tensors r = cond(
      sum(x) > 0.0, [&] { return Tensors{exp(x), x, x * 2.0}; },
      [&] { return Tensors{log(x), x + 1.0, sum(x) * x}; });
  EXPECT_EQ(remaining({x}, {r[1]}), (Parts{1, 1, {0, 0}, {1, 1}}));
  EXPECT_EQ(remaining({x}, {r[0], r[2]}), (Parts{1, 2, {0, 0}, {2, 2}}));
}

// An inner loop's result is dead because the outer one's is.
TEST(EliminateDead, NestedLoops) {
  Graph g;
  Tensor x = g.placeholder(f32, {2}, "x");
  Tensors r = for_loop(2, {x, x}, [&](const Tensor&, const Tensors& v) {
    return for_loop(3, {v[0], v[1]}, [&](const Tensor&, const Tensors& w) {
      return Tensors{w[0] * 2.0, exp(w[1]) + x};
    });
  });
  auto dead = passes::eliminate_dead(*extracted({x}, {r[0]}));
  EXPECT_EQ(parts_of(*dead, last_op(*dead)), (Parts{1, 1, {2}, {1}}));
  const ir::Region& body = dead->region(last_op(*dead).regions[0]);
  EXPECT_EQ(parts_of(*dead, dead->op(body.ops.back())), (Parts{1, 1, {2}, {1}}));
  EXPECT_EQ(remaining({x}, {r[0]}), (Parts{1, 1, {2}, {1}}));
}

TEST(EliminateDead, EffectsStayWithoutResults) {
  Graph g;
  Tensor v = ops::apply_all(
      "variable", {}, {{"initial", ops::to_literal(ops::HostTensor(f32, {}))}, {"id", int64_t{7}}},
      {}, g.impl())[0];
  Tensor x = g.placeholder(f32, {}, "x");
  Tensors by_for = for_loop(3, {x, x}, [&](const Tensor&, const Tensors& c) {
    assign(v, read_variable(v) + c[0]);
    return Tensors{c[0] + 1.0, exp(c[1])};
  });
  EXPECT_EQ(remaining({x}, {}, {Operation(by_for[1])}), (Parts{1, 1, {2}, {1}}));
  Tensors alone = for_loop(3, {x}, [&](const Tensor&, const Tensors& c) {
    assign(v, read_variable(v) * 2.0);
    return Tensors{c[0] + 1.0};
  });
  EXPECT_EQ(remaining({x}, {}, {Operation(alone[0])}), (Parts{0, 0, {1}, {0}}));
  Tensors by_while = while_loop(
      {x, x}, [](const Tensors& c) { return c[0] < 3.0; },
      [&](const Tensors& c) {
        assign(v, read_variable(v) * 2.0);
        return Tensors{c[0] + 1.0, exp(c[1])};
      });
  EXPECT_EQ(remaining({x}, {}, {Operation(by_while[0])}), (Parts{1, 1, {1, 1}, {2, 1}}));
}

}  // namespace
}  // namespace heddle
