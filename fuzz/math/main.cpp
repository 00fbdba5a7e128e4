// heddle-fuzz-math [stride] [function]: errors of the f32 functions over every stride-th of all
// 2^32 inputs.
#include "support/math_sweep.h"

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  uint64_t stride = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  std::string only = argc > 2 ? argv[2] : "";
  if (stride == 0) stride = 1;
  bool good = true;
  for (const auto& f : heddle::test::swept_functions()) {
    if (!only.empty() && f.name != only) continue;
    auto r = heddle::test::sweep(f, 0, uint64_t{1} << 32, stride);
    std::printf("%-8s %.4f ULP at %a, bound %.2f, %lld points, %lld special values wrong\n",
                f.name.c_str(), r.worst, r.at, f.bound, static_cast<long long>(r.points),
                static_cast<long long>(r.wrong_special));
    std::fflush(stdout);
    good = good && r.worst <= f.bound && r.wrong_special == 0;
  }
  return good ? 0 : 1;
}
