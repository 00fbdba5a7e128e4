// Array: concrete data, in the memory of a device. DLPack in and out.
#pragma once

#include <heddle/dtype.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct DLManagedTensor;  // dlpack.h

namespace heddle {

class Device;
class Queue;

namespace runtime {
struct Storage;
}

// Shape, strides (in elements, may be 0 or negative), dtype and a shared buffer on a device. Copies
// share the buffer.
//
// An array that an asynchronous run (Executable::run_async, a CommandBuffer) writes can be sliced,
// fed and destroyed at once. Whatever reads it on the host (data, to, to_bytes, to_vector,
// to_dlpack, Graph::constant, ...) waits for that run, and throws its error if it failed; so do
// views and copies.
//
//   Array x = Array::from<float>({2, 2}, {1, 2, 3, 4});
//   Array y = Array::empty(hd::f32, {2, 2}, device);
class Array {
 public:
  Array() = default;

  static Array empty(DType dtype, std::vector<int64_t> shape, const Device& device);
  static Array empty(DType dtype, std::vector<int64_t> shape);  // on the host
  static Array zeros(DType dtype, std::vector<int64_t> shape);
  // Copies packed row-major host data.
  static Array from_bytes(DType dtype, std::vector<int64_t> shape,
                          std::span<const std::byte> bytes);
  // Copies packed row-major values; GraphError where the shape has another number of elements.
  template <class T>
  static Array from(std::vector<int64_t> shape, const std::vector<T>& values);
  // Refers to memory that the caller owns (host, or a device pointer of `device`); `release` is
  // called once, after the last Array and the last run that uses it.
  static Array wrap(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                    void* data, const Device& device, std::function<void()> release = {});
  static Array from_dlpack(DLManagedTensor* tensor);
  DLManagedTensor* to_dlpack() const;

  bool valid() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t size() const;  // elements
  bool contiguous() const;
  Device device() const;
  void* data() const;  // first element (offset applied); on the device where the array lives
  // Until the runs that write the array are done; throws the error of one that failed. Other reads
  // do this by themselves. GraphError where waiting could never end: in a completion handler, for a
  // later run of the same queue.
  void wait() const;

  // Views; no data moves.
  // Elements start, start + step, ... before stop, as NumPy's and the graph's slice: negative
  // numbers count from the end, numbers outside are cut off, a negative step walks backwards. Stop
  // -n - 1 (or less) lies before element 0: slice(0, -1, -n - 1, -1) reverses an axis of n
  // elements.
  Array slice(int axis, int64_t start, int64_t stop, int64_t step = 1) const;
  Array transpose(std::vector<int> permutation) const;
  Array broadcast_to(std::vector<int64_t> shape) const;
  Array reshape(std::vector<int64_t> shape) const;  // contiguous arrays only

  Array to(
      const Device& device) const;  // a packed copy on that device (the array itself if it is one)
  // Row-major elements on the host. An integer or bool T gets each value exactly: a fraction, NaN,
  // infinity or number out of its range is a GraphError that names the element. A floating T gets
  // the nearest number; one that is finite and beyond its range is an error too. Complex elements:
  // to_bytes().
  //
  //   Array::from<float>({2}, {1, 2}).to_vector<int64_t>();    // 1 2
  //   Array::from<float>({1}, {1.7f}).to_vector<int64_t>();    // GraphError: element 0 is 1.7
  template <class T>
  std::vector<T> to_vector() const;
  std::vector<std::byte> to_bytes() const;  // packed, row-major, raw element type

  const std::shared_ptr<runtime::Storage>& storage() const { return storage_; }
  int64_t offset_bytes() const { return offset_; }

 private:
  static Array from_elements(DType dtype, std::vector<int64_t> shape, size_t count,
                             std::span<const std::byte> bytes);
  friend struct ArrayAccess;
  DType dtype_ = DType::unknown;
  std::vector<int64_t> shape_, strides_;
  int64_t offset_ = 0;  // bytes from the storage's start to the first element
  std::shared_ptr<runtime::Storage> storage_;
};

template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<double>() {
  return f64;
}
template <>
constexpr DType dtype_of<float>() {
  return f32;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return i8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return i16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return i64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return u8;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return u16;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return u32;
}
template <>
constexpr DType dtype_of<uint64_t>() {
  return u64;
}

template <class T>
Array Array::from(std::vector<int64_t> shape, const std::vector<T>& values) {
  return from_elements(dtype_of<T>(), std::move(shape), values.size(),
                       std::as_bytes(std::span(values)));
}

}  // namespace heddle
