#include "backend/cpu/onednn_matmul.h"

#include "backend/cpu/cpu_target.h"
#include "backend/cpu/tile_product.h"
#include "base/check.h"
#include "base/hash.h"
#include "runtime/parallel.h"
#include "target/host_kernel.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <unordered_map>

// Two functions of the OpenMP API (version 5.2, section 18.2), declared here because clang's tools
// cannot read g++'s omp.h.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
}

namespace heddle::cpu {

namespace {

using dnnl::memory;

// Multiply-adds below which a fused loop is as fast as a call.
constexpr int64_t kSmallestProduct = 32 * 32 * 32;
// Multiply-adds that a thread must get.
constexpr double kThreadProduct = 1 << 20;
constexpr size_t kCachedSizes = 64;
// Multiply-adds up to which f32 products run in tiles of our own: a primitive of the library takes
// milliseconds to make for each new size, and blocks for caches that such products do not exceed.
constexpr int64_t kTiledProduct = int64_t{1} << 27;
// A thread packs so many rows of one tile's width (16 MiB with the widest tile).
constexpr int64_t kTiledDepth = int64_t{1} << 17;
// Multiply-adds of tiles that a thread must get: some microseconds.
constexpr int64_t kThreadTiles = 1 << 17;

// The work is split by hand over the engine's own threads, so the library must not open teams of
// its own here; the caller's setting is put back.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

dnnl::engine& engine() {
  static auto* e = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *e;
}
dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

// Scratch memory of the library's primitives: one block a thread, grown as needed.
struct Workspace {
  ~Workspace() { std::free(memory); }
  void* get(size_t bytes) {
    if (bytes > size) {
      std::free(memory);
      size = (bytes + 4095) / 4096 * 4096;
      memory = std::aligned_alloc(4096, size);
      if (memory == nullptr) {
        size = 0;
        throw DeviceError(
            base::cat("oneDNN matmul: out of memory: ", bytes, " bytes of workspace requested"));
      }
    }
    return memory;
  }
  void* memory = nullptr;
  size_t size = 0;
};
thread_local Workspace workspace_memory;

// batch x m x k times batch x k x n; a batch stride of 0 repeats the operand.
struct Sizes {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool batched_a = true, batched_b = true;
  int64_t rows = 0;  // of the whole lhs, of which this is a piece
  friend bool operator==(const Sizes&, const Sizes&) = default;
};
struct SizesHash {
  size_t operator()(const Sizes& s) const {
    uint64_t h = 0;
    for (int64_t v : {s.batch, s.m, s.n, s.k, int64_t{s.batched_a}, int64_t{s.batched_b}, s.rows})
      h = base::mix(h, static_cast<uint64_t>(v));
    return h;
  }
};

struct Product {
  dnnl::matmul primitive;
  memory::desc a, b, c, scratch;
};

class MatmulCall : public target::HostLibraryCall {
 public:
  MatmulCall(DType dtype, Shape a, Shape b, bool ta, bool tb, std::vector<SymbolRef> symbols)
      : dtype_(dtype),
        a_(std::move(a)),
        b_(std::move(b)),
        ta_(ta),
        tb_(tb),
        symbols_(std::move(symbols)) {}

  std::string describe() const override {
    if (dtype_ != DType::f32 || !has_tile_products())
      return base::cat("oneDNN matmul ", name(dtype_));
    return base::cat("matmul f32, tiles up to ", kTiledProduct, " multiply-adds, else oneDNN");
  }
  int64_t workspace_bytes(std::span<const int64_t> /*symbols*/) const override { return 0; }
  void run(std::span<void* const> buffers, std::span<const int64_t> symbols, void* workspace,
           int threads) const override;

 private:
  Sizes sizes(std::span<const int64_t> symbols) const;
  void run_tiles(const Sizes& s, void* const* buffers, int threads) const;
  void run_library(const Sizes& s, void* const* buffers, int threads) const;
  std::shared_ptr<const Product> product(const Sizes& part, const Sizes& whole) const;
  void execute(const Product& p, char* a, char* b, char* c) const;

  DType dtype_;
  Shape a_, b_;
  bool ta_, tb_;
  std::vector<SymbolRef> symbols_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<Sizes, std::shared_ptr<const Product>, SizesHash> products_;
};

int64_t batch_of(std::span<const int64_t> shape) {
  int64_t n = 1;
  for (size_t k = 0; k + 2 < shape.size(); ++k) n *= shape[k];
  return n;
}

Sizes MatmulCall::sizes(std::span<const int64_t> symbols) const {
  auto value = [&](const Symbol& s) -> std::optional<int64_t> {
    for (size_t k = 0; k < symbols_.size(); ++k) {
      if (symbols_[k]->id == s.id) return symbols[k];
    }
    return std::nullopt;
  };
  auto numbers = [&](const Shape& shape, std::array<int64_t, kMaxRank>& memory) {
    for (size_t k = 0; k < shape.size(); ++k)
      memory[k] = shape[k].is_constant() ? *shape[k].constant() : evaluate(shape[k], value);
    return std::span<const int64_t>(memory.data(), shape.size());
  };
  std::array<int64_t, kMaxRank> memory_a, memory_b;
  std::span<const int64_t> a = numbers(a_, memory_a), b = numbers(b_, memory_b);
  Sizes s;
  s.m = ta_ ? a[a.size() - 1] : a[a.size() - 2];
  s.k = ta_ ? a[a.size() - 2] : a[a.size() - 1];
  s.n = tb_ ? b[b.size() - 2] : b[b.size() - 1];
  int64_t batch_a = batch_of(a), batch_b = batch_of(b);
  s.batch = std::max(batch_a, batch_b);
  if (batch_a == 0 || batch_b == 0) s.batch = 0;
  s.batched_a = batch_a != 1 || s.batch == 1;
  s.batched_b = batch_b != 1 || s.batch == 1;
  // One matrix on the right: the batch is a part of m.
  if (s.batched_a && batch_b == 1 && !ta_) {
    s.m *= s.batch;
    s.batch = 1;
    s.batched_b = true;
  }
  return s;
}

memory::data_type data_type(DType d) {
  return d == DType::f32    ? memory::data_type::f32
         : d == DType::bf16 ? memory::data_type::bf16
                            : memory::data_type::f16;
}

// `part`: the piece that one thread computes of `whole`; its rows lie at the strides of the whole.
std::shared_ptr<const Product> MatmulCall::product(const Sizes& part, const Sizes& whole) const {
  Sizes key = part;
  key.rows = whole.m;
  std::lock_guard lock(mutex_);
  if (auto it = products_.find(key); it != products_.end()) return it->second;
  auto t = data_type(dtype_);
  int64_t ba = part.batched_a ? part.batch : 1, bb = part.batched_b ? part.batch : 1;
  auto made = std::make_shared<Product>();
  memory::dims stride_a = ta_ ? memory::dims{whole.m * whole.k, 1, whole.m}
                              : memory::dims{whole.m * whole.k, whole.k, 1};
  memory::dims stride_b = tb_ ? memory::dims{whole.k * whole.n, 1, whole.k}
                              : memory::dims{whole.k * whole.n, whole.n, 1};
  made->a = memory::desc({ba, part.m, part.k}, t, stride_a);
  made->b = memory::desc({bb, part.k, part.n}, t, stride_b);
  made->c =
      memory::desc({part.batch, part.m, part.n}, t, memory::dims{whole.m * whole.n, whole.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // whatever the environment says
  OneThread single;
  dnnl::matmul::primitive_desc d(engine(), made->a, made->b, made->c, attributes);
  made->primitive = dnnl::matmul(d);
  made->scratch = d.scratchpad_desc();
  if (products_.size() >= kCachedSizes) products_.clear();
  products_.emplace(key, made);
  return made;
}

void MatmulCall::execute(const Product& p, char* a, char* b, char* c) const {
  OneThread single;
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(p.a, engine(), a)},
                                            {DNNL_ARG_WEIGHTS, memory(p.b, engine(), b)},
                                            {DNNL_ARG_DST, memory(p.c, engine(), c)}};
  if (p.scratch.get_size() > 0)
    arguments.emplace(DNNL_ARG_SCRATCHPAD,
                      memory(p.scratch, engine(), workspace_memory.get(p.scratch.get_size())));
  p.primitive.execute(stream(), arguments);
  stream().wait();
}

void MatmulCall::run(std::span<void* const> buffers, std::span<const int64_t> symbols,
                     void* /*workspace*/, int threads) const try {
  static const int all = host_threads();
  HD_CHECK(buffers.size() == 3, "matmul: number of buffers");
  Sizes s = sizes(symbols);
  if (s.batch == 0 || s.m == 0 || s.n == 0) return;
  if (s.k == 0) {
    int64_t bytes = bit_width(dtype_) / 8;
    std::memset(buffers[2], 0, static_cast<size_t>(s.batch * s.m * s.n * bytes));
    return;
  }
  int most = threads > 0 ? threads : all;
  // In doubles: sizes that no memory holds must not overflow.
  double work =
      static_cast<double>(s.batch * s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  if (dtype_ == DType::f32 && work <= static_cast<double>(kTiledProduct) && s.k <= kTiledDepth &&
      has_tile_products()) {
    run_tiles(s, buffers.data(), most);
  } else {
    run_library(s, buffers.data(), most);
  }
} catch (const dnnl::error& error) {
  throw DeviceError(
      base::cat("oneDNN matmul: ", error.what(), " (status ", static_cast<int>(error.status), ")"));
}

// Every product of the batch is cut into the same bands.
void MatmulCall::run_tiles(const Sizes& s, void* const* buffers, int threads) const {
  struct Task {
    TileProduct product;
    int64_t bands, step_a, step_b, step_c;
  } task;
  TileProduct& p = task.product;
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.a = static_cast<const float*>(buffers[0]);
  p.b = static_cast<const float*>(buffers[1]);
  p.c = static_cast<float*>(buffers[2]);
  p.row_a = ta_ ? 1 : s.k, p.column_a = ta_ ? s.m : 1;
  p.row_b = tb_ ? 1 : s.n, p.column_b = tb_ ? s.k : 1;
  p.row_c = s.n;
  task.bands = tile_bands(p);
  task.step_a = s.batched_a ? s.m * s.k : 0;
  task.step_b = s.batched_b ? s.k * s.n : 0;
  task.step_c = s.m * s.n;
  int64_t worth = s.batch * s.m * s.n * s.k / kThreadTiles + 1;
  runtime::parallel_for(
      s.batch * task.bands, static_cast<int>(std::min<int64_t>(threads, worth)),
      [](void* self, int64_t begin, int64_t end) {
        const auto& t = *static_cast<const Task*>(self);
        while (begin < end) {
          int64_t item = begin / t.bands, first = begin % t.bands;
          int64_t last = std::min(t.bands, first + end - begin);
          TileProduct q = t.product;
          q.a += item * t.step_a, q.b += item * t.step_b, q.c += item * t.step_c;
          multiply_bands(q, first, last);
          begin += last - first;
        }
      },
      &task);
}

void MatmulCall::run_library(const Sizes& s, void* const* buffers, int threads) const {
  auto *a = static_cast<char*>(buffers[0]), *b = static_cast<char*>(buffers[1]),
       *c = static_cast<char*>(buffers[2]);
  int64_t bytes = bit_width(dtype_) / 8;
  // Pieces of the batch, else of the rows: one a thread, because every piece packs the rhs again.
  constexpr int64_t kRows = 16;
  double work = static_cast<double>(s.batch * s.m) * static_cast<double>(s.n * s.k);
  auto most =
      static_cast<int64_t>(std::clamp(work / kThreadProduct, 1.0, static_cast<double>(threads)));
  bool by_batch = s.batch > 1;
  int64_t length = by_batch ? s.batch : s.m;
  int64_t step = (length + most - 1) / most;
  if (!by_batch) step = (step + kRows - 1) / kRows * kRows;
  struct Task {
    const MatmulCall* call;
    const Sizes* whole;
    int64_t length, step;
    bool by_batch;
    char *a, *b, *c;
    int64_t bytes;
    std::exception_ptr error;
    std::mutex mutex;
  } task{this, &s, length, step, by_batch, a, b, c, bytes, nullptr, {}};
  auto body = [](void* self, int64_t begin, int64_t end) {
    auto& t = *static_cast<Task*>(self);
    try {
      for (int64_t i = begin; i < end; ++i) {
        const Sizes& w = *t.whole;
        Sizes part = w;
        int64_t first = i * t.step, count = std::min(t.step, t.length - first);
        (t.by_batch ? part.batch : part.m) = count;
        auto p = t.call->product(part, w);
        int64_t row_a = t.call->ta_ ? 1 : w.k;
        int64_t step_a = t.by_batch ? (w.batched_a ? w.m * w.k : 0) : row_a;
        int64_t step_b = t.by_batch && w.batched_b ? w.k * w.n : 0;
        int64_t step_c = t.by_batch ? w.m * w.n : w.n;
        t.call->execute(*p, t.a + first * step_a * t.bytes, t.b + first * step_b * t.bytes,
                        t.c + first * step_c * t.bytes);
      }
    } catch (...) {
      std::lock_guard lock(t.mutex);
      t.error = std::current_exception();
    }
  };
  int64_t count = (length + step - 1) / step;
  runtime::parallel_for(count, threads, body, &task);
  if (task.error) std::rethrow_exception(task.error);
}

bool has_amx() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx; }

target::ClaimResult offer(const ir::Graph& graph, ir::OpId id) {
  const ir::Op& op = graph.op(id);
  const Type &a = graph.value(op.operands[0]).type, &b = graph.value(op.operands[1]).type;
  if (!a.known() || !b.known()) return target::Refusal{"a type is open"};
  if (a.dtype != DType::f32 && a.dtype != DType::bf16)
    return target::Refusal{base::cat("no product of ", name(a.dtype), " is used from the library")};
  if (a.dtype == DType::bf16 && !has_amx())
    return target::Refusal{"bf16 is slow on a processor without AMX"};
  const Shape &sa = *a.shape, &sb = *b.shape;
  auto is_one = [](const Shape& s) {
    return std::all_of(s.begin(), s.end() - 2, [](const Expr& e) { return e.is(1); });
  };
  bool equal = sa.size() == sb.size();
  for (size_t k = 0; equal && k + 2 < sa.size(); ++k) equal = sa[k] == sb[k];
  if (!equal && !is_one(sa) && !is_one(sb))
    return target::Refusal{"batch axes broadcast against each other"};
  bool ta = op.attrs.get<bool>("transpose_a"), tb = op.attrs.get<bool>("transpose_b");
  Expr n = tb ? sb[sb.size() - 2] : sb.back();
  Expr products = element_count(is_one(sb) ? sa
                                : equal    ? sa
                                           : sb) *
                  (is_one(sb) || equal ? n
                   : ta                ? sa.back()
                                       : sa[sa.size() - 2]);
  target::ClaimOffer out;
  if (auto known = products.constant(); known && *known < kSmallestProduct)
    out.too_small = base::cat("only ", *known, " multiply-adds: a fused loop is as fast");
  for (const Shape& s : {sa, sb}) {
    for (const Expr& e : s) collect_symbols(e, out.symbols);
  }
  out.call = std::make_shared<MatmulCall>(a.dtype, sa, sb, ta, tb, out.symbols);
  out.inputs = {op.operands[0], op.operands[1]};
  out.outputs = {op.results[0]};
  // About 50 multiply-adds a nanosecond with all threads of a small machine.
  out.cost = 1 + static_cast<double>(products.constant_or(1 << 20)) / 5e4;
  return out;
}

}  // namespace

std::vector<target::Claim> matmul_claims() { return {{"oneDNN.matmul", "matmul", &offer}}; }

}  // namespace heddle::cpu
