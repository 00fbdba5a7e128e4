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

// A block of c: some rows, one or two vectors wide.
struct Tile {
  const float *a, *b;
  float *c, *packed;
  int64_t k, row_a, column_a, row_b, row_c;
};
using TileFunction = void (*)(const Tile&);
struct TileSet {
  const TileFunction *tiles, *packing;
  void (*copy_rows)(const float* from, int64_t row, float* to, int64_t count);
  int64_t rows, columns;  // of the largest tile
};

constexpr int64_t kAhead = 8;  // rows of b that are prefetched: about the latency of the L2 cache

namespace avx2 {
#define HD_TILE_TARGET [[gnu::target("avx2,fma")]]
using Vector = __m256;
constexpr size_t kWidth = 8;
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
constexpr size_t kWidth = 16;
constexpr size_t kRows = 12;  // 24 sums, two vectors of b, of 32 registers
HD_TILE_TARGET inline Vector zero() { return _mm512_setzero_ps(); }
HD_TILE_TARGET inline Vector load(const float* p) { return _mm512_loadu_ps(p); }
HD_TILE_TARGET inline void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
HD_TILE_TARGET inline Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
HD_TILE_TARGET inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#include "backend/cpu/tile_kernel.h"
#undef HD_TILE_TARGET
}  // namespace avx512

// Wide tiles, and narrow ones for the last columns of a product.
struct TileSets {
  TileSet wide, narrow;
};

const TileSets* tile_sets() {
  static const TileSets kAvx2{avx2::kSet<2>, avx2::kSet<1>};
  static const TileSets kAvx512{avx512::kSet<2>, avx512::kSet<1>};
  static const TileSets* const sets = []() -> const TileSets* {
    std::string arch = host_arch();
    if (arch == "x86-64-v4") return &kAvx512;
    return arch == "x86-64-v3" ? &kAvx2 : nullptr;
  }();
  return sets;
}

int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A band of columns reads all of a and its part of b, a band of rows the other way round.
bool by_columns(const TileProduct& p) { return p.n > p.m; }

// Memory of one panel of b, as wide as a tile and contiguous.
float* panel_memory(int64_t floats) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < floats) memory.resize(static_cast<size_t>(floats));
  return memory.data();
}

// Columns beyond the last of b hold anything.
void pack_panel(const TileProduct& p, int64_t column, const TileSet& set, float* to) {
  int64_t width = set.columns, have = std::min(width, p.n - column);
  const float* from = p.b + column * p.column_b;
  if (p.column_b == 1) {
    // Whole vectors may run on into the next rows, not past the end of b.
    int64_t beyond = width - (p.n - column), whole = p.k;
    if (beyond > 0)
      whole = std::max<int64_t>(0, p.k - parts(beyond, std::max<int64_t>(1, p.row_b)));
    set.copy_rows(from, p.row_b, to, whole);
    for (int64_t k = whole; k < p.k; ++k)
      std::memcpy(to + k * width, from + k * p.row_b, static_cast<size_t>(have) * sizeof(float));
    return;
  }
  for (int64_t j = 0; j < width; ++j, from += p.column_b, ++to) {
    for (int64_t k = 0; k < p.k; ++k) to[k * width] = j < have ? from[k * p.row_b] : 0.0F;
  }
}

// Rows [begin, end) of one panel of columns.
void multiply_panel(const TileProduct& p, int64_t column, int64_t begin, int64_t end) {
  const TileSets& sets = *tile_sets();
  const TileSet& set = p.n - column > sets.narrow.columns ? sets.wide : sets.narrow;
  int64_t have = std::min(set.columns, p.n - column);
  int64_t count = parts(end - begin, set.rows);
  // Rows of b that lie a power of two apart compete for few places of the caches, so what is read
  // more than once is packed, by the first tile while it computes.
  bool direct = p.column_b == 1 && have == set.columns;
  float* packed = direct && count == 1 ? nullptr : panel_memory(p.k * set.columns);
  if (!direct) pack_panel(p, column, set, packed);
  Tile t{nullptr, nullptr, nullptr, packed, p.k, p.row_a, p.column_a, 0, p.row_c};
  float edge[12 * 32];                   // the largest tile
  for (int64_t i = 0; i < count; ++i) {  // tiles of about the same height
    int64_t first = begin + (end - begin) * i / count;
    int64_t rows = begin + (end - begin) * (i + 1) / count - first;
    float* c = p.c + first * p.row_c + column;
    t.a = p.a + first * p.row_a;
    t.c = have == set.columns ? c : edge;
    t.row_c = have == set.columns ? p.row_c : set.columns;
    bool first_use = direct && i == 0;
    t.b = first_use ? p.b + column : packed;
    t.row_b = first_use ? p.row_b : set.columns;
    (first_use && count > 1 ? set.packing : set.tiles)[rows - 1](t);
    if (have == set.columns) continue;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(c + r * p.row_c, edge + r * set.columns,
                  static_cast<size_t>(have) * sizeof(float));
  }
}

}  // namespace

bool has_tile_products() { return tile_sets() != nullptr; }

int64_t tile_bands(const TileProduct& p) {
  const TileSet& set = tile_sets()->wide;
  return by_columns(p) ? parts(p.n, set.columns) : parts(p.m, set.rows);
}

void multiply_bands(const TileProduct& p, int64_t begin, int64_t end) {
  const TileSet& set = tile_sets()->wide;
  bool columns = by_columns(p);
  int64_t first_row = columns ? 0 : begin * set.rows;
  int64_t last_row = columns ? p.m : std::min(p.m, end * set.rows);
  int64_t first_column = columns ? begin * set.columns : 0;
  int64_t last_column = columns ? std::min(p.n, end * set.columns) : p.n;
  for (int64_t column = first_column; column < last_column; column += set.columns)
    multiply_panel(p, column, first_row, last_row);
}

}  // namespace heddle::cpu
