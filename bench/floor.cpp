#include "floor.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace heddle::bench {

namespace {

constexpr int64_t kBytes = int64_t{128} << 20;     // a side; beyond any cache
constexpr int64_t kGpuBytes = int64_t{512} << 20;  // a side
constexpr int64_t kStep = 64 / sizeof(float);      // floats a cache line
constexpr int kGpuCopies = 10;

double us_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t).count();
}

__attribute__((target("avx2"))) void copy_part(float* to, const float* from, int64_t n) {
  for (int64_t i = 0; i < n; i += kStep) {
    _mm_prefetch(reinterpret_cast<const char*>(from + i + 64 * kStep), _MM_HINT_T0);
    _mm256_stream_ps(to + i, _mm256_load_ps(from + i));
    _mm256_stream_ps(to + i + 8, _mm256_load_ps(from + i + 8));
  }
  _mm_sfence();
}

__attribute__((target("avx2"))) float read_part(const float* from, int64_t n) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                    _mm256_setzero_ps()};
  for (int64_t i = 0; i < n; i += 2 * kStep) {
    _mm_prefetch(reinterpret_cast<const char*>(from + i + 128 * kStep), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(from + i + 129 * kStep), _MM_HINT_T0);
    for (int k = 0; k < 4; ++k) sums[k] = _mm256_add_ps(sums[k], _mm256_load_ps(from + i + 8 * k));
  }
  __m256 all = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
  float out[8];
  _mm256_storeu_ps(out, all);
  return out[0] + out[1] + out[2] + out[3] + out[4] + out[5] + out[6] + out[7];
}

// That this process may use.
int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Calls f(part) on every thread at once; microseconds from the common start to the last end.
template <class F>
double on_all_threads(int threads, F f) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  for (int part = 1; part < threads; ++part) {
    others.emplace_back([&, part] {
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) _mm_pause();
      f(part);
      ready.fetch_sub(1);
    });
  }
  while (ready.load() != threads - 1) std::this_thread::yield();
  auto t = std::chrono::steady_clock::now();
  go.store(true, std::memory_order_release);
  f(0);
  while (ready.load() != 0) _mm_pause();
  double us = us_since(t);
  for (std::thread& other : others) other.join();
  return us;
}

}  // namespace

struct Floor::Impl {
  explicit Impl(const Device& d) : device(d), gpu(d.name().rfind("cuda", 0) == 0) {
    int64_t count = (gpu ? kGpuBytes : kBytes) / static_cast<int64_t>(sizeof(float));
    from = Array::zeros(f32, {count});
    if (gpu) from = from.to(device);
    to = Array::empty(f32, {count}, device);
    if (gpu) {
      Graph graph;
      Tensor x = graph.placeholder(f32, {count}, "x");
      copy = graph.compile({.feeds = {x}, .targets = {x}}, device);
    }
  }

  Bandwidth on_gpu() {
    Queue queue(device);
    CommandBuffer buffer(queue);
    for (int k = 0; k < kGpuCopies; ++k) copy.encode(buffer, {from}, {to});
    auto t = std::chrono::steady_clock::now();
    buffer.commit();
    buffer.wait();
    double speed = 2.0 * static_cast<double>(kGpuBytes) * kGpuCopies / us_since(t);
    return {speed, speed};
  }

  Bandwidth on_cpu() {
    int threads = processors();
    int64_t part = from.size() / threads / (2 * kStep) * (2 * kStep);
    auto* source = static_cast<const float*>(from.data());
    auto* target = static_cast<float*>(to.data());
    double moved = static_cast<double>(part * threads) * sizeof(float);
    double copied = on_all_threads(
        threads, [&](int k) { copy_part(target + k * part, source + k * part, part); });
    std::vector<float> sums(static_cast<size_t>(threads));
    double read = on_all_threads(
        threads, [&](int k) { sums[static_cast<size_t>(k)] = read_part(source + k * part, part); });
    for (float s : sums) checksum += s;
    return {2 * moved / copied, moved / read};
  }

  Device device;
  bool gpu;
  Array from, to;
  Executable copy;
  float checksum = 0;  // keeps the reading loop
};

Floor::Floor(Device device) : device_(std::move(device)) {}
Floor::~Floor() = default;
Bandwidth Floor::measure() {
  if (!impl_) impl_ = std::make_unique<Impl>(device_);
  return impl_->gpu ? impl_->on_gpu() : impl_->on_cpu();
}

double floor_us(const Bandwidth& bandwidth, int64_t read, int64_t written) {
  double both = 2.0 * static_cast<double>(std::min(read, written));
  return both / bandwidth.copy +
         static_cast<double>(std::max<int64_t>(read - written, 0)) / bandwidth.read +
         static_cast<double>(std::max<int64_t>(written - read, 0)) / bandwidth.copy;
}

}  // namespace heddle::bench
