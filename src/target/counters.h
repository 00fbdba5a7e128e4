// What devices did, for tests and reports: plain counts of the process.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::target {

struct RuntimeCounters {
  std::atomic<uint64_t> driver_calls{0};    // calls into a vendor's driver
  std::atomic<uint64_t> launches{0};        // kernels and library calls given to a device, graph launches counted once
  std::atomic<uint64_t> graph_launches{0};  // of recorded graphs
  std::atomic<uint64_t> compiles{0};        // kernels translated by a compiler (no cache had them)
};
RuntimeCounters& runtime_counters();

}  // namespace heddle::target
