// Copies between strided host buffers.
#pragma once

#include <heddle/dtype.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::runtime {

// Strides in elements, any sign, 0 in the source only. The buffers do not overlap. Sub-byte
// elements are addressed by their index from the pointer's first byte.
void strided_copy(DType dtype, std::span<const int64_t> shape, void* dst,
                  std::span<const int64_t> dst_strides, const void* src,
                  std::span<const int64_t> src_strides);

// First and one past the last byte that the view touches, relative to its first element; {0, 0} for
// empty views.
struct ByteExtent {
  int64_t begin = 0, end = 0;
};
ByteExtent byte_extent(DType dtype, std::span<const int64_t> shape,
                       std::span<const int64_t> strides);

// Packed row-major? (strides of axes of extent 1 do not matter)
bool is_packed(std::span<const int64_t> shape, std::span<const int64_t> strides);

}  // namespace heddle::runtime
