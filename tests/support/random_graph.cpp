#include "support/random_graph.h"

#include "ops/judge.h"
#include "support/numeric.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace heddle::test {

using ops::HostTensor;

namespace {

// A tensor of the pool with its sizes as numbers (symbols bound).
struct Item {
  Tensor t;
  std::vector<int64_t> sizes;
  bool feed = false;  // exact values: comparisons and arg reductions of it cannot flip by rounding
};

// Graphs of neighbouring seeds share a few sizes, so that many of their kernels are compiled once.
constexpr uint64_t kSharedSeeds = 256, kSharedSizes = 4;

class Builder {
 public:
  Builder(uint64_t seed, const RandomGraphOptions& options, RandomGraph& out)
      : rng_(seed), options_(options), out_(out) {
    out_.symbolic = chance(options.symbolic);
    static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 13, 16, 17, 31, 32, 33, 64};
    std::mt19937_64 shared(seed / kSharedSeeds * kSharedSizes + seed % kSharedSizes);
    for (int k = 0; k < 3; ++k) {
      sizes_[k] = kSizes[shared() % (k == 2 ? 13 : 9)];
      extents_[k] = out_.symbolic ? Expr(Dim("d" + std::to_string(k))) : Expr(sizes_[k]);
    }
    for (int k = 0; k < 3; ++k) feed(f32, {0, 1, 2});
    feed(f32, {2});
    feed(f32, {0, 2});
    if (chance(0.3)) feed(f16, {0, 1, 2});
    if (chance(0.2)) feed(f64, {1, 2});
  }

  void build() {
    bool rows = chance(options_.row_programs), regions = chance(options_.regions);
    int steps = options_.min_steps +
                static_cast<int>(
                    rng_() % static_cast<uint64_t>(options_.max_steps - options_.min_steps + 1));
    for (int k = 0; k < steps; ++k) {
      if (rows && k % 4 == 1) {
        row_program();
      } else if (regions && k % 5 == 2) {
        region();
      } else {
        step();
      }
    }
    finish();
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(rng_) < p; }
  template <class T>
  const T& pick(const std::vector<T>& v) {
    return v[rng_() % v.size()];
  }

  Item& feed(DType dtype, const std::vector<int>& axes, double low = -2, double high = 2) {
    Shape shape;
    std::vector<int64_t> sizes;
    for (int a : axes) {
      shape.push_back(extents_[a]);
      sizes.push_back(sizes_[a]);
    }
    Tensor t = out_.graph.placeholder(dtype, shape, "x" + std::to_string(out_.feeds.size()));
    out_.feeds.push_back(t);
    out_.values.push_back(random_tensor(dtype, sizes, rng_, low, high));
    feed_axes_.emplace_back(out_.feeds.size() - 1, axes);
    pool_.push_back({t, sizes, true});
    return pool_.back();
  }

  Item float_item() {
    for (int tries = 0; tries < 8; ++tries) {
      const Item& i = pool_[rng_() % pool_.size()];
      if (is_real_float(i.t.dtype())) return i;
    }
    return pool_.front();
  }

  void add(const Tensor& t, std::vector<int64_t> sizes) {
    pool_.push_back({t, std::move(sizes), false});
  }

  // Keeps magnitudes near 1, so that errors stay comparable.
  Tensor tame(const Tensor& t) {
    switch (rng_() % 3) {
      case 0:
        return tanh(t);
      case 1:
        return t / (square(t) + 1.0);
      default:
        return sigmoid(t) - 0.5;
    }
  }

  Tensor unary(const Tensor& t) {
    switch (rng_() % 12) {
      case 0:
        return tanh(t);
      case 1:
        return sigmoid(t);
      case 2:
        return exp(tanh(t));
      case 3:
        return sqrt(abs(t) + 0.25);
      case 4:
        return relu(t);
      case 5:
        return erf(t);
      case 6:
        return log(abs(t) + 1.0);
      case 7:
        return negate(t);
      case 8:
        return abs(t);
      case 9:
        return rsqrt(square(t) + 1.0);
      case 10:
        return power(abs(t) + 0.5, constant_like(t, 0.75));
      default:
        return clamp(t, constant_like(t, -0.75), constant_like(t, 1.25));
    }
  }

  Tensor binary(const Tensor& a, const Tensor& b) {
    switch (rng_() % 7) {
      case 0:
        return a + b;
      case 1:
        return a - b;
      case 2:
        return tame(a * b);
      case 3:
        return minimum(a, b);
      case 4:
        return maximum(a, b);
      case 5:
        return a / (square(b) + 1.0);
      default:
        return (a + b) * 0.5;
    }
  }

  // The other operand: same extents, or something that broadcasts against them.
  Item partner(const Item& a) {
    std::vector<size_t> fitting;
    for (size_t k = 0; k < pool_.size(); ++k) {
      const Item& b = pool_[k];
      if (b.t.dtype() != a.t.dtype()) continue;
      try {
        if (broadcast_shapes(a.t.shape(), b.t.shape(), "pick") == a.t.shape()) fitting.push_back(k);
      } catch (const GraphError&) {
      }
    }
    return fitting.empty() ? a : pool_[pick(fitting)];
  }

  std::vector<int> some_axes(size_t rank) {
    std::vector<int> axes;
    for (size_t k = 0; k < rank; ++k) {
      if (chance(0.5)) axes.push_back(static_cast<int>(k));
    }
    if (axes.empty()) axes.push_back(static_cast<int>(rank) - 1);
    return axes;
  }

  Tensor reduce(const Tensor& x, const ReduceOptions& o) {
    switch (rng_() % 4) {
      case 0:
        return reduce_max(x, o);
      case 1:
        return reduce_min(x, o);
      case 2:
        return tanh(sum(x, o));
      default:
        return mean(x, o);
    }
  }

  // reduce -> broadcast -> reduce, over any axes, with elementwise work around.
  void row_program() {
    out_.row_program = true;
    Item x = float_item();
    if (x.sizes.empty()) x = pool_.front();
    std::vector<int> axes = some_axes(x.sizes.size());
    ReduceOptions o{.axes = axes, .keep_axes = true};
    Tensor v = chance(0.5) ? unary(x.t) : x.t;
    Tensor m = reduce(v, o);
    Tensor centred = v - m;
    Tensor y = chance(0.5) ? exp(tanh(centred)) : square(tanh(centred));
    Tensor s = chance(0.5) ? sum(y, o) : mean(y, o);
    Tensor z = y / (s + 0.5);
    if (chance(0.3)) z = z - mean(abs(z), o);
    if (chance(0.5)) z = binary(z, partner({z, x.sizes, false}).t);
    add(z, x.sizes);
    if (chance(0.3)) {
      std::vector<int64_t> sizes = x.sizes;
      for (int a : axes) sizes[static_cast<size_t>(a)] = 1;
      add(tame(s), sizes);
    }
  }

  void region() {
    out_.has_regions = true;
    Item x = float_item(), y = partner(x);
    Type type = x.t.type();
    switch (rng_() % 3) {
      case 0: {
        Tensor p = sum(pool_[3].t) > 0.0;  // of a feed: far from 0 but for one seed in many
        Tensor q = reduce_max(pool_[3].t) > constant_like(pool_[3].t, 0.5);
        Tensor predicate = chance(0.5) ? q : logical_not(q);
        static_cast<void>(p);
        add(cond(predicate, [&] { return tame(x.t + y.t); }, [&] { return x.t * 0.5; }), x.sizes);
        return;
      }
      case 1: {
        int64_t count = static_cast<int64_t>(rng_() % 5);
        Tensors r = for_loop(Expr(count), {x.t}, [&](const Tensor& i, const Tensors& v) {
          Tensor next = tanh(v[0] + y.t * 0.25);
          Tensor even = equal(floor_modulo(i, constant_like(i, 2)), constant_like(i, 0));
          return Tensors{select(even, next, v[0] * 0.5)};
        });
        add(r[0], x.sizes);
        return;
      }
      default: {
        Tensor zero = out_.graph.constant(int64_t{0}, i32);
        auto limit = static_cast<double>(1 + rng_() % 6);
        Tensors r = while_loop(
            {zero, x.t}, [&](const Tensors& v) { return v[0] < limit; },
            [&](const Tensors& v) {
              Tensor m = mean(v[1]);
              return Tensors{v[0] + 1.0, tanh(v[1] + y.t * 0.125 - m)};
            });
        add(r[1], x.sizes);
        return;
      }
    }
  }

  void view_step() {
    Item x = float_item();
    size_t rank = x.sizes.size();
    if (rank < 2) return;
    uint64_t drawn = rng_();
    auto also = [&](int bit) { return (drawn >> bit & 1) != 0; };
    switch (drawn % 6) {
      case 0: {
        std::vector<int> p(rank);
        for (size_t k = 0; k < rank; ++k) p[k] = static_cast<int>(k);
        std::shuffle(p.begin(), p.end(), rng_);
        std::vector<int64_t> sizes;
        for (int a : p) sizes.push_back(x.sizes[static_cast<size_t>(a)]);
        add(transpose(x.t, p), sizes);
        return;
      }
      case 1: {  // merge the first two axes, and back
        Shape s = x.t.shape(), merged = {s[0] * s[1]};
        merged.insert(merged.end(), s.begin() + 2, s.end());
        Tensor flat = unary(reshape(x.t, merged));
        add(reshape(flat, s), x.sizes);
        return;
      }
      case 2: {
        PadOptions o;
        static constexpr PaddingMode kModes[] = {
            PaddingMode::constant,      PaddingMode::reflect, PaddingMode::symmetric,
            PaddingMode::clamp_to_edge, PaddingMode::zero,    PaddingMode::periodic,
            PaddingMode::anti_periodic};
        o.mode = kModes[rng_() % 7];
        o.value = 0.5;
        std::vector<int64_t> sizes = x.sizes;
        for (size_t k = 0; k < rank; ++k) {
          bool narrow = sizes[k] < 3;
          o.before.push_back(narrow ? 0 : static_cast<int64_t>(rng_() % 2));
          o.after.push_back(narrow ? 0 : static_cast<int64_t>(rng_() % 3));
          sizes[k] += o.before[k] + o.after[k];
        }
        add(tame(pad(x.t, o)), sizes);
        return;
      }
      case 3: {
        SliceOptions o;
        std::vector<int64_t> sizes = x.sizes;
        for (size_t k = 0; k < rank; ++k) {
          o.starts.emplace_back(0);
          o.stops.push_back(x.t.shape()[k]);
          o.strides.push_back(1);
        }
        if (also(40)) {  // flipped along an axis
          size_t k = also(41) ? rank - 1 : 0;
          o.starts[k] = -1;
          o.stops[k] = -x.t.shape()[k] - Expr(1);
          o.strides[k] = -1;
        } else {
          o.strides[rank - 1] = 2;
          sizes[rank - 1] = (sizes[rank - 1] + 1) / 2;
        }
        add(slice(x.t, o), sizes);
        return;
      }
      case 4: {
        int axis = static_cast<int>(rng_() % rank);
        std::vector<int64_t> sizes = x.sizes;
        sizes[static_cast<size_t>(axis)] *= 2;
        add(concat({x.t, unary(x.t)}, axis), sizes);
        return;
      }
      default: {
        CumulativeOptions o{
            .axis = static_cast<int>(rng_() % rank), .exclusive = also(40), .reverse = also(41)};
        Tensor sums = cumulative_sum(tame(x.t), o) * 0.125;
        if (also(42)) {  // what a gradient through it does
          o.reverse = !o.reverse;
          sums = cumulative_sum(tame(sums), o) * 0.125;
        }
        add(sums, x.sizes);
      }
    }
  }

  void window_step() {
    Item x = float_item();
    if (x.sizes.size() < 2) return;
    std::vector<float> w(9);
    for (float& v : w) v = static_cast<float>(static_cast<int>(rng_() % 9) - 4) * 0.125F;
    static constexpr PaddingMode kModes[] = {PaddingMode::zero, PaddingMode::clamp_to_edge,
                                             PaddingMode::periodic, PaddingMode::constant};
    StencilOptions o;
    o.boundary = kModes[rng_() % 4];
    o.constant = 0.25;
    if (chance(0.3)) o.reduction = chance(0.5) ? WindowReduction::max : WindowReduction::min;
    Tensor weights = cast(out_.graph.constant(Array::from<float>({3, 3}, w)), x.t.dtype());
    Tensor y = stencil(chance(0.5) ? unary(x.t) : x.t, weights, o);
    add(chance(0.5) ? tame(y) : y, x.sizes);
  }

  void index_step() {
    Item x = float_item();
    if (x.sizes.empty()) return;
    int axis = static_cast<int>(rng_() % x.sizes.size());
    int64_t n = x.sizes[static_cast<size_t>(axis)];
    int64_t count = 1 + static_cast<int64_t>(rng_() % 9);
    DType d = chance(0.5) ? i32 : i64;
    Tensor indices = out_.graph.placeholder(d, {count}, "i" + std::to_string(out_.feeds.size()));
    out_.feeds.push_back(indices);
    out_.values.push_back(
        random_tensor(d, {count}, rng_, static_cast<double>(-n), static_cast<double>(n)));
    Tensor g = gather(x.t, indices, {.axis = axis});
    std::vector<int64_t> sizes = x.sizes;
    sizes[static_cast<size_t>(axis)] = count;
    if (chance(0.5)) {
      add(g, sizes);
    } else {
      add(scatter_add(x.t * 0.5, indices, tame(g), {.axis = axis}), x.sizes);
    }
  }

  void integer_step() {
    if (options_.floats_only) return;
    Item x = pool_[0];
    Tensor i = coordinate_like(x.t, static_cast<int>(rng_() % 3), i32);
    Tensor j = floor_modulo(i * 7.0 + 3.0, constant_like(i, 5)) - 2.0;
    Tensor k = bitwise_xor(j, bitwise_and(i, constant_like(i, 6)));
    Tensor odd = equal(bitwise_and(k, constant_like(k, 1)), constant_like(k, 1));
    Item y = pool_[1];
    add(select(odd, y.t, unary(x.t)), x.sizes);
    if (chance(0.5)) {
      integers_.push_back(sum(k, {.axes = {static_cast<int>(rng_() % 3)}}));
      integers_.push_back(argmax(x.t, {.axis = static_cast<int>(rng_() % 3)}));
    }
    integers_.push_back(exact_cast());
  }

  // A feed of another dtype: conversions must have every bit right.
  Tensor exact_cast() {
    static constexpr DType kTypes[] = {i8, i16, i32, i64, u8, f16, bf16};
    DType to = kTypes[rng_() % 7];
    return is_integer(to) ? cast(pool_[rng_() % 3].t * 4.0, to) : cast(pool_[rng_() % 3].t, to);
  }

  // Values of the same feeds at larger sizes.
  void enlarge() {
    for (int64_t& n : sizes_) n += static_cast<int64_t>(rng_() % 4);
    out_.larger = out_.values;
    for (const auto& [feed, axes] : feed_axes_) {
      std::vector<int64_t> sizes;
      for (int a : axes) sizes.push_back(sizes_[a]);
      out_.larger[feed] = random_tensor(out_.values[feed].dtype, sizes, rng_);
    }
  }

  void type_step() {
    Item x = float_item();
    static constexpr DType kTypes[] = {f32, f64, f16, bf16};
    add(cast(x.t, kTypes[rng_() % 4]), x.sizes);
  }

  void matmul_step() {
    Item x = pool_[rng_() % 3], y = pool_[rng_() % 3];
    Tensor r = tanh(matmul(x.t, y.t, {.transpose_a = false, .transpose_b = true}) * 0.25);
    add(r, {x.sizes[0], x.sizes[1], y.sizes[1]});
  }

  void step() {
    switch (rng_() % 14) {
      case 0:
      case 1: {
        Item x = float_item();
        add(unary(x.t), x.sizes);
        return;
      }
      case 2:
      case 3:
      case 4: {
        Item x = float_item(), y = partner(x);
        add(binary(unary(x.t), y.t), x.sizes);
        return;
      }
      case 5:
      case 6:
        return view_step();
      case 7:
        return window_step();
      case 8:
        return index_step();
      case 9:
        return integer_step();
      case 10:
        return type_step();
      case 11:
        return matmul_step();
      case 12: {
        Item x = float_item();
        Item feed = pool_[rng_() % 2];
        if (x.t.shape() != feed.t.shape()) return;
        add(select(less(pool_[0].t, pool_[1].t), x.t, unary(x.t)), x.sizes);
        return;
      }
      default: {
        Item x = float_item();
        if (x.sizes.empty()) return;
        std::vector<int> axes = some_axes(x.sizes.size());
        std::vector<int64_t> sizes;
        for (size_t k = 0; k < x.sizes.size(); ++k) {
          if (std::find(axes.begin(), axes.end(), static_cast<int>(k)) == axes.end())
            sizes.push_back(x.sizes[k]);
        }
        add(reduce(x.t, {.axes = axes}), sizes);
      }
    }
  }

  void finish() {
    size_t count = 1 + rng_() % 3;
    for (size_t k = 0; k < count && k < pool_.size(); ++k)
      out_.targets.push_back(pool_[pool_.size() - 1 - k].t);
    for (const Tensor& t : integers_) {
      out_.exact.push_back(out_.targets.size());
      out_.targets.push_back(t);
    }
    if (out_.symbolic) enlarge();
    std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
    std::vector<ir::ValueId> wanted;
    for (const Tensor& t : out_.feeds) fed.emplace_back(t.id(), std::nullopt);
    for (const Tensor& t : out_.targets) wanted.push_back(t.id());
    out_.operations =
        static_cast<int>(ir::extract(*out_.graph.impl(), fed, wanted, {}).graph->op_count());
  }

  std::mt19937_64 rng_;
  RandomGraphOptions options_;
  RandomGraph& out_;
  int64_t sizes_[3] = {1, 1, 1};
  Expr extents_[3];
  std::vector<Item> pool_;
  Tensors integers_;                                            // results without rounding errors
  std::vector<std::pair<size_t, std::vector<int>>> feed_axes_;  // feeds whose sizes follow extents_
};

double largest_gap(const HostTensor& a, const HostTensor& b) {
  double gap = 0;
  for (size_t k = 0; k < a.f.size(); ++k) {
    if (std::isfinite(a.f[k]) && std::isfinite(b.f[k]))
      gap = std::max(gap, std::fabs(a.f[k] - b.f[k]));
  }
  return gap;
}

double largest(const HostTensor& a) {
  double m = 0;
  for (double v : a.f) m = std::isfinite(v) ? std::max(m, std::fabs(v)) : m;
  return m;
}

// Values of half types stay unrounded inside a kernel, so a difference that is 0 when every result
// is rounded may be as large as one rounding of its operands (which are of order 1 in these
// graphs).
double coarsest_rounding(const ir::Graph& graph) {
  double e = 0;
  for (ir::ValueId v = 0; v < graph.value_count(); ++v) {
    DType d = graph.value(v).type.dtype;
    if (d == f16 || d == bf16) e = std::max(e, epsilon(d));
  }
  return e;
}

}  // namespace

RandomGraph random_graph(uint64_t seed, const RandomGraphOptions& options) {
  RandomGraph out;
  Builder(seed, options, out).build();
  return out;
}

Verdict judge_random_graph(const RandomGraph& random, const std::vector<HostTensor>& values) {
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
  std::vector<ir::ValueId> wanted;
  for (const Tensor& t : random.feeds) fed.emplace_back(t.id(), std::nullopt);
  for (const Tensor& t : random.targets) wanted.push_back(t.id());
  auto graph = ir::extract(*random.graph.impl(), fed, wanted, {}).graph;
  Verdict v;
  ops::JudgeOptions exact;
  exact.round = false;
  v.exact = ops::judge(*graph, values, nullptr, exact);
  std::vector<HostTensor> rounded = ops::judge(*graph, values);
  // Terms that cancel exactly for the judge, which sums in f64, leave roundings of their own size.
  double terms = 1;
  for (const HostTensor& t : values) terms = std::max(terms, largest(t));
  double floor = std::max(coarsest_rounding(*graph), 0x1p-19 * terms);
  for (size_t k = 0; k < rounded.size(); ++k) {
    double e = std::max(epsilon(rounded[k].dtype), 0x1p-23);
    v.allowed.push_back(16 * largest_gap(v.exact[k], rounded[k]) + 32 * e * largest(v.exact[k]) +
                        floor);
  }
  for (size_t k : random.exact) {
    v.exact[k] = rounded[k];
    v.allowed[k] = 0;
  }
  return v;
}

std::string compare_with(const Verdict& verdict, const std::vector<Array>& results) {
  for (size_t k = 0; k < results.size(); ++k) {
    HostTensor expected = verdict.exact[k];
    std::string d = difference(to_host(results[k]), expected, {0, verdict.allowed[k]});
    if (!d.empty())
      return "target " + std::to_string(k) + ": " + d + " (allowed " +
             std::to_string(verdict.allowed[k]) + ")";
  }
  return "";
}

}  // namespace heddle::test
