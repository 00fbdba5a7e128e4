// Tiles of one instruction set. tile_product.cpp includes this once in the namespace of each, after
// Vector, kWidth, kRows, zero, load, store, broadcast, fma and HD_TILE_TARGET are defined there.

// One row of the tile: two vectors.
HD_TILE_TARGET inline void fold(Vector (&sum)[2], Vector a, Vector b0, Vector b1) {
  sum[0] = fma(a, b0, sum[0]);
  sum[1] = fma(a, b1, sum[1]);
}

template <size_t... R>
HD_TILE_TARGET inline void tile_of(const Tile& t, std::index_sequence<R...> /*rows*/) {
  Vector sums[sizeof...(R)][2];
  ((sums[R][0] = zero(), sums[R][1] = zero()), ...);
  const float *a = t.a, *b = t.b;
  for (int64_t k = 0; k < t.k; ++k, a += t.column_a, b += t.row_b) {
    _mm_prefetch(reinterpret_cast<const char*>(b + kAhead * t.row_b), _MM_HINT_T0);
    Vector b0 = load(b), b1 = load(b + kWidth);
    (fold(sums[R], broadcast(a + static_cast<int64_t>(R) * t.row_a), b0, b1), ...);
  }
  ((store(t.c + static_cast<int64_t>(R) * t.row_c, sums[R][0]),
    store(t.c + static_cast<int64_t>(R) * t.row_c + kWidth, sums[R][1])),
   ...);
}

template <size_t Rows>
HD_TILE_TARGET void tile(const Tile& t) {
  tile_of(t, std::make_index_sequence<Rows>());
}

template <size_t... R>
constexpr std::array<TileFunction, sizeof...(R)> tiles_of(std::index_sequence<R...> /*rows*/) {
  return {&tile<R + 1>...};
}
// By number of rows, less one.
constexpr auto kTiles = tiles_of(std::make_index_sequence<kRows>());
constexpr TileSet kSet{kTiles.data(), static_cast<int64_t>(kRows), 2 * kWidth};
