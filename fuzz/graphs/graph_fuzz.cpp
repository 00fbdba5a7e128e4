// heddle-fuzz-graphs: random graphs, run fused and unfused on each device, against the judge.
//   --count N --seed S --device NAME ... --shard I/N --verbose --print SEED
// Prints the mix of what was made and every failing seed; exit code 1 if one failed.
#include "support/numeric.h"
#include "support/random_graph.h"

#include <heddle/heddle.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace heddle::test {
namespace {

struct Options {
  uint64_t count = 200, seed = 1, shard = 0, shards = 1;
  std::vector<std::string> devices;
  bool verbose = false, print = false;
};

struct Mix {
  uint64_t graphs = 0, operations = 0, row_programs = 0, regions = 0, symbolic = 0, failures = 0;
};

// Empty where every way of running the graph agrees with the judge.
std::string check_graph(const RandomGraph& random, const std::vector<Device>& devices) {
  Verdict verdict = judge_random_graph(random);
  std::vector<Array> inputs;
  for (const ops::HostTensor& t : random.values) inputs.push_back(to_array(t));
  CompileSpec spec;
  for (const Tensor& t : random.feeds) spec.feeds.emplace_back(t);
  spec.targets = random.targets;
  Graph graph = random.graph;
  for (const Device& device : devices) {
    for (bool fusion : {true, false}) {
      CompileOptions options;
      options.fusion = fusion;
      Executable executable = graph.compile(spec, device, options);
      for (int run = 0; run < 2; ++run) {  // the second run may be a recording of the first
        std::string d = compare_with(verdict, executable.run(inputs));
        if (!d.empty()) {
          return device.name() + (fusion ? ", fused" : ", unfused") +
                 (run == 0 ? "" : ", second run") + ": " + d;
        }
      }
    }
  }
  return "";
}

void run_seed(uint64_t seed, const std::vector<Device>& devices, const Options& options, Mix& mix) {
  std::string failure;
  try {
    RandomGraph random = random_graph(seed);
    ++mix.graphs;
    mix.operations += static_cast<uint64_t>(random.operations);
    mix.row_programs += random.row_program ? 1 : 0;
    mix.regions += random.has_regions ? 1 : 0;
    mix.symbolic += random.symbolic ? 1 : 0;
    if (options.print) std::printf("%s\n", random.graph.to_text().c_str());
    failure = check_graph(random, devices);
  } catch (const std::exception& error) {
    failure = std::string("exception: ") + error.what();
  }
  if (options.verbose) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  if (failure.empty()) return;
  ++mix.failures;
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), failure.c_str());
  std::fflush(stdout);
}

bool parse(int argc, char** argv, Options& o) {
  for (int k = 1; k < argc; ++k) {
    std::string arg = argv[k];
    const char* value = k + 1 < argc ? argv[k + 1] : nullptr;
    if (arg == "--verbose") {
      o.verbose = true;
      continue;
    }
    if (value == nullptr) return false;
    ++k;
    if (arg == "--count") {
      o.count = std::strtoull(value, nullptr, 0);
    } else if (arg == "--seed") {
      o.seed = std::strtoull(value, nullptr, 0);
    } else if (arg == "--print") {
      o.seed = std::strtoull(value, nullptr, 0);
      o.count = 1;
      o.print = true;
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

int run(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(stderr,
                 "usage: heddle-fuzz-graphs [--count N] [--seed S] [--device NAME]... [--shard "
                 "I/N] [--verbose] [--print SEED]\n");
    return 2;
  }
  std::vector<Device> devices;
  for (const std::string& name : o.devices) devices.push_back(device(name));
  if (devices.empty()) devices.push_back(test_device());
  Mix mix;
  for (uint64_t k = o.shard; k < o.count; k += o.shards) run_seed(o.seed + k, devices, o, mix);
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
  return mix.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) { return heddle::test::run(argc, argv); }
