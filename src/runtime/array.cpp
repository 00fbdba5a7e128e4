#include <heddle/array.h>

#include "base/check.h"
#include "base/floating_point.h"
#include "ops/host_tensor.h"
#include "runtime/devices.h"
#include "runtime/storage.h"
#include "runtime/strided_copy.h"

#include <heddle/device.h>
#include <heddle/error.h>
#include <heddle/type.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace heddle {

namespace runtime {

Storage::~Storage() {
  if (owned) device->release(data, bytes, nullptr);
  if (release) release();
}

std::shared_ptr<Storage> allocate_storage(const std::shared_ptr<target::Device>& device,
                                          int64_t bytes) {
  auto storage = std::make_shared<Storage>();
  storage->device = device;
  storage->bytes = bytes;
  try {
    storage->data = static_cast<std::byte*>(device->allocate(bytes, nullptr));
  } catch (const DeviceError&) {
    context_of(device).trim();
    storage->data = static_cast<std::byte*>(device->allocate(bytes, nullptr));
  }
  storage->owned = true;
  return storage;
}

namespace {
std::string show(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t k = 0; k < shape.size(); ++k) text += base::cat(k > 0 ? "," : "", shape[k]);
  return text + "]";
}
}  // namespace

int64_t checked_count(DType dtype, const std::vector<int64_t>& shape, const char* what,
                      bool allocates) {
  if (bit_width(dtype) == 0) throw GraphError(base::cat(what, ": the dtype is unknown"));
  if (shape.size() > kMaxRank) {
    throw GraphError(base::cat(what, ": rank ", shape.size(), " is above the limit of ", kMaxRank));
  }
  int64_t count = 1;
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0)
      throw GraphError(base::cat(what, ": the shape ", show(shape), " has a negative extent"));
    if (!empty && __builtin_mul_overflow(count, extent, &count)) count = INT64_MAX;
    empty |= extent == 0;
  }
  if (empty) return 0;
  if (count <= INT64_MAX / 16) return count;
  std::string text = base::cat(what, allocates ? ": out of memory" : "", ": the shape ",
                               show(shape), " has more than 2^63 bytes");
  if (allocates) throw DeviceError(text);
  throw GraphError(text);
}

}  // namespace runtime

using runtime::checked_count;
using runtime::show;
using runtime::Storage;

Array ArrayAccess::make(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                        int64_t offset, std::shared_ptr<Storage> storage) {
  Array a;
  a.dtype_ = dtype;
  a.shape_ = std::move(shape);
  a.strides_ = std::move(strides);
  a.offset_ = offset;
  a.storage_ = std::move(storage);
  return a;
}

Array Array::empty(DType dtype, std::vector<int64_t> shape, const Device& device) {
  int64_t count = checked_count(dtype, shape, "Array::empty", true);
  int64_t bytes = byte_size(dtype, count);
  std::vector<int64_t> strides = ops::row_major_strides(shape);
  return ArrayAccess::make(dtype, std::move(shape), std::move(strides), 0,
                           runtime::allocate_storage(device.impl(), bytes));
}

Array Array::empty(DType dtype, std::vector<int64_t> shape) {
  return empty(dtype, std::move(shape), Device());
}

Array Array::zeros(DType dtype, std::vector<int64_t> shape) {
  Array a = empty(dtype, std::move(shape));
  std::memset(a.data(), 0, static_cast<size_t>(a.storage_->bytes));
  return a;
}

Array Array::from_bytes(DType dtype, std::vector<int64_t> shape, std::span<const std::byte> bytes) {
  int64_t expected = byte_size(dtype, checked_count(dtype, shape, "Array::from_bytes"));
  if (static_cast<int64_t>(bytes.size()) != expected) {
    throw GraphError(base::cat("Array::from_bytes: ", name(dtype), show(shape), " has ", expected,
                               " bytes, given ", bytes.size()));
  }
  Array a = empty(dtype, std::move(shape));
  if (expected > 0) std::memcpy(a.data(), bytes.data(), bytes.size());
  return a;
}

namespace {

// The distance between the first and the last byte must be a number of 63 bits.
void check_reach(DType dtype, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides) {
  double bytes = 0;
  for (size_t k = 0; k < shape.size(); ++k) {
    double steps = static_cast<double>(std::max<int64_t>(shape[k] - 1, 0));
    bytes += steps * std::fabs(static_cast<double>(strides[k])) * bit_width(dtype) / 8;
  }
  if (bytes >= 0x1p62)
    throw GraphError(base::cat("Array::wrap: strides ", show(strides), " of the shape ",
                               show(shape), " reach beyond 2^62 bytes"));
}

}  // namespace

Array Array::wrap(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides, void* data,
                  const Device& device, std::function<void()> release) {
  int64_t count = checked_count(dtype, shape, "Array::wrap");
  if (strides.size() != shape.size()) {
    throw GraphError(
        base::cat("Array::wrap: ", shape.size(), " extents but ", strides.size(), " strides"));
  }
  if (data == nullptr && count > 0) throw GraphError("Array::wrap: the data pointer is null");
  if (is_sub_byte(dtype) && !runtime::is_packed(shape, strides)) {
    throw GraphError(base::cat("Array::wrap: ", name(dtype), " must be packed row-major"));
  }
  check_reach(dtype, shape, strides);
  auto storage = std::make_shared<Storage>();
  storage->device = device.impl();
  storage->data = static_cast<std::byte*>(data);
  storage->bytes = runtime::byte_extent(dtype, shape, strides).end;
  storage->release = std::move(release);
  return ArrayAccess::make(dtype, std::move(shape), std::move(strides), 0, std::move(storage));
}

int64_t Array::size() const {
  return std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>());
}

bool Array::contiguous() const { return runtime::is_packed(shape_, strides_); }

Device Array::device() const { return storage_ ? Device(storage_->device) : Device(); }

void* Array::data() const { return storage_ ? storage_->data + offset_ : nullptr; }

namespace {

void check_valid(const Array& a, const char* what) {
  if (!a.valid())
    throw GraphError(base::cat(what, ": the array is empty (it was never given data)"));
}

// Offset of an element, in bytes; sub-byte views must begin at a byte.
int64_t advance(DType dtype, int64_t elements, const char* what) {
  int64_t bits = elements * bit_width(dtype);
  if (bits % 8 != 0)
    throw GraphError(base::cat(what, ": views of ", name(dtype), " must begin at a whole byte"));
  return bits / 8;
}

}  // namespace

Array Array::slice(int axis, int64_t start, int64_t stop, int64_t step) const {
  check_valid(*this, "Array::slice");
  if (axis < -rank() || axis >= rank())
    throw GraphError(base::cat("Array::slice: axis ", axis, " of rank ", rank()));
  auto k = static_cast<size_t>(axis < 0 ? axis + rank() : axis);
  int64_t extent = shape_[k];
  if (start < 0 || start > extent || stop < 0 || stop > extent || step == 0 || step == INT64_MIN) {
    throw GraphError(base::cat("Array::slice: ", start, ":", stop, ":", step, " is outside axis ",
                               k, " of extent ", extent));
  }
  // A negative step goes from `start` down to, but not including, `stop`.
  int64_t distance = step > 0 ? stop - start : start - stop;
  int64_t stride = std::abs(step);
  int64_t count = std::max<int64_t>((distance + stride - 1) / stride, 0);
  if (count > 0 && start >= extent)
    throw GraphError(
        base::cat("Array::slice: start ", start, " is outside axis ", k, " of extent ", extent));
  Array a = *this;
  a.shape_[k] = count;
  if (count > 0) a.offset_ += advance(dtype_, start * strides_[k], "Array::slice");
  a.strides_[k] = count > 1 ? strides_[k] * step : strides_[k];
  return a;
}

Array Array::transpose(std::vector<int> permutation) const {
  check_valid(*this, "Array::transpose");
  std::vector<int> sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> identity(shape_.size());
  std::iota(identity.begin(), identity.end(), 0);
  if (sorted != identity) {
    throw GraphError(base::cat("Array::transpose: not a permutation of the ", rank(), " axes"));
  }
  Array a = *this;
  for (size_t k = 0; k < permutation.size(); ++k) {
    a.shape_[k] = shape_[static_cast<size_t>(permutation[k])];
    a.strides_[k] = strides_[static_cast<size_t>(permutation[k])];
  }
  return a;
}

Array Array::broadcast_to(std::vector<int64_t> shape) const {
  check_valid(*this, "Array::broadcast_to");
  checked_count(dtype_, shape, "Array::broadcast_to");
  size_t extra = shape.size() - shape_.size();
  bool fits = shape.size() >= shape_.size();
  std::vector<int64_t> strides(shape.size(), 0);
  for (size_t k = 0; fits && k < shape_.size(); ++k) {
    fits = shape_[k] == shape[extra + k] || shape_[k] == 1;
    if (shape_[k] == shape[extra + k]) strides[extra + k] = strides_[k];
  }
  if (!fits)
    throw GraphError(
        base::cat("Array::broadcast_to: ", show(shape_), " does not broadcast to ", show(shape)));
  return ArrayAccess::make(dtype_, std::move(shape), std::move(strides), offset_, storage_);
}

Array Array::reshape(std::vector<int64_t> shape) const {
  check_valid(*this, "Array::reshape");
  if (checked_count(dtype_, shape, "Array::reshape") != size()) {
    throw GraphError(base::cat("Array::reshape: ", show(shape_), " has ", size(), " elements, ",
                               show(shape), " has another number"));
  }
  if (!contiguous()) throw GraphError("Array::reshape: the array is not contiguous");
  std::vector<int64_t> strides = ops::row_major_strides(shape);
  return ArrayAccess::make(dtype_, std::move(shape), std::move(strides), offset_, storage_);
}

std::vector<std::byte> Array::to_bytes() const {
  check_valid(*this, "Array::to_bytes");
  std::vector<std::byte> out(static_cast<size_t>(byte_size(dtype_, size())));
  if (out.empty()) return out;
  std::vector<int64_t> packed = ops::row_major_strides(shape_);
  if (storage_->device->host_memory()) {
    if (contiguous()) {
      std::memcpy(out.data(), data(), out.size());
    } else {
      runtime::strided_copy(dtype_, shape_, out.data(), packed, data(), strides_);
    }
    return out;
  }
  runtime::StreamLease stream(runtime::context_of(storage_->device));
  if (contiguous()) {
    stream->copy_to_host(out.data(), data(), static_cast<int64_t>(out.size()));
    return out;
  }
  runtime::ByteExtent extent = runtime::byte_extent(dtype_, shape_, strides_);
  std::vector<std::byte> all(static_cast<size_t>(extent.end - extent.begin));
  stream->copy_to_host(all.data(), static_cast<std::byte*>(data()) + extent.begin,
                       static_cast<int64_t>(all.size()));
  runtime::strided_copy(dtype_, shape_, out.data(), packed, all.data() - extent.begin, strides_);
  return out;
}

Array Array::to(const Device& device) const {
  check_valid(*this, "Array::to");
  bool there = storage_->device == device.impl() ||
               (storage_->device->host_memory() && device.impl()->host_memory());
  if (there && contiguous()) return *this;
  Array out = empty(dtype_, shape_, device);
  if (out.size() == 0) return out;
  if (there && storage_->device->host_memory()) {
    runtime::strided_copy(dtype_, shape_, out.data(), out.strides_, data(), strides_);
    return out;
  }
  runtime::StreamLease stream(
      runtime::context_of(device.impl()->host_memory() ? storage_->device : device.impl()));
  int64_t bytes = byte_size(dtype_, size());
  if (device.impl()->host_memory() && contiguous()) {
    stream->copy_to_host(out.data(), data(), bytes);
  } else if (!device.impl()->host_memory()) {
    bool direct = storage_->device->host_memory() && contiguous();
    std::vector<std::byte> packed = direct ? std::vector<std::byte>() : to_bytes();
    stream->copy_from_host(out.data(), direct ? data() : packed.data(), bytes);
    stream->synchronize();
  } else {
    std::vector<std::byte> packed = to_bytes();
    std::memcpy(out.data(), packed.data(), packed.size());
  }
  return out;
}

template <class T>
std::vector<T> Array::to_vector() const {
  base::StandardFloatingPoint mode;
  ops::HostTensor host = ops::from_bytes(dtype_, shape_, to_bytes());
  std::vector<T> out;
  out.reserve(static_cast<size_t>(size()));
  if (!host.c.empty()) {
    throw GraphError(
        base::cat("Array::to_vector: ", name(dtype_), " elements are complex: use to_bytes()"));
  }
  for (double v : host.f) out.push_back(static_cast<T>(v));
  if (dtype_ == DType::u64) {
    for (int64_t v : host.i) out.push_back(static_cast<T>(static_cast<uint64_t>(v)));
  } else {
    for (int64_t v : host.i) out.push_back(static_cast<T>(v));
  }
  return out;
}

template std::vector<double> Array::to_vector() const;
template std::vector<float> Array::to_vector() const;
template std::vector<int8_t> Array::to_vector() const;
template std::vector<int16_t> Array::to_vector() const;
template std::vector<int32_t> Array::to_vector() const;
template std::vector<int64_t> Array::to_vector() const;
template std::vector<uint8_t> Array::to_vector() const;
template std::vector<uint16_t> Array::to_vector() const;
template std::vector<uint32_t> Array::to_vector() const;
template std::vector<uint64_t> Array::to_vector() const;
template std::vector<bool> Array::to_vector() const;

}  // namespace heddle
