// Arenas of a device, shared by all executables: lent to one run at a time, or to runs of one
// stream.
#pragma once

#include "target/target.h"

#include <mutex>
#include <vector>

namespace heddle::plan {

struct Arena {
  void* memory = nullptr;
  int64_t bytes = 0;
};

// Executables that run one after another use the same memory: as much as the largest needs. So do
// runs that a device's stream has one behind the other, before they are done. A run that had an
// arena before gets it again where it is idle, so its addresses stay. Thread-safe.
class ArenaPool {
 public:
  explicit ArenaPool(target::Device& device) : device_(device) {}
  ~ArenaPool() { clear(); }
  ArenaPool(const ArenaPool&) = delete;
  ArenaPool& operator=(const ArenaPool&) = delete;

  // At least `bytes`, for work on `stream`. DeviceError where the device has no memory left.
  Arena take(int64_t bytes, const void* wanted, target::Stream* stream);
  void give(Arena arena) noexcept;  // the work of one take() uses it no more
  void clear();                     // gives idle arenas back to the device

 private:
  static constexpr size_t kIdle = 16;  // about one a thread that runs at once
  // On a device whose streams work beside the host: an arena, and how many runs of a stream have
  // it.
  struct Lent {
    Arena arena;
    const target::Stream* stream = nullptr;
    int64_t runs = 0;
  };
  static int64_t rounded(int64_t bytes);
  Arena take_idle(int64_t bytes, const void* wanted);  // no memory: there is none that is so large
  Arena lend(Arena arena, const target::Stream* stream);
  bool last_run(Arena arena) noexcept;
  void release(Arena arena) noexcept { device_.release(arena.memory, arena.bytes, nullptr); }

  target::Device& device_;
  std::mutex mutex_;
  std::vector<Arena> idle_;  // the one that was used last comes last
  std::vector<Lent> lent_;   // a few, about one a stream at work
};

}  // namespace heddle::plan
