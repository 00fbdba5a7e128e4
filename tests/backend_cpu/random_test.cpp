// Random kernels, compiled and interpreted: the same bits.
#include "harness.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

using ir::AxisKind;
using ir::BodyBuilder;
using ir::BufferRole;
using ir::NodeId;
using ir::ScalarOp;

constexpr DType kTypes[] = {f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool_};
constexpr DType kArithmetic[] = {f32, f32, f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, bool_};

class Generator {
 public:
  explicit Generator(uint64_t seed) : rng_(seed) {}

  ir::Kernel kernel() {
    k_ = {};
    k_.name = "random";
    bool symbolic = pick(3) == 0;
    size_t rank = 1 + pick(3);
    for (size_t a = 0; a < rank; ++a) {
      int64_t n = extents_[pick(extents_.size())];
      sizes_.push_back(n);
      Expr extent = n;
      if (symbolic) {
        Dim d(std::string(1, static_cast<char>('a' + a)));
        k_.symbols.push_back(d.symbol());
        values.push_back(n);
        extent = d;
      }
      shape_.push_back(extent);
      axes_.push_back({make_loop_symbol(std::string(1, static_cast<char>('i' + a)), extent), extent,
                       AxisKind::mapped});
    }
    size_t folded = pick(2) == 0 ? pick(rank + 1) : 0;
    ir::Nest nest;
    if (folded == 0) {
      nest.outer = axes_;
      nest.phases.push_back({{}, elementwise(axes_), {}});
    } else {
      folds(nest, folded);
    }
    ir::Stmt s;
    s.nest = std::make_shared<ir::Nest>(std::move(nest));
    k_.body.push_back(s);
    return k_;
  }
  std::vector<int64_t> values;  // of the symbols

 private:
  size_t pick(size_t n) { return rng_() % n; }

  ir::BufferId buffer(DType d, std::vector<Expr> shape, BufferRole role) {
    k_.buffers.push_back({"b" + std::to_string(k_.buffers.size()), d, std::move(shape), role});
    return static_cast<ir::BufferId>(k_.buffers.size() - 1);
  }

  // A load at coordinates derived from the axes in one of many ways.
  NodeId load(BodyBuilder& b, DType d, const std::vector<ir::Axis>& axes) {
    std::vector<Expr> shape, coords;
    NodeId mask = ir::kNoNode;
    std::vector<size_t> order(axes.size());
    for (size_t a = 0; a < axes.size(); ++a) order[a] = a;
    if (pick(5) == 0) std::shuffle(order.begin(), order.end(), rng_);
    for (size_t a : order) {
      Expr v(axes[a].var), n = axes[a].extent;
      switch (pick(14)) {
        case 0:
          shape.push_back(1), coords.push_back(0);
          break;
        case 1:
          shape.push_back(n), coords.push_back(n - 1 - v);
          break;
        case 2:
          shape.push_back(n * 2), coords.push_back(v * 2 + 1);
          break;
        case 3:
          shape.push_back(n * 3), coords.push_back(v * 3);
          break;
        case 4:
          shape.push_back(n),
              coords.push_back(min(max(v + static_cast<int64_t>(pick(5)) - 2, 0), n - 1));
          break;
        case 5:
          shape.push_back(n), coords.push_back((v + static_cast<int64_t>(pick(5)) + n - 2 + n) % n);
          break;
        case 6: {  // zero outside
          Expr at = v + static_cast<int64_t>(pick(7)) - 3;
          shape.push_back(n), coords.push_back(at);
          NodeId inside = b.binary(ScalarOp::bit_and,
                                   b.binary(ScalarOp::ge, b.index(at), b.constant_int(i64, 0)),
                                   b.binary(ScalarOp::lt, b.index(at), b.index(n)));
          mask = mask == ir::kNoNode ? inside : b.binary(ScalarOp::bit_and, mask, inside);
          break;
        }
        case 7: {  // gathered
          DType index_type = pick(2) ? i64 : i32;
          NodeId raw =
              b.cast(b.load(index_type, {buffer(index_type, {n}, BufferRole::input), {v}}), i64);
          NodeId high = b.binary(ScalarOp::sub, b.index(n), b.constant_int(i64, 1));
          NodeId clamped =
              b.binary(ScalarOp::min, b.binary(ScalarOp::max, raw, b.constant_int(i64, 0)), high);
          SymbolRef s = b.bind(clamped, 0, INT64_MAX, &n);
          shape.push_back(n), coords.push_back(Expr(s));
          break;
        }
        case 8:
          shape.push_back(n / 2 + 1), coords.push_back(v / 2);
          break;
        default:
          shape.push_back(n), coords.push_back(v);
          break;
      }
    }
    ir::BufferId id = buffer(d, shape, BufferRole::input);
    if (mask == ir::kNoNode) return b.load(d, {id, coords});
    NodeId other = d == f16 || d == bf16 ? b.constant_bits(d, 0) : b.constant(d, 1);
    return b.load(d, {id, coords}, mask, other);
  }

  NodeId any(std::vector<NodeId>& pool) { return pool[pick(pool.size())]; }

  NodeId as(BodyBuilder& b, NodeId n, DType d) { return b.cast(n, d); }

  // What `inverse` may be given.
  NodeId bounded(BodyBuilder& b, NodeId x) {
    NodeId least = b.binary(ScalarOp::max, x, b.constant(b.type(x), 0x1p-9));
    return b.binary(ScalarOp::min, least, b.constant(b.type(x), 0x1p99));
  }

  NodeId operation(BodyBuilder& b, std::vector<NodeId>& pool) {
    DType d = kArithmetic[pick(std::size(kArithmetic))];
    NodeId x = as(b, any(pool), d), y = as(b, any(pool), d), z = as(b, any(pool), d);
    bool fl = is_real_float(d), bo = d == bool_;
    switch (pick(8)) {
      case 0: {
        static const ScalarOp kUnary[] = {ScalarOp::neg,         ScalarOp::abs,   ScalarOp::is_nan,
                                          ScalarOp::logical_not, ScalarOp::floor, ScalarOp::ceil,
                                          ScalarOp::trunc,       ScalarOp::rint,  ScalarOp::sqrt,
                                          ScalarOp::bit_not};
        size_t n = bo ? 4 : 8;
        if (!bo && pick(4) == 0) return b.unary(fl ? ScalarOp::sqrt : ScalarOp::bit_not, x);
        return b.unary(kUnary[pick(n)], x);
      }
      case 1:
        return b.binary(static_cast<ScalarOp>(static_cast<int>(ScalarOp::eq) + pick(6)), x, y);
      case 2:
        return b.select(as(b, any(pool), bool_), x, y);
      case 3:
        if (fl && pick(4) == 0) return b.unary(ScalarOp::inverse, bounded(b, x));
        return bo ? b.binary(ScalarOp::bit_xor, x, y) : b.fma(x, y, z);
      case 4:
        if (!fl) {
          static const ScalarOp kBits[] = {ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor,
                                           ScalarOp::shl, ScalarOp::shr};
          return b.binary(kBits[pick(bo ? 3 : 5)], x, y);
        }
        if (d == f64 && pick(2)) return b.call(static_cast<ir::LibraryFunction>(pick(7)), x, y);
        return b.binary(ScalarOp::mul, x, y);
      default: {
        static const ScalarOp kBinary[] = {ScalarOp::add, ScalarOp::sub,     ScalarOp::mul,
                                           ScalarOp::div, ScalarOp::rem,     ScalarOp::min,
                                           ScalarOp::max, ScalarOp::min_num, ScalarOp::max_num};
        // Machines have their own minimum beside a constant.
        static const double kBeside[] = {0.0, -0.0, 2.5, -1.0, INFINITY, NAN};
        if (fl && pick(4) == 0) y = b.constant(d, kBeside[pick(std::size(kBeside))]);
        if (fl && pick(8) == 0) std::swap(x, y);
        return b.binary(kBinary[pick(std::size(kBinary))], x, y);
      }
    }
  }

  std::vector<NodeId> expression(BodyBuilder& b, const std::vector<ir::Axis>& axes) {
    std::vector<NodeId> pool;
    for (size_t n = 1 + pick(3); n-- > 0;)
      pool.push_back(load(b, kTypes[pick(std::size(kTypes))], axes));
    NodeId first = pool[0];
    int width = bit_width(b.type(first));
    static const DType kCasts[] = {f32, i32, u32, f64, i64, u64, i16, u16, i8, u8};
    for (DType d : kCasts) {
      if (bit_width(d) == width && b.type(first) != bool_ && pick(6) == 0)
        pool.push_back(b.bitcast(first, d));
    }
    if (pick(3) == 0) pool.push_back(b.index(Expr(axes[pick(axes.size())].var) * 3 - 5));
    if (pick(3) == 0) pool.push_back(b.constant(f32, 1.5));
    for (size_t n = 1 + pick(8); n-- > 0;) pool.push_back(operation(b, pool));
    return pool;
  }

  ir::Body elementwise(const std::vector<ir::Axis>& axes) {
    BodyBuilder b;
    std::vector<NodeId> pool = expression(b, axes);
    for (size_t n = 1 + pick(2); n-- > 0;) {
      std::vector<Expr> shape, coords;
      for (const ir::Axis& a : axes) shape.push_back(a.extent), coords.push_back(Expr(a.var));
      bool permuted = shape.size() > 1 && pick(5) == 0;
      if (permuted) std::swap(shape[0], shape[1]), std::swap(coords[0], coords[1]);
      if (pick(4) == 0) shape.push_back(2), coords.push_back(static_cast<int64_t>(pick(2)));
      DType d = kTypes[pick(std::size(kTypes))];
      NodeId mask = pick(5) == 0 ? b.cast(any(pool), bool_) : ir::kNoNode;
      b.store({buffer(d, shape, BufferRole::output), coords},
              b.cast(pool[pool.size() - 1 - n % pool.size()], d), mask);
    }
    return b.take();
  }

  // The last `folded` axes are folded, or the first ones.
  void folds(ir::Nest& nest, size_t folded) {
    std::vector<ir::Axis> inner;
    if (pick(2))
      std::rotate(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(folded), axes_.end());
    nest.outer.assign(axes_.begin(), axes_.end() - static_cast<std::ptrdiff_t>(folded));
    inner.assign(axes_.end() - static_cast<std::ptrdiff_t>(folded), axes_.end());
    for (ir::Axis& a : inner) a.kind = AxisKind::reduced;
    std::vector<ir::Axis> all = nest.outer;
    all.insert(all.end(), inner.begin(), inner.end());
    BodyBuilder b;
    std::vector<NodeId> pool = expression(b, all);
    ir::Phase phase;
    phase.inner = inner;
    static const ir::ReduceOp kOps[] = {
        ir::ReduceOp::max,    ir::ReduceOp::min,    ir::ReduceOp::max_num, ir::ReduceOp::min_num,
        ir::ReduceOp::argmax, ir::ReduceOp::argmin, ir::ReduceOp::sum,     ir::ReduceOp::product,
        ir::ReduceOp::any,    ir::ReduceOp::all};
    for (size_t n = 1 + pick(2); n-- > 0;) {
      ir::ReduceOp op = kOps[pick(std::size(kOps))];
      NodeId v = pool[pool.size() - 1 - n % pool.size()];
      if (op == ir::ReduceOp::any || op == ir::ReduceOp::all) v = b.cast(v, bool_);
      if (op == ir::ReduceOp::sum || op == ir::ReduceOp::product) v = b.cast(v, i32);
      if (b.type(v) == f16 || b.type(v) == bf16) v = b.cast(v, f32);
      phase.reductions.push_back({op, b.keep(v), b.type(v)});
    }
    phase.body = b.take();
    for (ir::Reduction& r : phase.reductions) r.value = b.renumbered(r.value);
    nest.phases.push_back(phase);
    BodyBuilder s;
    for (uint32_t r = 0; r < phase.reductions.size(); ++r) {
      std::vector<Expr> shape, coords;
      for (const ir::Axis& a : nest.outer) shape.push_back(a.extent), coords.push_back(Expr(a.var));
      bool arg = phase.reductions[r].op == ir::ReduceOp::argmax ||
                 phase.reductions[r].op == ir::ReduceOp::argmin;
      DType d = phase.reductions[r].type;
      s.store({buffer(d, shape, BufferRole::output), coords}, s.row(d, {0, r, 0}));
      if (arg) s.store({buffer(i64, shape, BufferRole::output), coords}, s.row(i64, {0, r, 1}));
    }
    nest.phases.push_back({{}, s.take(), {}});
    // What was folded is read again: a row kernel.
    if (!nest.outer.empty() || pick(2)) {
      std::vector<ir::Axis> again = inner;
      for (ir::Axis& a : again) a = {make_loop_symbol("r", a.extent), a.extent, AxisKind::mapped};
      std::vector<ir::Axis> both = nest.outer;
      both.insert(both.end(), again.begin(), again.end());
      BodyBuilder m;
      NodeId x = m.cast(load(m, f32, both), f32);
      NodeId y = m.cast(m.row(phase.reductions[0].type, {0, 0, 0}), f32);
      std::vector<Expr> shape, coords;
      for (const ir::Axis& a : both) shape.push_back(a.extent), coords.push_back(Expr(a.var));
      m.store({buffer(f32, shape, BufferRole::output), coords}, m.binary(ScalarOp::sub, x, y));
      nest.phases.push_back({again, m.take(), {}});
    }
  }

  std::mt19937_64 rng_;
  ir::Kernel k_;
  std::vector<int64_t> sizes_;
  std::vector<Expr> shape_;
  std::vector<ir::Axis> axes_;
  std::vector<size_t> extents_{1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 64, 70, 129};
};

TEST(CpuRandom, KernelsHaveTheInterpretersBits) {
  uint64_t seed = test_seed(1), count = test_count(60);
  for (uint64_t n = seed; n < seed + count; ++n) {
    Generator g(n);
    ir::Kernel k = g.kernel();
    KernelRun run(k, g.values, n);
    RunResult expected = run.interpret();
    std::vector<std::string> archs = runnable_archs();
    const std::string& arch = n % 5 == 0 ? archs[n % archs.size()] : archs.back();
    RunResult one = run.compiled(arch, 1);
    ASSERT_EQ(difference(run, expected, one, true), "") << "seed " << n << ", " << arch << "\n"
                                                        << ir::print(k);
    ASSERT_EQ(difference(run, one, run.compiled(arch, 4), true), "")
        << "seed " << n << ", 4 threads";
    if (n % 4 == 0) {
      ASSERT_EQ(difference(run, expected, run.compiled(arch, 1, true), true), "")
          << "seed " << n << ", checked";
    }
  }
}

}  // namespace
}  // namespace heddle::test
