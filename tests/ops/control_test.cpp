// Branches, loops, calls, variables.
#include "ops/control_ops.h"
#include "ops/judge.h"
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

using namespace heddle;
using namespace heddle::test;

namespace {

ops::HostTensor scalar(double v) { return floats({}, {v}); }

}  // namespace

TEST(Cond, RunsOneBlock) {
  Graph g;
  Tensor p = g.placeholder(bool_, {});
  Tensor x = g.placeholder(f64, {2});
  Tensor y = cond(p, [&] { return x + 1.0; }, [&] { return x * 2.0; });
  ops::HostTensor v = floats({2}, {3, 4});
  EXPECT_EQ(text(evaluate({{p, integers({}, {1}, bool_)}, {x, v}}, y)), "f64[2] 4 5");
  EXPECT_EQ(text(evaluate({{p, integers({}, {0}, bool_)}, {x, v}}, y)), "f64[2] 6 8");
}

TEST(Cond, SaysWhatDoesNotFit) {
  Graph g;
  Tensor p = g.placeholder(bool_, {});
  Tensor x = g.placeholder(f32, {2});
  Tensor y = g.placeholder(f32, {3});
  EXPECT_EQ(graph_error([&] { cond(p, [&] { return x; }, [&] { return y; }); }),
            "cond: then_block gives f32[2] as result 0, else_block gives f32[3]");
  EXPECT_EQ(
      graph_error([&] { cond(g.placeholder(bool_, {2}), [&] { return x; }, [&] { return x; }); }),
      "cond: predicate is bool[2], expected bool[]");
  EXPECT_EQ(
      graph_error([&] { cond(p, [&] { return Tensors{x, x}; }, [&] { return Tensors{x}; }); }),
      "cond: then_block gives 2 tensors, else_block gives 1");
}

TEST(Cond, AnExceptionInABlockLeavesTheGraphUsable) {
  Graph g;
  Tensor p = g.placeholder(bool_, {});
  Tensor x = g.placeholder(f64, {});
  EXPECT_THROW(cond(
                   p, [&]() -> Tensor { throw std::runtime_error("user"); }, [&] { return x; }),
               std::runtime_error);
  g.verify();
  EXPECT_EQ(text(evaluate({{x, scalar(2)}}, x * 3.0)), "f64[] 6");
}

TEST(Cond, ATensorOfABlockStaysInside) {
  Graph g;
  Tensor p = g.placeholder(bool_, {});
  Tensor x = g.placeholder(f64, {});
  Tensor leaked;
  cond(p, [&] { return leaked = x + 1.0; }, [&] { return x; });
  EXPECT_NE(graph_error([&] { leaked * 2.0; }), "no error");
}

TEST(While, CF02SumsByIndex) {
  Graph g;
  Tensor x = g.placeholder(f64, {3});
  Tensor i = g.constant(int64_t{0}, i64);
  Tensor s = g.constant(0.0, f64);
  Tensors r = while_loop(
      {i, s}, [&](const Tensors& v) { return v[0] < 3.0; },
      [&](const Tensors& v) { return Tensors{v[0] + 1.0, v[1] + gather(x, v[0])}; });
  EXPECT_EQ(text(evaluate({{x, floats({3}, {3, 5, 7})}}, r[1])), "f64[] 15");
  EXPECT_EQ(text(evaluate({{x, floats({3}, {3, 5, 7})}}, r[0])), "i64[] 3");
}

TEST(While, GeneralFormGivesTheValuesOfBefore) {
  Graph g;
  Tensor x = g.placeholder(f64, {});
  // do { x *= 2 } while (x < 10)
  Tensors r = while_loop_general(
      {x},
      [&](const Tensors& v) {
        Tensor d = v[0] * 2.0;
        return LoopResult{d < 10.0, {d}};
      },
      [&](const Tensors& v) { return v; });
  EXPECT_EQ(text(evaluate({{x, scalar(3)}}, r[0])), "f64[] 12");
  EXPECT_EQ(text(evaluate({{x, scalar(30)}}, r[0])), "f64[] 60");
}

TEST(While, EndsAtItsBound) {
  Graph g;
  Tensor x = g.placeholder(f64, {});
  auto run = [&](int64_t bound) {
    Tensors r = while_loop(
        {x}, [](const Tensors& v) { return v[0] < 100.0; },
        [](const Tensors& v) { return Tensors{v[0] + 1.0}; }, {.max_iterations = bound});
    return text(evaluate({{x, scalar(1)}}, r[0]));
  };
  EXPECT_EQ(run(0), "f64[] 1");
  EXPECT_EQ(run(3), "f64[] 4");
  EXPECT_EQ(run(1000), "f64[] 100");
}

TEST(While, SaysWhatDoesNotFit) {
  Graph g;
  Tensor x = g.placeholder(f32, {2});
  auto always = [&](const Tensors&) { return g.constant(1.0, bool_); };
  EXPECT_EQ(graph_error([&] {
              while_loop({x}, always,
                         [](const Tensors& v) { return Tensors{concat({v[0], v[0]}, 0)}; });
            }),
            "while_loop: body gives f32[4] as carried value 0, expected f32[2]");
  EXPECT_EQ(graph_error([&] {
              while_loop(
                  {x}, [](const Tensors& v) { return v[0] < 1.0; },
                  [](const Tensors& v) { return v; });
            }),
            "while_loop: predicate is bool[2], expected bool[]");
  EXPECT_EQ(graph_error([&] {
              while_loop({x}, always, [](const Tensors& v) { return Tensors{v[0], v[0]}; });
            }),
            "while_loop: body gives 2 tensors, expected 1 (carried values)");
  EXPECT_EQ(graph_error([&] { while_loop({}, always, [](const Tensors& v) { return v; }); }),
            "while_loop: expected at least one tensor, given none");
}

TEST(For, CF01ZeroTrips) {
  Graph g;
  Tensor x = g.placeholder(f64, {0});
  Tensor seven = g.constant(7.0, f64);
  ScanResult r = scan({seven}, {x}, [](const Tensors& v, const Tensors& s) {
    return ScanResult{{v[0] + s[0]}, {s[0]}};
  });
  EXPECT_EQ(text(evaluate({{x, ops::HostTensor(f64, {0})}}, r.carried[0])), "f64[] 7");
  EXPECT_EQ(text(evaluate({{x, ops::HostTensor(f64, {0})}}, r.stacked[0])), "f64[0]");
  Tensors none =
      for_loop(0, {seven}, [](const Tensor&, const Tensors& v) { return Tensors{v[0] + 1.0}; });
  EXPECT_EQ(text(evaluate({}, none[0])), "f64[] 7");
}

TEST(For, CF04BranchInside) {
  Graph g;
  Tensor x = g.placeholder(f64, {});
  Tensors r = for_loop(4, {x}, [&](const Tensor& i, const Tensors& v) {
    Tensor even = equal(floor_modulo(i, constant_like(i, 2)), constant_like(i, 0));
    return Tensors{cond(even, [&] { return v[0] + 0.5; }, [&] { return v[0] * 2.0; })};
  });
  EXPECT_EQ(text(evaluate({{x, scalar(1)}}, r[0])), "f64[] 7");
  Tensor dx = gradients(r[0], {x})[0];
  EXPECT_EQ(text(evaluate({{x, scalar(1)}}, dx)), "f64[] 4");
}

TEST(For, CountsFromTensors) {
  Graph g;
  Tensor n = g.placeholder(i32, {});
  Tensor x = g.constant(0.0, f64);
  auto add_index = [](const Tensor& i, const Tensors& v) {
    return Tensors{v[0] * 10.0 + cast(i, f64)};
  };
  Tensors r = for_loop(n, {x}, add_index);
  EXPECT_EQ(text(evaluate({{n, integers({}, {4}, i32)}}, r[0])), "f64[] 123");
  EXPECT_EQ(text(evaluate({{n, integers({}, {-2}, i32)}}, r[0])), "f64[] 0");
  auto bounds = [&](int64_t from, int64_t to, int64_t by) {
    Tensors b =
        for_loop(g.constant(from, i64), g.constant(to, i64), g.constant(by, i64), {x}, add_index);
    return text(evaluate({}, b[0]));
  };
  EXPECT_EQ(bounds(2, 9, 3), "f64[] 258");
  EXPECT_EQ(bounds(2, 8, 3), "f64[] 25");
  EXPECT_EQ(bounds(5, 2, 1), "f64[] 0");
  EXPECT_EQ(bounds(5, 2, -1), "f64[] 543");
  EXPECT_EQ(graph_error([&] { for_loop(g.placeholder(i64, {2}), {x}, add_index); }),
            "for_loop: count is i64[2], expected a scalar of an integer type");
}

TEST(Scan, StacksRows) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f64, {n, 2});
  Tensor zero = g.constant(0.0, f64, {2});
  ScanResult r = scan({zero}, {x}, [](const Tensors& v, const Tensors& s) {
    Tensor t = v[0] + s[0];
    return ScanResult{{t}, {t * 2.0}};
  });
  EXPECT_EQ(to_string(r.stacked[0].type()), "f64[n,2]");
  EXPECT_EQ(text(evaluate({{x, floats({3, 2}, {1, 2, 3, 4, 5, 6})}}, r.stacked[0])),
            "f64[3,2] 2 4 8 12 18 24");
  EXPECT_EQ(graph_error([&] {
              scan({zero}, {x, g.placeholder(f64, {3})},
                   [](const Tensors& v, const Tensors&) { return ScanResult{v, {}}; });
            }),
            "scan: xs[1] is f64[3], expected extent n along axis 0");
}

TEST(Loops, OpenTypesAreKnownWhenFed) {
  Graph g;
  Tensor x = g.placeholder(Type{f64, std::nullopt}, "x");
  Tensors r = while_loop(
      {x}, [](const Tensors& v) { return sum(v[0]) < 20.0; },
      [&](const Tensors& v) { return Tensors{v[0] + x}; });
  Tensors f = for_loop(2, r, [&](const Tensor&, const Tensors& v) {
    return Tensors{cond(sum(v[0]) > 0.0, [&] { return v[0] * 2.0; }, [&] { return x; })};
  });
  EXPECT_EQ(text(evaluate({{x, floats({2}, {3, 4})}}, f[0])), "f64[2] 36 48");
  EXPECT_EQ(text(evaluate({{x, floats({1, 1}, {30})}}, f[0])), "f64[1,1] 120");
}

TEST(Loops, Nest) {
  Graph g;
  Tensor x = g.placeholder(f64, {});
  Tensors r = for_loop(3, {x}, [&](const Tensor&, const Tensors& v) {
    return while_loop(
        v, [](const Tensors& w) { return w[0] < 20.0; },
        [&](const Tensors& w) {
          return for_loop(2, w, [&](const Tensor&, const Tensors& u) { return Tensors{u[0] + x}; });
        });
  });
  EXPECT_EQ(text(evaluate({{x, scalar(3)}}, r[0])), "f64[] 21");
}

TEST(Call, InlinesAnotherGraph) {
  Graph callee;
  Dim n("n");
  Tensor a = callee.placeholder(f64, {n}, "a");
  Tensor b = callee.placeholder(f64, {}, "b");
  Tensor y = a * b + 1.0;
  Graph g;
  Tensor x = g.placeholder(f64, {3});
  Tensor s = g.placeholder(f64, {});
  Tensor r = call(callee, {y}, {x, s})[0];
  EXPECT_EQ(to_string(r.type()), "f64[3]");
  EXPECT_EQ(text(evaluate({{x, floats({3}, {1, 2, 3})}, {s, scalar(2)}}, r)), "f64[3] 3 5 7");
  EXPECT_EQ(graph_error([&] { call(callee, {y}, {x}); }),
            "call: given 1 arguments, expected 2 for the placeholders of the callee");
  Graph counter;
  Tensor state = counter.variable(Array::from<float>({}, {1}));
  Tensor step = counter.placeholder(f32, {});
  EXPECT_EQ(graph_error([&] { call(counter, {read_variable(state) + step}, {g.constant(1.0)}); }),
            "call: the callee has a variable, expected none: pass its state as an argument");
  EXPECT_EQ(graph_error([&] { call(callee, {x}, {x, s}); }),
            "call: targets[0] is not a tensor of the callee");
}

TEST(Variable, AssignsRunInProgramOrder) {
  Graph g;
  Tensor v = g.variable(Array::from<double>({2}, {1, 2}), "v");
  Tensor before = read_variable(v);
  Operation set = assign(v, before * 10.0);
  Tensor after = with_dependencies({set}, [&] { return read_variable(v) + 0.5; });
  ir::Extracted e = ir::extract(*g.impl(), {}, {before.id(), after.id()}, {});
  std::map<int64_t, ops::HostTensor> state;
  std::vector<ops::HostTensor> out = ops::judge(*e.graph, {}, &state);
  EXPECT_EQ(text(out[0]), "f64[2] 1 2");
  EXPECT_EQ(text(out[1]), "f64[2] 10.5 20.5");
  ASSERT_EQ(state.size(), 1U);
  EXPECT_EQ(text(state.begin()->second), "f64[2] 10 20");
  out = ops::judge(*e.graph, {}, &state);
  EXPECT_EQ(text(out[1]), "f64[2] 100.5 200.5");
  EXPECT_EQ(graph_error([&] { assign(v, g.constant(1.0, f64)); }),
            "assign: value is f64[], expected f64[2] as the variable");
  EXPECT_EQ(graph_error([&] { assign(before, before); }),
            "assign: variable is not the result of Graph::variable");
}

TEST(Text, ControlRoundTrips) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f32, {n, 2}, "x");
  ScanResult s = scan({g.constant(0.0, f32, {2})}, {x}, [](const Tensors& v, const Tensors& r) {
    return ScanResult{{v[0] + r[0]}, {v[0]}};
  });
  Tensors w = while_loop(
      {s.carried[0]}, [](const Tensors& v) { return reduce_max(v[0], {}) < 10.0; },
      [](const Tensors& v) { return Tensors{v[0] * 2.0}; }, {.max_iterations = 9});
  cond(reduce_max(w[0]) > 3.0, [&] { return w[0]; }, [&] { return w[0] + 1.0; });
  Graph again = Graph::from_text(g.to_text());
  again.verify();
  EXPECT_EQ(again.to_text(), g.to_text());
  EXPECT_EQ(again.structural_hash(), g.structural_hash());
}

// A counter to 2^20 and more, as on every device.
TEST(Loops, TheJudgeHasNoLimitOfIterations) {
  Graph g;
  Tensor x = g.placeholder(f64, {});
  Tensors r =
      for_loop(1'048'579, {x}, [](const Tensor&, const Tensors& v) { return Tensors{v[0] + 1.0}; });
  EXPECT_EQ(evaluate({{x, scalar(1)}}, r[0]).f[0], 1'048'580);
}
