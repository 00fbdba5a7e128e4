#include "backend/cpu/tile_product.h"

#include "backend/cpu/cpu_target.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace heddle::cpu {

namespace {

// A block of c: some rows, two vectors wide.
struct Tile {
  const float *a, *b;
  float* c;
  int64_t k, row_a, column_a, row_b, row_c;
};
using TileFunction = void (*)(const Tile&);
struct TileSet {
  const TileFunction* tiles;
  int64_t rows, columns;  // of the largest tile
};

constexpr int64_t kAhead = 8;  // rows of b that are prefetched: about the latency of the L2 cache

namespace avx2 {
#define HD_TILE_TARGET [[gnu::target("avx2,fma")]]
using Vector = __m256;
constexpr int64_t kWidth = 8;
constexpr size_t kRows = 6;  // 12 sums, two vectors of b, one of a: 15 of 16 registers
HD_TILE_TARGET inline Vector zero() { return _mm256_setzero_ps(); }
HD_TILE_TARGET inline Vector load(const float* p) { return _mm256_loadu_ps(p); }
HD_TILE_TARGET inline void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
HD_TILE_TARGET inline Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
HD_TILE_TARGET inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#include "backend/cpu/tile_kernel.h"
#undef HD_TILE_TARGET
}  // namespace avx2

namespace avx512 {
#define HD_TILE_TARGET [[gnu::target("avx512f")]]
using Vector = __m512;
constexpr int64_t kWidth = 16;
constexpr size_t kRows = 12;  // 24 sums, two vectors of b, of 32 registers
HD_TILE_TARGET inline Vector zero() { return _mm512_setzero_ps(); }
HD_TILE_TARGET inline Vector load(const float* p) { return _mm512_loadu_ps(p); }
HD_TILE_TARGET inline void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
HD_TILE_TARGET inline Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
HD_TILE_TARGET inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#include "backend/cpu/tile_kernel.h"
#undef HD_TILE_TARGET
}  // namespace avx512

const TileSet* tile_set() {
  static const TileSet* const set = []() -> const TileSet* {
    std::string arch = host_arch();
    if (arch == "x86-64-v4") return &avx512::kSet;
    return arch == "x86-64-v3" ? &avx2::kSet : nullptr;
  }();
  return set;
}

int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A band of columns reads all of a and its part of b, a band of rows the other way round.
bool by_columns(const TileProduct& p) { return p.n > p.m; }

// One panel of b, as wide as a tile and contiguous, zeros where b has no more columns.
const float* packed_panel(const TileProduct& p, int64_t column, int64_t width) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < p.k * width)
    memory.resize(static_cast<size_t>(p.k * width));
  int64_t have = std::min(width, p.n - column);
  const float* from = p.b + column * p.column_b;
  float* to = memory.data();
  if (p.column_b == 1) {
    for (int64_t k = 0; k < p.k; ++k, from += p.row_b, to += width) {
      _mm_prefetch(reinterpret_cast<const char*>(from + kAhead * p.row_b), _MM_HINT_T0);
      std::memcpy(to, from, static_cast<size_t>(have) * sizeof(float));
      std::fill(to + have, to + width, 0.0F);
    }
    return memory.data();
  }
  for (int64_t j = 0; j < width; ++j, from += p.column_b, ++to) {
    for (int64_t k = 0; k < p.k; ++k) to[k * width] = j < have ? from[k * p.row_b] : 0.0F;
  }
  return memory.data();
}

// Rows [begin, end) of one panel of columns.
void multiply_panel(const TileProduct& p, int64_t column, int64_t begin, int64_t end) {
  const TileSet& set = *tile_set();
  int64_t have = std::min(set.columns, p.n - column);
  int64_t count = parts(end - begin, set.rows);
  // Rows of b that lie a power of two apart compete for few places of the caches, so what is read
  // more than once is packed.
  bool direct = p.column_b == 1 && have == set.columns && count == 1;
  Tile t{nullptr,
         direct ? p.b + column : packed_panel(p, column, set.columns),
         nullptr,
         p.k,
         p.row_a,
         p.column_a,
         direct ? p.row_b : set.columns,
         p.row_c};
  float edge[12 * 32];                   // the largest tile
  for (int64_t i = 0; i < count; ++i) {  // tiles of about the same height
    int64_t first = begin + (end - begin) * i / count;
    int64_t rows = begin + (end - begin) * (i + 1) / count - first;
    float* c = p.c + first * p.row_c + column;
    t.a = p.a + first * p.row_a;
    t.c = have == set.columns ? c : edge;
    t.row_c = have == set.columns ? p.row_c : set.columns;
    set.tiles[rows - 1](t);
    if (have == set.columns) continue;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(c + r * p.row_c, edge + r * set.columns,
                  static_cast<size_t>(have) * sizeof(float));
  }
}

}  // namespace

bool has_tile_products() { return tile_set() != nullptr; }

int64_t tile_bands(const TileProduct& p) {
  const TileSet& set = *tile_set();
  return by_columns(p) ? parts(p.n, set.columns) : parts(p.m, set.rows);
}

void multiply_bands(const TileProduct& p, int64_t begin, int64_t end) {
  const TileSet& set = *tile_set();
  bool columns = by_columns(p);
  int64_t first_row = columns ? 0 : begin * set.rows;
  int64_t last_row = columns ? p.m : std::min(p.m, end * set.rows);
  int64_t first_column = columns ? begin * set.columns : 0;
  int64_t last_column = columns ? std::min(p.n, end * set.columns) : p.n;
  for (int64_t column = first_column; column < last_column; column += set.columns)
    multiply_panel(p, column, first_row, last_row);
}

}  // namespace heddle::cpu
