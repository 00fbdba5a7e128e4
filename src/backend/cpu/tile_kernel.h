// Tiles of one instruction set. tile_product.cpp includes this once in the namespace of each, after
// Vector, kWidth, kRows, zero, load, store, broadcast, fma and HD_TILE_TARGET are defined there.
// V: vectors in a row of the tile.

template <size_t V>
HD_TILE_TARGET inline void fold(Vector (&sum)[V], Vector a, const Vector (&b)[V]) {
#pragma GCC unroll 2
  for (size_t v = 0; v < V; ++v) sum[v] = fma(a, b[v], sum[v]);
}

template <size_t V>
HD_TILE_TARGET inline void move_row(float* to, const Vector (&row)[V]) {
#pragma GCC unroll 2
  for (size_t v = 0; v < V; ++v) store(to + v * kWidth, row[v]);
}

// A row of b, while the lines of a later one are fetched.
template <size_t V>
HD_TILE_TARGET inline void take_row(Vector (&row)[V], const float* b, int64_t row_b) {
  constexpr size_t kLine = 16;  // floats
#pragma GCC unroll 2
  for (size_t at = 0; at < V * kWidth; at += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(b + kAhead * row_b + at), _MM_HINT_T0);
#pragma GCC unroll 2
  for (size_t v = 0; v < V; ++v) row[v] = load(b + v * kWidth);
}

// Packs: the rows of b are also written to t.packed, for the tiles below this one.
template <size_t V, bool Packs, size_t... R>
HD_TILE_TARGET inline void tile_of(const Tile& t, std::index_sequence<R...> /*rows*/) {
  Vector sums[sizeof...(R)][V];
#pragma GCC unroll 2
  for (size_t v = 0; v < V; ++v) ((sums[R][v] = zero()), ...);
  const float *a = t.a, *b = t.b;
  float* packed = t.packed;
  // Copies, because the compiler must assume that stores of vectors change the tile.
  const int64_t depth = t.k, row_a = t.row_a, column_a = t.column_a, row_b = t.row_b;
  for (int64_t k = 0; k < depth; ++k, a += column_a, b += row_b) {
    Vector row[V];
    take_row(row, b, row_b);
    if constexpr (Packs) {
      move_row(packed, row);
      packed += V * kWidth;
    }
    (fold(sums[R], broadcast(a + static_cast<int64_t>(R) * row_a), row), ...);
  }
  float* c = t.c;
  const int64_t row_c = t.row_c;
  (move_row(c + static_cast<int64_t>(R) * row_c, sums[R]), ...);
}

template <size_t V, bool Packs, size_t Rows>
HD_TILE_TARGET void tile(const Tile& t) {
  tile_of<V, Packs>(t, std::make_index_sequence<Rows>());
}

// Rows of b as wide as a tile, one after another.
template <size_t V>
HD_TILE_TARGET inline void copy_rows(const float* from, int64_t row_b, float* to, int64_t count) {
  for (int64_t k = 0; k < count; ++k, from += row_b, to += V * kWidth) {
    Vector row[V];
    take_row(row, from, row_b);
    move_row(to, row);
  }
}

template <size_t V, bool Packs, size_t... R>
constexpr std::array<TileFunction, sizeof...(R)> tiles_of(std::index_sequence<R...> /*rows*/) {
  return {&tile<V, Packs, R + 1>...};
}
// By number of rows, less one.
template <size_t V, bool Packs>
constexpr auto kTiles = tiles_of<V, Packs>(std::make_index_sequence<kRows>());
template <size_t V>
constexpr TileSet kSet{kTiles<V, false>.data(), kTiles<V, true>.data(), &copy_rows<V>,
                       static_cast<int64_t>(kRows), static_cast<int64_t>(V* kWidth)};
