#include "backend_cuda/kernels.h"

#include "backend/cuda/nest_plan.h"
#include "base/check.h"
#include "base/small_float.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace heddle::test {

using ir::Access;
using ir::Axis;
using ir::AxisKind;
using ir::BodyBuilder;
using ir::BufferId;
using ir::BufferRole;
using ir::NodeId;
using ir::ReduceOp;
using ir::ScalarOp;

namespace {

bool without_data = false;  // while timing cases are made

struct Maker {
  KernelCase c;
  explicit Maker(std::string name) {
    c.name = name;
    c.kernel.name = std::move(name);
  }
  BufferId buffer(std::string name, DType d, std::vector<Expr> extents,
                  BufferRole role = BufferRole::input) {
    c.kernel.buffers.push_back({std::move(name), d, std::move(extents), role});
    return static_cast<BufferId>(c.kernel.buffers.size() - 1);
  }
  Dim symbol(const std::string& name, int64_t value) {
    Dim d(name);
    c.kernel.symbols.push_back(d.symbol());
    c.symbols.push_back(value);
    return d;
  }
  void nest(ir::Nest n) {
    ir::Stmt s;
    s.nest = std::make_shared<const ir::Nest>(std::move(n));
    c.kernel.body.push_back(std::move(s));
  }
  void barrier() { c.kernel.body.push_back(barrier_stmt()); }
  static ir::Stmt barrier_stmt() {
    ir::Stmt s;
    s.kind = ir::StmtKind::barrier;
    s.barrier = ir::BarrierScope::grid;
    return s;
  }
  KernelCase done(double tolerance = 0, uint64_t seed = 1) {
    c.tolerance = tolerance;
    if (!without_data) fill_random(c, seed);
    std::string problem = ir::verify(c.kernel);
    HD_CHECK(problem.empty(), c.name, ": ", problem);
    return std::move(c);
  }
};

Axis axis(const char* name, const Expr& extent, AxisKind kind = AxisKind::mapped) {
  return {make_loop_symbol(name, extent), extent, kind};
}
ir::Phase phase(std::vector<Axis> inner, BodyBuilder& b,
                std::vector<ir::Reduction> reductions = {}) {
  ir::Phase p;
  p.inner = std::move(inner);
  for (const ir::Reduction& r : reductions) b.keep(r.value);
  p.body = b.take();
  for (ir::Reduction& r : reductions) r.value = b.renumbered(r.value);
  p.reductions = std::move(reductions);
  return p;
}
Expr at(const Axis& a) { return Expr(a.var); }

// out = (x * 2 + y) min 3, over [n, m] with a row operand.
KernelCase elementwise(const std::string& name, DType d, Expr n, Expr m, bool symbolic = false) {
  Maker k(name);
  if (symbolic) {
    n = k.symbol("n", *n.constant());
    m = k.symbol("m", *m.constant());
  }
  BufferId x = k.buffer("x", d, {n, m}), y = k.buffer("y", d, {m});
  BufferId out = k.buffer("out", d, {n, m}, BufferRole::output);
  Axis i = axis("i", n), j = axis("j", m);
  DType w = compute_type(d);
  BodyBuilder b;
  NodeId xv = b.cast(b.load(d, {x, {at(i), at(j)}}), w), yv = b.cast(b.load(d, {y, {at(j)}}), w);
  NodeId v = b.binary(ScalarOp::add, b.binary(ScalarOp::mul, xv, b.constant(w, 2)), yv);
  v = b.binary(ScalarOp::min, v, b.constant(w, 3));
  b.store({out, {at(i), at(j)}}, b.cast(v, d));
  k.nest({{i, j}, {phase({}, b)}, {}});
  return k.done();
}

// Every operation of a float type in one body, on hard inputs.
KernelCase all_float_ops(DType d) {
  Maker k("all_ops_" + std::string(name(d)));
  Expr n(1000);
  BufferId x = k.buffer("x", d, {n}), y = k.buffer("y", d, {n});
  Axis i = axis("i", n);
  BodyBuilder b;
  NodeId a = b.load(d, {x, {at(i)}}), c = b.load(d, {y, {at(i)}});
  auto out = [&](NodeId v) {
    DType t = b.type(v);
    BufferId o =
        k.buffer("o" + std::to_string(k.c.kernel.buffers.size()), t, {n}, BufferRole::output);
    b.store({o, {at(i)}}, v);
  };
  for (ScalarOp op : {ScalarOp::neg, ScalarOp::abs, ScalarOp::sqrt, ScalarOp::floor, ScalarOp::ceil,
                      ScalarOp::rint})
    out(b.unary(op, a));
  for (ScalarOp op : {ScalarOp::div, ScalarOp::rem, ScalarOp::min, ScalarOp::max, ScalarOp::min_num,
                      ScalarOp::max_num})
    out(b.binary(op, a, c));
  out(b.fma(a, c, a));
  k.nest({{i}, {phase({}, b)}, {}});
  return k.done(0, 77);
}
// Extremes beside constants, for which machines have their own minimum; inverses.
KernelCase beside_constants(DType d) {
  Maker k("beside_constants_" + std::string(name(d)));
  Expr n(1000);
  BufferId x = k.buffer("x", d, {n});
  Axis i = axis("i", n);
  BodyBuilder b;
  NodeId a = b.load(d, {x, {at(i)}});
  auto out = [&](NodeId v) {
    BufferId o =
        k.buffer("o" + std::to_string(k.c.kernel.buffers.size()), d, {n}, BufferRole::output);
    b.store({o, {at(i)}}, v);
  };
  for (double v : {0.0, -0.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    for (ScalarOp op : {ScalarOp::min, ScalarOp::max, ScalarOp::min_num, ScalarOp::max_num})
      out(b.binary(op, a, b.constant(d, v)));
  }
  NodeId bounded = b.binary(ScalarOp::max, b.unary(ScalarOp::abs, a), b.constant(d, 0x1p-20));
  out(b.unary(ScalarOp::inverse, b.binary(ScalarOp::min, bounded, b.constant(d, 0x1p20))));
  k.nest({{i}, {phase({}, b)}, {}});
  return k.done(0, 77);
}
KernelCase casts_from(DType d) {
  Maker k("casts_" + std::string(name(d)));
  Expr n(1003);
  BufferId x = k.buffer("x", d, {n});
  Axis i = axis("i", n);
  BodyBuilder b;
  NodeId a = b.load(d, {x, {at(i)}});
  for (DType t :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8, DType::i16, DType::i32,
        DType::i64, DType::u8, DType::u16, DType::u32, DType::u64, DType::boolean}) {
    BufferId o = k.buffer("to_" + std::string(name(t)), t, {n}, BufferRole::output);
    b.store({o, {at(i)}}, b.cast(a, t));
  }
  k.nest({{i}, {phase({}, b)}, {}});
  return k.done(0, 5);
}
KernelCase integer_ops(DType d) {
  Maker k("integer_" + std::string(name(d)));
  Expr n(777);
  BufferId x = k.buffer("x", d, {n}), y = k.buffer("y", d, {n});
  Axis i = axis("i", n);
  BodyBuilder b;
  NodeId a = b.load(d, {x, {at(i)}}), c = b.load(d, {y, {at(i)}});
  for (ScalarOp op : {ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::div, ScalarOp::rem,
                      ScalarOp::min, ScalarOp::max, ScalarOp::bit_and, ScalarOp::bit_xor,
                      ScalarOp::shl, ScalarOp::shr, ScalarOp::lt}) {
    NodeId v = b.binary(op, a, c);
    BufferId o =
        k.buffer("o" + std::to_string(static_cast<int>(op)), b.type(v), {n}, BufferRole::output);
    b.store({o, {at(i)}}, v);
  }
  k.nest({{i}, {phase({}, b)}, {}});
  return k.done(0, 6);
}

// Softmax over the last axis, in f32 or a half type.
KernelCase softmax(const std::string& name, DType d, int64_t rows, int64_t n,
                   bool symbolic = false) {
  Maker k(name);
  Expr en(n), er(rows);
  if (symbolic) {
    er = k.symbol("rows", rows);
    en = k.symbol("n", n);
  }
  BufferId x = k.buffer("x", d, {er, en}), out = k.buffer("out", d, {er, en}, BufferRole::output);
  Axis r = axis("r", er);
  Axis i0 = axis("i", en, AxisKind::reduced), i1 = axis("i", en, AxisKind::reduced),
       i2 = axis("i", en);
  auto load = [&](BodyBuilder& b, const Axis& i) {
    return b.cast(b.load(d, {x, {at(r), at(i)}}), DType::f32);
  };
  // 1 / (1 + (m - x)^2) stands for exp: exact operations only.
  auto term = [&](BodyBuilder& b, const Axis& i) {
    NodeId diff = b.binary(ScalarOp::sub, b.row(DType::f32, {0, 0, 0}), load(b, i));
    return b.binary(ScalarOp::div, b.constant(DType::f32, 1),
                    b.fma(diff, diff, b.constant(DType::f32, 1)));
  };
  BodyBuilder b0, b1, b2;
  NodeId v0 = load(b0, i0);
  ir::Phase p0 = phase({i0}, b0, {{ReduceOp::max, v0, DType::f32}});
  NodeId v1 = term(b1, i1);
  ir::Phase p1 = phase({i1}, b1, {{ReduceOp::sum, v1, DType::f32}});
  NodeId v2 = b2.binary(ScalarOp::div, term(b2, i2), b2.row(DType::f32, {1, 0, 0}));
  b2.store({out, {at(r), at(i2)}}, b2.cast(v2, d));
  ir::Phase p2 = phase({i2}, b2);
  k.nest({{r}, {p0, p1, p2}, {}});
  return k.done(d == DType::f32 ? 1e-6 : 2e-3);
}

// Sum of x[n, m] along one axis; with mean and arg max where along 1.
KernelCase reduce(const std::string& name, DType d, int64_t n, int64_t m, int along) {
  Maker k(name);
  BufferId x = k.buffer("x", d, {Expr(n), Expr(m)});
  Expr kept(along == 0 ? m : n), folded(along == 0 ? n : m);
  DType w = compute_type(d);
  BufferId sum = k.buffer("sum", w, {kept}, BufferRole::output);
  BufferId most = k.buffer("most", w, {kept}, BufferRole::output);
  BufferId where = k.buffer("where", DType::i64, {kept}, BufferRole::output);
  Axis o = axis("o", kept), i = axis("i", folded, AxisKind::reduced);
  BodyBuilder b;
  NodeId v =
      b.cast(b.load(d, along == 0 ? Access{x, {at(i), at(o)}} : Access{x, {at(o), at(i)}}), w);
  ir::Phase p0 = phase({i}, b, {{ReduceOp::sum, v, w}, {ReduceOp::argmax, v, w}});
  BodyBuilder s;
  s.store({sum, {at(o)}}, s.row(w, {0, 0, 0}));
  s.store({most, {at(o)}}, s.row(w, {0, 1, 0}));
  s.store({where, {at(o)}}, s.row(DType::i64, {0, 1, 1}));
  k.nest({{o}, {p0, phase({}, s)}, {}});
  return k.done(is_real_float(d) ? 2e-5 : 0, 3);
}

KernelCase cumsum(const std::string& name, DType d, int64_t rows, int64_t n, bool last) {
  Maker k(name);
  std::vector<Expr> shape =
      last ? std::vector<Expr>{Expr(rows), Expr(n)} : std::vector<Expr>{Expr(n), Expr(rows)};
  BufferId x = k.buffer("x", d, shape), out = k.buffer("out", d, shape, BufferRole::output);
  Axis r = axis("r", Expr(rows)), i = axis("i", Expr(n), AxisKind::scan);
  auto where = [&] {
    return last ? std::vector<Expr>{at(r), at(i)} : std::vector<Expr>{at(i), at(r)};
  };
  BodyBuilder b;
  NodeId v = b.load(d, {x, where()});
  NodeId s = b.scan({ReduceOp::sum}, v);
  b.store({out, where()}, b.binary(ScalarOp::sub, s, b.constant(d, 1)));
  k.nest({{r}, {phase({i}, b)}, {}});
  return k.done(is_real_float(d) ? 2e-5 : 0, 4);
}

// 3 x 3 average with zero border, stencil style: masked loads in a window.
KernelCase window(const std::string& name, int64_t h, int64_t w) {
  Maker k(name);
  BufferId x = k.buffer("x", DType::f32, {Expr(h), Expr(w)}),
           out = k.buffer("out", DType::f32, {Expr(h), Expr(w)}, BufferRole::output);
  Axis y = axis("y", Expr(h)), c = axis("c", Expr(w)), dy = axis("dy", Expr(3), AxisKind::reduced),
       dx = axis("dx", Expr(3), AxisKind::reduced);
  BodyBuilder b;
  auto inside = [&](const Expr& e, int64_t n) {
    NodeId v = b.index(e);
    NodeId low = b.binary(ScalarOp::ge, v, b.constant_int(DType::i64, 0));
    return b.binary(ScalarOp::bit_and, low,
                    b.binary(ScalarOp::lt, v, b.constant_int(DType::i64, n)));
  };
  Expr sy = at(y) + at(dy) - 1, sx = at(c) + at(dx) - 1;
  NodeId mask = b.binary(ScalarOp::bit_and, inside(sy, h), inside(sx, w));
  NodeId v = b.load(DType::f32, {x, {sy, sx}}, mask, b.constant(DType::f32, 0));
  ir::Phase p0 = phase({dy, dx}, b, {{ReduceOp::sum, v, DType::f32}});
  BodyBuilder s;
  s.store({out, {at(y), at(c)}},
          s.binary(ScalarOp::mul, s.row(DType::f32, {0, 0, 0}), s.constant(DType::f32, 1.0 / 9)));
  k.nest({{y, c}, {p0, phase({}, s)}, {}});
  return k.done(1e-6);
}

// `upper`: of the bound index, beyond the table's 49 where it is not known.
KernelCase gather(const std::string& name, int64_t rows, int64_t width, int64_t upper = 49) {
  Maker k(name);
  BufferId table = k.buffer("table", DType::f32, {Expr(50), Expr(width)}),
           index = k.buffer("index", DType::i32, {Expr(rows)});
  BufferId out = k.buffer("out", DType::f32, {Expr(rows), Expr(width)}, BufferRole::output);
  Axis r = axis("r", Expr(rows)), c = axis("c", Expr(width));
  BodyBuilder b;
  NodeId v = b.cast(b.load(DType::i32, {index, {at(r)}}), DType::i64);
  v = b.binary(ScalarOp::max, b.binary(ScalarOp::min, v, b.constant_int(DType::i64, 49)),
               b.constant_int(DType::i64, 0));
  SymbolRef s = b.bind(v, 0, upper);
  b.store({out, {at(r), at(c)}}, b.load(DType::f32, {table, {Expr(s), at(c)}}));
  k.nest({{r, c}, {phase({}, b)}, {}});
  return k.done();
}
// A counter without axes picks the row that is read and the row that is written; a factor has none
// either.
KernelCase rows_by_counter(const std::string& name, DType d, int64_t rows, int64_t width) {
  constexpr int64_t kCount = 5;
  Maker k(name);
  BufferId xs = k.buffer("xs", d, {Expr(kCount), Expr(rows), Expr(width)}),
           factor = k.buffer("factor", d, {}), counter = k.buffer("counter", DType::i64, {});
  BufferId out = k.buffer("out", d, {Expr(kCount), Expr(rows), Expr(width)}, BufferRole::output);
  Axis r = axis("r", Expr(rows)), c = axis("c", Expr(width));
  BodyBuilder b;
  NodeId n =
      b.binary(ScalarOp::bit_and, b.load(DType::i64, {counter, {}}), b.constant_int(DType::i64, 3));
  SymbolRef s = b.bind(n, 0, kCount - 1);
  NodeId v =
      b.binary(ScalarOp::mul, b.load(d, {xs, {Expr(s), at(r), at(c)}}), b.load(d, {factor, {}}));
  b.store({out, {Expr(s), at(r), at(c)}}, v);
  k.nest({{r, c}, {phase({}, b)}, {}});
  return k.done();
}
KernelCase scatter(const std::string& name, int64_t rows, int64_t width) {
  Maker k(name);
  BufferId update = k.buffer("update", DType::f32, {Expr(rows), Expr(width)}),
           index = k.buffer("index", DType::i32, {Expr(rows)});
  BufferId out = k.buffer("out", DType::f32, {Expr(8), Expr(width)}, BufferRole::output);
  Axis r = axis("r", Expr(rows), AxisKind::scattered), c = axis("c", Expr(width));
  BodyBuilder b;
  NodeId v = b.cast(b.load(DType::i32, {index, {at(r)}}), DType::i64);
  v = b.binary(ScalarOp::bit_and, v, b.constant_int(DType::i64, 7));
  SymbolRef s = b.bind(v, 0, 7);
  b.store({out, {Expr(s), at(c)}}, b.load(DType::f32, {update, {at(r), at(c)}}), ir::kNoNode,
          ir::StoreKind::add);
  k.nest({{}, {phase({r, c}, b)}, {}});
  return k.done();
}

// out = transpose(x) + 1.
KernelCase transpose(const std::string& name, int64_t n, int64_t m) {
  Maker k(name);
  BufferId x = k.buffer("x", DType::f32, {Expr(m), Expr(n)}),
           out = k.buffer("out", DType::f32, {Expr(n), Expr(m)}, BufferRole::output);
  Axis i = axis("i", Expr(n)), j = axis("j", Expr(m));
  BodyBuilder b;
  b.store({out, {at(i), at(j)}}, b.binary(ScalarOp::add, b.load(DType::f32, {x, {at(j), at(i)}}),
                                          b.constant(DType::f32, 1)));
  k.nest({{i, j}, {phase({}, b)}, {}});
  return k.done();
}

// Row maxima kept in a row_local, then subtracted: rl[i] = x * x, max, out = rl - max.
KernelCase row_local(const std::string& name, int64_t rows, int64_t n) {
  Maker k(name);
  BufferId x = k.buffer("x", DType::f32, {Expr(rows), Expr(n)}),
           out = k.buffer("out", DType::f32, {Expr(rows), Expr(n)}, BufferRole::output);
  BufferId keep = k.buffer("keep", DType::f32, {Expr(n)}, BufferRole::row_local);
  Axis r = axis("r", Expr(rows)), i = axis("i", Expr(n), AxisKind::reduced), j = axis("j", Expr(n));
  BodyBuilder b, s;
  NodeId v = b.load(DType::f32, {x, {at(r), at(i)}});
  NodeId q = b.binary(ScalarOp::mul, v, v);
  b.store({keep, {at(i)}}, q);
  ir::Phase p0 = phase({i}, b, {{ReduceOp::max, q, DType::f32}});
  s.store({out, {at(r), at(j)}}, s.binary(ScalarOp::sub, s.load(DType::f32, {keep, {at(j)}}),
                                          s.row(DType::f32, {0, 0, 0})));
  k.nest({{r}, {p0, phase({j}, s)}, {}});
  return k.done();
}

// A Jacobi-like loop: u -> average of neighbours, residual folded from partials, until it is small
// or 5 steps.
KernelCase relaxation(const std::string& name, int64_t n, int64_t chunk) {
  Maker k(name);
  int64_t chunks = n / chunk;
  BufferId f = k.buffer("f", DType::f32, {Expr(n)});
  BufferId u = k.buffer("u", DType::f32, {Expr(n)}, BufferRole::output),
           w = k.buffer("w", DType::f32, {Expr(n)}, BufferRole::scratch);
  BufferId partial = k.buffer("partial", DType::f32, {Expr(chunks)}, BufferRole::scratch);
  BufferId steps = k.buffer("steps", DType::i64, {}, BufferRole::output);
  BufferId go = k.buffer("go", DType::boolean, {}, BufferRole::scalar_local),
           it = k.buffer("it", DType::i64, {}, BufferRole::scalar_local);
  {
    BodyBuilder b;
    Axis i = axis("i", Expr(n));
    b.store({u, {at(i)}}, b.load(DType::f32, {f, {at(i)}}));
    k.nest({{i}, {phase({}, b)}, {}});
    BodyBuilder z;
    z.store({it, {}}, z.constant_int(DType::i64, 0));
    z.store({go, {}}, z.constant_int(DType::boolean, 1));
    k.nest({{}, {phase({}, z)}, {}});
    k.barrier();
  }
  auto make = [](ir::Nest nest) {
    ir::Stmt s;
    s.nest = std::make_shared<const ir::Nest>(std::move(nest));
    return s;
  };
  ir::Stmt loop;
  loop.kind = ir::StmtKind::while_loop;
  loop.predicate = go;
  {
    Axis c = axis("c", Expr(chunks)), i = axis("i", Expr(chunk), AxisKind::reduced);
    BodyBuilder b;
    Expr p = at(c) * chunk + at(i);
    NodeId left = b.load(DType::f32, {u, {max(p - 1, Expr(0))}}),
           right = b.load(DType::f32, {u, {min(p + 1, Expr(n - 1))}});
    NodeId mid = b.load(DType::f32, {u, {p}});
    NodeId v =
        b.binary(ScalarOp::mul, b.binary(ScalarOp::add, left, right), b.constant(DType::f32, 0.5));
    b.store({w, {p}}, v);
    NodeId change = b.unary(ScalarOp::abs, b.binary(ScalarOp::sub, v, mid));
    ir::Phase p0 = phase({i}, b, {{ReduceOp::max, change, DType::f32}});
    BodyBuilder s;
    s.store({partial, {at(c)}}, s.row(DType::f32, {0, 0, 0}));
    loop.second.push_back(make({{c}, {p0, phase({}, s)}, {}}));
    loop.second.push_back(Maker::barrier_stmt());
    ir::Stmt swap;
    swap.kind = ir::StmtKind::swap;
    swap.a = u;
    swap.b = w;
    loop.second.push_back(swap);
    Axis q = axis("q", Expr(chunks), AxisKind::reduced);
    BodyBuilder t, e;
    NodeId pv = t.load(DType::f32, {partial, {at(q)}});
    ir::Phase r0 = phase({q}, t, {{ReduceOp::max, pv, DType::f32}});
    NodeId next =
        e.binary(ScalarOp::add, e.load(DType::i64, {it, {}}), e.constant_int(DType::i64, 1));
    e.store({it, {}}, next);
    NodeId more =
        e.binary(ScalarOp::gt, e.row(DType::f32, {0, 0, 0}), e.constant(DType::f32, 1e-4));
    more = e.binary(ScalarOp::bit_and, more,
                    e.binary(ScalarOp::lt, next, e.constant_int(DType::i64, 6)));
    e.store({go, {}}, more);
    e.store({steps, {}}, next);
    loop.second.push_back(make({{}, {r0, phase({}, e)}, {}}));
    loop.second.push_back(Maker::barrier_stmt());
  }
  k.c.kernel.body.push_back(loop);
  return k.done();
}

// for (k < 100) x = x * 1.01 + k, all scalar: one thread.
KernelCase scalar_loop() {
  Maker k("scalar_loop");
  BufferId in = k.buffer("in", DType::f32, {}),
           out = k.buffer("out", DType::f32, {}, BufferRole::output);
  BufferId x = k.buffer("x", DType::f32, {}, BufferRole::scalar_local),
           c = k.buffer("c", DType::i64, {}, BufferRole::scalar_local);
  BodyBuilder a, b, d;
  a.store({x, {}}, a.load(DType::f32, {in, {}}));
  k.nest({{}, {phase({}, a)}, {}});
  NodeId v = b.binary(ScalarOp::mul, b.load(DType::f32, {x, {}}), b.constant(DType::f32, 1.01));
  b.store({x, {}}, b.binary(ScalarOp::add, v, b.cast(b.load(DType::i64, {c, {}}), DType::f32)));
  ir::Stmt s;
  s.kind = ir::StmtKind::for_loop;
  s.counter = c;
  s.count = Expr(100);
  ir::Stmt n;
  n.nest = std::make_shared<const ir::Nest>(ir::Nest{{}, {phase({}, b)}, {}});
  s.first.push_back(n);
  k.c.kernel.body.push_back(s);
  d.store({out, {}}, d.load(DType::f32, {x, {}}));
  k.nest({{}, {phase({}, d)}, {}});
  return k.done();
}

}  // namespace

CaseMemory::CaseMemory(const KernelCase& c, int shift) {
  size_t argument = 0;
  for (const ir::Buffer& b : c.kernel.buffers) {
    if (cuda::is_local(b)) continue;
    const std::vector<std::byte>& data = c.buffers[argument++];
    storage_.emplace_back(data.size() + 1024);
    auto base = (reinterpret_cast<uintptr_t>(storage_.back().data()) + 255) / 256 * 256;
    auto* p = reinterpret_cast<std::byte*>(base) + shift * cuda::memory_bytes(b.dtype);
    if (!data.empty()) std::memcpy(p, data.data(), data.size());
    pointers_.push_back(p);
  }
}

namespace {

template <class T>
void put(std::vector<std::byte>& out, size_t k, T v) {
  std::memcpy(out.data() + k * sizeof(T), &v, sizeof(T));
}
double hard_value(std::mt19937_64& rng) {
  static const double kHard[] = {0.0,
                                 -0.0,
                                 1,
                                 -1,
                                 0.5,
                                 2.5,
                                 -2.5,
                                 1e30,
                                 -1e30,
                                 3e9,
                                 9.3e18,
                                 1e-41,
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN(),
                                 65519.9,
                                 300,
                                 -300,
                                 40000,
                                 7.5e-8};
  return kHard[rng() % std::size(kHard)];
}
void fill_buffer(DType d, std::vector<std::byte>& out, size_t count, std::mt19937_64& rng,
                 bool hard) {
  std::normal_distribution<double> normal;
  for (size_t k = 0; k < count; ++k) {
    double v = hard && rng() % 3 == 0 ? hard_value(rng) : normal(rng);
    switch (d) {
      case DType::f64:
        put(out, k, v);
        break;
      case DType::f32:
        put(out, k, static_cast<float>(v));
        break;
      case DType::f16:
        put(out, k, base::f32_to_f16(static_cast<float>(v)));
        break;
      case DType::bf16:
        put(out, k, base::f32_to_bf16(static_cast<float>(v)));
        break;
      case DType::boolean:
        put(out, k, static_cast<uint8_t>(rng() & 1));
        break;
      default: {
        uint64_t bits =
            rng() % 4 == 0 ? rng() : static_cast<uint64_t>(static_cast<int64_t>(rng() % 21) - 10);
        if (hard && rng() % 8 == 0) bits = uint64_t{1} << (bit_width(d) - 1);
        int bytes = bit_width(d) / 8;
        std::memcpy(out.data() + k * static_cast<size_t>(bytes), &bits, static_cast<size_t>(bytes));
      }
    }
  }
}

}  // namespace

void fill_random(KernelCase& c, uint64_t seed) {
  std::mt19937_64 rng(seed);
  bool hard = seed >= 5;
  c.buffers.clear();
  for (const ir::Buffer& b : c.kernel.buffers) {
    if (cuda::is_local(b)) continue;
    size_t count = 1;
    for (const Expr& e : b.extents) {
      count *= static_cast<size_t>(evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
        for (size_t k = 0; k < c.symbols.size(); ++k) {
          if (c.kernel.symbols[k]->id == s.id) return c.symbols[k];
        }
        return std::nullopt;
      }));
    }
    DType d = cuda::memory_type(b.dtype);
    std::vector<std::byte> data(count * static_cast<size_t>(cuda::memory_bytes(b.dtype)));
    if (b.role == BufferRole::input || b.role == BufferRole::output)
      fill_buffer(d, data, count, rng, hard);
    c.buffers.push_back(std::move(data));
  }
}

namespace {

double element(DType d, const std::byte* p) {
  auto get = [&](auto zero) {
    std::memcpy(&zero, p, sizeof zero);
    return zero;
  };
  switch (d) {
    case DType::f64:
      return get(double{});
    case DType::f32:
      return static_cast<double>(get(float{}));
    case DType::f16:
      return static_cast<double>(base::f16_to_f32(get(uint16_t{})));
    case DType::bf16:
      return static_cast<double>(base::bf16_to_f32(get(uint16_t{})));
    case DType::i64:
      return static_cast<double>(get(int64_t{}));
    case DType::i32:
      return get(int32_t{});
    default:
      return static_cast<double>(get(uint8_t{}));
  }
}

}  // namespace

std::string compare(const KernelCase& c, const std::vector<void*>& want,
                    const std::vector<void*>& got) {
  size_t argument = 0;
  for (const ir::Buffer& b : c.kernel.buffers) {
    if (cuda::is_local(b)) continue;
    size_t k = argument++;
    if (b.role != BufferRole::output) continue;
    DType d = cuda::memory_type(b.dtype);
    auto bytes = static_cast<size_t>(cuda::memory_bytes(b.dtype));
    size_t count = c.buffers[k].size() / bytes;
    auto* w = static_cast<const std::byte*>(want[k]);
    auto* g = static_cast<const std::byte*>(got[k]);
    double largest = 0;
    for (size_t e = 0; e < count && c.tolerance > 0 && is_real_float(d); ++e)
      largest = std::max(largest, std::abs(element(d, w + e * bytes)));
    for (size_t e = 0; e < count; ++e) {
      if (std::memcmp(w + e * bytes, g + e * bytes, bytes) == 0) continue;
      double x = is_real_float(d) ? element(d, w + e * bytes) : 0,
             y = is_real_float(d) ? element(d, g + e * bytes) : 1;
      if (is_real_float(d)) {
        if (x != x && y != y) continue;
        if (c.tolerance > 0 && std::abs(x - y) <= c.tolerance * std::max(largest, 1e-30)) continue;
      } else {
        x = element(d, w + e * bytes);
        y = element(d, g + e * bytes);
      }
      return base::cat(c.name, ": buffer ", b.name, " element ", e, ": want ", x, ", got ", y);
    }
  }
  return "";
}

KernelCase random_case(uint64_t seed) {
  std::mt19937_64 rng(seed * 2654435761u + 17);
  auto pick = [&](int n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
  Maker k("random_" + std::to_string(seed));
  const DType kTypes[] = {DType::f32, DType::f32, DType::f16, DType::bf16,
                          DType::f64, DType::i32, DType::u8};
  DType d = kTypes[pick(7)], w = compute_type(d);
  std::vector<Axis> outer;
  std::vector<Expr> shape;
  int64_t rank = 1 + pick(3);
  for (int64_t a = 0; a < rank; ++a) {
    int64_t n = (pick(2) != 0) ? 4 * (1 + pick(8)) : 1 + pick(23);
    Expr e(n);
    if (pick(4) == 0) e = k.symbol("s" + std::to_string(a), n);
    outer.push_back(axis("o", e));
    shape.push_back(e);
  }
  int64_t inner_size = pick(3) == 0 ? 1 + pick(600) : 4 * (1 + pick(100));
  Expr en(inner_size);
  bool row = pick(2) != 0, folds = pick(4) != 0;
  std::vector<Expr> in_shape = shape;
  in_shape.insert(row ? in_shape.end() : in_shape.begin(), en);
  BufferId x = k.buffer("x", d, folds ? in_shape : shape), y = k.buffer("y", d, {shape.back()});
  BufferId out = k.buffer("out", d, folds && row ? in_shape : shape, BufferRole::output);
  auto coords = [&](const Axis* inner) {
    std::vector<Expr> c;
    for (const Axis& a : outer) c.push_back(at(a));
    if (inner != nullptr) c.insert(row ? c.end() : c.begin(), at(*inner));
    return c;
  };
  auto value = [&](BodyBuilder& b, const Axis* inner) {
    NodeId v = b.cast(b.load(d, {x, coords(inner)}), w);
    NodeId u = b.cast(b.load(d, {y, {at(outer.back())}}), w);
    for (int s = 0; s < 3; ++s) {
      const ScalarOp kOps[] = {ScalarOp::add, ScalarOp::mul, ScalarOp::sub, ScalarOp::max,
                               ScalarOp::min};
      v = b.binary(kOps[pick(5)], v,
                   pick(2) != 0 ? u : b.constant(w, static_cast<double>(pick(5)) - 1));
    }
    return v;
  };
  std::vector<ir::Phase> phases;
  if (!folds) {
    BodyBuilder b;
    b.store({out, coords(nullptr)}, b.cast(value(b, nullptr), d));
    phases.push_back(phase({}, b));
  } else {
    Axis i = axis("i", en, AxisKind::reduced), j = axis("j", en);
    BodyBuilder b, s;
    NodeId v = value(b, &i);
    const ReduceOp kFolds[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};
    ReduceOp op = kFolds[pick(3)];
    phases.push_back(phase({i}, b, {{op, v, w}}));
    NodeId r = s.row(w, {0, 0, 0});
    if (row) {
      s.store({out, coords(&j)},
              s.cast(s.binary(ScalarOp::sub, s.cast(s.load(d, {x, coords(&j)}), w), r), d));
      phases.push_back(phase({j}, s));
    } else {
      s.store({out, coords(nullptr)}, s.cast(r, d));
      phases.push_back(phase({}, s));
    }
  }
  k.nest({outer, phases, {}});
  bool half = d == DType::f16 || d == DType::bf16;
  return k.done(!is_real_float(d) ? 0 : half ? 1e-2 : 1e-4, 2);
}

std::vector<KernelCase> timing_cases() {
  without_data = true;
  std::vector<KernelCase> all;
  all.push_back(elementwise("elementwise 64 Mi f32", DType::f32, Expr(8192), Expr(8192)));
  all.push_back(softmax("softmax 16384x4096 f16", DType::f16, 16384, 4096));
  all.push_back(reduce("sum+argmax 16384x8192 axis 1", DType::f32, 16384, 8192, 1));
  all.push_back(reduce("sum+argmax 16384x8192 axis 0", DType::f32, 16384, 8192, 0));
  all.push_back(cumsum("cumsum 4096x4096", DType::f32, 4096, 4096, true));
  all.push_back(cumsum("cumsum 16 Mi", DType::f32, 1, 16 << 20, true));
  all.push_back(cumsum("cumsum 4096x4096 axis 0", DType::f32, 4096, 4096, false));
  all.push_back(window("window 3x3 12288x4096", 12288, 4096));
  all.push_back(gather("gather 64 Ki x 1024", 65536, 1024));
  all.push_back(transpose("transpose 8192x8192", 8192, 8192));
  all.push_back(relaxation("relaxation 3x512x512, 6 its", 3 * 512 * 512, 1024));
  all.push_back(scalar_loop());
  without_data = false;
  return all;
}

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> all;
  all.push_back(elementwise("elementwise_f32", DType::f32, Expr(33), Expr(64)));
  all.push_back(elementwise("elementwise_odd", DType::f32, Expr(5), Expr(7)));
  all.push_back(elementwise("elementwise_f16", DType::f16, Expr(9), Expr(40)));
  all.push_back(elementwise("elementwise_symbolic", DType::f32, Expr(12), Expr(20), true));
  all.push_back(elementwise("elementwise_empty", DType::f32, Expr(0), Expr(20), true));
  all.push_back(elementwise("elementwise_i8", DType::i8, Expr(6), Expr(32)));
  for (DType d : {DType::f32, DType::f64}) {
    all.push_back(all_float_ops(d));
    all.push_back(beside_constants(d));
  }
  for (DType d : {DType::f32, DType::f64, DType::f16, DType::i64, DType::u8})
    all.push_back(casts_from(d));
  for (DType d : {DType::i8, DType::i32, DType::u16, DType::i64, DType::u64})
    all.push_back(integer_ops(d));
  all.push_back(softmax("softmax_f32", DType::f32, 5, 300));
  all.push_back(softmax("softmax_f16", DType::f16, 3, 4096));
  all.push_back(softmax("softmax_short", DType::f32, 37, 24));
  all.push_back(softmax("softmax_long", DType::f32, 2, 20000));
  all.push_back(softmax("softmax_symbolic", DType::f32, 4, 513, true));
  all.push_back(reduce("sum_axis0", DType::f32, 300, 64, 0));
  all.push_back(reduce("sum_axis1", DType::f32, 7, 1024, 1));
  all.push_back(reduce("sum_axis1_short", DType::f32, 100, 5, 1));
  all.push_back(reduce("sum_f64", DType::f64, 6, 100, 1));
  all.push_back(reduce("sum_i32", DType::i32, 6, 100, 1));
  all.push_back(reduce("sum_one", DType::f32, 1, 5000, 1));
  all.push_back(cumsum("cumsum_rows", DType::f32, 3, 5000, true));
  all.push_back(cumsum("cumsum_chained", DType::i32, 2, 80000, true));
  all.push_back(cumsum("cumsum_odd", DType::i32, 4, 77, true));
  all.push_back(cumsum("cumsum_columns", DType::f32, 64, 40, false));
  all.push_back(window("window", 17, 32));
  all.push_back(gather("gather", 70, 64));
  all.push_back(gather("gather_open", 70, 64, INT64_MAX));
  all.push_back(rows_by_counter("rows_by_counter_f64", DType::f64, 3, 40));
  all.push_back(rows_by_counter("rows_by_counter_f32", DType::f32, 4, 64));
  all.push_back(rows_by_counter("rows_by_counter_one", DType::f32, 2, 1));
  all.push_back(scatter("scatter", 40, 16));
  all.push_back(transpose("transpose", 70, 45));
  all.push_back(transpose("transpose_small", 9, 100));
  all.push_back(row_local("row_local", 5, 700));
  all.push_back(row_local("row_local_long", 2, 30000));
  all.push_back(relaxation("relaxation_block", 512, 64));
  all.push_back(relaxation("relaxation_grid", 8192, 512));
  all.push_back(scalar_loop());
  return all;
}

}  // namespace heddle::test
