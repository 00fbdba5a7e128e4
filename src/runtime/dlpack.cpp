#include "base/check.h"
#include "ops/host_tensor.h"
#include "runtime/devices.h"
#include "runtime/dlpack_abi.h"
#include "runtime/storage.h"
#include "runtime/strided_copy.h"

#include <heddle/array.h>
#include <heddle/device.h>
#include <heddle/error.h>
#include <heddle/type.h>

#include <charconv>

namespace heddle {

namespace {

struct DTypeCode {
  DType dtype;
  uint8_t code, bits;
};
constexpr DTypeCode kCodes[] = {
    {DType::i8, 0, 8},      {DType::i16, 0, 16},        {DType::i32, 0, 32},
    {DType::i64, 0, 64},    {DType::u8, 1, 8},          {DType::u16, 1, 16},
    {DType::u32, 1, 32},    {DType::u64, 1, 64},        {DType::f16, 2, 16},
    {DType::f32, 2, 32},    {DType::f64, 2, 64},        {DType::bf16, 4, 16},
    {DType::c32, 5, 32},    {DType::c64, 5, 64},        {DType::c128, 5, 128},
    {DType::boolean, 6, 8}, {DType::f8e4m3fn, 10, 8},   {DType::f8e4m3fnuz, 11, 8},
    {DType::f8e5m2, 12, 8}, {DType::f8e5m2fnuz, 13, 8}, {DType::f8e8m0, 14, 8},
    {DType::f4e2m1, 17, 4}, {DType::i2, 0, 2},          {DType::i4, 0, 4},
    {DType::u2, 1, 2},      {DType::u4, 1, 4},
};

std::shared_ptr<target::Device> device_of(const DLDevice& d) {
  if (d.device_type == runtime::kDLCPU || d.device_type == runtime::kDLCUDAHost)
    return runtime::host_device();
  if (d.device_type == runtime::kDLCUDA || d.device_type == runtime::kDLCUDAManaged) {
    return runtime::find_device(base::cat("cuda:", d.device_id));
  }
  throw UnsupportedError(base::cat("from_dlpack: device type ", d.device_type,
                                   " is not supported (CPU and CUDA are)"));
}

DLDevice dlpack_device(const target::Device& device) {
  if (device.host_memory()) return {runtime::kDLCPU, 0};
  std::string name = device.name();
  size_t colon = name.find(':');
  int32_t index = 0;
  if (colon != std::string::npos)
    std::from_chars(name.data() + colon + 1, name.data() + name.size(), index);
  if (name.substr(0, colon) != "cuda") {
    throw UnsupportedError(base::cat("to_dlpack: DLPack has no number for the device ", name));
  }
  return {runtime::kDLCUDA, index};
}

// What an exported tensor owns.
struct Export {
  DLManagedTensor managed{};
  Array array;
  std::vector<int64_t> shape, strides;
};

}  // namespace

Array Array::from_dlpack(DLManagedTensor* tensor) {
  if (tensor == nullptr) throw GraphError("from_dlpack: the tensor is null");
  const DLTensor& t = tensor->dl_tensor;
  if (t.ndim < 0 || t.ndim > kMaxRank)
    throw GraphError(base::cat("from_dlpack: rank ", t.ndim, " is not in 0..", kMaxRank));
  DType dtype = DType::unknown;
  for (const DTypeCode& c : kCodes) {
    if (c.code == t.dtype.code && c.bits == t.dtype.bits && t.dtype.lanes == 1) dtype = c.dtype;
  }
  if (dtype == DType::unknown) {
    throw GraphError(base::cat("from_dlpack: the dtype with code ", int{t.dtype.code}, ", ",
                               int{t.dtype.bits}, " bits and ", t.dtype.lanes,
                               " lanes is not supported"));
  }
  std::vector<int64_t> shape(t.shape, t.shape + t.ndim);
  runtime::checked_count(dtype, shape, "from_dlpack");
  std::vector<int64_t> strides = t.strides != nullptr
                                     ? std::vector<int64_t>(t.strides, t.strides + t.ndim)
                                     : ops::row_major_strides(shape);
  Device device(device_of(t.device));
  return wrap(dtype, std::move(shape), std::move(strides),
              static_cast<std::byte*>(t.data) + t.byte_offset, device, [tensor] {
                if (tensor->deleter != nullptr) tensor->deleter(tensor);
              });
}

DLManagedTensor* Array::to_dlpack() const {
  if (!valid()) throw GraphError("to_dlpack: the array is empty (it was never given data)");
  auto owner = std::make_unique<Export>();
  owner->array = *this;
  owner->shape = shape_;
  owner->strides = strides_;
  DLTensor& t = owner->managed.dl_tensor;
  for (const DTypeCode& c : kCodes) {
    if (c.dtype == dtype_) t.dtype = {c.code, c.bits, 1};
  }
  t.data = data();
  t.device = dlpack_device(*storage_->device);
  t.ndim = rank();
  t.shape = owner->shape.data();
  t.strides = owner->strides.data();
  owner->managed.manager_ctx = owner.get();
  owner->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Export*>(self->manager_ctx);
  };
  return &owner.release()->managed;
}

}  // namespace heddle
