// Passes over an axis whose results depend on the order of its elements (running sums, positions of
// extremes), beside, before and behind others that go along it the other way round.
#include "loop/run_scheduled.h"
#include "support/evaluate.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

std::string check_one(const ops::HostTensor& value, const std::function<Tensor(const Tensor&)>& f) {
  return text(check_schedules({value}, [&](const Tensors& xs) { return Tensors{f(xs[0])}; })[0]);
}

Tensor flipped(const Tensor& x, int axis = -1) {
  SliceOptions o;
  for (const Expr& n : x.shape()) {
    o.starts.push_back(0);
    o.stops.push_back(n);
    o.strides.push_back(1);
  }
  auto at = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  o.starts[at] = -1;
  o.stops[at] = -x.shape()[at] - Expr(1);
  o.strides[at] = -1;
  return slice(x, o);
}

Tensor running(const Tensor& x, bool reverse = false, bool exclusive = false) {
  return cumulative_sum(x, {.axis = -1, .exclusive = exclusive, .reverse = reverse});
}

// ---- values by hand

TEST(Order, RunningSumsOfRunningSums) {
  ops::HostTensor x = floats({3}, {1, 2, 4});
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(running(t), true); }),
            "f64[3] 11 10 7");
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(running(t, true)); }),
            "f64[3] 7 13 17");
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(running(t)); }), "f64[3] 1 4 11");
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(running(t, true), true); }),
            "f64[3] 17 10 4");
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(flipped(running(t))); }),
            "f64[3] 7 10 11");
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(running(t), true, true); }),
            "f64[3] 10 7 0");
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return running(running(t, false, true), true); }),
            "f64[3] 4 4 3");
}

TEST(Order, EveryTypeOfElement) {
  for (DType dtype : {f64, f32, f16, bf16}) {
    std::string d(name(dtype));
    EXPECT_EQ(check_one(floats({3}, {1, 2, 4}, dtype),
                        [](const Tensor& t) { return running(running(t), true); }),
              d + "[3] 11 10 7");
  }
  for (DType dtype : {i8, i16, i32, i64, u8, u16, u32, u64}) {
    std::string d(name(dtype));
    EXPECT_EQ(check_one(integers({3}, {1, 2, 4}, dtype),
                        [](const Tensor& t) { return running(running(t, true)); }),
              d + "[3] 7 13 17");
  }
  EXPECT_EQ(check_one(complexes({3}, {{1, 4}, {2, 2}, {4, 1}}),
                      [](const Tensor& t) { return running(running(t), true); }),
            "c128[3] 11+17i 10+13i 7+7i");
}

TEST(Order, RunningSumsOfSoftmax) {
  // e^1, e^2, e^4 over their sum.
  ops::HostTensor v = check_schedules({floats({3}, {1, 2, 4})}, [](const Tensors& x) {
    return Tensors{running(softmax(x[0]), true)};
  })[0];
  EXPECT_NEAR(v.f[0], 1, 1e-12);
  EXPECT_NEAR(v.f[1], 0.95798990, 1e-7);
  EXPECT_NEAR(v.f[2], 0.84379473, 1e-7);
}

TEST(Order, GradientsThroughRunningSums) {
  ops::HostTensor x = floats({3}, {1, 2, 4});
  EXPECT_EQ(check_one(x, [](const Tensor& t) { return gradients(square(running(t)), {t})[0]; }),
            "f64[3] 22 20 14");
  ops::HostTensor v = check_schedules(
      {x}, [](const Tensors& t) { return Tensors{gradients(log(running(t[0])), {t[0]})[0]}; })[0];
  EXPECT_NEAR(v.f[0], 1 + 1.0 / 3 + 1.0 / 7, 1e-12);
  EXPECT_NEAR(v.f[1], 1.0 / 3 + 1.0 / 7, 1e-12);
  EXPECT_NEAR(v.f[2], 1.0 / 7, 1e-12);
}

TEST(Order, PositionsOfExtremes) {
  auto both = [](const ops::HostTensor& value, const BuildTargets& f) {
    std::string s;
    for (const ops::HostTensor& t : check_schedules({value}, f)) s += text(t) + "; ";
    return s;
  };
  ops::HostTensor x = floats({4}, {1, 5, 3, 2});
  EXPECT_EQ(
      both(x, [](const Tensors& t) { return Tensors{reduce_max(t[0]), argmax(flipped(t[0]))}; }),
      "f64[] 5; i64[] 2; ");
  EXPECT_EQ(both(x, [](const Tensors& t) { return Tensors{argmin(t[0]), argmin(flipped(t[0]))}; }),
            "i64[] 0; i64[] 3; ");
  EXPECT_EQ(both(x,
                 [](const Tensors& t) {
                   return Tensors{argmax(flipped(t[0])), argmax(t[0]), sum(t[0])};
                 }),
            "i64[] 2; i64[] 1; f64[] 11; ");
  // The first of equal ones.
  ops::HostTensor ties = floats({5}, {2, 7, 1, 7, 1});
  EXPECT_EQ(both(ties,
                 [](const Tensors& t) {
                   return Tensors{argmax(t[0]), argmax(flipped(t[0])), argmin(t[0]),
                                  argmin(flipped(t[0]))};
                 }),
            "i64[] 1; i64[] 1; i64[] 2; i64[] 0; ");
  EXPECT_EQ(both(ties,
                 [](const Tensors& t) {
                   Tensor s = softmax(t[0]);
                   return Tensors{argmax(flipped(s)), argmin(s), argmin(flipped(s))};
                 }),
            "i64[] 1; i64[] 2; i64[] 0; ");
}

TEST(Order, MirroredByAPad) {
  PadOptions o{.before = {4}, .after = {0}, .mode = PaddingMode::symmetric, .value = 0};
  auto mirror = [&](const Tensor& t) {  // the mirrored part alone
    return slice(pad(t, o), {.starts = {0}, .stops = {4}, .strides = {1}});
  };
  std::vector<ops::HostTensor> v =
      check_schedules({floats({4}, {1, 5, 3, 5})}, [&](const Tensors& t) {
        Tensor s = running(t[0]);
        return Tensors{s, running(mirror(s)), argmax(t[0]), argmax(mirror(t[0]))};
      });
  EXPECT_EQ(text(v[1]), "f64[4] 14 23 29 30");
  EXPECT_EQ(text(v[2]), "i64[] 1");
  EXPECT_EQ(text(v[3]), "i64[] 0");
}

// A scan over an axis that another pass sees as two, and the other way round.
TEST(Order, AlongMergedAndSplitAxes) {
  ops::HostTensor x = floats({2, 3}, {1, 2, 4, 1, 3, 5});
  for (bool reverse : {false, true}) {
    check_schedules(
        {x},
        [&](const Tensors& t) {
          Tensor e = exp(t[0] * 0.25) + 1.0;
          Tensor y = e / sum(e), flat = reshape(y, {6});
          return Tensors{y, running(flat, reverse), argmax(flat), argmax(flipped(flat))};
        },
        false);
    check_schedules(
        {x},
        [&](const Tensors& t) {
          Tensor flat = running(reshape(t[0], {6}), reverse);
          Tensor y = reshape(flat, {2, 3});
          return Tensors{flat,      running(y), running(y, true),
                         argmax(y), sum(y),     argmin(flipped(y, 0), {.axis = 0})};
        },
        false);
  }
}

// ---- every pair of passes, composed in every way

struct Pass {
  const char* name;
  // A tensor of x's shape; adds what else the pass gives to `out`.
  std::function<Tensor(const Tensor& x, int axis, const Tensors& affine, Tensors& out)> f;
};

Pass scan_pass(const char* name, bool reverse, bool exclusive) {
  return {name, [=](const Tensor& x, int axis, const Tensors&, Tensors&) {
            return cumulative_sum(x, {.axis = axis, .exclusive = exclusive, .reverse = reverse});
          }};
}
template <class F>
Pass fold_pass(const char* name, F f) {
  return {name, [=](const Tensor& x, int axis, const Tensors&, Tensors& out) {
            Tensor r = f(x, axis);
            out.push_back(r);
            return x * 0.5 + cast(r, x.dtype()) * 0.25;
          }};
}

const std::vector<Pass>& passes() {
  static const std::vector<Pass> all = {
      scan_pass("running sum", false, false),
      scan_pass("reverse running sum", true, false),
      scan_pass("exclusive running sum", false, true),
      scan_pass("exclusive reverse running sum", true, true),
      fold_pass("argmax",
                [](const Tensor& x, int a) { return argmax(x, {.axis = a, .keep_axes = true}); }),
      fold_pass("argmin",
                [](const Tensor& x, int a) { return argmin(x, {.axis = a, .keep_axes = true}); }),
      fold_pass("sum",
                [](const Tensor& x, int a) { return sum(x, {.axes = {a}, .keep_axes = true}); }),
      fold_pass("max", [](const Tensor& x,
                          int a) { return reduce_max(x, {.axes = {a}, .keep_axes = true}); }),
      {"softmax", [](const Tensor& x, int a, const Tensors&, Tensors&) { return softmax(x, a); }},
      {"layer norm",
       [](const Tensor& x, int a, const Tensors& affine, Tensors&) {
         Shape shape(static_cast<size_t>(x.rank()), 1);
         shape[static_cast<size_t>(a)] = x.shape()[static_cast<size_t>(a)];
         return layer_norm(x, reshape(affine[0], shape), reshape(affine[1], shape), {.axes = {a}});
       }},
  };
  return all;
}

enum class Way { composed, flipped, transposed, beside, beside_flipped, gradient };

Tensors combine(const Pass& first, const Pass& second, Way way, const Tensors& xs, int axis) {
  Tensors out;
  const Tensor& x = xs[0];
  Tensors affine(xs.begin() + 1, xs.end());
  auto one = [&](const Tensor& t) { return first.f(t, axis, affine, out); };
  auto two = [&](const Tensor& t, int along) { return second.f(t, along, affine, out); };
  switch (way) {
    case Way::composed:
      out.push_back(two(one(x), axis));
      break;
    case Way::flipped:
      out.push_back(two(flipped(one(x), axis), axis));
      break;
    case Way::transposed: {
      std::vector<int> order;
      for (int k = x.rank(); k-- > 0;) order.push_back(k);
      out.push_back(two(transpose(one(x), order), x.rank() - 1 - axis));
      break;
    }
    case Way::beside:
      out.push_back(one(x));
      out.push_back(two(x, axis));
      break;
    case Way::beside_flipped:
      out.push_back(one(x));
      out.push_back(two(flipped(x, axis), axis));
      break;
    case Way::gradient: {
      Tensor y = square(two(one(x), axis));
      out = {gradients(y, {x})[0]};
      break;
    }
  }
  return out;
}

// Multiples of a quarter, with equal ones.
ops::HostTensor quarters(std::vector<int64_t> shape, std::mt19937_64& rng) {
  ops::HostTensor t(f64, std::move(shape));
  for (double& v : t.f) v = static_cast<double>(static_cast<int64_t>(rng() % 17) - 8) / 4;
  return t;
}

void check_pair(const Pass& first, const Pass& second, Way way, int64_t n, int rank, int axis,
                bool on_device, std::mt19937_64& rng) {
  SCOPED_TRACE(std::string(first.name) + ", " + second.name + ", way " +
               std::to_string(static_cast<int>(way)) + ", size " + std::to_string(n) + ", rank " +
               std::to_string(rank) + ", axis " + std::to_string(axis));
  std::vector<int64_t> shape(static_cast<size_t>(rank), n >= 1000 ? 1 : 3);
  if (n == 3) std::fill(shape.begin(), shape.end(), 2);
  shape[static_cast<size_t>(axis)] = n;
  check_schedules(
      {quarters(shape, rng), quarters({n}, rng), quarters({n}, rng)},
      [&](const Tensors& xs) { return combine(first, second, way, xs, axis); }, on_device);
}

TEST(Order, EveryPairOfPasses) {
  constexpr int64_t kSizes[] = {1, 2, 3, 5, 64, 65, 1000};
  constexpr Way kWays[] = {Way::composed, Way::flipped,        Way::transposed,
                           Way::beside,   Way::beside_flipped, Way::gradient};
  std::mt19937_64 rng(11);
  size_t count = 0;
  for (const Pass& first : passes()) {
    for (const Pass& second : passes()) {
      for (Way way : kWays) {
        // Sizes and ranks in turn: over all pairs each meets each.
        int rank = 1 + static_cast<int>(count % 3), axis = static_cast<int>(rng() % 3) % rank;
        check_pair(first, second, way, kSizes[count % 7], rank, axis, count % 5 == 0, rng);
        ++count;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Order, LongRows) {
  constexpr Way kWays[] = {Way::composed, Way::flipped, Way::beside_flipped};
  std::mt19937_64 rng(12);
  const std::vector<Pass>& all = passes();
  for (size_t k = 0; k < all.size(); ++k) {
    int axis = static_cast<int>(k % 2);
    check_pair(all[k], all[(k + 1 + k % 5) % all.size()], kWays[k % 3], 40000, 1 + axis, axis,
               k % 3 == 0, rng);
  }
}

}  // namespace
}  // namespace heddle::test
