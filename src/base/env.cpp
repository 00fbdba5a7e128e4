#include "base/env.h"

#include "base/check.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <set>

namespace heddle::base {

namespace {
constexpr Switch kSwitches[] = {
    {"HEDDLE_DEVICE", "name of the default device: cpu, cuda:0, interpreter, judge"},
    {"HEDDLE_DUMP", "words of graph, kernels, code, plan: print them to stderr at compile",
     "graph,kernels,code,plan"},
    {"HEDDLE_VERBOSE",
     "words of claims, fusion, proofs, cache, devices: say what was decided and why",
     "claims,fusion,proofs,cache,devices"},
    {"HEDDLE_FUSION", "off: one operation per kernel", "off,on"},
    {"HEDDLE_VALIDATE",
     "words of kernels, reference: prove every scheduled kernel; run every step also on the judge "
     "and stop at the first difference",
     "kernels,reference,off"},
    {"HEDDLE_CHECK", "bounds: emitted code checks every access", "bounds,off"},
    {"HEDDLE_LOOPS", "host, device_graph, single_kernel: how loops are run",
     "automatic,host,device_graph,single_kernel"},
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
     "emitter must not use",
     "expand,pack,streaming,lookback,divide,batch"},
    {"HEDDLE_TEST_DEVICE", "device that the device tests run on"},
    {"HEDDLE_TEST_COUNT", "cases that a randomised test makes"},
    {"HEDDLE_TEST_SAMPLE", "N: the operation matrix runs each N-th case of an operation"},
    {"HEDDLE_TEST_SIZE", "extents of the graphs that the GPU tests run"},
    {"HEDDLE_TEST_TIMING", "1: the GPU tests also print times", "0,1"},
    {"HEDDLE_SEED", "seed of randomised tests and fuzzers"},
};

// Read by scripts and tests of the repository, not by the library.
constexpr std::string_view kForScripts[] = {
    "HEDDLE_CLI",         "HEDDLE_ENV_DIR",  "HEDDLE_JOBS",         "HEDDLE_LINT_BASE",
    "HEDDLE_NICE",        "HEDDLE_NO_APT",   "HEDDLE_PEERS_PYTHON", "HEDDLE_PHOTOS",
    "HEDDLE_PRESET",      "HEDDLE_SANITIZE", "HEDDLE_SWEEP_STRIDE", "HEDDLE_TEST_DATA",
    "HEDDLE_TIDY_SECONDS"};

// Calls f with each of the comma-separated words until it gives true.
template <class F>
bool any_word(std::string_view words, F f) {
  while (!words.empty()) {
    size_t comma = words.find(',');
    if (f(words.substr(0, comma))) return true;
    if (comma == std::string_view::npos) break;
    words.remove_prefix(comma + 1);
  }
  return false;
}

bool has_word(std::string_view words, std::string_view word) {
  return any_word(words, [&](std::string_view w) { return w == word; });
}

// Once per text.
void warn(const std::string& text) {
  static std::mutex mutex;
  static auto* told = new std::set<std::string>;  // never destroyed: threads may outlive it
  std::lock_guard lock(mutex);
  if (told->insert(text).second) std::fprintf(stderr, "heddle: %s\n", text.c_str());
}

void check_value(const Switch& s, std::string_view value) {
  if (s.allowed.empty() || value.empty()) return;
  any_word(value, [&](std::string_view word) {
    if (!has_word(s.allowed, word)) {
      warn(cat(s.name, " is '", value, "', in which '", word, "' means nothing: expected of ",
               s.allowed));
    }
    return false;
  });
}

const Switch* find_switch(std::string_view name) {
  for (const Switch& s : kSwitches)
    if (name == s.name) return &s;
  return nullptr;
}

// All of the environment, once: a wrong name is never read.
void check_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (!text.starts_with("HEDDLE_") || equals == std::string_view::npos) continue;
    std::string_view name = text.substr(0, equals);
    if (const Switch* s = find_switch(name)) {
      check_value(*s, text.substr(equals + 1));
    } else if (std::find(std::begin(kForScripts), std::end(kForScripts), name) ==
               std::end(kForScripts)) {
      warn(cat(name, " is no switch of Heddle and means nothing: docs/debugging.md lists them"));
    }
  }
}

}  // namespace

std::span<const Switch> all_switches() { return kSwitches; }

std::optional<std::string> env(std::string_view name) {
  static const bool checked = (check_environment(), true);
  static_cast<void>(checked);
  const Switch* s = find_switch(name);
  if (s == nullptr) throw InternalError(cat("environment variable ", name, " is not in the table"));
  const char* value = std::getenv(s->name);
  if (value == nullptr) return std::nullopt;
  check_value(*s, value);
  return std::string(value);
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
  return value && has_word(*value, word);
}

void verbose(std::string_view topic, const std::string& line) {
  if (env_has("HEDDLE_VERBOSE", topic)) {
    std::fprintf(stderr, "heddle [%.*s] %s\n", static_cast<int>(topic.size()), topic.data(),
                 line.c_str());
  }
}

}  // namespace heddle::base
