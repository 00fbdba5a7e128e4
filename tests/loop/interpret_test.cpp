// The interpreter against plain loops.
#include "loop/interpret.h"
#include "target/host_kernel.h"

#include <heddle/error.h>

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

using ir::AxisKind;
using ir::BufferRole;
using ir::ScalarOp;

ir::Axis axis(const char* name, int64_t n, AxisKind kind = AxisKind::mapped) {
  return {make_loop_symbol(name, n), n, kind};
}
ir::Stmt nest_of(ir::Nest n) {
  ir::Stmt s;
  s.nest = std::make_shared<const ir::Nest>(std::move(n));
  return s;
}
void run(const ir::Kernel& k, std::vector<void*> buffers) {
  ASSERT_EQ(ir::verify(k), "");
  auto compiled = loop::make_interpreter_emitter()->compile(k, {.check_bounds = true});
  dynamic_cast<const target::HostKernel&>(*compiled).run({buffers, {}}, 0);
}

// Row sums, then each row divided by its own.
ir::Kernel normalise_rows(int64_t rows, int64_t columns) {
  ir::Kernel k;
  k.name = "normalise";
  k.buffers = {{"x", f32, {rows, columns}, BufferRole::input},
               {"y", f32, {rows, columns}, BufferRole::output}};
  ir::Nest n;
  n.outer = {axis("i", rows)};
  Expr i(n.outer[0].var);
  ir::Phase fold;
  fold.inner = {axis("j", columns, AxisKind::reduced)};
  ir::BodyBuilder b;
  ir::NodeId x = b.keep(b.load(f32, {0, {i, Expr(fold.inner[0].var)}}));
  fold.body = b.take();
  fold.reductions = {{ir::ReduceOp::sum, b.renumbered(x), f32}};
  ir::Phase write;
  write.inner = {axis("k", columns)};
  ir::BodyBuilder c;
  ir::Access at{0, {i, Expr(write.inner[0].var)}};
  c.store({1, at.coords}, c.binary(ScalarOp::div, c.load(f32, at), c.row(f32, {0, 0})));
  write.body = c.take();
  n.phases = {fold, write};
  k.body.push_back(nest_of(n));
  return k;
}

TEST(Interpret, RowsInTwoPhases) {
  std::vector<float> x(12), y(12);
  for (size_t k = 0; k < 12; ++k) x[k] = static_cast<float>(k + 1);
  run(normalise_rows(3, 4), {x.data(), y.data()});
  for (size_t i = 0; i < 3; ++i) {
    float sum = 0;
    for (size_t j = 0; j < 4; ++j) sum += x[i * 4 + j];
    for (size_t j = 0; j < 4; ++j) EXPECT_EQ(y[i * 4 + j], x[i * 4 + j] / sum);
  }
}

TEST(Interpret, ScanAndMaskedLoad) {
  ir::Kernel k;
  k.buffers = {{"x", i32, {4}, BufferRole::input}, {"y", i32, {5}, BufferRole::output}};
  ir::Nest n;
  ir::Phase p;
  p.inner = {axis("s", 5, AxisKind::scan)};
  Expr s(p.inner[0].var);
  ir::BodyBuilder b;
  ir::NodeId mask = b.binary(ScalarOp::lt, b.index(s), b.constant_int(i64, 4));
  ir::NodeId x = b.load(i32, {0, {s}}, mask, b.constant_int(i32, 100));
  b.store({1, {s}}, b.scan({ir::ReduceOp::sum}, x));
  p.body = b.take();
  n.phases = {p};
  k.body.push_back(nest_of(n));
  std::vector<int32_t> x_data{1, 2, 3, 4}, y(5);
  run(k, {x_data.data(), y.data()});
  EXPECT_EQ(y, (std::vector<int32_t>{1, 3, 6, 10, 110}));
}

TEST(Interpret, WhileCountsAndSwaps) {
  ir::Kernel k;
  k.buffers = {{"a", i64, {2}, BufferRole::scratch},
               {"b", i64, {2}, BufferRole::scratch},
               {"n", i64, {}, BufferRole::scalar_local},
               {"go", bool_, {}, BufferRole::scalar_local},
               {"out", i64, {2}, BufferRole::output}};
  auto pointwise = [](std::vector<ir::Axis> axes, ir::BodyBuilder& b) {
    ir::Nest n;
    n.outer = std::move(axes);
    n.phases.emplace_back();
    n.phases[0].body = b.take();
    return nest_of(n);
  };
  ir::BodyBuilder test;
  ir::NodeId n = test.load(i64, {2, {}});
  test.store({3, {}}, test.binary(ScalarOp::lt, n, test.constant_int(i64, 5)));
  test.store({2, {}}, test.binary(ScalarOp::add, n, test.constant_int(i64, 1)));
  ir::Axis i = axis("i", 2), j = axis("j", 2), z = axis("z", 2);
  ir::BodyBuilder step;
  step.store({1, {Expr(i.var)}}, step.binary(ScalarOp::add, step.load(i64, {0, {Expr(i.var)}}),
                                             step.index(Expr(i.var) + Expr(1))));
  ir::BodyBuilder zero, copy;
  zero.store({0, {Expr(z.var)}}, zero.constant_int(i64, 0));
  copy.store({4, {Expr(j.var)}}, copy.load(i64, {0, {Expr(j.var)}}));
  k.body.push_back(pointwise({z}, zero));
  ir::Stmt barrier;
  barrier.kind = ir::StmtKind::barrier;
  barrier.barrier = ir::BarrierScope::grid;
  k.body.push_back(barrier);
  ir::Stmt loop, swap;
  loop.kind = ir::StmtKind::while_loop;
  loop.predicate = 3;
  loop.first.push_back(pointwise({}, test));
  loop.second.push_back(pointwise({i}, step));
  swap.kind = ir::StmtKind::swap;
  swap.a = 0;
  swap.b = 1;
  loop.second.push_back(swap);
  loop.second.push_back(barrier);
  k.body.push_back(loop);
  k.body.push_back(pointwise({j}, copy));
  std::vector<int64_t> a(2, -1), b(2, -1), out(2);
  run(k, {a.data(), b.data(), out.data()});
  EXPECT_EQ(out, (std::vector<int64_t>{5, 10}));
}

TEST(Interpret, RacesAreChecked) {
  auto make = [](bool with_barrier) {
    ir::Kernel k;
    k.name = "two";
    k.buffers = {{"x", f32, {4}, BufferRole::scratch}, {"y", f32, {4}, BufferRole::output}};
    ir::Nest write, read;
    write.outer = {axis("i", 4)};
    read.outer = {axis("j", 4)};
    ir::BodyBuilder b, c;
    b.store({0, {Expr(write.outer[0].var)}}, b.constant(f32, 1));
    Expr j(read.outer[0].var);
    c.store({1, {j}}, c.load(f32, {0, {Expr(3) - j}}));
    write.phases.resize(1);
    read.phases.resize(1);
    write.phases[0].body = b.take();
    read.phases[0].body = c.take();
    k.body.push_back(nest_of(write));
    ir::Stmt barrier;
    barrier.kind = ir::StmtKind::barrier;
    barrier.barrier = ir::BarrierScope::grid;
    if (with_barrier) k.body.push_back(barrier);
    k.body.push_back(nest_of(read));
    return k;
  };
  std::vector<float> x(4), y(4);
  std::vector<void*> buffers{x.data(), y.data()};
  loop::interpret(make(true), {buffers, {}}, {.check_races = true});
  EXPECT_THROW(loop::interpret(make(false), {buffers, {}}, {.check_races = true}), InternalError);
}

TEST(Interpret, BoundsAreChecked) {
  ir::Kernel k;
  k.name = "outside";
  k.buffers = {{"x", f32, {4}, BufferRole::input}, {"y", f32, {4}, BufferRole::output}};
  ir::Nest n;
  n.outer = {axis("i", 4)};
  n.phases.emplace_back();
  Expr i(n.outer[0].var);
  ir::BodyBuilder b;
  b.store({1, {i}}, b.load(f32, {0, {i + Expr(1)}}));
  n.phases[0].body = b.take();
  k.body.push_back(nest_of(n));
  std::vector<float> x(4), y(4);
  std::vector<void*> buffers{x.data(), y.data()};
  try {
    loop::interpret(k, {buffers, {}}, {.check_bounds = true});
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("'x': coordinates [4], extents [4]"), std::string::npos)
        << e.what();
  }
}

// One scalar operation at a time.
template <class From, class To>
To convert(From v, DType from, DType to) {
  ir::Kernel k;
  k.buffers = {{"x", from, {}, BufferRole::input}, {"y", to, {}, BufferRole::output}};
  ir::Nest n;
  n.phases.emplace_back();
  ir::BodyBuilder b;
  b.store({1, {}}, b.cast(b.load(from, {0, {}}), to));
  n.phases[0].body = b.take();
  k.body.push_back(nest_of(n));
  To out{};
  std::vector<void*> buffers{&v, &out};
  loop::interpret(k, {buffers, {}});
  return out;
}

TEST(Interpret, Conversions) {
  EXPECT_EQ((convert<float, int32_t>(3e9f, f32, i32)), INT32_MAX);
  EXPECT_EQ((convert<float, int8_t>(300.7f, f32, i8)), 44);
  EXPECT_EQ((convert<float, uint8_t>(-1.0f, f32, u8)), 255);
  EXPECT_EQ((convert<float, uint64_t>(-1.0f, f32, u64)), 0u);
  EXPECT_EQ((convert<float, int32_t>(NAN, f32, i32)), 0);
  EXPECT_EQ((convert<double, int64_t>(-1e300, f64, i64)), INT64_MIN);
  EXPECT_EQ((convert<float, uint16_t>(1.0f, f32, f16)), 0x3c00);
  EXPECT_EQ((convert<float, bool>(NAN, f32, bool_)), true);
}

}  // namespace
}  // namespace heddle::test
