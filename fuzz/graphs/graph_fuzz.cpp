// heddle-fuzz-graphs: random graphs, run fused and unfused on each device, against the judge.
//   --count N --seconds S --seed S --device NAME ... --shard I/N --verbose --print SEED
// Prints the mix of what was made and every failing seed; exit code 1 if one failed. With --seconds
// it ends by then, with what it has made.
//   --defect NAME, --defects, --quick-defects
// Plants one defect (each; each that is found soon) and prints after how many graphs it was found;
// exit code 1 if one was not found within --count graphs.
#include "defects.h"
#include "support/numeric.h"
#include "support/random_graph.h"

#include <heddle/heddle.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <vector>

namespace heddle::test {
namespace {

struct Options {
  uint64_t count = 200, seed = 1, shard = 0, shards = 1;
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> devices;
  std::vector<const Defect*> defects;
  bool verbose = false, print = false;
};

struct Mix {
  uint64_t graphs = 0, operations = 0, row_programs = 0, regions = 0, symbolic = 0, failures = 0;
};

struct Way {
  Device device;
  bool fusion = true, checked = false;
};

std::vector<Way> all_ways(const std::vector<Device>& devices) {
  std::vector<Way> ways;
  for (const Device& device : devices) {
    for (bool fusion : {true, false}) ways.push_back({device, fusion, false});
  }
  return ways;
}

// One set of sizes: the judge's values and the feeds.
struct Case {
  Verdict verdict;
  std::vector<Array> inputs;
};

Case make_case(const RandomGraph& random, const std::vector<ops::HostTensor>& values) {
  Case c;
  c.verdict = judge_random_graph(random, values);
  for (const ops::HostTensor& t : values) c.inputs.push_back(to_array(t));
  return c;
}

// Empty where every way of running the graph agrees with the judge.
std::string check_graph(const RandomGraph& random, const std::vector<Way>& ways) {
  std::vector<Case> cases{make_case(random, random.values)};
  if (!random.larger.empty()) cases.push_back(make_case(random, random.larger));
  CompileSpec spec;
  for (const Tensor& t : random.feeds) spec.feeds.emplace_back(t);
  spec.targets = random.targets;
  Graph graph = random.graph;
  for (const Way& way : ways) {
    CompileOptions options;
    options.fusion = way.fusion;
    options.check_bounds = way.checked;
    Executable executable = graph.compile(spec, way.device, options);
    for (size_t size = 0; size < cases.size(); ++size) {
      for (int run = 0; run < (way.checked ? 1 : 2); ++run) {  // the second may be a recording
        std::string d = compare_with(cases[size].verdict, executable.run(cases[size].inputs));
        if (d.empty()) continue;
        return way.device.name() + (way.fusion ? ", fused" : ", unfused") +
               (size == 0 ? "" : ", larger") + (run == 0 ? "" : ", second run") + ": " + d;
      }
    }
  }
  return "";
}

void run_seed(uint64_t seed, const std::vector<Way>& ways, const Options& options, Mix& mix) {
  std::string failure;
  try {
    RandomGraph random = random_graph(seed);
    ++mix.graphs;
    mix.operations += static_cast<uint64_t>(random.operations);
    mix.row_programs += random.row_program ? 1 : 0;
    mix.regions += random.has_regions ? 1 : 0;
    mix.symbolic += random.symbolic ? 1 : 0;
    if (options.print) std::printf("%s\n", random.graph.to_text().c_str());
    failure = check_graph(random, ways);
  } catch (const std::exception& error) {
    failure = std::string("exception: ") + error.what();
  }
  if (options.verbose) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  if (failure.empty()) return;
  ++mix.failures;
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.c_str());
  std::fflush(stdout);
}

// The number of graphs after which the planted defect shows; 0: not within `count`.
uint64_t find_defect(const Defect& defect, const std::vector<Way>& ways, const Options& o) {
  uint64_t found = 0;
  defect.plant();
  for (uint64_t k = 0; k < o.count && found == 0; ++k) {
    std::string failure;
    try {
      failure = check_graph(random_graph(o.seed + k), ways);
    } catch (const std::exception& error) {
      failure = std::string("exception: ") + error.what();
    }
    if (failure.empty()) continue;
    found = k + 1;
    std::printf("%-16s found by graph %llu: %s\n", defect.name.c_str(),
                static_cast<unsigned long long>(found), failure.c_str());
  }
  remove_defects();
  if (found == 0)
    std::printf("%-16s NOT FOUND in %llu graphs: %s\n", defect.name.c_str(),
                static_cast<unsigned long long>(o.count), defect.what.c_str());
  std::fflush(stdout);
  return found;
}

int find_defects(const std::vector<Device>& devices, const Options& o) {
  // What one step of a kernel must not see of another shows only where steps run side by side, or
  // to the interpreter.
  std::vector<Way> ordered{{device("interpreter"), true, true}};
  int missed = 0;
  for (const Defect* defect : o.defects) {
    missed += find_defect(*defect, defect->ordered ? ordered : all_ways(devices), o) == 0 ? 1 : 0;
  }
  std::printf("%d passed, %d failed\n", static_cast<int>(o.defects.size()) - missed, missed);
  return missed == 0 ? 0 : 1;
}

// An option without a value.
bool parse_switch(const std::string& arg, Options& o) {
  if (arg == "--verbose") {
    o.verbose = true;
    return true;
  }
  if (arg != "--defects" && arg != "--quick-defects") return false;
  for (const Defect& d : defects()) {
    if (arg == "--defects" || d.quick) o.defects.push_back(&d);
  }
  return true;
}

bool parse_defect(const std::string& name, Options& o) {
  for (const Defect& d : defects()) {
    if (d.name == name) {
      o.defects.push_back(&d);
      return true;
    }
  }
  std::fprintf(stderr, "there is no defect '%s'; there are:", name.c_str());
  for (const Defect& d : defects()) std::fprintf(stderr, " %s", d.name.c_str());
  std::fprintf(stderr, "\n");
  return false;
}

bool parse(int argc, char** argv, Options& o) {
  for (int k = 1; k < argc; ++k) {
    std::string arg = argv[k];
    const char* value = k + 1 < argc ? argv[k + 1] : nullptr;
    if (parse_switch(arg, o)) continue;
    if (value == nullptr) return false;
    ++k;
    if (arg == "--count") {
      o.count = std::strtoull(value, nullptr, 0);
    } else if (arg == "--seconds") {
      o.seconds = std::strtod(value, nullptr);
    } else if (arg == "--seed") {
      o.seed = std::strtoull(value, nullptr, 0);
    } else if (arg == "--print") {
      o.seed = std::strtoull(value, nullptr, 0);
      o.count = 1;
      o.print = true;
    } else if (arg == "--defect") {
      if (!parse_defect(value, o)) return false;
    } else if (arg == "--device") {
      o.devices.emplace_back(value);
    } else if (arg == "--shard") {
      const char* slash = std::strchr(value, '/');
      if (slash == nullptr) return false;
      o.shard = std::strtoull(value, nullptr, 0);
      o.shards = std::strtoull(slash + 1, nullptr, 0);
      if (o.shards == 0) return false;
    } else {
      return false;
    }
  }
  return true;
}

void print_mix(const Mix& mix, const Options& o) {
  double n = mix.graphs == 0 ? 1 : static_cast<double>(mix.graphs);
  std::printf(
      "seeds %llu..%llu shard %llu/%llu: %.1f operations on average, %.0f%% row programs, %.0f%% "
      "with regions, %.0f%% symbolic\n",
      static_cast<unsigned long long>(o.seed),
      static_cast<unsigned long long>(o.seed + o.count - 1),
      static_cast<unsigned long long>(o.shard), static_cast<unsigned long long>(o.shards),
      static_cast<double>(mix.operations) / n, 100.0 * static_cast<double>(mix.row_programs) / n,
      100.0 * static_cast<double>(mix.regions) / n, 100.0 * static_cast<double>(mix.symbolic) / n);
  std::printf("%llu passed, %llu failed\n",
              static_cast<unsigned long long>(mix.graphs - mix.failures),
              static_cast<unsigned long long>(mix.failures));
}

int run(int argc, char** argv) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(
        stderr,
        "usage: heddle-fuzz-graphs [--count N] [--seconds S] [--seed S] [--device NAME]... "
        "[--shard I/N] [--verbose] [--print SEED] [--defect NAME]... [--defects] "
        "[--quick-defects]\n");
    return 2;
  }
  // Kernels of random graphs never come again.
  setenv("HEDDLE_CACHE_DIR", "", 1);
  std::vector<Device> devices;
  for (const std::string& name : o.devices) devices.push_back(device(name));
  if (devices.empty()) devices.push_back(test_device());
  if (!o.defects.empty()) return find_defects(devices, o);
  Mix mix;
  std::vector<Way> ways = all_ways(devices);
  for (uint64_t k = o.shard; k < o.count; k += o.shards) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > o.seconds) {
      o.count = k;
      break;
    }
    run_seed(o.seed + k, ways, o, mix);
  }
  print_mix(mix, o);
  return mix.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) { return heddle::test::run(argc, argv); }
