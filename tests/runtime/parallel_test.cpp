// The thread pool.
#include "runtime/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace heddle::test {
namespace {

TEST(Parallel, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      runtime::parallel_for(
          n, threads,
          [](void* p, int64_t begin, int64_t end) {
            auto& v = *static_cast<std::vector<std::atomic<int>>*>(p);
            for (int64_t i = begin; i < end; ++i) ++v[static_cast<size_t>(i)];
          },
          &seen);
      for (auto& s : seen) EXPECT_EQ(s, 1);
    }
  }
}

TEST(Parallel, NestsAndServesSeveralCallers) {
  std::atomic<int64_t> total{0};
  auto inner = [](void* p, int64_t begin, int64_t end) {
    *static_cast<std::atomic<int64_t>*>(p) += end - begin;
  };
  static constexpr auto kOuter = [](void* p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      runtime::parallel_for(
          10, 4,
          [](void* q, int64_t b, int64_t e) { *static_cast<std::atomic<int64_t>*>(q) += e - b; },
          p);
    }
  };
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        runtime::parallel_for(8, 3, kOuter, &total);
        runtime::parallel_for(20, 2, inner, &total);
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(total, 4 * 50 * (80 + 20));
}

}  // namespace
}  // namespace heddle::test
