// Forms of emitted code that stand for a plainer one: the same bits, whatever the numbers are.
#include "harness.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace heddle::test {
namespace {

using ir::AxisKind;
using ir::BodyBuilder;
using ir::BufferRole;
using ir::NodeId;
using ir::ReduceOp;
using ir::ScalarOp;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

Bytes bytes_of(const std::vector<float>& v) {
  Bytes out(v.size() * sizeof(float));
  std::memcpy(out.data(), v.data(), out.size());
  return out;
}

// Any bits, so all exponents; every fourth one near 1.
std::vector<float> any_floats(size_t n, std::mt19937_64& rng) {
  std::vector<float> out(n);
  for (float& v : out) {
    auto bits = static_cast<uint32_t>(rng());
    if (rng() % 4 == 0) bits = (bits & 0x807fffff) | 0x3f800000;
    std::memcpy(&v, &bits, sizeof v);
  }
  return out;
}

// y = x / s, one s a row: along rows, and with a row's number for all columns.
TEST(CpuForms, QuotientsByARowsNumber) {
  constexpr int64_t kColumns = 203;
  std::mt19937_64 rng(3);
  std::vector<float> divisors = {1,         3,          -3,   0x1p-60f,       0x1p60f,
                                 0x1p-61f,  0x1p61f,    0,    -0.0f,          kTiny,
                                 kInfinity, -kInfinity, kNan, 0x1.fffffep+0f, 0x1.000002p+0f};
  for (float v : any_floats(25, rng)) divisors.push_back(v);
  auto rows = static_cast<int64_t>(divisors.size());
  std::vector<float> x;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> row = any_floats(kColumns, rng);
    // Rows of plain numbers, with one that is not in some of them.
    if (r % 2 == 0) {
      for (float& v : row) v = std::ldexp(1 + static_cast<float>(rng() % 8388608) / 8388608, r % 7);
    }
    std::array<float, 10> odd = {
        0,    -0.0f,     kTiny,    -kTiny,     kInfinity,
        kNan, 0x1p-126f, 0x1p-60f, 0x1.8p-61f, std::numeric_limits<float>::max()};
    if (r % 4 != 0) row[rng() % kColumns] = odd[static_cast<size_t>(r) % odd.size()];
    x.insert(x.end(), row.begin(), row.end());
  }
  ir::Kernel k;
  k.name = "quotients";
  k.buffers = {{"x", f32, {rows, kColumns}, BufferRole::input},
               {"s", f32, {rows}, BufferRole::input},
               {"y", f32, {rows, kColumns}, BufferRole::output}};
  ir::Axis i = axis("i", rows), j = axis("j", kColumns);
  BodyBuilder b;
  b.store({2, {var(i), var(j)}},
          b.binary(ScalarOp::div, b.load(f32, {0, {var(i), var(j)}}), b.load(f32, {1, {var(i)}})));
  ir::Nest nest;
  nest.outer = {i, j};
  nest.phases.push_back({{}, b.take(), {}});
  add_nest(k, nest);
  KernelRun run(k, {}, 7);
  run.set(0, bytes_of(x));
  run.set(1, bytes_of(divisors));
  check(run, true);
}

TEST(CpuForms, ExtremesOfNansAndZeros) {
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    for (int64_t n : {64, 203, 1024}) {
      constexpr int64_t kRows = 48;
      std::mt19937_64 rng(static_cast<uint64_t>(n));
      std::vector<float> x(static_cast<size_t>(kRows * n), op == ReduceOp::max ? -0.0f : 0.0f);
      for (int64_t r = 0; r < kRows; ++r) {
        auto at = [&]() -> float& {
          return x[static_cast<size_t>(r * n) + rng() % static_cast<uint64_t>(n)];
        };
        if (r % 3 == 1) at() = op == ReduceOp::max ? 0.0f : -0.0f;  // one zero of the other sign
        if (r % 3 == 2) {
          for (int k = 0; k < 40; ++k) at() = std::ldexp(1.0f, static_cast<int>(rng() % 200) - 100);
          for (int k = 0; k < 40; ++k) at() = -at();
        }
        if (r % 4 == 3) at() = r % 8 == 3 ? kNan : -kNan;
        if (r % 5 == 4) at() = r % 2 == 0 ? kInfinity : -kInfinity;
      }
      ir::Kernel k;
      k.name = "extreme";
      k.buffers = {{"x", f32, {kRows, n}, BufferRole::input},
                   {"y", f32, {kRows}, BufferRole::output}};
      ir::Axis i = axis("i", kRows), j = axis("j", n, AxisKind::reduced);
      ir::Nest nest;
      nest.outer = {i};
      BodyBuilder b;
      NodeId v = b.keep(b.load(f32, {0, {var(i), var(j)}}));
      ir::Body body = b.take();
      nest.phases.push_back({{j}, body, {{op, b.renumbered(v), f32}}});
      BodyBuilder s;
      s.store({1, {var(i)}}, s.row(f32, {0, 0, 0}));
      nest.phases.push_back({{}, s.take(), {}});
      add_nest(k, nest);
      KernelRun run(k, {}, 7);
      run.set(0, bytes_of(x));
      check(run, true);
    }
  }
}

// Bodies of which several vectors are computed side by side, at lengths around pieces and groups,
// known or not.
void check_long_body(int64_t n, bool known, DType type) {
  Dim length("n");
  Expr extent = known ? Expr(n) : length;
  ir::Kernel k;
  k.name = "long_body";
  if (!known) k.symbols = {length.symbol()};
  k.buffers = {{"x", type, {extent}, BufferRole::input}, {"y", type, {extent}, BufferRole::output}};
  ir::Axis i = axis("i", extent);
  BodyBuilder b;
  NodeId x = b.load(type, {0, {var(i)}}), p = x;
  for (int d = 0; d < (type == f32 ? 30 : 12); ++d) {
    if (type == f32) {
      p = b.fma(p, x, b.constant(f32, 0.25 * (d % 5) - 0.5));
    } else if (type == bool_) {
      p = b.binary(d % 3 == 0 ? ir::ScalarOp::bit_and : ir::ScalarOp::bit_xor, p, x);
      p = b.binary(ir::ScalarOp::bit_or, p, b.binary(ir::ScalarOp::bit_xor, p, x));
    } else {
      p = b.binary(ir::ScalarOp::add, b.binary(ir::ScalarOp::mul, p, x), x);
    }
  }
  b.store({1, {var(i)}}, p);
  ir::Nest nest;
  nest.outer = {i};
  nest.phases.push_back({{}, b.take(), {}});
  add_nest(k, nest);
  check(k, known ? std::vector<int64_t>{} : std::vector<int64_t>{n}, true);
}

TEST(CpuForms, LongBodiesOfAnyLength) {
  for (int64_t n : {1,   15,  16,   23,   24,   25,   47,    48,     64,     96,
                    100, 333, 1023, 1024, 1040, 4096, 70000, 131072, 131097, 131120}) {
    for (bool known : {true, false}) check_long_body(n, known, f32);
  }
  // Lanes are many where elements are narrow.
  for (DType type : {i8, bool_, i16, f64}) {
    for (int64_t n : {100, 1024, 131072, 131072 + 512}) {
      for (bool known : {true, false}) check_long_body(n, known, type);
    }
  }
}

// Totals of blocks, then something that reads those of the blocks up to its own: strip by strip.
// Of all blocks: after all of them.
TEST(CpuForms, TotalsOfEarlierBlocks) {
  constexpr int64_t kBlocks = 200, kLength = 1000;
  for (bool all : {false, true}) {
    for (bool known : {true, false}) {
      Dim symbol("blocks");
      Expr blocks = known ? Expr(kBlocks) : symbol;
      ir::Kernel k;
      k.name = "blocks";
      if (!known) k.symbols = {symbol.symbol()};
      k.buffers = {{"x", i32, {blocks * kLength}, BufferRole::input},
                   {"part", i32, {blocks}, BufferRole::scratch},
                   {"y", i32, {blocks * kLength}, BufferRole::output}};
      ir::Axis i = axis("i", blocks), j = axis("j", kLength, AxisKind::reduced);
      ir::Nest totals;
      totals.outer = {i};
      BodyBuilder b;
      NodeId v = b.keep(b.load(i32, {0, {var(i) * kLength + var(j)}}));
      ir::Body body = b.take();
      totals.phases.push_back({{j}, body, {{ReduceOp::sum, b.renumbered(v), i32}}});
      BodyBuilder s;
      s.store({1, {var(i)}}, s.row(i32, {0, 0, 0}));
      totals.phases.push_back({{}, s.take(), {}});
      add_nest(k, totals);
      ir::Stmt barrier;
      barrier.kind = ir::StmtKind::barrier;
      barrier.barrier = ir::BarrierScope::grid;
      k.body.push_back(barrier);
      ir::Axis o = axis("o", blocks),
               before = axis("before", all ? blocks : var(o), AxisKind::reduced),
               p = axis("p", kLength, AxisKind::scan);
      ir::Nest scans;
      scans.outer = {o};
      BodyBuilder t;
      NodeId total = t.keep(t.load(i32, {1, {var(before)}}));
      ir::Body sum = t.take();
      scans.phases.push_back({{before}, sum, {{ReduceOp::sum, t.renumbered(total), i32}}});
      BodyBuilder w;
      Expr at = var(o) * kLength + var(p);
      w.store({2, {at}}, w.binary(ScalarOp::add, w.row(i32, {0, 0, 0}),
                                  w.scan({ReduceOp::sum}, w.load(i32, {0, {at}}))));
      scans.phases.push_back({{p}, w.take(), {}});
      add_nest(k, scans);
      ASSERT_EQ(ir::verify(k), "");
      check(k, known ? std::vector<int64_t>{} : std::vector<int64_t>{kBlocks}, true);
    }
  }
}

}  // namespace
}  // namespace heddle::test
