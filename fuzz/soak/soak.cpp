// heddle-fuzz-soak [--device NAME] [--seconds S] [--threads T] [--seed N]: threads that run the
// same and different executables, new sizes and new graphs, at once. Every result must have the
// bits that one thread computed beforehand; memory must level off. Prints what was run; exit 1 at
// the first difference, or where memory grew.
#include "support/arguments.h"

#include <heddle/heddle.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hd = heddle;

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr int64_t kMostRows = 2000;                    // sizes of the symbolic programs
constexpr int64_t kAllowedGrowth = int64_t{48} << 20;  // bytes: of the allocators of 8 threads

struct Options {
  std::string device = "cpu";
  double seconds = 60;
  int threads = 8;
  uint64_t seed = 1;
};

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

hd::Array filled(const std::vector<int64_t>& shape, uint32_t seed) {
  hd::Array a = hd::Array::empty(hd::f32, shape);
  std::mt19937 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t k = 0; k < a.size(); ++k) static_cast<float*>(a.data())[k] = uniform(rng);
  return a;
}

// A compiled graph with feeds and the results that it must give.
struct Program {
  const char* name;
  hd::Executable executable;
  std::vector<std::vector<hd::Array>> feeds;
  std::vector<std::vector<Bytes>> expected;

  void expect(std::vector<hd::Array> inputs) {
    std::vector<Bytes> bytes;
    for (const hd::Array& a : executable.run(inputs)) bytes.push_back(a.to_bytes());
    expected.push_back(std::move(bytes));
    feeds.push_back(std::move(inputs));
  }
  bool check(size_t set) const {
    std::vector<hd::Array> out = executable.run(feeds[set]);
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i].to_bytes() != expected[set][i]) return false;
    }
    return true;
  }
};

hd::Tensor chain(const hd::Tensor& x, double c) { return hd::tanh(hd::exp(x * x * -0.5) * c + x); }

Program fixed_program(const char* name, const std::vector<int64_t>& shape, const hd::Device& device,
                      const std::function<hd::Tensor(const hd::Tensor&)>& body) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, hd::Shape(shape.begin(), shape.end()), "x");
  Program p{name, g.compile({.feeds = {x}, .targets = {body(x)}}, device), {}, {}};
  for (uint32_t s = 0; s < 3; ++s) p.expect({filled(shape, s).to(device)});
  return p;
}

// A net whose number of rows is a symbol: rows are computed alone, so the first rows of the largest
// run are the result of every smaller one.
struct Symbolic {
  hd::Executable executable;
  hd::Array input;
  Bytes expected;
  static constexpr int64_t kIn = 64, kOut = 16;

  explicit Symbolic(const hd::Device& device) : input(filled({kMostRows, kIn}, 9).to(device)) {
    hd::Graph g;
    hd::Tensor x = g.placeholder(hd::f32, {hd::Dim("n"), kIn}, "x");
    hd::Tensor h = hd::relu(hd::matmul(x, g.constant(filled({kIn, 48}, 1))));
    hd::Tensor y = hd::softmax(hd::matmul(h, g.constant(filled({48, kOut}, 2))));
    executable = g.compile({.feeds = {x}, .targets = {y}}, device);
    expected = executable.run({input})[0].to_bytes();
  }
  bool check(int64_t rows) const {
    Bytes got = executable.run({input.slice(0, 0, rows)})[0].to_bytes();
    return std::memcmp(got.data(), expected.data(), got.size()) == 0;
  }
};

class Soak {
 public:
  explicit Soak(Options options)
      : options_(std::move(options)), device_(hd::device(options_.device)), symbolic_(device_) {
    programs_.push_back(fixed_program("chain", {1 << 17}, device_,
                                      [](const hd::Tensor& x) { return chain(x, 1.5); }));
    programs_.push_back(fixed_program("softmax", {64, 1000}, device_,
                                      [](const hd::Tensor& x) { return hd::softmax(x); }));
    programs_.push_back(fixed_program("scan", {1 << 16}, device_, [](const hd::Tensor& x) {
      return hd::cumulative_sum(x, {.axis = 0});
    }));
    programs_.push_back(fixed_program("sums", {300, 500}, device_, [](const hd::Tensor& x) {
      return hd::sum(x, {.axes = {0}}) * hd::sum(x);
    }));
    programs_.push_back(fixed_program("product", {96, 96}, device_, [](const hd::Tensor& x) {
      return hd::matmul(x, hd::matmul(x, x));
    }));
    programs_.push_back(fixed_program("loop", {512}, device_, [](const hd::Tensor& x) {
      return hd::for_loop(20, {x}, [](const hd::Tensor&, const hd::Tensors& v) {
        return hd::Tensors{v[0] * 0.5 + hd::tanh(v[0])};
      })[0];
    }));
    open_ = specialised_.placeholder(hd::Type{}, "x");
    open_result_ = open_ * 2.0 + 1.0;
    specialised_.set_cache_limit(int64_t{1} << 20);
  }

  int run() {
    auto start = Clock::now();
    end_ = start + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(options_.seconds));
    int64_t graphs = hd::counters().graph_compiles;
    std::vector<std::thread> threads;
    for (int t = 0; t < options_.threads; ++t) threads.emplace_back([this, t] { work(t); });
    // Memory is what it will be after a third of the time.
    std::this_thread::sleep_until(start + (end_ - start) / 3);
    int64_t early = resident_bytes();
    for (std::thread& t : threads) t.join();
    int64_t late = resident_bytes();
    hd::GraphCacheStats cache = specialised_.cache_stats();
    std::printf("%lld runs on %d threads, %lld graphs compiled, %lld evicted of %lld specialised\n",
                static_cast<long long>(runs_), options_.threads,
                static_cast<long long>(hd::counters().graph_compiles - graphs),
                static_cast<long long>(cache.evictions), static_cast<long long>(cache.compiles));
    std::printf("resident: %.1f MiB at a third, %.1f MiB at the end\n",
                static_cast<double>(early) / (1 << 20), static_cast<double>(late) / (1 << 20));
    if (failed_) return 1;
    if (late - early > kAllowedGrowth) {
      std::printf("memory grew\n");
      return 1;
    }
    std::printf("all fine\n");
    return 0;
  }

 private:
  void work(int thread) {
    std::mt19937_64 rng(options_.seed * 1000 + static_cast<uint64_t>(thread));
    while (Clock::now() < end_ && !failed_) {
      try {
        step(rng);
      } catch (const std::exception& error) {
        fail(error.what());
      }
      runs_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  void step(std::mt19937_64& rng) {
    uint64_t kind = rng() % 16;
    if (kind < 10) {
      const Program& p = programs_[rng() % programs_.size()];
      if (!p.check(rng() % p.feeds.size())) fail(p.name);
    } else if (kind < 13) {
      auto rows = 1 + static_cast<int64_t>(rng() % kMostRows);
      if (!symbolic_.check(rows)) fail("symbolic net of " + std::to_string(rows) + " rows");
    } else if (kind < 15) {
      specialised_size(1 + static_cast<int64_t>(rng() % 2000));
    } else {
      own_graph(rng() % 64);
    }
  }

  // Graph::run, compiled for each size and evicted again.
  void specialised_size(int64_t n) {
    hd::Array one = hd::Array::from<float>({n}, std::vector<float>(static_cast<size_t>(n), 1));
    hd::Array out = specialised_.run({{open_, one.to(device_)}}, {open_result_}, {}, device_)[0];
    for (float v : out.to_vector<float>()) {
      if (v != 3) return fail("specialised graph of " + std::to_string(n));
    }
  }

  // A graph that lives for one run.
  void own_graph(uint64_t k) {
    hd::Graph g;
    hd::Tensor x = g.placeholder(hd::f32, {256}, "x");
    hd::Tensor y = x + static_cast<double>(k);
    hd::Executable e = g.compile({.feeds = {x}, .targets = {y, hd::reduce_max(y)}}, device_);
    std::vector<hd::Array> out = e.run({hd::Array::zeros(hd::f32, {256}).to(device_)});
    if (out[1].to_vector<float>()[0] != static_cast<float>(k)) fail("own graph");
  }

  void fail(const std::string& what) {
    if (failed_.exchange(true)) return;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(options_.seed), what.c_str());
  }

  Options options_;
  hd::Device device_;
  Symbolic symbolic_;
  std::vector<Program> programs_;
  hd::Graph specialised_;
  hd::Tensor open_, open_result_;
  Clock::time_point end_;
  std::atomic<int64_t> runs_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace

namespace {

bool parse(int argc, char** argv, Options& o) {
  using heddle::test::parse_number;
  bool good = argc % 2 == 1;
  for (int k = 1; good && k + 1 < argc; k += 2) {
    std::string name = argv[k], value = argv[k + 1];
    if (name == "--device") {
      o.device = value;
    } else if (name == "--seconds") {
      good = parse_number(value, o.seconds);
    } else if (name == "--threads") {
      good = parse_number(value, o.threads);
    } else if (name == "--seed") {
      good = parse_number(value, o.seed);
    } else {
      good = false;
    }
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(
        stderr, "usage: heddle-fuzz-soak [--device NAME] [--seconds S] [--threads T] [--seed N]\n");
    return 2;
  }
  return Soak(options).run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "heddle-fuzz-soak: %s\n", error.what());
  return 1;
}
