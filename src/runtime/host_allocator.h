// Caching allocator of host memory: aligned blocks, huge pages for large ones, a limit.
#pragma once

#include <heddle/device.h>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace heddle::runtime {

inline constexpr int64_t kHostAlignment = 256;          // bytes
inline constexpr int64_t kHugePage = int64_t{2} << 20;  // bytes

class HostAllocator {
 public:
  explicit HostAllocator(std::string device) : device_(std::move(device)) {}
  ~HostAllocator();
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  // At least one block even for 0 bytes. DeviceError names requested bytes, live bytes and limit.
  void* allocate(int64_t bytes);
  void release(void* pointer, int64_t bytes) noexcept;  // bytes: as allocated
  MemoryStats stats() const;
  void set_limit(int64_t bytes);
  void trim();  // gives cached blocks back to the system

 private:
  static int64_t block_size(int64_t bytes);
  static size_t class_of(int64_t size);
  void* take_cached(int64_t size);
  void trim_locked();
  [[noreturn]] void fail(int64_t bytes) const;

  std::string device_;
  mutable std::mutex mutex_;
  static constexpr size_t kClasses = 64;
  std::array<std::vector<void*>, kClasses> small_;  // free blocks below a huge page, by size class
  std::map<int64_t, std::vector<void*>> large_;     // free blocks of whole huge pages, by size
  std::map<void*, int64_t> oversized_;  // live blocks that came from a larger cached one
  MemoryStats stats_;
};

}  // namespace heddle::runtime
