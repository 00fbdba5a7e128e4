// What generated code is given of the process: how to fork, private memory, where to report.
#pragma once

#include <cstdint>

namespace heddle::cpu {

// Work below this stays on the calling thread (a parallel loop costs about a microsecond when
// workers are awake).
inline constexpr int64_t kForkPicoseconds = 10'000'000;
// At least so much for each thread.
inline constexpr int64_t kThreadPicoseconds = 5'000'000;

struct RunContext;
using ForkedFunction = void (*)(RunContext* context, void* frame, int64_t begin, int64_t end);

// The first members are called by generated code, in the order of `Service`.
struct RunContext {
  void (*fork)(RunContext* context, ForkedFunction f, void* frame, int64_t count,
               int64_t picoseconds);
  void* (*scratch)(RunContext* context, int64_t bytes);
  // An access outside its buffer (buffer >= 0: coordinate `value` of axis `axis`), or a bound index
  // above `limit`.
  void (*fail)(RunContext* context, int64_t buffer, int64_t axis, int64_t value, int64_t limit);
  // After swaps: moves contents so that each buffer is where the caller passed it.
  void (*restore)(RunContext* context, void** now, void* const* passed, const int64_t* bytes,
                  int64_t count);
  int threads = 1;
  struct Failure* failure = nullptr;
};

}  // namespace heddle::cpu
