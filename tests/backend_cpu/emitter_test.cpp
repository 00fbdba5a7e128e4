// Kernels compiled by the CPU emitter against the interpreter: chosen forms.
#include "harness.h"

#include <heddle/error.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace heddle::test {
namespace {

using ir::AxisKind;
using ir::BodyBuilder;
using ir::BufferRole;
using ir::NodeId;
using ir::ScalarOp;

TEST(CpuEmitter, AddsVectorsOfOddLength) {
  for (int64_t n : {0, 1, 7, 8, 31, 33, 1000, 100003}) {
    ir::Kernel k;
    k.name = "add";
    k.buffers = {{"x", f32, {n}, BufferRole::input},
                 {"y", f32, {n}, BufferRole::input},
                 {"z", f32, {n}, BufferRole::output}};
    ir::Axis i = axis("i", n);
    BodyBuilder b;
    NodeId x = b.load(f32, {0, {var(i)}}), y = b.load(f32, {1, {var(i)}});
    b.store({2, {var(i)}}, b.binary(ScalarOp::add, x, y));
    ir::Nest nest;
    nest.outer = {i};
    nest.phases.push_back({{}, b.take(), {}});
    add_nest(k, nest);
    check(k, {}, true);
  }
}

TEST(CpuEmitter, SymbolicSizesAndBroadcast) {
  ir::Kernel k;
  k.name = "bias";
  Dim m("m"), n("n");
  k.symbols = {m.symbol(), n.symbol()};
  k.buffers = {{"x", f32, {m, n}, BufferRole::input},
               {"bias", f32, {n}, BufferRole::input},
               {"scale", f32, {m}, BufferRole::input},
               {"z", f32, {m, n}, BufferRole::output}};
  ir::Axis i = axis("i", m), j = axis("j", n);
  BodyBuilder b;
  NodeId x = b.load(f32, {0, {var(i), var(j)}}), y = b.load(f32, {1, {var(j)}}),
         s = b.load(f32, {2, {var(i)}});
  b.store({3, {var(i), var(j)}}, b.fma(x, s, y));
  ir::Nest nest;
  nest.outer = {i, j};
  nest.phases.push_back({{}, b.take(), {}});
  add_nest(k, nest);
  for (auto [mm, nn] :
       {std::pair<int64_t, int64_t>{3, 5}, {0, 4}, {4, 0}, {17, 100}, {1, 4097}, {300, 1}})
    check(k, {mm, nn}, true);
}

// Softmax rows: three phases, a row buffer.
TEST(CpuEmitter, SoftmaxRows) {
  for (bool last : {true, false}) {
    ir::Kernel k;
    k.name = "softmax";
    int64_t rows = 37, n = 301;
    std::vector<Expr> shape = last ? std::vector<Expr>{rows, n} : std::vector<Expr>{n, rows};
    k.buffers = {{"x", f32, shape, BufferRole::input},
                 {"y", f32, shape, BufferRole::output},
                 {"e", f32, {n}, BufferRole::row_local}};
    ir::Axis i = axis("i", rows), j0 = axis("j0", n, AxisKind::reduced),
             j1 = axis("j1", n, AxisKind::reduced), j2 = axis("j2", n);
    auto at = [&](const ir::Axis& j) {
      return last ? std::vector<Expr>{var(i), var(j)} : std::vector<Expr>{var(j), var(i)};
    };
    ir::Nest nest;
    nest.outer = {i};
    {
      BodyBuilder b;
      NodeId x = b.keep(b.load(f32, {0, at(j0)}));
      ir::Body body = b.take();
      nest.phases.push_back({{j0}, body, {{ir::ReduceOp::max, b.renumbered(x), f32}}});
    }
    {
      BodyBuilder b;
      NodeId d = b.binary(ScalarOp::sub, b.load(f32, {0, at(j1)}), b.row(f32, {0, 0, 0}));
      NodeId e = b.keep(
          b.binary(ScalarOp::div, b.constant(f32, 1),
                   b.binary(ScalarOp::add, b.constant(f32, 1), b.binary(ScalarOp::mul, d, d))));
      b.store({2, {var(j1)}}, e);
      ir::Body body = b.take();
      nest.phases.push_back({{j1}, body, {{ir::ReduceOp::sum, b.renumbered(e), f32}}});
    }
    {
      BodyBuilder b;
      b.store({1, at(j2)},
              b.binary(ScalarOp::div, b.load(f32, {2, {var(j2)}}), b.row(f32, {1, 0, 0})));
      nest.phases.push_back({{j2}, b.take(), {}});
    }
    add_nest(k, nest);
    check(k, {}, false, 1e-5, 1e-7);
  }
}

TEST(CpuEmitter, ArgMaxAndSums) {
  for (int64_t n : {1, 5, 64, 1000, 70000}) {
    ir::Kernel k;
    k.name = "fold";
    k.buffers = {{"x", f32, {3, n}, BufferRole::input},
                 {"at", i64, {3}, BufferRole::output},
                 {"max", f32, {3}, BufferRole::output},
                 {"count", i32, {3}, BufferRole::output}};
    ir::Axis i = axis("i", 3), j = axis("j", n, AxisKind::reduced);
    ir::Nest nest;
    nest.outer = {i};
    BodyBuilder b;
    NodeId x = b.keep(b.load(f32, {0, {var(i), var(j)}}));
    NodeId positive = b.keep(b.cast(b.binary(ScalarOp::gt, x, b.constant(f32, 0)), i32));
    ir::Body body = b.take();
    nest.phases.push_back({{j},
                           body,
                           {{ir::ReduceOp::argmax, b.renumbered(x), f32},
                            {ir::ReduceOp::sum, b.renumbered(positive), i32}}});
    BodyBuilder s;
    s.store({1, {var(i)}}, s.row(i64, {0, 0, 1}));
    s.store({2, {var(i)}}, s.row(f32, {0, 0, 0}));
    s.store({3, {var(i)}}, s.row(i32, {0, 1, 0}));
    nest.phases.push_back({{}, s.take(), {}});
    add_nest(k, nest);
    check(k, {}, true);
  }
}

// Sums and maxima of columns: few and many of them, rows in and not in groups.
TEST(CpuEmitter, FoldsColumnsLineByLine) {
  for (auto [rows, columns] : {std::array<int64_t, 2>{3, 600},
                               {8, 512},
                               {13, 1000},
                               {41, 2048},
                               {100, 5003},
                               {256, 2053}}) {
    ir::Kernel k;
    k.name = "columns";
    k.buffers = {{"x", f32, {2, rows, columns}, BufferRole::input},
                 {"w", f32, {rows}, BufferRole::input},
                 {"max", f32, {2, columns}, BufferRole::output},
                 {"count", i32, {2, columns}, BufferRole::output}};
    ir::Axis n = axis("n", 2), j = axis("j", columns), i = axis("i", rows, AxisKind::reduced);
    ir::Nest nest;
    nest.outer = {n, j};
    BodyBuilder b;
    NodeId x = b.binary(ScalarOp::mul, b.load(f32, {0, {var(n), var(i), var(j)}}),
                        b.load(f32, {1, {var(i)}}));
    NodeId kept = b.keep(x);
    NodeId positive = b.keep(b.cast(b.binary(ScalarOp::gt, x, b.constant(f32, 0)), i32));
    ir::Body body = b.take();
    nest.phases.push_back({{i},
                           body,
                           {{ir::ReduceOp::max, b.renumbered(kept), f32},
                            {ir::ReduceOp::sum, b.renumbered(positive), i32}}});
    BodyBuilder s;
    s.store({2, {var(n), var(j)}}, s.row(f32, {0, 0, 0}));
    s.store({3, {var(n), var(j)}}, s.row(i32, {0, 1, 0}));
    nest.phases.push_back({{}, s.take(), {}});
    add_nest(k, nest);
    check(k, {}, true);
  }
}

// A 3x3 window with clamped, masked and wrapped borders.
TEST(CpuEmitter, StencilBorders) {
  for (int border : {0, 1, 2}) {
    for (int64_t w : {1, 2, 5, 33, 300, 2048, 2050}) {
      ir::Kernel k;
      k.name = "stencil";
      k.buffers = {{"x", f32, {20, w}, BufferRole::input},
                   {"w", f32, {3, 3}, BufferRole::input},
                   {"y", f32, {20, w}, BufferRole::output}};
      ir::Axis i = axis("i", 20), j = axis("j", w), a = axis("a", 3, AxisKind::reduced),
               c = axis("c", 3, AxisKind::reduced);
      ir::Nest nest;
      nest.outer = {i, j};
      BodyBuilder b;
      Expr y = var(i) + var(a) - 1, x = var(j) + var(c) - 1;
      NodeId v;
      if (border == 1) {
        NodeId mask =
            b.binary(ScalarOp::bit_and, b.binary(ScalarOp::ge, b.index(y), b.constant_int(i64, 0)),
                     b.binary(ScalarOp::lt, b.index(y), b.constant_int(i64, 20)));
        mask = b.binary(ScalarOp::bit_and, mask,
                        b.binary(ScalarOp::ge, b.index(x), b.constant_int(i64, 0)));
        mask = b.binary(ScalarOp::bit_and, mask,
                        b.binary(ScalarOp::lt, b.index(x), b.constant_int(i64, w)));
        v = b.load(f32, {0, {y, x}}, mask, b.constant(f32, 0));
      } else if (border == 2) {
        v = b.load(f32, {0, {(y + 20) % 20, (x + w) % w}});
      } else {
        v = b.load(f32, {0, {min(max(y, 0), 19), min(max(x, 0), w - 1)}});
      }
      NodeId product = b.keep(b.binary(ScalarOp::mul, v, b.load(f32, {1, {var(a), var(c)}})));
      ir::Body body = b.take();
      nest.phases.push_back({{a, c}, body, {{ir::ReduceOp::max, b.renumbered(product), f32}}});
      BodyBuilder s;
      s.store({2, {var(i), var(j)}}, s.row(f32, {0, 0, 0}));
      nest.phases.push_back({{}, s.take(), {}});
      add_nest(k, nest);
      check(k, {}, true);
    }
  }
}

TEST(CpuEmitter, ScalarLoopStaysExact) {
  ir::Kernel k;
  k.name = "loop";
  k.buffers = {{"limit", f32, {}, BufferRole::input},
               {"out", f32, {}, BufferRole::output},
               {"v", f32, {}, BufferRole::scalar_local},
               {"go", bool_, {}, BufferRole::scalar_local}};
  auto nest = [](ir::Body body) {
    ir::Nest n;
    n.phases.push_back({{}, std::move(body), {}});
    ir::Stmt s;
    s.nest = std::make_shared<ir::Nest>(std::move(n));
    return s;
  };
  BodyBuilder init, test, step, last;
  init.store({2, {}}, init.constant(f32, 1));
  test.store({3, {}}, test.binary(ScalarOp::lt, test.load(f32, {2, {}}), test.constant(f32, 1e6)));
  step.store({2, {}},
             step.binary(ScalarOp::mul, step.load(f32, {2, {}}), step.constant(f32, 1.001)));
  last.store({1, {}}, last.load(f32, {2, {}}));
  k.body.push_back(nest(init.take()));
  ir::Stmt w;
  w.kind = ir::StmtKind::while_loop;
  w.predicate = 3;
  w.first = {nest(test.take())};
  w.second = {nest(step.take())};
  k.body.push_back(w);
  k.body.push_back(nest(last.take()));
  check(k, {}, true);
}

TEST(CpuEmitter, TransposesSquaresAndTheirRims) {
  for (DType d : {f32, i16, f64}) {
    for (auto [n, c, h, w] :
         {std::array<int64_t, 4>{2, 128, 5, 16}, {1, 33, 9, 17}, {3, 8, 1, 8}, {1, 40, 64, 3}}) {
      ir::Kernel k;
      k.name = "transpose";
      k.buffers = {{"x", d, {n, c, h, w}, BufferRole::input},
                   {"y", d, {n, h, w, c}, BufferRole::output}};
      ir::Axis in = axis("n", n), ih = axis("h", h), iw = axis("w", w), ic = axis("c", c);
      BodyBuilder b;
      b.store({1, {var(in), var(ih), var(iw), var(ic)}},
              b.load(d, {0, {var(in), var(ic), var(ih), var(iw)}}));
      ir::Nest nest;
      nest.outer = {in, ih, iw, ic};
      nest.phases.push_back({{}, b.take(), {}});
      add_nest(k, nest);
      check(k, {}, true);
    }
  }
}

TEST(CpuEmitter, ScansAlongAndAcrossRows) {
  for (ir::ReduceOp op : {ir::ReduceOp::sum, ir::ReduceOp::max, ir::ReduceOp::product}) {
    for (bool last : {true, false}) {
      for (int64_t n : {1, 7, 8, 100, 1025}) {
        ir::Kernel k;
        k.name = "scan";
        std::vector<Expr> shape = last ? std::vector<Expr>{9, n} : std::vector<Expr>{n, 9};
        k.buffers = {{"x", i32, shape, BufferRole::input}, {"y", i32, shape, BufferRole::output}};
        ir::Axis i = axis("i", 9), j = axis("j", n, AxisKind::scan);
        std::vector<Expr> at =
            last ? std::vector<Expr>{var(i), var(j)} : std::vector<Expr>{var(j), var(i)};
        BodyBuilder b;
        b.store({1, at}, b.scan({op}, b.load(i32, {0, at})));
        ir::Nest nest;
        nest.outer = {i};
        nest.phases.push_back({{j}, b.take(), {}});
        add_nest(k, nest);
        check(k, {}, true);
      }
    }
  }
}

TEST(CpuEmitter, ScatterAddsInOrder) {
  ir::Kernel k;
  k.name = "scatter";
  k.buffers = {{"at", i64, {200}, BufferRole::input},
               {"x", f32, {200, 24}, BufferRole::input},
               {"y", f32, {10, 24}, BufferRole::output}};
  ir::Axis c = axis("c", 24), r = axis("r", 200, AxisKind::scattered);
  BodyBuilder b;
  NodeId raw = b.binary(ScalarOp::rem, b.load(i64, {0, {var(r)}}), b.constant_int(i64, 10));
  SymbolRef s = b.bind(b.unary(ScalarOp::abs, raw), 0, 9);
  b.store({2, {Expr(s), var(c)}}, b.load(f32, {1, {var(r), var(c)}}), ir::kNoNode,
          ir::StoreKind::add);
  ir::Nest nest;
  nest.outer = {c};
  nest.phases.push_back({{r}, b.take(), {}});
  add_nest(k, nest);
  check(k, {}, true);
}

// A result that the kernel swapped an odd number of times is where the caller passed it.
TEST(CpuEmitter, SwapsEndWhereTheyBegan) {
  for (int64_t count : {0, 1, 2, 5}) {
    ir::Kernel k;
    k.name = "swap";
    k.buffers = {{"a", f32, {100}, BufferRole::output},
                 {"b", f32, {100}, BufferRole::scratch},
                 {"n", i64, {}, BufferRole::scalar_local}};
    ir::Axis i = axis("i", 100), j = axis("j", 100);
    BodyBuilder init, step;
    init.store({0, {var(i)}}, init.cast(init.index(var(i)), f32));
    step.store({1, {var(j)}}, step.binary(ScalarOp::add, step.load(f32, {0, {99 - var(j)}}),
                                          step.constant(f32, 1)));
    auto nest = [](const ir::Axis& a, ir::Body body) {
      ir::Nest n;
      n.outer = {a};
      n.phases.push_back({{}, std::move(body), {}});
      ir::Stmt s;
      s.nest = std::make_shared<ir::Nest>(std::move(n));
      return s;
    };
    k.body.push_back(nest(i, init.take()));
    ir::Stmt loop;
    loop.kind = ir::StmtKind::for_loop;
    loop.counter = 2;
    loop.count = count;
    ir::Stmt exchange;
    exchange.kind = ir::StmtKind::swap;
    exchange.a = 0, exchange.b = 1;
    loop.first = {nest(j, step.take()), exchange};
    k.body.push_back(loop);
    KernelRun run(k, {}, 7);
    RunResult actual = run.compiled(runnable_archs().back(), 2);
    std::vector<float> expected(100), next(100);
    for (int v = 0; v < 100; ++v) expected[static_cast<size_t>(v)] = static_cast<float>(v);
    for (int64_t n = 0; n < count; ++n) {
      for (size_t v = 0; v < 100; ++v) next[v] = expected[99 - v] + 1;
      expected = next;
    }
    EXPECT_EQ(std::memcmp(actual.buffers[0].data(), expected.data(), 400), 0) << count;
  }
}

// Nests that are large enough to be swept in alternating directions: maps with the vector axis
// among the outer axes, without it, and whole folds; odd numbers of iterations and of rows.
TEST(CpuEmitter, SweepsOfALoopAlternate) {
  for (int64_t count : {1, 4}) {
    ir::Kernel k;
    k.name = "sweeps";
    constexpr int64_t kRows = 261, kColumns = 259;
    k.buffers = {{"a", f32, {kRows, kColumns}, BufferRole::output},
                 {"b", f32, {kRows, kColumns}, BufferRole::scratch},
                 {"rows", f32, {kRows}, BufferRole::output},
                 {"totals", f32, {2}, BufferRole::output},
                 {"n", i64, {}, BufferRole::scalar_local}};
    ir::Axis i = axis("i", kRows), j = axis("j", kColumns), u = axis("u", kRows),
             v = axis("v", kColumns), p = axis("p", kRows), q = axis("q", kColumns),
             r = axis("r", kRows), s = axis("s", kColumns, AxisKind::reduced),
             y = axis("y", kRows, AxisKind::reduced), x = axis("x", kColumns, AxisKind::reduced);
    auto stmt = [](std::vector<ir::Axis> outer, std::vector<ir::Phase> phases) {
      ir::Nest n;
      n.outer = std::move(outer);
      n.phases = std::move(phases);
      ir::Stmt out;
      out.nest = std::make_shared<ir::Nest>(std::move(n));
      return out;
    };
    BodyBuilder init, step, row, row_end, whole, whole_end, back;
    init.store({0, {var(i), var(j)}}, init.cast(init.index((var(i) * 31 + var(j) * 7) % 101), f32));
    Expr above = (var(u) + (kRows - 1)) % kRows, right = (var(v) + 1) % kColumns;
    NodeId sum = step.binary(ScalarOp::add, step.load(f32, {0, {above, var(v)}}),
                             step.load(f32, {0, {var(u), right}}));
    step.store({1, {var(u), var(v)}}, step.binary(ScalarOp::mul, sum, step.constant(f32, 0.5)));
    NodeId value = row.keep(row.load(f32, {1, {var(r), var(s)}}));
    ir::Body row_body = row.take();
    row_end.store({2, {var(r)}}, row_end.row(f32, {0, 0, 0}));
    NodeId all = whole.keep(whole.binary(ScalarOp::mul, whole.load(f32, {1, {var(y), var(x)}}),
                                         whole.load(f32, {2, {var(y)}})));
    ir::Body whole_body = whole.take();
    whole_end.store({3, {Expr(0)}}, whole_end.row(f32, {0, 0, 0}));
    whole_end.store({3, {Expr(1)}}, whole_end.row(f32, {0, 1, 0}));
    back.store({0, {var(p), var(q)}}, back.load(f32, {1, {var(p), var(q)}}));
    k.body.push_back(stmt({i, j}, {{{}, init.take(), {}}}));
    ir::Stmt loop;
    loop.kind = ir::StmtKind::for_loop;
    loop.counter = 4;
    loop.count = count;
    loop.first = {stmt({u, v}, {{{}, step.take(), {}}}),
                  stmt({r}, {{{s}, row_body, {{ir::ReduceOp::sum, row.renumbered(value), f32}}},
                             {{}, row_end.take(), {}}}),
                  stmt({}, {{{y, x},
                             whole_body,
                             {{ir::ReduceOp::sum, whole.renumbered(all), f32},
                              {ir::ReduceOp::max, whole.renumbered(all), f32}}},
                            {{}, whole_end.take(), {}}}),
                  stmt({p, q}, {{{}, back.take(), {}}})};
    k.body.push_back(loop);
    check(k, {}, false, 1e-4, 1e-4);
  }
}

TEST(CpuEmitter, CheckedAccessesAreReported) {
  ir::Kernel k;
  k.name = "outside";
  k.buffers = {{"x", f32, {10}, BufferRole::input}, {"y", f32, {10}, BufferRole::output}};
  ir::Axis i = axis("i", 10);
  BodyBuilder b;
  b.store({1, {var(i)}}, b.load(f32, {0, {var(i) + 3}}));
  ir::Nest nest;
  nest.outer = {i};
  nest.phases.push_back({{}, b.take(), {}});
  add_nest(k, nest);
  KernelRun run(k, {}, 1);
  try {
    run.compiled("x86-64", 1, true);
    FAIL() << "no error";
  } catch (const InternalError& e) {
    EXPECT_EQ(std::string(e.what()),
              "outside: access outside buffer 'x': coordinate 10 of axis 0, extent 10");
  }
}

}  // namespace
}  // namespace heddle::test
