// Scatter-add of many updates as kernels written by hand: the updates are ordered by their index,
// and those of one index are added by one thread, in their own order. So the result has the bits of
// adding one update after another, whatever runs first.
#pragma once

#include <heddle/dtype.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::cuda {

// data and out: [outer, rows, inner]; updates: [outer, count, inner]; indices: [count].
struct ScatterSizes {
  int64_t outer = 1, rows = 0, inner = 1, count = 0;
};

struct ScatterTypes {
  DType value = DType::f32;  // of the parts of complex numbers, whose `inner` is twice theirs
  // 64-bit keys and positions: from 2^31 rows or updates on.
  bool wide = false;
  friend auto operator<=>(const ScatterTypes&, const ScatterTypes&) = default;
};
bool scatter_is_wide(const ScatterSizes& sizes);

// Up to so many updates are ordered by counting, for each, those that come before it.
inline constexpr int64_t kRankedUpdates = 8192;

struct ScatterLaunch {
  const char* entry = "";
  unsigned grid = 0, block = 0;
  std::vector<uint64_t> words;  // arguments: addresses and integers
};

struct ScatterBuffers {
  const void* data = nullptr;  // null: zeros
  const void* indices = nullptr;
  DType index = DType::i64;  // of the indices
  const void* updates = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;
};

// CUDA C++ behind the prelude.
std::string scatter_source(const ScatterTypes& types);
int64_t scatter_workspace(const ScatterSizes& sizes, bool wide);
// In order, on one stream. More than `ranked` updates are sorted digit by digit.
std::vector<ScatterLaunch> scatter_launches(const ScatterTypes& types, const ScatterSizes& sizes,
                                            const ScatterBuffers& buffers,
                                            int64_t ranked = kRankedUpdates);

}  // namespace heddle::cuda
