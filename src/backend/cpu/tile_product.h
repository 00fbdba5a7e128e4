// Products of matrices in tiles of registers: nothing to prepare, so any size runs at once.
#pragma once

#include <cstdint>

namespace heddle::cpu {

// c[m,n] = a[m,k] x b[k,n] in f32. Every element is one chain of fused multiply-adds in the order
// of k: neither threads, nor tiles, nor the instruction set change a bit. Strides in floats.
struct TileProduct {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t row_a = 0, column_a = 0;
  const float* b = nullptr;
  int64_t row_b = 0, column_b = 0;
  float* c = nullptr;  // rows are contiguous
  int64_t row_c = 0;
};

// False: the processor has no fused multiply-add.
bool has_tile_products();

// The result is cut into bands of rows or of columns, whichever reads less; a band each is the
// least that a thread may compute.
int64_t tile_bands(const TileProduct& p);
void multiply_bands(const TileProduct& p, int64_t begin, int64_t end);

}  // namespace heddle::cpu
