#include "support/layouts.h"

#include "support/numeric.h"

namespace heddle::test {

using ops::HostTensor;

Array lay_out(const HostTensor& t, Layout layout) {
  Array packed = to_array(t);
  if (t.shape.empty() || t.size() == 0 || layout == Layout::packed) return packed;
  if (is_sub_byte(t.dtype) && layout == Layout::stepped) return packed;  // views begin at a byte
  int rank = packed.rank();
  if (layout == Layout::transposed) {
    std::vector<int> reversed(static_cast<size_t>(rank));
    for (int k = 0; k < rank; ++k) reversed[static_cast<size_t>(k)] = rank - 1 - k;
    Array turned = packed.transpose(reversed);
    return to_array(to_host(turned)).transpose(reversed);
  }
  // A larger array with gaps and an offset; elements sit at 1, 4, 7, ... of the last axis, at 1, 2,
  // ... of the others.
  std::vector<int64_t> shape = t.shape;
  for (size_t k = 0; k + 1 < shape.size(); ++k) shape[k] += 2;
  shape.back() = shape.back() * 3 + 2;
  HostTensor base(t.dtype, shape);
  std::vector<int64_t> strides = ops::row_major_strides(shape);
  ops::for_each_index(t.shape, [&](const std::vector<int64_t>& at, int64_t flat) {
    int64_t k = 0;
    for (size_t a = 0; a < at.size(); ++a)
      k += strides[a] * (a + 1 == at.size() ? at[a] * 3 + 1 : at[a] + 1);
    auto to = static_cast<size_t>(k), from = static_cast<size_t>(flat);
    if (!t.f.empty()) base.f[to] = t.f[from];
    if (!t.i.empty()) base.i[to] = t.i[from];
    if (!t.c.empty()) base.c[to] = t.c[from];
  });
  Array view = to_array(base);
  for (int k = 0; k < rank; ++k) {
    int64_t n = t.shape[static_cast<size_t>(k)];
    view = k + 1 == rank ? view.slice(k, 1, 1 + (n - 1) * 3 + 1, 3) : view.slice(k, 1, 1 + n);
  }
  return view;
}

}  // namespace heddle::test
