#include "backend/cpu/cpu_target.h"

#include "base/check.h"
#include "base/env.h"

#include <cpuid.h>
#include <sched.h>

#include <algorithm>

namespace heddle::cpu {

CpuTarget target_for(const std::string& arch) {
  if (arch == "x86-64-v4") return {arch, 64, true, true, true};
  if (arch == "x86-64-v3") return {arch, 32, true, false, true};
  if (arch == "x86-64") return {arch, 16, false, false, false};
  throw UnsupportedError(base::cat("cpu: no code is generated for the instruction set '", arch,
                                   "': expected x86-64, x86-64-v3 or x86-64-v4"));
}

namespace {

bool host_has(const std::string& arch) {
  __builtin_cpu_init();
  if (arch == "x86-64-v4") return __builtin_cpu_supports("x86-64-v4");
  if (arch == "x86-64-v3") return __builtin_cpu_supports("x86-64-v3");
  return arch == "x86-64";
}

}  // namespace

std::string host_arch() {
  if (auto wanted = base::env("HEDDLE_CPU_ARCH"); wanted && !wanted->empty()) {
    try {
      target_for(*wanted);
    } catch (const UnsupportedError& e) {
      throw UnsupportedError(base::cat("HEDDLE_CPU_ARCH: ", e.what()));
    }
    if (!host_has(*wanted)) {
      throw UnsupportedError(
          base::cat("cpu: HEDDLE_CPU_ARCH is ", *wanted, ", which this processor does not have"));
    }
    return *wanted;
  }
  for (const char* arch : {"x86-64-v4", "x86-64-v3"}) {
    if (host_has(arch)) return arch;
  }
  return "x86-64";
}

std::string host_name() {
  unsigned words[12] = {};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* w = words + 4 * leaf;
    if (!__get_cpuid(0x80000002U + leaf, &w[0], &w[1], &w[2], &w[3])) return "x86-64 processor";
  }
  std::string text(reinterpret_cast<const char*>(words), sizeof words);
  text.resize(std::min(text.find('\0'), text.size()));
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

int host_threads() {
  if (auto wanted = base::env_integer("HEDDLE_THREADS", 1, 1024)) return static_cast<int>(*wanted);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

}  // namespace heddle::cpu
