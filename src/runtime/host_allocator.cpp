#include "runtime/host_allocator.h"

#include "base/check.h"
#include "target/out_of_memory.h"

#include <heddle/error.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace heddle::runtime {

namespace {

// More than the machine has is refused at once: the system would grant it and kill the process when
// it is touched.
int64_t physical_bytes() {
  static const int64_t bytes =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

void* system_allocate(int64_t size) {
  if (size > physical_bytes()) return nullptr;
  int64_t alignment = size >= kHugePage ? kHugePage : kHostAlignment;
  void* pointer = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(size));
  if (pointer != nullptr && size >= kHugePage)
    madvise(pointer, static_cast<size_t>(size), MADV_HUGEPAGE);
  return pointer;
}

}  // namespace

HostAllocator::~HostAllocator() { trim_locked(); }

// Four classes a power of two up to 2 MiB, whole huge pages above: at most a quarter is wasted.
int64_t HostAllocator::block_size(int64_t bytes) {
  if (bytes <= kHostAlignment) return kHostAlignment;
  if (bytes >= kHugePage) return (bytes + kHugePage - 1) / kHugePage * kHugePage;
  auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1)));
  int64_t step = std::max(power / 4, kHostAlignment);
  return (bytes + step - 1) / step * step;
}

// Of a block size below a huge page: the power of two and the quarter of it.
size_t HostAllocator::class_of(int64_t size) {
  auto n = static_cast<uint64_t>(size - 1);
  auto power = static_cast<size_t>(std::bit_width(n));
  size_t quarter = (n >> (power - 3)) & 3;
  static_assert(kHostAlignment == 256, "classes begin at 2^8");
  return (power - 8) * 4 + quarter;
}

void* HostAllocator::take_cached(int64_t size) {
  if (size < kHugePage) {
    std::vector<void*>& blocks = small_[class_of(size)];
    if (blocks.empty()) return nullptr;
    void* pointer = blocks.back();
    blocks.pop_back();
    stats_.live += size;
    return pointer;
  }
  auto it = large_.lower_bound(size);
  // A large block may serve a request that is up to an eighth smaller.
  if (it == large_.end() || it->first > size + size / 8) return nullptr;
  void* pointer = it->second.back();
  if (it->first != size) oversized_[pointer] = it->first;
  stats_.live += it->first;
  it->second.pop_back();
  if (it->second.empty()) large_.erase(it);
  return pointer;
}

void* HostAllocator::allocate(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX - kHugePage) fail(bytes);
  int64_t size = block_size(bytes);
  std::lock_guard lock(mutex_);
  if (stats_.limit > 0 && stats_.live + size > stats_.limit) fail(bytes);
  void* pointer = take_cached(size);
  if (pointer == nullptr) {
    if (stats_.limit > 0 && stats_.reserved + size > stats_.limit) trim_locked();
    pointer = system_allocate(size);
    if (pointer == nullptr) {
      trim_locked();
      pointer = system_allocate(size);
    }
    if (pointer == nullptr) fail(bytes);
    stats_.reserved += size;
    stats_.live += size;
  }
  stats_.peak = std::max(stats_.peak, stats_.live);
  return pointer;
}

void HostAllocator::release(void* pointer, int64_t bytes) noexcept {
  if (pointer == nullptr) return;
  int64_t size = block_size(bytes);
  std::lock_guard lock(mutex_);
  bool small = size < kHugePage;
  if (!small) {
    if (auto it = oversized_.find(pointer); it != oversized_.end()) {
      size = it->second;
      oversized_.erase(it);
    }
  }
  stats_.live -= size;
  try {
    (small ? small_[class_of(size)] : large_[size]).push_back(pointer);
  } catch (...) {  // no memory for the list itself
    std::free(pointer);
    stats_.reserved -= size;
  }
}

MemoryStats HostAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void HostAllocator::set_limit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  stats_.limit = std::max<int64_t>(bytes, 0);
  if (stats_.limit > 0 && stats_.reserved > stats_.limit) trim_locked();
}

void HostAllocator::trim() {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void HostAllocator::trim_locked() {
  auto release_all = [&](std::vector<void*>& blocks) {
    for (void* pointer : blocks) std::free(pointer);
    blocks = {};
  };
  for (std::vector<void*>& blocks : small_) release_all(blocks);
  for (auto& [size, blocks] : large_) release_all(blocks);
  large_.clear();
  stats_.reserved = stats_.live;  // nothing is cached
}

void HostAllocator::fail(int64_t bytes) const {
  target::fail_out_of_memory(device_, bytes, stats_, base::cat("at most ", physical_bytes()));
}

}  // namespace heddle::runtime
