// What an Array shares with its copies and views.
#pragma once

#include "runtime/pending.h"
#include "target/target.h"

#include <heddle/array.h>

#include <functional>
#include <memory>
#include <vector>

namespace heddle::runtime {

struct Storage {
  std::shared_ptr<target::Device> device;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  bool owned = false;             // allocated from the device
  std::function<void()> release;  // wrapped memory
  PendingWrites pending;          // what reads on the host wait for

  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();
};

// Memory of a device for an array. Where none is left, idle arenas and cached blocks are given back
// first.
std::shared_ptr<Storage> allocate_storage(const std::shared_ptr<target::Device>& device,
                                          int64_t bytes);

// The rest of this file does not wait for runs that still write the array, as a run's own work must
// not.
inline std::byte* address(const Array& a) { return a.storage()->data + a.offset_bytes(); }
// What the array's elements touch; at least a byte, so that the runs of empty arrays are found too.
ByteRange byte_range(const Array& a);
// Packed, row-major.
std::vector<std::byte> packed_bytes(const Array& a);
// A packed copy on the device; the array itself if it is one.
Array copied_to(const Array& a, const std::shared_ptr<target::Device>& device);

// Number of elements; GraphError (`what` names the caller) for a negative extent or a rank
// above 16. More than fit into 64 bits are a GraphError too, or out of memory where memory is asked
// for.
int64_t checked_count(DType dtype, const std::vector<int64_t>& shape, const char* what,
                      bool allocates = false);

}  // namespace heddle::runtime

namespace heddle {

// Builds arrays from their parts.
struct ArrayAccess {
  static Array make(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                    int64_t offset, std::shared_ptr<runtime::Storage> storage);
};

}  // namespace heddle
