// The caller's floating-point mode reaches no result, and no trap of his goes off: while graphs are
// built, compiled and run, on his thread, on workers, on queues and in libraries.
#include "helpers.h"
#include "support/numeric.h"
#include "target/target.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <cstring>
#include <functional>
#include <future>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::test {
namespace {

constexpr int kTraps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INEXACT;

struct Mode {
  const char* name;
  void (*set)();
  bool (*is_set)();
};

#if defined(__x86_64__)
constexpr unsigned kFlushing = 0x8040;  // flush to zero, subnormals are zeros
#endif

const Mode kModes[] = {
    {"upward", [] { std::fesetround(FE_UPWARD); }, [] { return std::fegetround() == FE_UPWARD; }},
    {"downward", [] { std::fesetround(FE_DOWNWARD); },
     [] { return std::fegetround() == FE_DOWNWARD; }},
    {"toward zero", [] { std::fesetround(FE_TOWARDZERO); },
     [] { return std::fegetround() == FE_TOWARDZERO; }},
    {"traps", [] { std::feclearexcept(FE_ALL_EXCEPT), feenableexcept(kTraps); },
     [] { return fegetexcept() == kTraps && std::fetestexcept(FE_ALL_EXCEPT) == 0; }},
#if defined(__x86_64__)
    {"flushing", [] { _mm_setcsr(_mm_getcsr() | kFlushing); },
     [] { return (_mm_getcsr() & kFlushing) == kFlushing; }},
    {"all",
     [] {
       // What other tests have left in the flags would trap at once.
       std::feclearexcept(FE_ALL_EXCEPT);
       std::fesetround(FE_UPWARD), _mm_setcsr(_mm_getcsr() | kFlushing), feenableexcept(kTraps);
     },
     [] {
       return std::fegetround() == FE_UPWARD && (_mm_getcsr() & kFlushing) == kFlushing &&
              fegetexcept() == kTraps;
     }},
#endif
};

using Bytes = std::vector<std::byte>;

// Halves, subnormal numbers, infinities and NaN come out of these.
Tensors targets(Graph& g, const Tensor& x, const Tensor& big) {
  Tensor third = g.constant(1.0, f32) / g.constant(3.0, f32);  // folded at compile
  Tensor f = x * 0.1 + third;
  Tensor wide = cast(x, f64);
  return {
      f,
      exp(f) / log(x),
      sqrt(x) + g.constant(1.0, f32) / (x - x),
      x * 1e-38 * 0.01,
      cast(x / 7.0, f16),
      cast(x, bf16),
      tanh(wide) / 3.0 + exp(wide),
      sum(x * x),
      mean(x / 3.0),
      cumulative_sum(x * 0.1),
      for_loop(Expr(3), {x},
               [](const Tensor&, const Tensors& v) { return Tensors{v[0] * 0.3 + 0.1}; })[0],
      matmul(big, big * 0.1),
      gradients(sum(sigmoid(x)), {x})[0],
  };
}

struct Program {
  Graph graph;
  Tensors feeds;
  Executable executable;
  std::vector<Array> inputs;

  Program(const Device& device, std::vector<Array> fed) : inputs(std::move(fed)) {
    int64_t length = inputs[0].shape()[0], square = inputs[1].shape()[0];
    Tensor x = graph.placeholder(f32, {length}, "x");
    Tensor big = graph.placeholder(f32, {square, square}, "big");
    feeds = {x, big};
    executable = graph.compile({.feeds = {x, big}, .targets = targets(graph, x, big)}, device);
  }
  std::vector<Bytes> run() const {
    std::vector<Bytes> out;
    for (const Array& a : executable.run(inputs)) out.push_back(a.to_bytes());
    return out;
  }
  std::vector<Bytes> run_on_queue() const {
    Queue queue(executable.device());
    std::vector<Array> results = executable.run_async(inputs, {.queue = &queue});
    queue.wait();
    std::vector<Bytes> out;
    for (const Array& a : results) out.push_back(a.to_bytes());
    return out;
  }
};

// f in the mode, which must be the same afterwards; then the standard mode again.
template <class F>
auto in_mode(const Mode& mode, F f) {
  std::fenv_t before;
  std::fegetenv(&before);
  mode.set();
  auto result = f();
  bool kept = mode.is_set();
  std::fesetenv(&before);
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);
#endif
  EXPECT_TRUE(kept) << mode.name;
  return result;
}

// A vector and a square matrix.
std::vector<Array> numbers(int64_t length, int64_t square) {
  std::mt19937_64 rng(8);
  return {to_array(random_tensor(f32, {length}, rng)),
          to_array(random_tensor(f32, {square, square}, rng))};
}

void check(const Device& device, int64_t length, int64_t square) {
  Program plain(device, numbers(length, square));
  std::vector<Bytes> right = plain.run();
  auto same = [&](const std::vector<Bytes>& got, const char* how, const Mode& mode) {
    ASSERT_EQ(got.size(), right.size());
    for (size_t k = 0; k < right.size(); ++k)
      EXPECT_TRUE(got[k] == right[k])
          << device.name() << ", " << mode.name << ", " << how << ", target " << k;
  };
  for (const Mode& mode : kModes) {
    same(in_mode(mode, [&] { return plain.run(); }), "run", mode);
    same(in_mode(mode, [&] { return plain.run_on_queue(); }), "on a queue", mode);
    same(in_mode(mode, [&] { return Program(device, plain.inputs).run(); }), "all", mode);
  }
}

TEST(FloatingPointMode, DoesNotReachResultsOfTheTestDevice) {
  if (test_device() == device("cpu")) {
    check(device("cpu"), 1 << 20, 640);  // the product goes to the library
    check(device("cpu"), 1 << 12, 96);
  } else {
    check(test_device(), 1 << 16, 96);
  }
}

TEST(FloatingPointMode, DoesNotReachTheInterpreter) { check(device("interpreter"), 5000, 20); }

TEST(FloatingPointMode, DoesNotReachTheJudge) { check(device("judge"), 300, 20); }

// Workers start with the mode of the thread that needs them first.
TEST(FloatingPointMode, DoesNotReachWorkersThatStartInIt) {
  Program plain(test_device(), numbers(1 << 20, 96));
  if (!test_device().impl()->host_memory()) GTEST_SKIP() << "not a host device";
  std::vector<Bytes> right = plain.run();
  for (const Mode& mode : kModes) {
    pid_t child = fork();
    if (child == 0) {
      mode.set();
      bool same = plain.run() == right;
      // The workers are there now; a caller without a mode of his own meets them.
      std::fesetenv(FE_DFL_ENV);
      same = same && plain.run() == right;
      _exit(same ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << mode.name;
  }
}

TEST(FloatingPointMode, DoesNotReachConversions) {
  std::vector<float> tiny = {0x1p-149f, -0x1p-130f, 1.0f};
  Array a = Array::from<float>({3}, tiny);
  for (const Mode& mode : kModes) {
    EXPECT_EQ(in_mode(mode, [&] { return a.to_vector<double>(); }),
              (std::vector<double>{0x1p-149, -0x1p-130, 1.0}))
        << mode.name;
    std::string text = in_mode(mode, [] {
      Graph g;
      Tensor x = g.placeholder(f32, {2}, "x");
      static_cast<void>(x * 0.1 + 1e-42);
      return Graph::from_text(g.to_text()).to_text();
    });
    Graph g;
    Tensor x = g.placeholder(f32, {2}, "x");
    static_cast<void>(x * 0.1 + 1e-42);
    EXPECT_EQ(text, g.to_text()) << mode.name;
  }
}

}  // namespace
}  // namespace heddle::test
