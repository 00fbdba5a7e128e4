// Device memory: large segments from the driver, cut into blocks that are cached in the order of a
// stream.
#pragma once

#include "backend/cuda/driver.h"

#include <heddle/device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace heddle::cuda {

// Where segments come from; tests put a fake one in its place.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual CUdeviceptr take(int64_t bytes) = 0;  // 0 where there is no more
  virtual void give(CUdeviceptr pointer) = 0;
  virtual int64_t free_bytes() = 0;
  // A point in the work of a stream; `wait` lets the host wait for it, `done` asks.
  virtual CUevent mark(void* stream) = 0;
  virtual bool done(CUevent event) = 0;
  virtual void wait(CUevent event) = 0;
  virtual void drop(CUevent event) = 0;
};

// Thread-safe. `stream` is the native stream whose work uses (used) the memory, nullptr: none that
// is unfinished.
class Allocator {
 public:
  Allocator(std::string device, std::unique_ptr<MemorySource> source);
  ~Allocator();
  // Aligned to 512 bytes; a block even for 0 bytes. DeviceError names requested, live, limit and
  // free bytes.
  void* allocate(int64_t bytes, void* stream);
  void release(void* pointer, void* stream) noexcept;
  void forget(void* stream);  // its work is done and it goes
  MemoryStats stats() const;
  void set_limit(int64_t bytes);
  void trim();

 private:
  struct Block {
    CUdeviceptr address = 0;
    int64_t bytes = 0;
    void* stream = nullptr;   // free: whose work may still use it
    CUevent event = nullptr;  // free, stream: after that work
    bool free = false;
    Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  };
  struct Less {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  using FreeList = std::set<Block*, Less>;

  Block* take_free(int64_t bytes, void* stream);
  Block* fitting(FreeList& list, int64_t bytes) const;
  Block* new_segment(int64_t bytes);
  void split(Block* b, int64_t bytes);
  Block* merge(Block* b);
  void settle(Block* b);  // waits for the work that uses it
  void put_free(Block* b);
  void remove_free(Block* b);
  void trim_locked();
  [[noreturn]] void fail(int64_t bytes);

  std::string device_;
  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::map<void*, FreeList> free_;  // by stream
  std::map<CUdeviceptr, std::unique_ptr<Block>> blocks_;
  MemoryStats stats_;
};

std::unique_ptr<MemorySource> driver_memory(CUcontext context);

}  // namespace heddle::cuda
