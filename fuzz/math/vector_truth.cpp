#include "vector_truth.h"

#include <dlfcn.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::test {

VectorTruth::VectorTruth(const std::string& name, double (*scalar)(double)) : scalar_(scalar) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
  static void* const library = dlopen("libmvec.so.1", RTLD_NOW);
  if (library == nullptr) return;
  sigmoid_ = name == "sigmoid";
  vector_ = dlsym(library, ("_ZGVdN4v_" + (sigmoid_ ? std::string("exp") : name)).c_str());
#endif
}

#if defined(__x86_64__)
namespace {

__attribute__((target("avx2,fma"))) void vectors_of_4(void* function, bool sigmoid, const float* x,
                                                      double* y, size_t n) {
  auto* f = reinterpret_cast<__m256d (*)(__m256d)>(function);
  const __m256d sign = _mm256_set1_pd(-0.0), one = _mm256_set1_pd(1);
  for (size_t k = 0; k < n; k += 4) {
    __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(x + k));
    if (sigmoid) {  // the exponential of -|x| cannot overflow
      __m256d e = f(_mm256_or_pd(v, sign));
      __m256d above = _mm256_div_pd(one, _mm256_add_pd(one, e));
      _mm256_storeu_pd(y + k, _mm256_blendv_pd(above, _mm256_mul_pd(e, above), v));
    } else {
      _mm256_storeu_pd(y + k, f(v));
    }
  }
}

}  // namespace
#endif

void VectorTruth::operator()(const float* x, double* y, size_t n) const {
#if defined(__x86_64__)
  if (vector_ != nullptr) {
    vectors_of_4(vector_, sigmoid_, x, y, n);
    return;
  }
#endif
  for (size_t k = 0; k < n; ++k) y[k] = scalar_(x[k]);
}

}  // namespace heddle::test
