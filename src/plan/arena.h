// Arenas of a device: lent to one run at a time, shared by all executables.
#pragma once

#include "target/target.h"

#include <mutex>
#include <vector>

namespace heddle::plan {

struct Arena {
  void* memory = nullptr;
  int64_t bytes = 0;
};

// Executables that run one after another use the same memory: as much as the largest needs. A run
// that had an arena before gets it again where it is idle, so its addresses stay. Thread-safe.
class ArenaPool {
 public:
  explicit ArenaPool(target::Device& device) : device_(device) {}
  ~ArenaPool() { clear(); }
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  // At least `bytes`. DeviceError where the device has no memory left.
  Arena take(int64_t bytes, const void* wanted, target::Stream* stream);
  void give(Arena arena) noexcept;  // no work uses it any more
  void clear();                     // gives idle arenas back to the device

 private:
  static constexpr size_t kIdle = 16;  // about one a thread that runs at once
  static int64_t rounded(int64_t bytes);
  void release(Arena arena) noexcept { device_.release(arena.memory, arena.bytes, nullptr); }

  target::Device& device_;
  std::mutex mutex_;
  std::vector<Arena> idle_;  // the one that was used last comes last
};

}  // namespace heddle::plan
