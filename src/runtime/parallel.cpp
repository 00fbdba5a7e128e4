#include "runtime/parallel.h"

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

// About as long as the serial code between two loops of a plan; then the worker sleeps in the
// kernel.
constexpr auto kSpin = std::chrono::microseconds(100);

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
    // The low bits say how many workers take part, the rest counts loops.
    uint64_t ticket = ((ticket_.load(std::memory_order_relaxed) >> 16) + 1) << 16 |
                      static_cast<uint64_t>(loop.parts - 1);
    ticket_.store(ticket, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) ticket_.notify_all();
    loop.run(0);
    // A worker that lost its processor needs it back.
    for (int k = 1; pending_.load(std::memory_order_acquire) != 0; ++k) {
      k % 4096 == 0 ? std::this_thread::yield() : pause();
    }
  }

 private:
  void start(int workers) {
    while (static_cast<int>(started_) < workers) {
      int index = ++started_;
      uint64_t seen = ticket_.load(std::memory_order_relaxed);
      std::thread([this, index, seen] { work(index, seen); }).detach();
    }
  }

  uint64_t wait(uint64_t seen) {
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    for (int k = 0;; ++k) {
      uint64_t now = ticket_.load(std::memory_order_acquire);
      if (now != seen) return now;
      pause();
      if (k % 64 == 63 && std::chrono::steady_clock::now() > deadline) break;
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    ticket_.wait(seen, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return ticket_.load(std::memory_order_acquire);
  }

  // A worker that does not take part may miss tickets; one that does cannot, because the caller
  // waits for it.
  void work(int index, uint64_t seen) {
    for (;;) {
      uint64_t now = wait(seen);
      if (now == seen) continue;
      seen = now;
      if (index > static_cast<int>(now & 0xffff)) continue;
      loop_.run(index);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }

  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool{nullptr};
    return pool;
  }

  std::mutex mutex_;
  int started_ = 0;
  Loop loop_;
  alignas(64) std::atomic<uint64_t> ticket_{0};
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
