// The elementary functions in float64, many at a time: the C library's vector functions where it
// has them (at most 4 ULP of float64, far below an ULP of f32), else its scalar ones.
#pragma once

#include <cstddef>
#include <string>

namespace heddle::test {

class VectorTruth {
 public:
  // `scalar`: the function for one value.
  VectorTruth(const std::string& name, double (*scalar)(double));
  // y[k] = f(x[k]); n is a multiple of 4.
  void operator()(const float* x, double* y, size_t n) const;
  bool vectors() const { return vector_ != nullptr; }

 private:
  double (*scalar_)(double);
  void* vector_ = nullptr;  // f, or exp where `sigmoid_`
  bool sigmoid_ = false;
};

}  // namespace heddle::test
