#include "backend/cuda/allocator.h"

#include <heddle/error.h>

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace heddle::cuda {
namespace {

// Counts what it gave; no memory behind it.
class FakeMemory : public MemorySource {
 public:
  explicit FakeMemory(int64_t total) : left(total) {}
  CUdeviceptr take(int64_t bytes) override {
    if (bytes > left) return 0;
    left -= bytes;
    CUdeviceptr p = next;
    next += static_cast<CUdeviceptr>(bytes + (1 << 21));
    sizes[p] = bytes;
    return p;
  }
  void give(CUdeviceptr p) override {
    left += sizes.at(p);
    sizes.erase(p);
  }
  int64_t free_bytes() override { return left; }
  CUevent mark(void*) override {
    ++marks;
    return reinterpret_cast<CUevent>(uintptr_t{0x10});
  }
  bool done(CUevent) override { return finished; }
  void wait(CUevent) override { ++waits; }
  void drop(CUevent) override {}

  int64_t left;
  CUdeviceptr next = 1 << 21;
  std::map<CUdeviceptr, int64_t> sizes;
  int marks = 0, waits = 0;
  bool finished = false;
};

struct Fixture {
  explicit Fixture(int64_t total) {
    auto memory = std::make_unique<FakeMemory>(total);
    source = memory.get();
    allocator = std::make_unique<Allocator>("cuda:0", std::move(memory));
  }
  FakeMemory* source = nullptr;
  std::unique_ptr<Allocator> allocator;
};

void* stream(uintptr_t k) { return reinterpret_cast<void*>(k * 64); }

TEST(CudaAllocator, ReusesInOrderOfOneStream) {
  Fixture f(int64_t{1} << 30);
  void* a = f.allocator->allocate(100 << 20, stream(1));
  f.allocator->release(a, stream(1));
  EXPECT_EQ(f.allocator->allocate(100 << 20, stream(1)), a);
  EXPECT_EQ(f.source->waits, 0);
  EXPECT_EQ(f.allocator->stats().live, 100 << 20);
}

TEST(CudaAllocator, OtherStreamsGetABlockOnlyWhenItsWorkIsDone) {
  Fixture f(int64_t{1} << 30);
  void* a = f.allocator->allocate(100 << 20, stream(1));
  f.allocator->release(a, stream(1));
  EXPECT_NE(f.allocator->allocate(100 << 20, stream(2)), a);
  f.source->finished = true;
  EXPECT_EQ(f.allocator->allocate(100 << 20, stream(2)), a);
}

TEST(CudaAllocator, FullDeviceFreesCachesAndThenSaysSo) {
  Fixture f(256 << 20);
  void* a = f.allocator->allocate(200 << 20, stream(1));
  f.allocator->release(a, stream(1));
  void* b = f.allocator->allocate(250 << 20, stream(2));  // only after the cached segment went back
  try {
    f.allocator->allocate(64 << 20, stream(2));
    FAIL();
  } catch (const DeviceError& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("requested 67108864 bytes, live 262144000"), std::string::npos) << text;
  }
  f.allocator->release(b, stream(2));
  EXPECT_NO_THROW(f.allocator->allocate(64 << 20, stream(2)));
}

TEST(CudaAllocator, LimitHolds) {
  Fixture f(int64_t{1} << 30);
  f.allocator->set_limit(10 << 20);
  void* a = f.allocator->allocate(6 << 20, nullptr);
  EXPECT_THROW(f.allocator->allocate(6 << 20, nullptr), DeviceError);
  f.allocator->release(a, nullptr);
  EXPECT_NO_THROW(f.allocator->allocate(9 << 20, nullptr));
  EXPECT_LE(f.allocator->stats().reserved, 10 << 20);
}

TEST(CudaAllocator, RandomUseNeverOverlapsAndEndsEmpty) {
  Fixture f(int64_t{1} << 32);
  std::mt19937 rng(3);
  struct Live {
    uintptr_t at, bytes;
    void* stream;
  };
  std::vector<Live> live;
  for (int step = 0; step < 4000; ++step) {
    f.source->finished = rng() % 2 != 0;
    if (rng() % 40 == 0) f.allocator->trim();  // with cached neighbours of several streams
    if (live.size() < 40 && rng() % 2 != 0) {
      uintptr_t bytes = rng() % 3 == 0 ? rng() % (30 << 20) : rng() % 4000;
      void* s = stream(rng() % 3);
      auto at = reinterpret_cast<uintptr_t>(f.allocator->allocate(static_cast<int64_t>(bytes), s));
      EXPECT_EQ(at % 256, 0u);
      for (const Live& l : live) EXPECT_TRUE(at + bytes <= l.at || l.at + l.bytes <= at);
      live.push_back({at, bytes, s});
    } else if (!live.empty()) {
      size_t k = rng() % live.size();
      f.allocator->release(reinterpret_cast<void*>(live[k].at), live[k].stream);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
  for (const Live& l : live) f.allocator->release(reinterpret_cast<void*>(l.at), l.stream);
  EXPECT_EQ(f.allocator->stats().live, 0);
  f.allocator->trim();
  EXPECT_EQ(f.allocator->stats().reserved, 0);
  EXPECT_TRUE(f.source->sizes.empty());
}

}  // namespace
}  // namespace heddle::cuda
