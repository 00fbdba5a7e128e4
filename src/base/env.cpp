#include "base/env.h"

#include "base/check.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace heddle::base {

namespace {
constexpr Switch kSwitches[] = {
    {"HEDDLE_DEVICE", "name of the default device: cpu, cuda:0, interpreter, judge"},
    {"HEDDLE_DUMP", "words of graph, kernels, code, plan: print them to stderr at compile"},
    {"HEDDLE_VERBOSE",
     "words of claims, fusion, proofs, cache, devices: say what was decided and why"},
    {"HEDDLE_FUSION", "off: one operation a kernel"},
    {"HEDDLE_VALIDATE",
     "words of kernels, reference: prove every scheduled kernel; run every step also on the judge "
     "and stop at the first difference"},
    {"HEDDLE_CHECK", "bounds: emitted code checks every access"},
    {"HEDDLE_LOOPS", "host, device_graph, single_kernel: how loops are run"},
    {"HEDDLE_THREADS", "number of threads of the CPU device"},
    {"HEDDLE_CACHE_DIR", "folder of the kernel cache on disk; empty: none"},
    {"HEDDLE_CACHE_LIMIT", "bytes of the kernel cache on disk"},
    {"HEDDLE_WAIT_LIMIT",
     "seconds that a run or a queue waits for an event before it fails; 0: for ever"},
    {"HEDDLE_BACKEND_PATH", "folder that holds the backends' shared libraries"},
    {"HEDDLE_CPU_ARCH", "x86-64-v3, x86-64-v4, x86-64: instruction set of the CPU device"},
    {"HEDDLE_CUDA_DRIVER",
     "another driver library than libcuda.so.1, e.g. the tests' simulated GPU"},
    {"HEDDLE_CUDA_OFF",
     "words of expand, pack, streaming, lookback, divide, batch: forms of code that the CUDA "
     "emitter "
     "must not use"},
    {"HEDDLE_TEST_DEVICE", "device that the device tests run on"},
    {"HEDDLE_TEST_COUNT", "cases that a randomised test makes"},
    {"HEDDLE_TEST_SAMPLE", "N: the operation matrix runs each N-th case of an operation"},
    {"HEDDLE_TEST_SIZE", "extents of the graphs that the GPU tests run"},
    {"HEDDLE_TEST_TIMING", "1: the GPU tests also print times"},
    {"HEDDLE_SEED", "seed of randomised tests and fuzzers"},
};
}  // namespace

std::span<const Switch> all_switches() { return kSwitches; }

std::optional<std::string> env(std::string_view name) {
  for (const Switch& s : kSwitches) {
    if (name == s.name) {
      const char* value = std::getenv(s.name);
      return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
    }
  }
  throw InternalError(cat("environment variable ", name, " is not in the table"));
}

namespace {

template <class T>
std::optional<T> parsed(std::string_view name, T least, T most, const char* kind) {
  std::optional<std::string> text = env(name);
  if (!text || text->empty()) return std::nullopt;
  T number = 0;
  const char* last = text->data() + text->size();
  auto [end, error] = std::from_chars(text->data(), last, number);
  if (error == std::errc() && end == last && number >= least && number <= most) return number;
  throw GraphError(
      cat(name, " is '", *text, "', expected a ", kind, " (", least, " to ", most, ")"));
}

}  // namespace

std::optional<double> env_number(std::string_view name, double least, double most) {
  return parsed(name, least, most, "number");
}

std::optional<int64_t> env_integer(std::string_view name, int64_t least, int64_t most) {
  return parsed(name, least, most, "whole number");
}

bool env_has(std::string_view name, std::string_view word) {
  std::optional<std::string> value = env(name);
  if (!value) return false;
  std::string_view rest = *value;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    if (rest.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return false;
}

void verbose(std::string_view topic, const std::string& line) {
  if (env_has("HEDDLE_VERBOSE", topic)) {
    std::fprintf(stderr, "heddle [%.*s] %s\n", static_cast<int>(topic.size()), topic.data(),
                 line.c_str());
  }
}

}  // namespace heddle::base
