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
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

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

Array Array::from_elements(DType dtype, std::vector<int64_t> shape, size_t count,
                           std::span<const std::byte> bytes) {
  int64_t expected = checked_count(dtype, shape, "Array::from");
  if (static_cast<int64_t>(count) != expected) {
    throw GraphError(base::cat("Array::from: the shape ", show(shape), " has ", expected,
                               " elements, given ", count));
  }
  return from_bytes(dtype, std::move(shape), bytes);
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

void* Array::data() const {
  if (!storage_) return nullptr;
  wait();
  return runtime::address(*this);
}

void Array::wait() const {
  if (storage_ && storage_->pending.any()) storage_->pending.wait(runtime::byte_range(*this));
}

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
  if (step == 0) throw GraphError("Array::slice: step is 0, expected another number");
  // Walking backwards, the places are -1 .. extent - 1: -1 lies before element 0.
  int64_t least = step > 0 ? 0 : -1, most = step > 0 ? extent : extent - 1;
  auto place = [&](int64_t at) { return std::clamp(at < 0 ? at + extent : at, least, most); };
  int64_t first = place(start), last = place(stop);
  int64_t distance = step > 0 ? last - first : first - last;
  // A step beyond the axis is as good as one over it, and its negation cannot overflow.
  int64_t stride = step > 0 ? std::min(step, extent + 1) : -std::max(step, -extent - 1);
  int64_t count = std::max<int64_t>((distance + stride - 1) / stride, 0);
  Array a = *this;
  a.shape_[k] = count;
  if (count > 0) a.offset_ += advance(dtype_, first * strides_[k], "Array::slice");
  if (count > 1) a.strides_[k] = step > 0 ? strides_[k] * stride : strides_[k] * -stride;
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
  wait();
  return runtime::packed_bytes(*this);
}

Array Array::to(const Device& device) const {
  check_valid(*this, "Array::to");
  wait();
  return runtime::copied_to(*this, device.impl());
}

namespace runtime {

ByteRange byte_range(const Array& a) {
  ByteExtent extent = byte_extent(a.dtype(), a.shape(), a.strides());
  const std::byte* first = address(a);
  return {first + extent.begin, first + std::max(extent.end, extent.begin + 1)};
}

std::vector<std::byte> packed_bytes(const Array& a) {
  std::vector<std::byte> out(static_cast<size_t>(byte_size(a.dtype(), a.size())));
  if (out.empty()) return out;
  std::vector<int64_t> packed = ops::row_major_strides(a.shape());
  const std::shared_ptr<target::Device>& device = a.storage()->device;
  if (device->host_memory()) {
    if (a.contiguous()) {
      std::memcpy(out.data(), address(a), out.size());
    } else {
      strided_copy(a.dtype(), a.shape(), out.data(), packed, address(a), a.strides());
    }
    return out;
  }
  StreamLease stream(context_of(device));
  if (a.contiguous()) {
    stream->copy_to_host(out.data(), address(a), static_cast<int64_t>(out.size()));
    return out;
  }
  ByteExtent extent = byte_extent(a.dtype(), a.shape(), a.strides());
  std::vector<std::byte> all(static_cast<size_t>(extent.end - extent.begin));
  stream->copy_to_host(all.data(), address(a) + extent.begin, static_cast<int64_t>(all.size()));
  strided_copy(a.dtype(), a.shape(), out.data(), packed, all.data() - extent.begin, a.strides());
  return out;
}

Array copied_to(const Array& a, const std::shared_ptr<target::Device>& device) {
  const std::shared_ptr<target::Device>& from = a.storage()->device;
  bool there = from == device || (from->host_memory() && device->host_memory());
  if (there && a.contiguous()) return a;
  Array out = Array::empty(a.dtype(), a.shape(), Device(device));
  if (out.size() == 0) return out;
  if (there && from->host_memory()) {
    strided_copy(a.dtype(), a.shape(), address(out), out.strides(), address(a), a.strides());
    return out;
  }
  StreamLease stream(context_of(device->host_memory() ? from : device));
  int64_t bytes = byte_size(a.dtype(), a.size());
  if (device->host_memory() && a.contiguous()) {
    stream->copy_to_host(address(out), address(a), bytes);
  } else if (!device->host_memory()) {
    bool direct = from->host_memory() && a.contiguous();
    std::vector<std::byte> packed = direct ? std::vector<std::byte>() : packed_bytes(a);
    stream->copy_from_host(address(out), direct ? address(a) : packed.data(), bytes);
    stream->synchronize();
  } else {
    std::vector<std::byte> packed = packed_bytes(a);
    std::memcpy(address(out), packed.data(), packed.size());
  }
  return out;
}

}  // namespace runtime

namespace {

// The value as a T, by the rule of to_vector; nullopt: T does not have it.
template <class T>
std::optional<T> converted(double v) {
  if constexpr (std::is_floating_point_v<T>) {
    auto nearest = static_cast<T>(v);
    return std::isinf(nearest) && !std::isinf(v) ? std::nullopt : std::optional<T>(nearest);
  } else {
    double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
    double least = std::is_signed_v<T> ? -limit : 0;
    if (!(v >= least && v < limit) || v != std::trunc(v)) return std::nullopt;
    return static_cast<T>(v);
  }
}

template <class T, class Integer>
std::optional<T> converted_integer(Integer v) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(v);
  } else if constexpr (std::is_same_v<T, bool>) {
    return v == 0 || v == 1 ? std::optional<bool>(v == 1) : std::nullopt;
  } else {
    return std::in_range<T>(v) ? std::optional<T>(static_cast<T>(v)) : std::nullopt;
  }
}

template <class T>
std::string target_name() {
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else {
    return std::string(name(dtype_of<T>()));
  }
}

template <class Value>
std::string show_value(Value v) {
  if constexpr (std::is_floating_point_v<Value>) {
    std::array<char, 32> text{};
    auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), v);
    return {text.data(), end};
  } else {
    return std::to_string(v);
  }
}

// Row-major number -> "[1,2]".
std::string place_of(size_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> at(shape.size());
  auto rest = static_cast<int64_t>(flat);
  for (size_t k = shape.size(); k-- > 0; rest /= shape[k]) at[k] = rest % shape[k];
  return show(at);
}

}  // namespace

template <class T>
std::vector<T> Array::to_vector() const {
  base::StandardFloatingPoint mode;
  check_valid(*this, "Array::to_vector");
  ops::HostTensor host = ops::from_bytes(dtype_, shape_, to_bytes());
  std::vector<T> out;
  out.reserve(static_cast<size_t>(size()));
  if (is_complex(dtype_)) {
    throw GraphError(
        base::cat("Array::to_vector: ", name(dtype_), " elements are complex: use to_bytes()"));
  }
  auto add = [&](std::optional<T> value, auto element) {
    if (!value) {
      throw GraphError(base::cat("Array::to_vector: element ", place_of(out.size(), shape_), " of ",
                                 name(dtype_), show(shape_), " is ", show_value(element),
                                 ", which is no value of ", target_name<T>()));
    }
    out.push_back(*value);
  };
  for (double v : host.f) add(converted<T>(v), v);
  for (int64_t v : host.i) {
    if (dtype_ == DType::u64) {
      add(converted_integer<T>(static_cast<uint64_t>(v)), static_cast<uint64_t>(v));
    } else {
      add(converted_integer<T>(v), v);
    }
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
