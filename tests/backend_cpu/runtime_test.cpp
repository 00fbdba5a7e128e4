// The thread pool and the cache on disk.
#include "runtime/disk_cache.h"
#include "runtime/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace heddle::test {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "heddle-cache-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path); }
  fs::path first_file() const {
    for (const auto& e : fs::recursive_directory_iterator(path)) {
      if (e.is_regular_file()) return e.path();
    }
    return {};
  }
  std::string path;
};

TEST(DiskCache, KeepsAndReturns) {
  Folder f;
  runtime::DiskCache a(f.path, 1 << 20);
  EXPECT_FALSE(a.find("key"));
  a.put("key", std::string("con\0tent", 8));
  runtime::DiskCache b(f.path, 1 << 20);  // another process
  ASSERT_TRUE(b.find("key"));
  EXPECT_EQ(*b.find("key"), std::string("con\0tent", 8));
  EXPECT_FALSE(b.find("other"));
}

TEST(DiskCache, DamageIsAMiss) {
  for (int kind = 0; kind < 4; ++kind) {
    Folder f;
    runtime::DiskCache cache(f.path, 1 << 20);
    cache.put("key", std::string(1000, 'x'));
    fs::path file = f.first_file();
    auto size = fs::file_size(file);
    if (kind == 0) fs::resize_file(file, size - 1);
    if (kind == 1) fs::resize_file(file, 0);
    if (kind == 2) fs::resize_file(file, size + 7);
    if (kind == 3) {
      std::fstream s(file, std::ios::in | std::ios::out | std::ios::binary);
      s.seekp(500);
      s.put('y');
    }
    EXPECT_FALSE(cache.find("key")) << kind;
    cache.put("key", "again");
    EXPECT_EQ(cache.find("key").value_or(""), "again");
  }
}

TEST(DiskCache, StaysBelowItsLimit) {
  Folder f;
  constexpr int64_t kLimit = 100000;
  runtime::DiskCache cache(f.path, kLimit);
  for (int i = 0; i < 100; ++i) cache.put("key" + std::to_string(i), std::string(5000, 'x'));
  int64_t total = 0;
  for (const auto& e : fs::recursive_directory_iterator(f.path))
    total += e.is_regular_file() ? static_cast<int64_t>(e.file_size()) : 0;
  EXPECT_LE(total, kLimit + kLimit / 16 + 6000);
  EXPECT_TRUE(cache.find("key99"));
  cache.put("huge", std::string(200000, 'x'));
  EXPECT_FALSE(cache.find("huge"));
}

TEST(DiskCache, UnusableFoldersAreNoError) {
  for (const char* folder : {"", "/proc/nowhere", "/dev/null/x"}) {
    runtime::DiskCache cache(folder, 1 << 20);
    cache.put("key", "content");
    EXPECT_FALSE(cache.find("key"));
  }
}

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
