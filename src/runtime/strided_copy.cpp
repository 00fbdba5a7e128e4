#include "runtime/strided_copy.h"

#include "ops/host_tensor.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace heddle::runtime {

namespace {

struct CopyAxis {
  int64_t extent, dst, src;  // strides in elements
};

// Axes of extent 1 dropped, ordered by the destination's strides, neighbours joined where both
// sides allow it.
std::vector<CopyAxis> simplify(std::span<const int64_t> shape, std::span<const int64_t> dst,
                               std::span<const int64_t> src) {
  std::vector<CopyAxis> axes;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] != 1) axes.push_back({shape[k], dst[k], src[k]});
  }
  std::stable_sort(axes.begin(), axes.end(), [](const CopyAxis& a, const CopyAxis& b) {
    return std::abs(a.dst) > std::abs(b.dst);
  });
  std::vector<CopyAxis> joined;
  for (const CopyAxis& a : axes) {
    if (!joined.empty() && joined.back().dst == a.dst * a.extent &&
        joined.back().src == a.src * a.extent) {
      joined.back() = {joined.back().extent * a.extent, a.dst, a.src};
    } else {
      joined.push_back(a);
    }
  }
  return joined;
}

template <class T>
void copy_line(T* dst, int64_t dst_stride, const T* src, int64_t src_stride, int64_t n) {
  if (dst_stride == 1 && src_stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(T));
  } else if (dst_stride == 1 && src_stride == 0) {
    std::fill_n(dst, n, *src);
  } else if (dst_stride == 1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i * src_stride];
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * dst_stride] = src[i * src_stride];
  }
}

// A transposition: the destination runs along `inner`, the source along `outer`; tiles keep both in
// the cache.
template <class T>
void copy_tiles(T* dst, const T* src, const CopyAxis& outer, const CopyAxis& inner) {
  constexpr int64_t kTile = 32;
  for (int64_t i0 = 0; i0 < outer.extent; i0 += kTile) {
    int64_t i1 = std::min(i0 + kTile, outer.extent);
    for (int64_t j0 = 0; j0 < inner.extent; j0 += kTile) {
      int64_t n = std::min(kTile, inner.extent - j0);
      for (int64_t i = i0; i < i1; ++i) {
        copy_line(dst + i * outer.dst + j0 * inner.dst, inner.dst,
                  src + i * outer.src + j0 * inner.src, inner.src, n);
      }
    }
  }
}

template <class T>
void copy_axes(T* dst, const T* src, std::span<const CopyAxis> axes) {
  if (axes.empty()) {
    *dst = *src;
  } else if (axes.size() == 1) {
    copy_line(dst, axes[0].dst, src, axes[0].src, axes[0].extent);
  } else if (axes.size() == 2) {
    copy_tiles(dst, src, axes[0], axes[1]);
  } else {
    for (int64_t i = 0; i < axes[0].extent; ++i) {
      copy_axes(dst + i * axes[0].dst, src + i * axes[0].src, axes.subspan(1));
    }
  }
}

// The axis along which the source is packed, next to the innermost one.
void order_for_tiles(std::vector<CopyAxis>& axes) {
  if (axes.size() < 3 || std::abs(axes.back().src) <= 1) return;
  for (size_t k = 0; k + 2 < axes.size(); ++k) {
    if (std::abs(axes[k].src) == 1) {
      std::rotate(axes.begin() + static_cast<int64_t>(k),
                  axes.begin() + static_cast<int64_t>(k) + 1, axes.end() - 1);
      return;
    }
  }
}

struct Pair64 {
  uint64_t a, b;
};

template <class T>
void run(void* dst, const void* src, std::span<const CopyAxis> axes) {
  copy_axes(static_cast<T*>(dst), static_cast<const T*>(src), axes);
}

void copy_bits(int bits, std::span<const int64_t> shape, uint8_t* dst,
               std::span<const int64_t> dst_strides, const uint8_t* src,
               std::span<const int64_t> src_strides) {
  auto mask = static_cast<uint8_t>((1 << bits) - 1);
  // A power of two: >> and & divide with the floor, for negative strides.
  int64_t per_byte = 8 / bits;
  int per_byte_log2 = bits == 2 ? 2 : 1;
  ops::for_each_index(shape, [&](const std::vector<int64_t>& at, int64_t) {
    int64_t d = 0, s = 0;
    for (size_t k = 0; k < at.size(); ++k) d += at[k] * dst_strides[k], s += at[k] * src_strides[k];
    auto value =
        static_cast<uint8_t>((src[s >> per_byte_log2] >> ((s & (per_byte - 1)) * bits)) & mask);
    int64_t shift = (d & (per_byte - 1)) * bits;
    uint8_t& byte = dst[d >> per_byte_log2];
    byte = static_cast<uint8_t>((byte & ~(mask << shift)) | (value << shift));
  });
}

}  // namespace

void strided_copy(DType dtype, std::span<const int64_t> shape, void* dst,
                  std::span<const int64_t> dst_strides, const void* src,
                  std::span<const int64_t> src_strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  int bits = bit_width(dtype);
  if (bits < 8) {
    copy_bits(bits, shape, static_cast<uint8_t*>(dst), dst_strides,
              static_cast<const uint8_t*>(src), src_strides);
    return;
  }
  std::vector<CopyAxis> axes = simplify(shape, dst_strides, src_strides);
  order_for_tiles(axes);
  switch (bits) {
    case 8:
      run<uint8_t>(dst, src, axes);
      break;
    case 16:
      run<uint16_t>(dst, src, axes);
      break;
    case 32:
      run<uint32_t>(dst, src, axes);
      break;
    case 64:
      run<uint64_t>(dst, src, axes);
      break;
    default:
      run<Pair64>(dst, src, axes);
      break;
  }
}

ByteExtent byte_extent(DType dtype, std::span<const int64_t> shape,
                       std::span<const int64_t> strides) {
  int64_t first = 0, last = 0;
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 0) return {};
    (strides[k] < 0 ? first : last) += (shape[k] - 1) * strides[k];
  }
  int bits = bit_width(dtype);
  if (bits < 8) return {(first * bits) >> 3, byte_size(dtype, last + 1)};
  return {first * (bits / 8), (last + 1) * (bits / 8)};
}

bool is_packed(std::span<const int64_t> shape, std::span<const int64_t> strides) {
  int64_t expected = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    if (shape[k] == 0) return true;
    if (shape[k] != 1 && strides[k] != expected) {
      for (int64_t extent : shape) {
        if (extent == 0) return true;
      }
      return false;
    }
    expected *= shape[k];
  }
  return true;
}

}  // namespace heddle::runtime
