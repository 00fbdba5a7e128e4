// The threads of the CPU: one set of workers a process, shared by every executable.
//
// A run hands work over once a loop; workers spin briefly for the next one and then sleep. While
// one caller uses the workers, others run their loops on their own thread, so nobody
// oversubscribes.
#pragma once

#include <cstdint>

namespace heddle::runtime {

using ChunkFunction = void (*)(void* context, int64_t begin, int64_t end);

// Calls f(context, begin, end) on disjoint contiguous ranges that cover [0, count), on at most
// `threads` threads, the caller's included; returns when all are done. f must not throw. Safe from
// any thread, also from inside f (then serial).
void parallel_for(int64_t count, int threads, ChunkFunction f, void* context);

}  // namespace heddle::runtime
