#include "runtime/parallel.h"

#include "base/floating_point.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::runtime {

namespace {

using Clock = std::chrono::steady_clock;

// How long a worker looks for the next loop before it sleeps in the kernel: up to about the time of
// the serial code between two loops of a plan, but no longer than lately was of use. Others may
// want the processor, such as the threads of a library that the caller uses in turn.
class Patience {
 public:
  Clock::duration limit() const { return limit_; }
  // What the time between two loops was, as the one that gives them sees it: waking takes time too.
  void learn(Clock::duration gap) {
    if (gap < kMost) {
      limit_ = std::max(limit_, std::min(kMost, 2 * gap));
    } else {
      limit_ = std::max(limit_ / 2, kLeast);
    }
  }

 private:
  static constexpr Clock::duration kLeast = std::chrono::microseconds(5);
  static constexpr Clock::duration kMost = std::chrono::microseconds(100);
  Clock::duration limit_ = kMost;
};

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

struct Loop {
  int64_t count = 0;
  int parts = 1;
  ChunkFunction function = nullptr;
  void* context = nullptr;
  void run(int part) const {
    int64_t begin = count / parts * part + std::min<int64_t>(part, count % parts);
    int64_t end = begin + count / parts + (part < count % parts ? 1 : 0);
    if (begin < end) function(context, begin, end);
  }
};

class Pool {
 public:
  // Threads do not survive a fork: a child starts its own set. (The parent's is left alone there.)
  static Pool& instance() {
    static const int registered = pthread_atfork(
        nullptr, nullptr, [] { current().store(nullptr, std::memory_order_release); });
    static_cast<void>(registered);
    if (Pool* now = current().load(std::memory_order_acquire); now != nullptr) [[likely]]
      return *now;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    Pool* pool = current().load(std::memory_order_acquire);
    if (pool == nullptr) {
      pool = new Pool;  // never destroyed: workers may run until the process ends
      current().store(pool, std::memory_order_release);
    }
    return *pool;
  }

  void run(const Loop& loop) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      for (int part = 0; part < loop.parts; ++part) loop.run(part);
      return;
    }
    start(loop.parts - 1);
    loop_ = loop;
    pending_.store(loop.parts - 1, std::memory_order_relaxed);
    uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
    uint64_t ticket = generation << kGenerationShift | static_cast<uint64_t>(loop.parts)
                                                           << kPartsShift;
    next_.store(ticket | 1, std::memory_order_release);  // part 0 is the caller's
    given_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    ticket_.store(ticket, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) ticket_.notify_all();
    loop.run(0);
    while (take_part()) {
    }
    // A worker that lost its processor needs it back.
    for (int k = 0; pending_.load(std::memory_order_acquire) != 0; ++k) {
      k < kPauses ? pause() : std::this_thread::yield();
    }
  }

 private:
  static constexpr int kPartsShift = 16, kGenerationShift = 32;
  static constexpr int kPauses = 4096;  // about 100 microseconds

  // Runs a part that nobody has begun; false: there is none. A caller does not wait for workers
  // that are not there: it takes their parts. Which thread runs a part changes nothing but its
  // caches.
  bool take_part() {
    uint64_t next = next_.load(std::memory_order_acquire);
    for (;;) {
      uint64_t part = next & 0xffff, parts = next >> kPartsShift & 0xffff;
      if (part >= parts) return false;
      // The generation is part of the word, so a success is one of the loop that is running now,
      // and that loop's caller waits for it.
      if (next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        loop_.run(static_cast<int>(part));
        pending_.fetch_sub(1, std::memory_order_release);
        return true;
      }
    }
  }

  void start(int workers) {
    while (started_ < workers) {
      ++started_;
      uint64_t seen = ticket_.load(std::memory_order_relaxed);
      std::thread([this, seen] { work(seen); }).detach();
    }
  }

  // The ticket after `seen`.
  uint64_t wait(uint64_t seen, Patience& patience) {
    Clock::time_point start = Clock::now(), deadline = start + patience.limit();
    uint64_t now = ticket_.load(std::memory_order_acquire);
    for (int k = 0; now == seen; now = ticket_.load(std::memory_order_acquire), ++k) {
      pause();
      if (k % 32 == 31 && Clock::now() > deadline) break;
    }
    if (now == seen) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      ticket_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      now = ticket_.load(std::memory_order_acquire);
    }
    Clock::duration given{given_.load(std::memory_order_relaxed)};
    patience.learn(Clock::time_point(given) - start);
    return now;
  }

  void work(uint64_t seen) {
    base::StandardFloatingPoint mode;
    Patience patience;
    for (;;) {
      seen = wait(seen, patience);
      while (take_part()) {
      }
    }
  }

  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool{nullptr};
    return pool;
  }

  std::mutex mutex_;
  int started_ = 0;
  Loop loop_;
  std::atomic<Clock::rep> given_{0};             // when the last loop was
  alignas(64) std::atomic<uint64_t> ticket_{0};  // generation and parts of the last loop
  alignas(64) std::atomic<uint64_t> next_{0};    // the same, and the next part in the low bits
  alignas(64) std::atomic<int> pending_{0};
  alignas(64) std::atomic<int> sleepers_{0};
};

thread_local bool inside = false;

struct Guarded {
  ChunkFunction function;
  void* context;
  static void run(void* self, int64_t begin, int64_t end) {
    auto* g = static_cast<Guarded*>(self);
    bool before = inside;
    inside = true;
    g->function(g->context, begin, end);
    inside = before;
  }
};

}  // namespace

void parallel_for(int64_t count, int threads, ChunkFunction f, void* context) {
  if (count <= 0) return;
  int parts = static_cast<int>(std::min<int64_t>({count, threads, 1024}));
  if (parts <= 1 || inside) {
    f(context, 0, count);
    return;
  }
  Guarded guarded{f, context};
  Pool::instance().run({count, parts, &Guarded::run, &guarded});
}

}  // namespace heddle::runtime
