#include <heddle/expr.h>

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace heddle {
namespace {

using Values = std::map<uint64_t, int64_t>;

int64_t value_of(const Expr& e, const Values& values) {
  return evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
    auto it = values.find(s.id);
    return it == values.end() ? std::nullopt : std::optional<int64_t>(it->second);
  });
}

TEST(Expr, SumsAreCanonical) {
  Dim a("a"), b("b");
  EXPECT_EQ(a + b, b + a);
  EXPECT_EQ((a + 1) * (a - 1), a * a - Expr(1));
  EXPECT_EQ(a - a, Expr(0));
  EXPECT_EQ((a + b).to_string(), "a + b");
}

TEST(Expr, DivisionUsesBounds) {
  Dim n("n");
  Expr i(make_loop_symbol("i", n)), j(make_loop_symbol("j", Expr(7)));
  EXPECT_EQ((i * 7 + j) / 7, i);
  EXPECT_EQ((i * 7 + j) % 7, j);
  EXPECT_EQ((j * n + i) / n, j);
  EXPECT_EQ((j * n + i) % n, i);
  EXPECT_EQ((n * 4 + 3) / 4, n);
  Expr wide(make_loop_symbol("w", (n + 2)));
  EXPECT_EQ((j * (n + 2) + wide) / (n + 2), j);
  EXPECT_EQ((j * (n + 2) + wide) % (n + 2), wide);
}

TEST(Expr, QuotientAndRemainderJoin) {
  Expr x(make_loop_symbol("x", Expr(60)));
  EXPECT_EQ(x / 4 * 4 + x % 4, x);
  EXPECT_EQ(x / 12 * 12 + x / 4 % 3 * 4 + x % 4, x);
  EXPECT_EQ((x / 3) / 4, x / 12);
  EXPECT_EQ((x % 12) / 4, x / 4 % 3);
  EXPECT_EQ((x % 12) % 4, x % 4);
}

TEST(Expr, ReshapeThereAndBack) {
  Dim n("n");
  Expr i(make_loop_symbol("i", n)), j(make_loop_symbol("j", Expr(6)));
  Expr flat = i * 6 + j;  // [n, 6] -> [2n, 3] -> back
  Expr p = flat / 3, q = flat % 3;
  Expr again = p * 3 + q;
  EXPECT_EQ(again / 6, i);
  EXPECT_EQ(again % 6, j);
}

TEST(Expr, MinMaxFoldWhereOrdered) {
  Dim n("n");
  Expr i(make_loop_symbol("i", n));
  EXPECT_EQ(min(i, n - Expr(1)), i);
  EXPECT_EQ(max(i, Expr(0)), i);
  const SymbolRef& s = i.symbol();
  Expr clamped = min(max(i + 1, Expr(0)), n - Expr(1));
  EXPECT_FALSE(affine_in(clamped, s).has_value());
  Expr interior = simplify_in_range(clamped, s, Expr(0), n - Expr(2));
  EXPECT_EQ(interior, i + 1);
}

TEST(Expr, NestedMinimaOfOneBoundAreFlat) {
  Dim n("n");
  EXPECT_EQ(min(Expr(4), n + min(n, Expr(4))), min(Expr(4), n * 2));
  EXPECT_EQ(min(Expr(4), n + min(n, Expr(6))), min(Expr(4), n * 2));
  EXPECT_NE(min(Expr(4), n + min(n, Expr(3))), min(Expr(4), n * 2));
  EXPECT_EQ(min(Expr(1), n + min(n, Expr(1))), min(Expr(1), n));  // no power of two that overflows
  Expr grown = n;
  std::vector<Expr> steps;
  for (int k = 0; k < 64; ++k) {
    steps.push_back(grown);
    grown = grown + min(grown, Expr(4));
  }
  EXPECT_LT(grown.to_string().size(), 64 * 30U);
  for (int64_t v : {0, 1, 2, 3, 4, 5, 100}) {
    int64_t expected = v;
    for (const Expr& e : steps) {
      ASSERT_EQ(value_of(e, {{n.symbol()->id, v}}), expected);
      expected += std::min<int64_t>(expected, 4);
    }
  }
}

// Each step reads the one before twice: a proof must not follow every way through them.
TEST(Expr, ProofsOfExpressionsThatShareTheirPartsEnd) {
  for (bool minimum : {true, false}) {
    Dim n("n"), b("b");
    Expr grown = n;
    for (int k = 0; k < 9; ++k) grown = grown + (minimum ? min(b, grown) : max(b, grown) - b);
    Values values{{n.symbol()->id, 3}, {b.symbol()->id, 2}};
    int64_t expected = 3;
    for (int k = 0; k < 9; ++k)
      expected += minimum ? std::min<int64_t>(2, expected) : std::max<int64_t>(2, expected) - 2;
    EXPECT_EQ(value_of(grown, values), expected);
    EXPECT_EQ(is_less_equal(grown, n - Expr(1)), minimum ? Ordering::no : Ordering::undecided);
  }
}

TEST(Expr, Orderings) {
  Dim n("n"), m("m");
  EXPECT_EQ(is_less_equal(n, n + 1), Ordering::yes);
  EXPECT_EQ(is_less_equal(n + 1, n), Ordering::no);
  EXPECT_EQ(is_less_equal(n, m), Ordering::undecided);
  EXPECT_EQ(is_equal(n, m), Ordering::undecided);
  EXPECT_EQ(is_equal(n + 1, n), Ordering::no);
}

TEST(Expr, EvaluateReportsErrors) {
  Dim n("n");
  EXPECT_ANY_THROW(value_of(n, {}));
  EXPECT_ANY_THROW(value_of(Expr(5) / n, {{n.symbol()->id, 0}}));
  EXPECT_ANY_THROW(value_of(n * n, {{n.symbol()->id, INT64_MAX}}));
}

// Random expressions: the normal form keeps the value, the bounds hold, rebuilding is idempotent.
class Random {
 public:
  explicit Random(uint64_t seed) : rng_(seed) {
    for (int k = 0; k < 3; ++k) {
      dims_.emplace_back(Dim("d" + std::to_string(k), 1));
      loops_.emplace_back(make_loop_symbol("i" + std::to_string(k), dims_.back()));
      loops_.emplace_back(
          make_loop_symbol("k" + std::to_string(k), Expr(static_cast<int64_t>(3 + 2 * k))));
    }
  }
  struct Tree {
    Expr e;
    std::function<int64_t(const Values&)> f;
  };
  Tree make(int depth) {
    int pick = static_cast<int>(rng_() % 8);
    if (depth == 0 || pick == 0) return leaf();
    Tree a = make(depth - 1);
    if (pick <= 2) {
      Tree b = make(depth - 1);
      return {a.e + b.e, [=](const Values& v) { return a.f(v) + b.f(v); }};
    }
    if (pick == 3) {
      int64_t c = static_cast<int64_t>(rng_() % 9) - 3;
      return {a.e * Expr(c), [=](const Values& v) { return a.f(v) * c; }};
    }
    if (pick == 4) {
      Tree b = make(depth - 1);
      return {min(a.e, b.e), [=](const Values& v) { return std::min(a.f(v), b.f(v)); }};
    }
    if (pick == 5) {
      Tree b = make(depth - 1);
      return {max(a.e, b.e), [=](const Values& v) { return std::max(a.f(v), b.f(v)); }};
    }
    Tree d = rng_() % 3 == 0 ? Tree{dims_[rng_() % 3], nullptr}
                             : Tree{Expr(static_cast<int64_t>(1 + rng_() % 12)), nullptr};
    Expr divisor = d.e;
    auto floor_div = [](int64_t x, int64_t y) { return x >= 0 ? x / y : -((-x + y - 1) / y); };
    bool div = pick == 6;
    return {div ? a.e / divisor : a.e % divisor, [=](const Values& v) {
              int64_t y = value_of(divisor, v), q = floor_div(a.f(v), y);
              return div ? q : a.f(v) - q * y;
            }};
  }
  Values values() {
    Values v;
    for (size_t k = 0; k < 3; ++k) {
      int64_t n = 1 + static_cast<int64_t>(rng_() % 9);
      v[dims_[k].symbol()->id] = n;
      v[loops_[2 * k].symbol()->id] = static_cast<int64_t>(rng_()) % n;
      v[loops_[2 * k].symbol()->id] = static_cast<int64_t>(rng_() % static_cast<uint64_t>(n));
      v[loops_[2 * k + 1].symbol()->id] = static_cast<int64_t>(rng_() % (3 + 2 * k));
    }
    return v;
  }

 private:
  Tree leaf() {
    uint64_t pick = rng_() % 4;
    if (pick == 0) {
      int64_t c = static_cast<int64_t>(rng_() % 20) - 6;
      return {Expr(c), [c](const Values&) { return c; }};
    }
    Expr s = pick == 1 ? dims_[rng_() % 3] : loops_[rng_() % loops_.size()];
    return {s, [s](const Values& v) { return v.at(s.symbol()->id); }};
  }
  std::mt19937_64 rng_;
  std::vector<Expr> dims_, loops_;
};

TEST(Expr, RandomExpressionsKeepTheirValue) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    Random random(seed);
    Random::Tree t = random.make(4);
    for (int k = 0; k < 8; ++k) {
      Values v = random.values();
      int64_t expected = t.f(v);
      ASSERT_EQ(value_of(t.e, v), expected) << "seed " << seed << ": " << t.e.to_string();
      ASSERT_LE(t.e.lower(), expected) << "seed " << seed << ": " << t.e.to_string();
      ASSERT_GE(t.e.upper(), expected) << "seed " << seed << ": " << t.e.to_string();
    }
    Expr again =
        substitute(t.e + 1, [](const SymbolRef& s) -> std::optional<Expr> { return Expr(s); });
    ASSERT_EQ(again, t.e + 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace heddle
