// Devices, their memory, queues and events.
#include "runtime/host_device.h"
#include "runtime/host_stream.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <thread>

namespace hd = heddle;

namespace {

TEST(Devices, BuiltInOnesAreThere) {
  EXPECT_EQ(hd::device("interpreter").name(), "interpreter");
  EXPECT_EQ(hd::device("judge").name(), "judge");
  EXPECT_EQ(hd::device("judge"), hd::device("judge"));
  bool found = false;
  for (const hd::DeviceReport& r : hd::devices())
    found |= r.name == "interpreter" && r.reason.empty();
  EXPECT_TRUE(found);
  try {
    hd::device("abacus");
    FAIL();
  } catch (const hd::UnsupportedError& e) {
    EXPECT_NE(std::string(e.what()).find("abacus"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("interpreter works"), std::string::npos);
  }
}

TEST(HostAllocator, ReusesCountsAndLimits) {
  hd::runtime::HostAllocator pool("pool");
  void* a = pool.allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0U);
  pool.release(a, 1000);
  EXPECT_EQ(pool.stats().live, 0);
  EXPECT_EQ(pool.allocate(1000), a);
  pool.release(a, 1000);
  void* big = pool.allocate(5 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(big) % (2 << 20), 0U);
  EXPECT_GE(pool.stats().peak, 5 << 20);
  pool.release(big, 5 << 20);
  EXPECT_GT(pool.stats().reserved, 0);
  pool.trim();
  EXPECT_EQ(pool.stats().reserved, 0);
  pool.set_limit(1 << 20);
  try {
    pool.allocate(2 << 20);
    FAIL();
  } catch (const hd::DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("requested 2097152 bytes"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("limit 1048576"), std::string::npos);
  }
  EXPECT_THROW(pool.allocate(INT64_MAX), hd::DeviceError);
  EXPECT_THROW(pool.allocate(-1), hd::DeviceError);
  void* none = pool.allocate(0);
  EXPECT_NE(none, nullptr);
  pool.release(none, 0);
}

TEST(HostAllocator, ManyThreads) {
  hd::runtime::HostAllocator pool("pool");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        int64_t bytes = 100 * (1 + (i * 7 + t) % 50);
        auto* p = static_cast<unsigned char*>(pool.allocate(bytes));
        std::fill_n(p, bytes, static_cast<unsigned char>(t));
        for (int64_t k = 0; k < bytes; ++k) ASSERT_EQ(p[k], t);
        pool.release(p, bytes);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(pool.stats().live, 0);
}

TEST(Devices, MemoryIsAccountedFor) {
  hd::Device device = hd::device("interpreter");
  int64_t before = device.memory().live;
  {
    hd::Array a = hd::Array::empty(hd::f32, {1024}, device);
    EXPECT_EQ(device.memory().live, before + 4096);
  }
  EXPECT_EQ(device.memory().live, before);
}

TEST(Event, ValuesOnlyGrow) {
  hd::Event event;
  EXPECT_EQ(event.value(), 0U);
  EXPECT_FALSE(event.wait(1, std::chrono::milliseconds(5)));
  event.signal(3);
  event.signal(2);
  EXPECT_EQ(event.value(), 3U);
  EXPECT_TRUE(event.wait(3));
  EXPECT_TRUE(event.wait(3));
}

TEST(Queue, SignalsAndWaitsInOrder) {
  hd::Device device = hd::device("interpreter");
  hd::Queue a(device), b(device);
  hd::Event started, done;
  b.wait_for(started, 1);
  b.signal(done, 7);
  EXPECT_FALSE(done.wait(7, std::chrono::milliseconds(20)));
  a.signal(started, 1);
  EXPECT_TRUE(done.wait(7));
  a.wait();
  b.wait();
}

TEST(Queue, DestroyingItWaits) {
  hd::Event event, done;
  std::thread later;
  {
    hd::Queue queue(hd::device("interpreter"));
    queue.wait_for(event, 1);
    queue.signal(done, 1);
    later = std::thread([event]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      event.signal(1);
    });
  }
  EXPECT_EQ(done.value(), 1U);
  later.join();
}

TEST(HostStream, RecordsAndReplays) {
  hd::runtime::HostStream stream(true);
  int64_t from = 5, to = 0;
  uint8_t yes = 0;
  auto body = [&](hd::target::Recorder& r) {
    r.if_else(
        &yes, [&](hd::target::Recorder& t) { t.copy(&to, &from, 8); },
        [&](hd::target::Recorder& e) { e.fill(&to, 1, 1); });
    EXPECT_TRUE(r.control_flow());
  };
  auto recording = stream.record(body);
  EXPECT_EQ(to, 0);
  stream.launch(*recording);
  EXPECT_EQ(to, 1);
  yes = 1;
  stream.launch(*recording);
  EXPECT_EQ(to, 5);
  EXPECT_TRUE(stream.update(*recording, body));
  EXPECT_FALSE(stream.update(*recording, [&](hd::target::Recorder& r) { r.fill(&to, 0, 8); }));
  EXPECT_THROW(stream.record([&](hd::target::Recorder& r) { r.read_back(&to, &from, 8); }),
               hd::UnsupportedError);
}

}  // namespace
