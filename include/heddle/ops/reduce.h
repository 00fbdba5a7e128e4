// Reductions and scans. Axes may be negative; an empty list means all axes.
#pragma once

#include <heddle/tensor.h>

#include <vector>

namespace heddle {

struct ReduceOptions {
  std::vector<int> axes = {};  // empty: all
  bool keep_axes = false;      // reduced axes stay with extent 1
};
// Sums of f16 and bf16 are kept in f32; integers wrap. The empty sum is 0. Of booleans: how many
// are true, as i64.
Tensor sum(const Tensor& x, const ReduceOptions& options = {});
// How many elements differ from 0 (NaN does), as i64.
Tensor count_nonzero(const Tensor& x, const ReduceOptions& options = {});
// NaN wins. GraphError for an empty axis.
Tensor reduce_max(const Tensor& x, const ReduceOptions& options = {});
Tensor reduce_min(const Tensor& x, const ReduceOptions& options = {});
Tensor mean(const Tensor& x, const ReduceOptions& options = {});
// Population variance, two-pass; the empty variance is NaN.
Tensor variance(const Tensor& x, const ReduceOptions& options = {});
struct ArgOptions {
  int axis = -1;
  bool keep_axes = false;
  DType index_dtype = i64;
};
// First of equals; the first NaN wins.
Tensor argmax(const Tensor& x, const ArgOptions& options = {});
Tensor argmin(const Tensor& x, const ArgOptions& options = {});
struct CumulativeOptions {
  int axis = -1;
  bool exclusive = false, reverse = false;
};
Tensor cumulative_sum(const Tensor& x, const CumulativeOptions& options = {});

}  // namespace heddle
