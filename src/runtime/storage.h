// What an Array shares with its copies and views.
#pragma once

#include "target/target.h"

#include <heddle/array.h>

#include <functional>
#include <memory>

namespace heddle::runtime {

struct Storage {
  std::shared_ptr<target::Device> device;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  bool owned = false;             // allocated from the device
  std::function<void()> release;  // wrapped memory

  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();
};

// Memory of a device for an array. Where none is left, idle arenas and cached blocks are given back
// first.
std::shared_ptr<Storage> allocate_storage(const std::shared_ptr<target::Device>& device,
                                          int64_t bytes);

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
