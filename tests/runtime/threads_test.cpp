// Eight threads compile and run at once, the same graphs and different ones, with nothing compiled
// beforehand: every result has the bits that one thread gets.
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <barrier>
#include <random>
#include <stdexcept>
#include <thread>

namespace heddle::test {
namespace {

constexpr int kThreads = 8;
constexpr int kPrograms = 6;

// Programs of different kinds; `salt` is a constant in each, so that no kernel is cached before.
Tensor program(Graph& g, const Tensor& x, int which, double salt) {
  switch (which) {
    case 0:
      return tanh(x * salt) + exp(-x);
    case 1:
      return softmax(x * salt);
    case 2:
      return matmul(x * salt, transpose(x, {1, 0}));
    case 3:
      return while_loop(
          {x}, [](const Tensors& v) { return sum(v[0]) < 500.0; },
          [&](const Tensors& v) { return Tensors{v[0] * 1.5 + salt}; }, {.max_iterations = 30})[0];
    case 4: {
      Tensor total = cumulative_sum(x * salt, {.axis = 0});
      return cond(sum(total) > 0.0, [&] { return total; }, [&] { return -total; });
    }
    default: {
      Tensor weights = g.constant(salt, f32, {3, 3});
      return gradients(sum(square(stencil(x, weights))), {x})[0];
    }
  }
}

Array values(int seed) {
  std::mt19937_64 rng(static_cast<uint64_t>(seed) + 1);
  return to_array(random_tensor(f32, {6, 7}, rng, 0.1, 2));
}

std::vector<std::byte> run_alone(int which, double salt, int seed) {
  Graph g;
  Tensor x = g.placeholder(f32, {6, 7}, "x");
  Executable e = g.compile({.feeds = {x}, .targets = {program(g, x, which, salt)}}, test_device());
  return e.run({values(seed)})[0].to_bytes();
}

// Calls f(thread) in kThreads threads that begin together; reports what they throw.
template <class F>
void at_once(F f) {
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      try {
        f(t);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(t)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

TEST(EightThreads, CompileAndRunTheSameAndOtherGraphs) {
  // The same program in every thread at once, then each thread another.
  std::vector<std::vector<std::byte>> same(kThreads * kPrograms), other(kThreads * kPrograms);
  auto at = [](int t, int k) { return static_cast<size_t>(t * kPrograms + k); };
  at_once([&](int t) {
    for (int k = 0; k < kPrograms; ++k) {
      same[at(t, k)] = run_alone(k, 1.0625, k);
      other[at(t, k)] = run_alone((k + t) % kPrograms, 1.125 + t * 0.0625, t);
    }
  });
  for (int t = 0; t < kThreads; ++t) {
    for (int k = 0; k < kPrograms; ++k) {
      EXPECT_EQ(same[at(t, k)], same[at(0, k)]) << t << " " << k;
      EXPECT_EQ(other[at(t, k)], run_alone((k + t) % kPrograms, 1.125 + t * 0.0625, t))
          << t << " " << k;
    }
  }
}

TEST(EightThreads, ShareExecutablesAndAGraph) {
  Graph g;
  Dim n("n");
  Tensor x = g.placeholder(f32, {n, 7}, "x");
  Tensors targets;
  for (int k : {0, 1, 2, 4}) targets.push_back(program(g, x, k, 1.1875));
  Executable shared = g.compile({.feeds = {x}, .targets = targets}, test_device());
  auto rows = [](int t) { return values(t).slice(0, 0, 1 + t % 6); };
  std::vector<std::vector<std::vector<std::byte>>> expected;
  for (int t = 0; t < kThreads; ++t) {
    expected.emplace_back();
    for (const Array& a : shared.run({rows(t)})) expected.back().push_back(a.to_bytes());
  }
  int64_t before = g.cache_stats().compiles;
  at_once([&](int t) {
    for (int i = 0; i < 10; ++i) {
      int which = (t + i) % kThreads;  // sizes change from run to run
      const auto& wanted = expected[static_cast<size_t>(which)];
      std::vector<Array> direct = shared.run({rows(which)}),
                         cached = g.run({{x, rows(which)}}, targets, {}, test_device());
      for (size_t k = 0; k < targets.size(); ++k) {
        if (direct[k].to_bytes() != wanted[k]) throw std::runtime_error("shared executable");
        if (cached[k].to_bytes() != wanted[k]) throw std::runtime_error("Graph::run");
      }
    }
  });
  EXPECT_EQ(g.cache_stats().compiles, before + 1);
}

// Eight threads add to one graph, with blocks, variables, dependencies and gradients, while it is
// compiled, printed and searched; then what each has built is right.
TEST(EightThreads, BuildOneGraph) {
  constexpr int kRounds = 12;
  Graph g;
  Tensor x = g.placeholder(f32, {6, 7}, "x");
  std::vector<Tensors> built(kThreads);
  at_once([&](int t) {
    Tensors& mine = built[static_cast<size_t>(t)];
    for (int k = 0; k < kRounds; ++k) {
      double salt = 1 + 0.125 * t;
      Tensor own = program(g, x, k % kPrograms, salt);
      Tensor w = g.variable(Array::from<float>({}, {static_cast<float>(t)}));
      Operation set = assign(w, read_variable(w) + 1.0);
      Tensor after = with_dependencies({set}, [&] { return read_variable(w) * 1.0; });
      mine.push_back(own);
      mine.push_back(after);
      if (k == t) g.placeholder(f32, {1}, "p" + std::to_string(t));
      EXPECT_TRUE(g.find("x").is(x));
      if (k % 4 == 3) {
        EXPECT_FALSE(g.to_text().empty());
        g.compile({.feeds = {x}, .targets = {own}}, device("judge"));
      }
    }
  });
  EXPECT_EQ(g.placeholders().size(), 1U + kThreads);
  g.verify();
  for (int t = 0; t < kThreads; ++t) {
    for (int k = 0; k < kRounds; ++k) {
      const Tensors& mine = built[static_cast<size_t>(t)];
      auto at = static_cast<size_t>(2 * k);
      std::vector<Array> out = g.run({{x, values(3)}}, {mine[at], mine[at + 1]}, {}, test_device());
      EXPECT_EQ(out[0].to_bytes(), run_alone(k % kPrograms, 1 + 0.125 * t, 3)) << t << " " << k;
      EXPECT_EQ(out[1].to_vector<float>(), std::vector<float>{static_cast<float>(t + 1)});
    }
  }
}

}  // namespace
}  // namespace heddle::test
