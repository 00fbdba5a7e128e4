// What devices did, for tests and reports: plain counts of the process.
#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::target {

struct RuntimeCounters {
  std::atomic<uint64_t> driver_calls{0};  // calls into a vendor's driver
  std::atomic<uint64_t> launches{
      0};  // kernels and library calls given to a device, graph launches counted once
  std::atomic<uint64_t> graph_launches{0};   // of recorded graphs
  std::atomic<uint64_t> compiles{0};         // kernels translated by a compiler (no cache had them)
  std::atomic<uint64_t> graph_compiles{0};   // graphs compiled to plans
  std::atomic<uint64_t> kernel_requests{0};  // kernels given to an emitter
  std::atomic<uint64_t> kernel_cache_hits{
      0};  // kernels that a living executable of the process shares
};
RuntimeCounters& runtime_counters();

}  // namespace heddle::target
