// Matrix products by cuBLASLt, loaded at run time.
#include "backend/cuda/compiler.h"
#include "backend/cuda/scatter_claim.h"
#include "backend/cuda/stream.h"
#include "base/check.h"
#include "loop/program.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <bit>
#include <map>
#include <optional>

namespace heddle::cuda {

namespace {

#define HD_BLAS_FUNCTIONS(F)          \
  F(cublasLtCreate)                   \
  F(cublasLtGetVersion)               \
  F(cublasLtMatmul)                   \
  F(cublasLtMatmulDescCreate)         \
  F(cublasLtMatmulDescDestroy)        \
  F(cublasLtMatmulDescSetAttribute)   \
  F(cublasLtMatrixLayoutCreate)       \
  F(cublasLtMatrixLayoutDestroy)      \
  F(cublasLtMatrixLayoutSetAttribute) \
  F(cublasLtMatmulPreferenceCreate)   \
  F(cublasLtMatmulPreferenceDestroy)  \
  F(cublasLtMatmulAlgoCheck)          \
  F(cublasLtMatmulPreferenceSetAttribute) F(cublasLtMatmulAlgoGetHeuristic)

struct BlasLt {
#define HD_BLAS_MEMBER(name) decltype(&::name) name##_ = nullptr;
  HD_BLAS_FUNCTIONS(HD_BLAS_MEMBER)
#undef HD_BLAS_MEMBER
  std::string reason;  // empty: usable
};

BlasLt load() {
  BlasLt b;
  void* library = open_cuda_library("cublasLt", {"13", "12"});
  if (library == nullptr) {
    b.reason = "libcublasLt was found neither by the loader nor under CUDA_HOME";
    return b;
  }
#define HD_BLAS_LOAD(name)                                                  \
  b.name##_ = reinterpret_cast<decltype(b.name##_)>(dlsym(library, #name)); \
  if (b.name##_ == nullptr) b.reason = "libcublasLt has no " #name;
  HD_BLAS_FUNCTIONS(HD_BLAS_LOAD)
#undef HD_BLAS_LOAD
  return b;
}
const BlasLt& blas() {
  static const BlasLt instance = load();
  return instance;
}

void check(cublasStatus_t code, const char* call, const std::string& step) {
  if (code != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(base::cat(step, ": ", call, " failed: status ", static_cast<int>(code)));
}

// One handle a device; the library's calls on it are thread-safe.
cublasLtHandle_t handle_of(CudaDevice& device) {
  static auto* handles = new std::map<std::string, cublasLtHandle_t>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  cublasLtHandle_t& h = (*handles)[device.name()];
  if (h == nullptr) check(blas().cublasLtCreate_(&h), "cublasLtCreate", device.name());
  return h;
}

struct MatmulTypes {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
  const char* name;
};
std::optional<MatmulTypes> types_of(DType d) {
  switch (d) {
    case DType::f32:
      return MatmulTypes{CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, "f32"};  // no TF32
    case DType::f64:
      return MatmulTypes{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, "f64"};
    case DType::f16:
      return MatmulTypes{CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, "f16"};
    case DType::bf16:
      return MatmulTypes{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, "bf16"};
    default:
      return std::nullopt;
  }
}

constexpr int64_t kLargeWorkspace = int64_t{32}
                                    << 20;  // bytes; what the library recommends for Hopper
constexpr int64_t kSmallWorkspace = int64_t{4} << 20;
constexpr size_t kCachedSizes = 64;

struct Sizes {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  uint32_t alignment = 16;  // bytes, of every address
  friend auto operator<=>(const Sizes&, const Sizes&) = default;
};

// Algorithms of open sizes are chosen for classes of rows, since the library takes longer to choose
// one than a small product takes to run. They are those of the largest size of the class, whatever
// size came first, so a result does not depend on what ran before.
constexpr int64_t kClassedRows = 256;
int64_t row_class(int64_t rows) {
  if (rows > kClassedRows) return rows;
  return std::max<int64_t>(16, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
}

struct Algorithm {
  cublasLtMatmulAlgo_t algo = {};
  size_t workspace = 0;
};

// Descriptors and algorithm for one size.
struct Prepared {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  Algorithm chosen;
  ~Prepared() {
    if (desc != nullptr) blas().cublasLtMatmulDescDestroy_(desc);
    for (cublasLtMatrixLayout_t l : {a, b, d}) {
      if (l != nullptr) blas().cublasLtMatrixLayoutDestroy_(l);
    }
  }
};

// Row-major [batch, m, k] x [batch, k, n]. The library is column-major: it computes the transposed
// product of the swapped operands, which is the same memory.
class MatmulCall : public CudaLibraryCall {
 public:
  struct Spec {
    DType dtype = DType::f32;
    bool transpose_a = false, transpose_b = false;
    bool batched_a = false, batched_b = false;
    loop::ExprProgram m, n, k, batch;  // over the call's symbols
  };
  explicit MatmulCall(Spec spec) : spec_(std::move(spec)), types_(*types_of(spec_.dtype)) {}

  std::string describe() const override { return base::cat("cuBLASLt matmul ", types_.name); }
  int64_t workspace_bytes(std::span<const int64_t> symbols) const override {
    Sizes s = sizes(symbols);
    double work = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    return work >= 1e8 ? kLargeWorkspace : kSmallWorkspace;
  }
  void run(CudaDevice& device, CUstream stream, std::span<void* const> buffers,
           std::span<const int64_t> symbols, void* workspace) const override {
    Sizes s = sizes(symbols);
    if (s.m == 0 || s.n == 0 || s.batch == 0) return;
    for (void* b : buffers) {
      if (reinterpret_cast<uintptr_t>(b) % 16 != 0)
        s.alignment = static_cast<uint32_t>(byte_size(spec_.dtype, 1));
    }
    cublasLtHandle_t handle = handle_of(device);
    std::shared_ptr<const Prepared> p =
        prepared(handle, s, static_cast<size_t>(workspace_bytes(symbols)), !symbols.empty());
    double one64 = 1, zero64 = 0;
    float one32 = 1, zero32 = 0;
    bool wide = types_.scale == CUDA_R_64F;
    const void* alpha = wide ? static_cast<const void*>(&one64) : &one32;
    const void* beta = wide ? static_cast<const void*>(&zero64) : &zero32;
    check(blas().cublasLtMatmul_(handle, p->desc, alpha, buffers[1], p->b, buffers[0], p->a, beta,
                                 buffers[2], p->d, buffers[2], p->d, &p->chosen.algo, workspace,
                                 p->chosen.workspace, reinterpret_cast<cudaStream_t>(stream)),
          "cublasLtMatmul", describe());
  }

 private:
  Sizes sizes(std::span<const int64_t> symbols) const {
    std::vector<int64_t> v(symbols.begin(), symbols.end());
    return {spec_.m.eval(v), spec_.n.eval(v), spec_.k.eval(v), spec_.batch.eval(v)};
  }

  cublasLtMatrixLayout_t layout(int64_t rows, int64_t columns, bool batched, int64_t batch) const {
    cublasLtMatrixLayout_t l = nullptr;
    check(blas().cublasLtMatrixLayoutCreate_(&l, types_.data, static_cast<uint64_t>(rows),
                                             static_cast<uint64_t>(columns),
                                             std::max<int64_t>(rows, 1)),
          "cublasLtMatrixLayoutCreate", describe());
    auto count = static_cast<int32_t>(batch);
    int64_t stride = batched ? rows * columns : 0;
    if (batch > 1) {
      blas().cublasLtMatrixLayoutSetAttribute_(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                               sizeof count);
      blas().cublasLtMatrixLayoutSetAttribute_(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                               &stride, sizeof stride);
    }
    return l;
  }

  std::shared_ptr<Prepared> describe_product(const Sizes& s) const {
    auto p = std::make_shared<Prepared>();
    check(blas().cublasLtMatmulDescCreate_(&p->desc, types_.compute, types_.scale),
          "cublasLtMatmulDescCreate", describe());
    // First operand of the library: b's memory; second: a's.
    int32_t first = spec_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
            second = spec_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    blas().cublasLtMatmulDescSetAttribute_(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                           sizeof first);
    blas().cublasLtMatmulDescSetAttribute_(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                           sizeof second);
    p->b = spec_.transpose_b ? layout(s.k, s.n, spec_.batched_b, s.batch)
                             : layout(s.n, s.k, spec_.batched_b, s.batch);
    p->a = spec_.transpose_a ? layout(s.m, s.k, spec_.batched_a, s.batch)
                             : layout(s.k, s.m, spec_.batched_a, s.batch);
    p->d = layout(s.n, s.m, true, s.batch);
    return p;
  }

  Algorithm choose(cublasLtHandle_t handle, const Prepared& p, const Sizes& s,
                   size_t workspace) const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(blas().cublasLtMatmulPreferenceCreate_(&preference), "cublasLtMatmulPreferenceCreate",
          describe());
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(
          blas().cublasLtMatmulPreferenceSetAttribute_(preference, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", describe());
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    for (auto a :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(a, s.alignment);
    if (types_.data != types_.scale) {
      // The parts of a split sum are added up in f32 and not in the result's half type: neither in
      // place nor in a workspace of that type. Nor does any sum itself run in f16.
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
      prefer(CUBLASLT_MATMUL_PREF_IMPL_MASK,
             ~cublasLtNumericalImplFlags_t{CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F});
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    cublasStatus_t code = blas().cublasLtMatmulAlgoGetHeuristic_(handle, p.desc, p.b, p.a, p.d, p.d,
                                                                 preference, 1, &result, &found);
    blas().cublasLtMatmulPreferenceDestroy_(preference);
    check(code, "cublasLtMatmulAlgoGetHeuristic", describe());
    HD_CHECK(found > 0, describe(), ": no algorithm for ", s.m, "x", s.n, "x", s.k, " batch ",
             s.batch);
    return {result.algo, result.workspaceSize};
  }

  // Of the class, where the library can use it for this size too.
  std::optional<Algorithm> choose_by_class(cublasLtHandle_t handle, const Prepared& p,
                                           const Sizes& s, size_t workspace) const {
    Sizes largest = s;
    largest.m = row_class(s.m);
    if (largest.m == s.m) return std::nullopt;
    std::optional<Algorithm> chosen;
    {
      std::lock_guard lock(mutex_);
      if (auto it = classes_.find({largest, workspace}); it != classes_.end()) chosen = it->second;
    }
    if (!chosen) {
      chosen = choose(handle, *describe_product(largest), largest, workspace);
      std::lock_guard lock(mutex_);
      if (classes_.size() >= kCachedSizes) classes_.erase(classes_.begin());
      classes_.emplace(std::pair(largest, workspace), *chosen);
    }
    cublasLtMatmulHeuristicResult_t result = {};
    if (blas().cublasLtMatmulAlgoCheck_(handle, p.desc, p.b, p.a, p.d, p.d, &chosen->algo,
                                        &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > workspace)
      return std::nullopt;
    chosen->workspace = result.workspaceSize;
    return chosen;
  }

  std::shared_ptr<const Prepared> prepared(cublasLtHandle_t handle, const Sizes& s,
                                           size_t workspace, bool open) const {
    {
      std::lock_guard lock(mutex_);
      auto it = cache_.find(s);
      if (it != cache_.end()) return it->second;
    }
    std::shared_ptr<Prepared> p = describe_product(s);
    std::optional<Algorithm> chosen;
    if (open) chosen = choose_by_class(handle, *p, s, workspace);
    p->chosen = chosen ? *chosen : choose(handle, *p, s, workspace);
    std::lock_guard lock(mutex_);
    if (cache_.size() >= kCachedSizes) cache_.erase(cache_.begin());
    cache_[s] = p;
    return p;
  }

  Spec spec_;
  MatmulTypes types_;
  mutable std::mutex mutex_;
  mutable std::map<Sizes, std::shared_ptr<const Prepared>> cache_;
  mutable std::map<std::pair<Sizes, size_t>, Algorithm> classes_;  // by largest size, workspace
};

// Products below this many multiply-adds are left to the fused kernels around them.
constexpr int64_t kLeastWork = 64 * 64 * 64;

target::ClaimResult offer_matmul(const ir::Graph& graph, ir::OpId id) {
  using target::Refusal;
  const ir::Op& op = graph.op(id);
  const Type& ta = graph.value(op.operands[0]).type;
  const Type& tb = graph.value(op.operands[1]).type;
  const Type& out = graph.value(op.results[0]).type;
  if (!blas().reason.empty()) return Refusal{blas().reason};
  if (!types_of(out.dtype)) return Refusal{base::cat("dtype ", name(out.dtype))};
  Shape a = *ta.shape, b = *tb.shape;
  MatmulCall::Spec spec;
  spec.dtype = out.dtype;
  spec.transpose_a = op.attrs.get<bool>("transpose_a");
  spec.transpose_b = op.attrs.get<bool>("transpose_b");
  Shape batch(out.shape->begin(), out.shape->end() - 2);
  Shape batch_a(a.begin(), a.end() - 2), batch_b(b.begin(), b.end() - 2);
  Expr m = (*out.shape)[out.shape->size() - 2], n = out.shape->back();
  Expr k = a[a.size() - (spec.transpose_a ? 2 : 1)], count = element_count(batch);
  auto one = [](const Shape& s) { return element_count(s).is(1); };
  spec.batched_a = !one(batch_a);
  spec.batched_b = !one(batch_b);
  bool whole_a = !spec.batched_a || element_count(batch_a) == count;
  bool whole_b = !spec.batched_b || element_count(batch_b) == count;
  if (!whole_a || !whole_b) return Refusal{"batch axes broadcast in part"};
  if (!spec.batched_b && !spec.transpose_a) {  // one product with more rows
    m = m * count;
    count = 1;
    spec.batched_a = false;
  }
  if (k.lower() <= 0) return Refusal{"the inner extent may be 0"};
  Expr work = m * n * k * count;
  target::ClaimOffer offer;
  if (work.is_constant() && *work.constant() < kLeastWork)
    offer.too_small = "too small to be worth a launch of its own";
  for (const Expr& e : {m, n, k, count}) collect_symbols(e, offer.symbols);
  std::vector<SymbolRef> unique;
  std::unordered_map<uint64_t, uint32_t> slots;
  for (const SymbolRef& s : offer.symbols) {
    if (slots.emplace(s->id, static_cast<uint32_t>(unique.size())).second) unique.push_back(s);
  }
  offer.symbols = unique;
  spec.m = loop::ExprProgram(m, slots);
  spec.n = loop::ExprProgram(n, slots);
  spec.k = loop::ExprProgram(k, slots);
  spec.batch = loop::ExprProgram(count, slots);
  double peak = out.dtype == DType::f16 || out.dtype == DType::bf16
                    ? 600e6
                    : 45e6;  // operations a microsecond, H200
  offer.cost = 3 + 2 * static_cast<double>(work.constant_or(int64_t{1} << 30)) / peak;
  offer.inputs = {op.operands[0], op.operands[1]};
  offer.outputs = {op.results[0]};
  offer.call = std::make_shared<MatmulCall>(std::move(spec));
  return offer;
}

}  // namespace

std::vector<target::Claim> library_claims(const std::string& arch) {
  return {{"cuBLASLt.matmul", "matmul", offer_matmul}, scatter_claim(arch)};
}

}  // namespace heddle::cuda
