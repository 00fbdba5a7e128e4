// Packing and unpacking of strided arrays where they are.
#include "base/check.h"
#include "plan/helper_kernels.h"
#include "plan/kernel_cache.h"
#include "runtime/executable.h"
#include "runtime/storage.h"
#include "runtime/strided_copy.h"

#include <heddle/error.h>

#include <map>
#include <mutex>
#include <tuple>

namespace heddle::runtime {

namespace {

using KernelRef = std::shared_ptr<const target::CompiledKernel>;

// One kernel a device, word size, rank and direction serves all sizes and strides.
KernelRef strided_kernel(target::Device& device, int word_bytes, int rank, bool scatter) {
  static std::mutex mutex;
  static auto* kernels = new std::map<std::tuple<const target::Device*, int, int, bool>, KernelRef>;
  std::lock_guard lock(mutex);
  KernelRef& kernel = (*kernels)[{&device, word_bytes, rank, scatter}];
  if (!kernel)
    kernel =
        plan::compile_cached(device.emitter(), plan::strided_kernel(word_bytes, rank, scatter), {});
  return kernel;
}

// The strided side as words; complex f64 becomes pairs of words along a further axis.
void launch(const Array& strided, void* packed, bool scatter, target::Device& device,
            target::Stream& stream) {
  int bits = bit_width(strided.dtype());
  if (bits < 8)
    throw UnsupportedError(
        base::cat("strided arrays of ", name(strided.dtype()), " on ", device.name()));
  int word = std::min(bits / 8, 8);
  int64_t parts = bits / 8 / word;
  std::vector<int64_t> shape = strided.shape(), strides = strided.strides();
  for (int64_t& s : strides) s *= parts;
  if (parts > 1) {
    shape.push_back(parts);
    strides.push_back(1);
  }
  ByteExtent extent = byte_extent(strided.dtype(), strided.shape(), strided.strides());
  std::vector<int64_t> symbols = shape;
  symbols.insert(symbols.end(), strides.begin(), strides.end());
  symbols.push_back(-extent.begin / word);
  symbols.push_back((extent.end - extent.begin) / word);
  void* flat = address(strided) + extent.begin;
  std::vector<void*> buffers =
      scatter ? std::vector<void*>{packed, flat} : std::vector<void*>{flat, packed};
  KernelRef kernel = strided_kernel(device, word, static_cast<int>(shape.size()), scatter);
  stream.recorder().launch(*kernel, {buffers, symbols});
}

}  // namespace

void pack_on_device(const Array& from, const Array& to, target::Device& device,
                    target::Stream& stream) {
  if (from.size() == 0) return;
  if (device.host_memory()) {
    strided_copy(from.dtype(), from.shape(), address(to), to.strides(), address(from),
                 from.strides());
  } else if (from.contiguous() && to.contiguous()) {
    stream.recorder().copy(address(to), address(from), byte_size(from.dtype(), from.size()));
  } else if (to.contiguous()) {
    launch(from, address(to), false, device, stream);
  } else {
    HD_CHECK(from.contiguous(), "one side of a device copy is packed");
    launch(to, address(from), true, device, stream);
  }
}

}  // namespace heddle::runtime
