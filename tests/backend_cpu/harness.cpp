#include "harness.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_target.h"
#include "base/check.h"
#include "base/small_float.h"

#include <heddle/error.h>

#include <cmath>
#include <cstring>

namespace heddle::test {

namespace {

int64_t elements(const ir::Kernel& kernel, const ir::Buffer& b,
                 const std::vector<int64_t>& symbols) {
  int64_t n = 1;
  for (const Expr& e : b.extents) {
    n *= evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
      for (size_t k = 0; k < kernel.symbols.size(); ++k) {
        if (kernel.symbols[k]->id == s.id) return symbols[k];
      }
      return std::nullopt;
    });
  }
  return n;
}

template <class T>
T special_float(std::mt19937_64& rng) {
  static const double kSpecial[] = {
      0.0,          -0.0,          INFINITY, -INFINITY, NAN,    1.0,   -1.0,
      0.5,          2.5,           3.5,      1e-40,     1e30,   -1e30, 2147483648.0,
      4294967296.0, -2147483649.0, 9.3e18,   65504.0,   1e-310, 255.5, -128.5};
  if (rng() % 4 == 0) return static_cast<T>(kSpecial[rng() % std::size(kSpecial)]);
  if (rng() % 4 == 0) {
    uint64_t bits = rng();
    T v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }
  return static_cast<T>(std::normal_distribution<double>(0, 10)(rng));
}

void randomise(DType d, std::byte* at, std::mt19937_64& rng) {
  auto put = [&](auto v) { std::memcpy(at, &v, sizeof v); };
  uint64_t small = rng() % 4 == 0 ? rng() : rng() % 21 - 10;
  switch (d) {
    case DType::f64:
      put(special_float<double>(rng));
      break;
    case DType::f32:
      put(special_float<float>(rng));
      break;
    case DType::f16:
      put(static_cast<uint16_t>(rng() % 3 ? base::f32_to_f16(special_float<float>(rng)) : rng()));
      break;
    case DType::bf16:
      put(static_cast<uint16_t>(rng() % 3 ? base::f32_to_bf16(special_float<float>(rng)) : rng()));
      break;
    case DType::boolean:
      put(static_cast<uint8_t>(rng() & 1));
      break;
    default:
      std::memcpy(at, &small, static_cast<size_t>(bit_width(d) / 8));
      break;
  }
}

double as_double(DType d, const std::byte* at) {
  auto get = [&](auto v) {
    std::memcpy(&v, at, sizeof v);
    return v;
  };
  switch (d) {
    case DType::f64:
      return get(double{});
    case DType::f32:
      return static_cast<double>(get(float{}));
    case DType::f16:
      return static_cast<double>(base::f16_to_f32(get(uint16_t{})));
    case DType::bf16:
      return static_cast<double>(base::bf16_to_f32(get(uint16_t{})));
    case DType::i8:
      return get(int8_t{});
    case DType::i16:
      return get(int16_t{});
    case DType::i32:
      return get(int32_t{});
    case DType::i64:
      return static_cast<double>(get(int64_t{}));
    case DType::u8:
      return get(uint8_t{});
    case DType::u16:
      return get(uint16_t{});
    case DType::u32:
      return get(uint32_t{});
    case DType::u64:
      return static_cast<double>(get(uint64_t{}));
    default:
      return get(uint8_t{});
  }
}

}  // namespace

KernelRun::KernelRun(const ir::Kernel& k, std::vector<int64_t> s, uint64_t seed)
    : kernel(k), symbols(std::move(s)) {
  std::string problem = ir::verify(k);
  if (!problem.empty()) throw InternalError(problem + "\n" + ir::print(k));
  std::mt19937_64 rng(seed);
  for (const ir::Buffer& b : k.buffers) {
    if (b.role == ir::BufferRole::scalar_local || b.role == ir::BufferRole::row_local) continue;
    passed.push_back(&b);
    int64_t n = elements(k, b, symbols);
    auto size = static_cast<size_t>(bit_width(b.dtype) / 8);
    Bytes bytes(static_cast<size_t>(n) * size);
    for (int64_t i = 0; i < n; ++i)
      randomise(b.dtype, bytes.data() + static_cast<size_t>(i) * size, rng);
    inputs.push_back(std::move(bytes));
  }
}

namespace {

// Copies that end at the end of their memory, so that reading past it shows under a sanitizer.
struct Arguments {
  explicit Arguments(const std::vector<Bytes>& inputs) : buffers(inputs) {
    for (Bytes& b : buffers) pointers.push_back(b.data());
  }
  std::vector<Bytes> buffers;
  std::vector<void*> pointers;
};

}  // namespace

RunResult KernelRun::interpret() const {
  Arguments a(inputs);
  loop::interpret(kernel, {a.pointers, symbols}, {.check_bounds = true});
  return {std::move(a.buffers)};
}

RunResult KernelRun::compiled(const std::string& arch, int threads, bool check_bounds) const {
  static std::map<std::string, std::unique_ptr<cpu::CpuEmitter>> emitters;
  auto& emitter = emitters[arch];
  if (!emitter) emitter = std::make_unique<cpu::CpuEmitter>(cpu::target_for(arch), true);
  auto made = emitter->compile(kernel, {.check_bounds = check_bounds});
  Arguments a(inputs);
  dynamic_cast<const target::HostKernel&>(*made).run({a.pointers, symbols}, threads);
  return {std::move(a.buffers)};
}

std::vector<std::string> runnable_archs() {
  std::vector<std::string> out{"x86-64"};
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v3")) out.push_back("x86-64-v3");
  if (__builtin_cpu_supports("x86-64-v4")) out.push_back("x86-64-v4");
  return out;
}

std::string difference(const KernelRun& run, const RunResult& expected, const RunResult& actual,
                       bool exact, double rtol, double atol) {
  for (size_t k = 0; k < run.passed.size(); ++k) {
    if (run.passed[k]->role == ir::BufferRole::scratch) continue;
    DType d = run.passed[k]->dtype;
    auto size = static_cast<size_t>(bit_width(d) / 8);
    const Bytes &e = expected.buffers[k], &a = actual.buffers[k];
    for (size_t i = 0; i * size < e.size(); ++i) {
      if (std::memcmp(&e[i * size], &a[i * size], size) == 0) continue;
      double x = as_double(d, &e[i * size]), y = as_double(d, &a[i * size]);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (!exact && (x == y || std::fabs(x - y) <= atol + rtol * std::fabs(x))) continue;
      return base::cat("buffer ", run.passed[k]->name, " element ", i, ": expected ", x, ", got ",
                       y);
    }
  }
  return "";
}

ir::Axis axis(const std::string& name, const Expr& extent, ir::AxisKind kind) {
  return {make_loop_symbol(name, extent), extent, kind};
}

Expr var(const ir::Axis& a) { return Expr(a.var); }

void add_nest(ir::Kernel& k, ir::Nest nest) {
  ir::Stmt s;
  s.nest = std::make_shared<ir::Nest>(std::move(nest));
  k.body.push_back(s);
}

void check(const KernelRun& run, bool exact, double rtol, double atol) {
  const ir::Kernel& k = run.kernel;
  RunResult expected = run.interpret();
  for (const std::string& arch : runnable_archs()) {
    RunResult first;
    for (int threads : {1, 2, 4}) {
      RunResult actual = run.compiled(arch, threads);
      EXPECT_EQ(difference(run, expected, actual, exact, rtol, atol), "")
          << arch << ", " << threads << " threads\n"
          << ir::print(k);
      if (threads == 1) first = actual;
      EXPECT_EQ(difference(run, first, actual, true), "") << "threads change bits";
    }
    EXPECT_EQ(difference(run, expected, run.compiled(arch, 1, true), exact, rtol, atol), "")
        << arch << ", bounds checked";
  }
}

void check(const ir::Kernel& k, const std::vector<int64_t>& symbols, bool exact, double rtol,
           double atol) {
  check(KernelRun(k, symbols, 7), exact, rtol, atol);
}

}  // namespace heddle::test
