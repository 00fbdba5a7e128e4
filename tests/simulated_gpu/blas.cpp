// What the backend calls of cuBLASLt: column-major products on the host, in order with a stream.
#include <cublasLt.h>

#include "base/small_float.h"
#include "simulated_gpu/device.h"

#include <algorithm>
#include <cstring>

namespace heddle::simulated {

namespace {

struct Layout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0, stride = 0;
  int32_t batch = 1;
};
struct Product {
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cudaDataType scale = CUDA_R_32F;
};
struct Preference {
  size_t workspace = 0;
};
constexpr size_t kWorkspace = 1024;  // bytes that a product overwrites

size_t bytes_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }
double load(cudaDataType type, const void* data, int64_t at) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[at];
    case CUDA_R_32F:
      return static_cast<double>(static_cast<const float*>(data)[at]);
    case CUDA_R_16F:
      return static_cast<double>(base::f16_to_f32(static_cast<const uint16_t*>(data)[at]));
    default:
      return static_cast<double>(base::bf16_to_f32(static_cast<const uint16_t*>(data)[at]));
  }
}
void store(cudaDataType type, void* data, int64_t at, double v) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[at] = v;
      break;
    case CUDA_R_32F:
      static_cast<float*>(data)[at] = static_cast<float>(v);
      break;
    case CUDA_R_16F:
      static_cast<uint16_t*>(data)[at] = base::f32_to_f16(static_cast<float>(v));
      break;
    default:
      static_cast<uint16_t*>(data)[at] = base::f32_to_bf16(static_cast<float>(v));
  }
}

struct Operand {
  const void* data;
  Layout layout;
  bool transposed;

  void check(const char* what) const {
    int64_t last = (layout.batch - 1) * layout.stride +
                   (static_cast<int64_t>(layout.columns) - 1) * layout.leading +
                   static_cast<int64_t>(layout.rows);
    check_memory(data, static_cast<size_t>(last) * bytes_of(layout.type), what);
  }
  int64_t rows() const { return static_cast<int64_t>(layout.rows); }
  int64_t columns() const { return static_cast<int64_t>(layout.columns); }
  // Of one matrix of the batch, column by column as it is used.
  std::vector<double> values(int64_t batch) const {
    std::vector<double> out(layout.rows * layout.columns);
    for (int64_t j = 0; j < columns(); ++j) {
      for (int64_t i = 0; i < rows(); ++i) {
        int64_t at = transposed ? j + i * columns() : i + j * rows();
        out[static_cast<size_t>(at)] =
            load(layout.type, data, batch * layout.stride + i + j * layout.leading);
      }
    }
    return out;
  }
};

// Sums in f64, rounded once.
void multiply(const Operand& a, const Operand& b, const Operand& d) {
  int64_t inner = a.transposed ? a.rows() : a.columns(), m = d.rows();
  std::vector<double> column(static_cast<size_t>(m));
  for (int64_t n = 0; n < d.layout.batch; ++n) {
    std::vector<double> left = a.values(n), right = b.values(n);
    for (int64_t j = 0; j < d.columns(); ++j) {
      std::fill(column.begin(), column.end(), 0.0);
      for (int64_t k = 0; k < inner; ++k) {
        double factor = right[static_cast<size_t>(k + j * inner)];
        const double* from = left.data() + k * m;
        for (int64_t i = 0; i < m; ++i) column[static_cast<size_t>(i)] += from[i] * factor;
      }
      for (int64_t i = 0; i < m; ++i)
        store(d.layout.type, const_cast<void*>(d.data),
              n * d.layout.stride + i + j * d.layout.leading, column[static_cast<size_t>(i)]);
    }
  }
}

template <class T>
void read(T& to, const void* from, size_t bytes) {
  std::memcpy(&to, from, std::min(bytes, sizeof to));
}

}  // namespace

}  // namespace heddle::simulated

using namespace heddle::simulated;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 130000; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType_t scale) {
  auto* p = new Product;
  p->scale = scale;
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete reinterpret_cast<Product*>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  auto* p = reinterpret_cast<Product*>(desc);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) read(p->transpose_a, value, bytes);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) read(p->transpose_b, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *layout =
      reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading, 0, 1});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  auto* l = reinterpret_cast<Layout*>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) read(l->batch, value, bytes);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) read(l->stride, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  auto* p = reinterpret_cast<Preference*>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) read(p->workspace, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  results[0] = {};
  results[0].workspaceSize =
      std::min(kWorkspace, reinterpret_cast<Preference*>(preference)->workspace);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t*,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  result->workspaceSize = kWorkspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const auto& p = *reinterpret_cast<const Product*>(desc);
  if (load(p.scale, alpha, 0) != 1 || load(p.scale, beta, 0) != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  auto layout = [](cublasLtMatrixLayout_t l) { return *reinterpret_cast<const Layout*>(l); };
  Operand first{a, layout(a_layout), p.transpose_a == CUBLAS_OP_T},
      second{b, layout(b_layout), p.transpose_b == CUBLAS_OP_T}, out{d, layout(d_layout), false};
  stream_of(reinterpret_cast<CUstream>(stream)).give([=] {
    perform([&] {
      first.check("product, first operand");
      second.check("product, second operand");
      out.check("product, result");
      check_memory(workspace, workspace_bytes, "product, workspace");
      std::memset(workspace, 0xff, workspace_bytes);
      multiply(first, second, out);
    });
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
