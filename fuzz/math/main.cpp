// heddle-fuzz-math [--stride N] [--function NAME] [--shard I/N] [--device NAME]: errors of the f32
// functions, as a device computes them, over every stride-th of all 2^32 inputs, against float64.
#include "runtime/parallel.h"
#include "support/arguments.h"
#include "support/math_sweep.h"
#include "support/numeric.h"
#include "vector_truth.h"

#include "ops/opdef.h"

#include <heddle/heddle.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

namespace heddle::test {
namespace {

struct Options {
  uint64_t stride = 1, shard = 0, shards = 1;
  std::string function, device;
};

constexpr uint64_t kAll = uint64_t{1} << 32;
constexpr size_t kChunk = size_t{1} << 18;  // inputs

// What ulp_error gives, in fewer steps; NaN where one value is special and the other is not.
inline double quick_error(float got, double truth) {
  auto rounded = static_cast<float>(truth);
  if (truth == 0 || !std::isfinite(rounded)) {
    bool same = std::isnan(truth)
                    ? std::isnan(got)
                    : std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(rounded);
    return same ? 0 : std::nan("");
  }
  uint64_t bits = std::bit_cast<uint64_t>(truth) & ~(uint64_t{1} << 63);
  int64_t exponent = std::max<int64_t>(static_cast<int64_t>(bits >> 52) - 1023, -126);
  auto per_ulp = std::bit_cast<double>(static_cast<uint64_t>(1023 + 23 - exponent) << 52);
  return std::fabs(static_cast<double>(got) - truth) * per_ulp;
}

class Sweep {
 public:
  Sweep(const SweptFunction& f, const Device& device) : f_(f), truth_(f.name, f.truth) {
    Graph graph;
    Tensor x = graph.placeholder(f32, {static_cast<int64_t>(kChunk)}, "x");
    CompileSpec spec;
    spec.feeds.emplace_back(x);
    spec.targets = {ops::apply(f.name, {x})};
    executable_ = graph.compile(spec, device);
  }

  SweepResult run(const Options& o) {
    uint64_t points = (kAll + o.stride - 1) / o.stride, chunks = (points + kChunk - 1) / kChunk;
    for (uint64_t c = o.shard; c < chunks; c += o.shards) chunk(c * kChunk, points, o.stride);
    return result_;
  }

 private:
  void chunk(uint64_t first, uint64_t points, uint64_t stride) {
    for (size_t k = 0; k < kChunk; ++k) {
      uint64_t at = std::min(first + k, points - 1) * stride;
      x_[k] = std::bit_cast<float>(static_cast<uint32_t>(at));
    }
    std::vector<Array> results = executable_.run({Array::from<float>({int64_t{kChunk}}, x_)});
    std::memcpy(y_.data(), results[0].to_bytes().data(), kChunk * sizeof(float));
    int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    runtime::parallel_for(
        kChunk / kBlock, threads,
        [](void* self, int64_t begin, int64_t end) {
          static_cast<Sweep*>(self)->blocks(static_cast<size_t>(begin), static_cast<size_t>(end));
        },
        this);
    result_.points += static_cast<int64_t>(std::min<uint64_t>(points - first, kChunk));
  }

  void blocks(size_t begin, size_t end) {
    SweepResult r;
    {
      std::lock_guard lock(mutex_);
      r.worst = result_.worst;
    }
    std::vector<double> truth(kBlock);
    for (size_t b = begin; b < end; ++b) {
      const float *x = x_.data() + b * kBlock, *y = y_.data() + b * kBlock;
      truth_(x, truth.data(), kBlock);
      double worst = 0;
      bool odd = false;
      for (size_t k = 0; k < kBlock; ++k) {
        double e = quick_error(y[k], truth[k]);
        odd |= !std::isfinite(e);
        worst = e > worst ? e : worst;
      }
      if (odd || worst > r.worst) one_by_one(x, y, r);
    }
    std::lock_guard lock(mutex_);
    if (r.worst > result_.worst) result_.worst = r.worst, result_.at = r.at;
    if (r.wrong_special > 0) result_.special_at = r.special_at;
    result_.wrong_special += r.wrong_special;
  }

  void one_by_one(const float* x, const float* y, SweepResult& r) const {
    for (size_t k = 0; k < kBlock; ++k) {
      double error = ulp_error(y[k], f_.truth(x[k]));
      if (std::isinf(error)) {
        ++r.wrong_special;
        r.special_at = x[k];
      } else if (error > r.worst) {
        r.worst = error;
        r.at = x[k];
      }
    }
  }

  static constexpr size_t kBlock = 1024;
  const SweptFunction& f_;
  VectorTruth truth_;
  Executable executable_;
  std::vector<float> x_ = std::vector<float>(kChunk), y_ = std::vector<float>(kChunk);
  std::mutex mutex_;
  SweepResult result_;
};

bool parse(int argc, char** argv, Options& o) {
  for (int k = 1; k + 1 < argc; k += 2) {
    std::string arg = argv[k];
    const char* value = argv[k + 1];
    if (arg == "--stride") {
      if (!parse_number(value, o.stride) || o.stride == 0) return false;
    } else if (arg == "--function") {
      o.function = value;
    } else if (arg == "--device") {
      o.device = value;
    } else if (arg == "--shard") {
      if (!parse_part(value, o.shard, o.shards)) return false;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

int run(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(stderr,
                 "usage: heddle-fuzz-math [--stride N] [--function NAME] [--shard I/N] [--device "
                 "NAME]\n");
    return 2;
  }
  Device device = o.device.empty() ? test_device() : heddle::device(o.device);
  bool good = true, known = false;
  for (const SweptFunction& f : swept_functions()) {
    if (!o.function.empty() && f.name != o.function) continue;
    known = true;
    SweepResult r = Sweep(f, device).run(o);
    std::printf("%-8s on %s: %.4f ULP at %a, bound %.2f, %lld points, %lld special values wrong\n",
                f.name.c_str(), device.name().c_str(), r.worst, r.at, f.bound,
                static_cast<long long>(r.points), static_cast<long long>(r.wrong_special));
    std::fflush(stdout);
    good = good && r.worst <= f.bound && r.wrong_special == 0;
  }
  if (!known) std::fprintf(stderr, "heddle-fuzz-math: no function '%s'\n", o.function.c_str());
  return !known ? 2 : good ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) { return heddle::test::run(argc, argv); }
