// What this machine's memory can do, measured without Heddle's own kernels.
#pragma once

#include <heddle/heddle.h>

#include <memory>

namespace heddle::bench {

// Bytes a microsecond: of a copy (read + written), and of reading alone.
struct Bandwidth {
  double copy = 0, read = 0;
};

// On the CPU: two loops written by hand over arrays beyond the caches, by all threads. On a GPU:
// the driver's copy, which also stands for reading.
class Floor {
 public:
  explicit Floor(Device device);
  ~Floor();
  Floor(const Floor&) = delete;
  Floor& operator=(const Floor&) = delete;
  Bandwidth measure();  // one sample, a few milliseconds

 private:
  struct Impl;
  Device device_;
  std::unique_ptr<Impl> impl_;  // made for the first sample
};

// Microseconds that `read` and `written` bytes take at the least: as much as possible of both at
// the copy's speed, the rest of what is read at the reading speed.
double floor_us(const Bandwidth& bandwidth, int64_t read, int64_t written);

}  // namespace heddle::bench
