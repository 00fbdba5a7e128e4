#include "plan/arena.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace heddle::plan {

// Sizes that differ by less than an eighth share an arena, so that it does not grow with each one.
int64_t ArenaPool::rounded(int64_t bytes) {
  auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  step = std::max<int64_t>(step, 4096);
  return bytes > INT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

Arena ArenaPool::take_idle(int64_t bytes, const void* wanted) {
  auto chosen = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->bytes < bytes) continue;
    if (it->memory == wanted) {
      chosen = it;
      break;
    }
    if (chosen == idle_.end() || it->bytes <= chosen->bytes) chosen = it;
  }
  if (chosen == idle_.end()) return {};
  Arena arena = *chosen;
  idle_.erase(chosen);
  return arena;
}

// Notes who has it. Work of hosts is done when it is given: nobody shares there.
Arena ArenaPool::lend(Arena arena, const target::Stream* stream) {
  if (stream != nullptr && !device_.host_memory()) lent_.push_back({arena, stream, 1});
  return arena;
}

Arena ArenaPool::take(int64_t bytes, const void* wanted, target::Stream* stream) {
  std::optional<Arena> outgrown;
  {
    std::lock_guard lock(mutex_);
    for (Lent& l : lent_) {
      if (l.stream != stream || l.arena.bytes < bytes) continue;
      ++l.runs;  // this work comes after that of the others
      return l.arena;
    }
    if (Arena idle = take_idle(bytes, wanted); idle.memory != nullptr) return lend(idle, stream);
    if (!idle_.empty()) {  // too small: a larger one takes the place of the one used last
      outgrown = idle_.back();
      idle_.pop_back();
    }
  }
  if (outgrown) release(*outgrown);
  int64_t size = rounded(bytes);
  Arena made{device_.allocate(size, stream), size};
  std::lock_guard lock(mutex_);
  return lend(made, stream);
}

bool ArenaPool::last_run(Arena arena) noexcept {
  auto it = std::find_if(lent_.begin(), lent_.end(),
                         [&](const Lent& l) { return l.arena.memory == arena.memory; });
  if (it == lent_.end()) return true;
  if (--it->runs > 0) return false;
  lent_.erase(it);
  return true;
}

void ArenaPool::give(Arena arena) noexcept {
  if (arena.memory == nullptr) return;
  Arena dropped;
  {
    std::lock_guard lock(mutex_);
    if (!last_run(arena)) return;
    if (idle_.size() >= kIdle) {
      dropped = idle_.front();
      idle_.erase(idle_.begin());
    }
    try {
      idle_.push_back(arena);
    } catch (...) {  // no memory for the list itself
      dropped = arena;
    }
  }
  if (dropped.memory != nullptr) release(dropped);
}

void ArenaPool::clear() {
  std::vector<Arena> gone;
  {
    std::lock_guard lock(mutex_);
    gone.swap(idle_);
  }
  for (Arena arena : gone) release(arena);
}

}  // namespace heddle::plan
