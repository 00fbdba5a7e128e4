#include "backend/cuda/scatter_source.h"

#include "backend/cuda/kernel_context.h"
#include "base/check.h"

#include <algorithm>
#include <bit>

namespace heddle::cuda {

namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kRankTile = 2048;  // keys in shared memory at a time
constexpr int64_t kRankedPerBlock = 32;
constexpr int64_t kTile = 2048;  // updates that a block moves in one pass of the sort
constexpr int kDigitBits = 8;
constexpr int64_t kMaxBlocks = 1 << 16;
constexpr int64_t kLeastLanes = 16;  // inner extents from here on are spread over lanes

// T: stored, A: accumulated, K: keys and positions; kBytes of T.
constexpr const char* kText = R"cuda(
// Indices of any integer type: `kind` is their bytes, and 16 more where they are signed.
HD_FN K key_of(const void* indices, i64 kind, i64 at, i64 rows) {
  u64 i = 0;
  switch ((int)kind) {
    case 1: i = ((const u8*)indices)[at]; break;
    case 2: i = ((const u16*)indices)[at]; break;
    case 4: i = ((const u32*)indices)[at]; break;
    case 17: i = (u64)(i64)((const i8*)indices)[at]; break;
    case 18: i = (u64)(i64)((const i16*)indices)[at]; break;
    case 20: i = (u64)(i64)((const i32*)indices)[at]; break;
    default: i = ((const u64*)indices)[at];
  }
  if (kind >= 16 && (i64)i < 0) i += (u64)rows;
  return (K)(i >= (u64)rows ? (u64)rows : i);
}
HD_FN A start_of(const T* data, i64 at) { return data == 0 ? (A)0 : (A)hd_value(data[at]); }
template <class V> HD_FN V lane_value(V v, int lane) {
  union { V value; u32 words[sizeof(V) / 4]; } u;
  u.value = v;
  HD_UNROLL for (int k = 0; k < (int)sizeof(V) / 4; ++k) u.words[k] = hd_shfl(u.words[k], lane);
  return u.value;
}

// out = data, or zeros, by blocks first .. of `blocks`.
HD_FN void copy(const T* data, T* out, i64 count, i64 block, i64 blocks) {
  i64 bytes = count * kBytes, at = block * 256 + threadIdx.x, step = blocks * 256;
  char* to = (char*)out;
  const char* from = (const char*)data;
  bool whole = (((u64)to | (u64)from) & 15) == 0;
  i64 vectors = whole ? bytes / 16 : 0;
  for (i64 k = at; k < vectors; k += step) {
    uint4 v;
    v.x = v.y = v.z = v.w = 0;
    if (from != 0) v = hd_ldg16(from + 16 * k);
    *(uint4*)(to + 16 * k) = v;
  }
  for (i64 k = vectors * 16 / kBytes + at; k < count; k += step) {
    if (from != 0) out[k] = data[k];
    else out[k] = hd_convert(hd_tag<T>(), (A)0);
  }
}

// The copy, and beside it for each update the number of those that come before it in the order of
// (key, position). Blocks from copy_blocks on rank 32 updates each, every warp against an eighth of
// the keys.
HD_KERNEL(256, 1) scatter_rank(const T* data, T* out, i64 count, i64 copy_blocks, const void* indices,
                               i64 kind, i64 updates, i64 rows, K* keys, K* order) {
  HD_SHARED K tile[2048];
  HD_SHARED u32 parts[256];
  if ((i64)blockIdx.x < copy_blocks) {
    copy(data, out, count, blockIdx.x, copy_blocks);
    return;
  }
  i64 base = ((i64)blockIdx.x - copy_blocks) * 32;
  int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  i64 j = base + lane;
  K mine = j < updates ? key_of(indices, kind, j, rows) : (K)0;
  u32 before = 0;
  for (i64 s = 0; s < updates; s += 2048) {
    hd_sync();
    for (int k = threadIdx.x; k < 2048; k += 256)
      tile[k] = s + k < updates ? key_of(indices, kind, s + k, rows) : ~(K)0;
    hd_sync();
    i64 first = s + part * 256;
    const K* t = tile + part * 256;
    if (first + 256 <= base) {
      HD_UNROLL8 for (int k = 0; k < 256; ++k) before += t[k] <= mine;
    } else if (first >= base + 32) {
      HD_UNROLL8 for (int k = 0; k < 256; ++k) before += t[k] < mine;
    } else {
      for (int k = 0; k < 256; ++k) before += t[k] < mine || (t[k] == mine && first + k < j);
    }
  }
  parts[threadIdx.x] = before;
  hd_sync();
  if (part != 0 || j >= updates) return;
  for (int k = 1; k < 8; ++k) before += parts[32 * k + lane];
  keys[before] = mine;
  order[before] = (K)j;
}

HD_KERNEL(256, 1) scatter_copy(const T* data, T* out, i64 count) {
  copy(data, out, count, blockIdx.x, gridDim.x);
}

// ---- one pass of a stable sort by digits; `from`: keys of the pass before, null in the first.

HD_FN K pass_key(const K* from, const void* indices, i64 kind, i64 at, i64 rows) {
  return from != 0 ? from[at] : key_of(indices, kind, at, rows);
}

// counts[digit][tile]
HD_KERNEL(256, 1) scatter_count(const K* from, const void* indices, i64 kind, i64 updates, i64 rows, i64 shift,
                                i64 bins, K* counts) {
  HD_SHARED u32 found[256];
  found[threadIdx.x] = 0;
  hd_sync();
  i64 base = (i64)blockIdx.x * 2048;
  for (int k = threadIdx.x; k < 2048; k += 256) {
    if (base + k < updates)
      hd_atomic_add(found + (u32)((pass_key(from, indices, kind, base + k, rows) >> shift) & (K)(bins - 1)), 1u);
  }
  hd_sync();
  if ((i64)threadIdx.x < bins) counts[(i64)threadIdx.x * gridDim.x + blockIdx.x] = (K)found[threadIdx.x];
}

// The exclusive sum of one value a thread, over the block; *total: of all.
HD_FN K block_sum(K v, K* warps, K* total) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  K sum = v;
  for (int d = 1; d < 32; d *= 2) {
    K left = lane_value(sum, lane >= d ? lane - d : lane);
    if (lane >= d) sum += left;
  }
  hd_sync();
  if (lane == 31) warps[warp] = sum;
  hd_sync();
  K before = 0, all = 0;
  for (int k = 0; k < 8; ++k) {
    if (k < warp) before += warps[k];
    all += warps[k];
  }
  *total = all;
  return before + sum - v;
}

// Of each digit (a block): the exclusive sums over tiles, in place, and the total.
HD_KERNEL(256, 1) scatter_scan(K* counts, i64 tiles, K* totals) {
  HD_SHARED K warps[8];
  K* row = counts + (i64)blockIdx.x * tiles;
  K carry = 0;
  for (i64 s = 0; s < tiles; s += 256) {
    i64 at = s + threadIdx.x;
    K total, v = at < tiles ? row[at] : (K)0;
    K before = block_sum(v, warps, &total);
    if (at < tiles) row[at] = carry + before;
    carry += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// Moves a tile: every warp has 256 updates in a row, 32 at a time.
HD_KERNEL(256, 1) scatter_move(const K* from, const K* from_order, const void* indices, i64 kind, i64 updates,
                               i64 rows, i64 shift, i64 bins, const K* counts, const K* totals,
                               K* keys, K* order) {
  HD_SHARED u32 found[8][256];
  HD_SHARED K begin[256];
  HD_SHARED K warps[8];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int k = 0; k < 8; ++k) found[k][threadIdx.x] = 0;
  hd_sync();
  i64 base = (i64)blockIdx.x * 2048 + warp * 256 + lane;
  K key[8];
  u32 rank[8];
  HD_UNROLL for (int r = 0; r < 8; ++r) {
    i64 at = base + 32 * r;
    bool inside = at < updates;
    key[r] = inside ? pass_key(from, indices, kind, at, rows) : (K)0;
    u32 digit = (u32)((key[r] >> shift) & (K)(bins - 1));
    u32 equal = hd_ballot(inside);
    if (!inside) equal = ~equal;
    for (i64 bit = 1; bit < bins; bit *= 2) {
      u32 set = hd_ballot((digit & (u32)bit) != 0);
      equal &= (digit & (u32)bit) != 0 ? set : ~set;
    }
    int first = hd_lowest(equal);
    u32 before = 0;
    if (lane == first && inside) {
      before = found[warp][digit];
      found[warp][digit] = before + hd_popc(equal);
    }
    hd_sync_warp();
    rank[r] = hd_shfl(before, first) + hd_popc(equal & ((1u << lane) - 1u));
  }
  hd_sync();
  // Where the tile's updates of this thread's digit begin, and each warp's among them.
  bool used = (i64)threadIdx.x < bins;
  K unused, start = block_sum(used ? totals[threadIdx.x] : (K)0, warps, &unused);
  begin[threadIdx.x] = used ? start + counts[(i64)threadIdx.x * gridDim.x + blockIdx.x] : (K)0;
  u32 before = 0;
  for (int k = 0; k < 8; ++k) {
    u32 n = found[k][threadIdx.x];
    found[k][threadIdx.x] = before;
    before += n;
  }
  hd_sync();
  HD_UNROLL for (int r = 0; r < 8; ++r) {
    i64 at = base + 32 * r;
    if (at >= updates) continue;
    u32 digit = (u32)((key[r] >> shift) & (K)(bins - 1));
    K to = begin[digit] + (K)found[warp][digit] + (K)rank[r];
    keys[to] = key[r];
    order[to] = from != 0 ? from_order[at] : (K)at;
  }
}

// ---- the sums. An update whose left neighbour has another key begins a run; runs of the key `rows`
// are out of range.

// Lanes are elements of the inner extent.
HD_KERNEL(256, 1) scatter_lanes(const T* data, T* out, const T* updates, const K* keys,
                                const K* order, i64 outer, i64 rows, i64 inner, i64 count) {
  int lane = threadIdx.x % 32;
  i64 pieces = (inner + 31) / 32, items = outer * count * pieces;
  for (i64 item = (i64)blockIdx.x * 8 + threadIdx.x / 32; item < items; item += (i64)gridDim.x * 8) {
    i64 piece = item % pieces, p = item / pieces % count, o = item / pieces / count;
    K key = keys[p];
    if ((i64)key >= rows || (p > 0 && keys[p - 1] == key)) continue;
    i64 w = piece * 32 + lane, at = (o * rows + (i64)key) * inner + w;
    const T* from = updates + o * count * inner + w;
    A sum = w < inner ? start_of(data, at) : (A)0;
    for (i64 q = p;;) {
      bool mine = q + lane < count && keys[q + lane] == key;
      K which = mine ? order[q + lane] : (K)0;
      int n = hd_popc(hd_ballot(mine));
      HD_UNROLL8 for (int k = 0; k < n; ++k) {
        i64 j = (i64)lane_value(which, k);
        if (w < inner) sum += (A)hd_value(from[j * inner]);
      }
      q += 32;
      if (n < 32 || q >= count) break;
    }
    if (w < inner) out[at] = hd_convert(hd_tag<T>(), sum);
  }
}

// Lanes are updates: each adds a short run by itself, the warp together what is left of a long one.
HD_KERNEL(256, 1) scatter_runs(const T* data, T* out, const T* updates, const K* keys,
                               const K* order, i64 outer, i64 rows, i64 inner, i64 count) {
  int lane = threadIdx.x % 32;
  i64 groups = (count + 31) / 32, items = outer * inner * groups;
  for (i64 item = (i64)blockIdx.x * 8 + threadIdx.x / 32; item < items; item += (i64)gridDim.x * 8) {
    i64 w = item / groups % inner, o = item / groups / inner, p = item % groups * 32 + lane;
    K key = p < count ? keys[p] : (K)rows;
    bool begins = (i64)key < rows && (p == 0 || keys[p - 1] != key), open = begins;
    i64 at = (o * rows + (begins ? (i64)key : 0)) * inner + w, q = p;
    const T* from = updates + o * count * inner + w;
    A sum = begins ? start_of(data, at) : (A)0;
    for (int k = 0; k < 8 && open; ++k) {
      sum += (A)hd_value(from[(i64)order[q] * inner]);
      ++q;
      open = q < count && keys[q] == key;
    }
    for (u32 left = hd_ballot(open); left != 0; left &= left - 1) {
      int owner = hd_lowest(left);
      K run = lane_value(key, owner);
      i64 next = lane_value(q, owner);
      A total = lane_value(sum, owner);
      // Four times 32 updates are fetched at once: each takes two loads, one after the other.
      for (int n = 32; n == 32;) {
        A value[4];
        u32 mine[4];
        HD_UNROLL for (int b = 0; b < 4; ++b) {
          i64 r = next + 32 * b + lane;
          bool in = r < count && keys[r] == run;
          value[b] = in ? (A)hd_value(from[(i64)order[r] * inner]) : (A)0;
          mine[b] = hd_ballot(in);
        }
        HD_UNROLL for (int b = 0; b < 4; ++b) {
          n = hd_popc(mine[b]);
          if (n == 32) {
            HD_UNROLL for (int k = 0; k < 32; ++k) total += lane_value(value[b], k);
          } else {
            for (int k = 0; k < n; ++k) total += lane_value(value[b], k);
          }
        }
        next += 128;
      }
      if (lane == owner) sum = total;
    }
    if (begins) out[at] = hd_convert(hd_tag<T>(), sum);
  }
}
)cuda";

// Integers wrap, so they are added as unsigned words.
const char* sum_name(DType d) {
  if (is_real_float(d)) return c_type(compute_type(d));
  return bit_width(d) == 64 ? "u64" : "u32";
}

uint64_t word(const void* p) { return reinterpret_cast<uint64_t>(p); }
uint64_t word(int64_t v) { return static_cast<uint64_t>(v); }

unsigned blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((items + per_block - 1) / per_block, 1, kMaxBlocks));
}

uint64_t index_kind(DType d) {
  return static_cast<uint64_t>(bit_width(d) / 8 + (is_signed_integer(d) ? 16 : 0));
}

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Parts of the workspace: two sets of keys and positions, counts of digits by tiles, and totals.
struct Parts {
  int64_t key_bytes, set_bytes, count_bytes;
  Parts(const ScatterSizes& s, bool wide)
      : key_bytes(wide ? 8 : 4),
        set_bytes(aligned(s.count * key_bytes)),
        count_bytes(aligned((int64_t{1} << kDigitBits) * tiles(s) * key_bytes)) {}
  static int64_t tiles(const ScatterSizes& s) { return (s.count + kTile - 1) / kTile; }
  int64_t total() const { return 4 * set_bytes + count_bytes + aligned(8 << kDigitBits); }
};

struct Sorted {
  const void *keys, *order;
};

Sorted add_ranking(const ScatterSizes& s, bool wide, const ScatterBuffers& b,
                   std::vector<ScatterLaunch>& out) {
  Parts parts(s, wide);
  auto* at = static_cast<std::byte*>(b.workspace);
  void *keys = at, *order = at + parts.set_bytes;
  int64_t elements = s.outer * s.rows * s.inner;
  unsigned copying = blocks(elements, 4 * kThreads);
  auto ranking = static_cast<unsigned>((s.count + kRankedPerBlock - 1) / kRankedPerBlock);
  out.push_back(
      {"scatter_rank",
       copying + ranking,
       kThreads,
       {word(b.data), word(b.out), word(elements), word(int64_t{copying}), word(b.indices),
        index_kind(b.index), word(s.count), word(s.rows), word(keys), word(order)}});
  return {keys, order};
}

Sorted add_sort(const ScatterSizes& s, bool wide, const ScatterBuffers& b,
                std::vector<ScatterLaunch>& out) {
  Parts parts(s, wide);
  auto* at = static_cast<std::byte*>(b.workspace);
  std::byte* sets[2] = {at, at + 2 * parts.set_bytes};
  void *counts = at + 4 * parts.set_bytes, *totals = at + 4 * parts.set_bytes + parts.count_bytes;
  int64_t elements = s.outer * s.rows * s.inner, tiles = Parts::tiles(s);
  out.push_back({"scatter_copy",
                 blocks(elements, 4 * kThreads),
                 kThreads,
                 {word(b.data), word(b.out), word(elements)}});
  // Keys go up to `rows`.
  int bits = std::bit_width(static_cast<uint64_t>(s.rows));
  int passes = std::max(1, (bits + kDigitBits - 1) / kDigitBits);
  int width = std::max(1, (bits + passes - 1) / passes);
  Sorted from{nullptr, nullptr};
  for (int pass = 0; pass < passes; ++pass) {
    void *keys = sets[pass % 2], *order = sets[pass % 2] + parts.set_bytes;
    int64_t shift = int64_t{pass} * width, bins = int64_t{1} << width;
    out.push_back({"scatter_count",
                   static_cast<unsigned>(tiles),
                   kThreads,
                   {word(from.keys), word(b.indices), index_kind(b.index), word(s.count),
                    word(s.rows), word(shift), word(bins), word(counts)}});
    out.push_back({"scatter_scan",
                   static_cast<unsigned>(bins),
                   kThreads,
                   {word(counts), word(tiles), word(totals)}});
    out.push_back({"scatter_move",
                   static_cast<unsigned>(tiles),
                   kThreads,
                   {word(from.keys), word(from.order), word(b.indices), index_kind(b.index),
                    word(s.count), word(s.rows), word(shift), word(bins), word(counts),
                    word(totals), word(keys), word(order)}});
    from = {keys, order};
  }
  return from;
}

}  // namespace

bool scatter_is_wide(const ScatterSizes& s) {
  return std::max(s.rows, s.count) >= (int64_t{1} << 31);
}

std::string scatter_source(const ScatterTypes& t) {
  return base::cat("typedef ", c_type(t.value), " T; typedef ", sum_name(t.value), " A; typedef ",
                   t.wide ? "u64" : "u32",
                   " K;\nstatic constexpr i64 kBytes = ", bit_width(t.value) / 8, ";\n", kText);
}

int64_t scatter_workspace(const ScatterSizes& sizes, bool wide) {
  return Parts(sizes, wide).total();
}

std::vector<ScatterLaunch> scatter_launches(const ScatterTypes& types, const ScatterSizes& s,
                                            const ScatterBuffers& b, int64_t ranked) {
  std::vector<ScatterLaunch> out;
  int64_t elements = s.outer * s.rows * s.inner;
  if (elements == 0) return out;
  if (s.count == 0) {
    out.push_back({"scatter_copy",
                   blocks(elements, 4 * kThreads),
                   kThreads,
                   {word(b.data), word(b.out), word(elements)}});
    return out;
  }
  HD_CHECK(types.wide || !scatter_is_wide(s), "width of a scatter's keys");
  Sorted sorted =
      s.count <= ranked ? add_ranking(s, types.wide, b, out) : add_sort(s, types.wide, b, out);
  bool lanes = s.inner >= kLeastLanes;
  int64_t items =
      lanes ? s.outer * s.count * ((s.inner + 31) / 32) : s.outer * s.inner * ((s.count + 31) / 32);
  out.push_back({lanes ? "scatter_lanes" : "scatter_runs",
                 blocks(items, kThreads / 32),
                 kThreads,
                 {word(b.data), word(b.out), word(b.updates), word(sorted.keys), word(sorted.order),
                  word(s.outer), word(s.rows), word(s.inner), word(s.count)}});
  return out;
}

}  // namespace heddle::cuda
