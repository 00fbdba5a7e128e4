// Each elementwise operation's scalar rule against its judge, on the edge values of every dtype
// that it accepts.
#include "ops/helpers.h"
#include "ops/opdef.h"
#include "ops/storage.h"
#include "support/body_eval.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

namespace heddle::test {
namespace {

using ops::OpDef;

// All combinations of the operands' edge values, one tensor an operand.
std::vector<HostTensor> combinations(const std::vector<DType>& dtypes) {
  std::vector<HostTensor> edges;
  size_t total = 1;
  for (DType d : dtypes) {
    edges.push_back(edge_values(d));
    total *= static_cast<size_t>(edges.back().size());
  }
  std::vector<HostTensor> out;
  size_t repeat = 1;
  for (const HostTensor& e : edges) {
    HostTensor t(e.dtype, {static_cast<int64_t>(total)});
    for (size_t k = 0; k < total; ++k) {
      size_t from = k / repeat % static_cast<size_t>(e.size());
      if (!t.f.empty()) t.f[k] = e.f[from];
      if (!t.i.empty()) t.i[k] = e.i[from];
      if (!t.c.empty()) t.c[k] = e.c[from];
    }
    repeat *= static_cast<size_t>(e.size());
    out.push_back(std::move(t));
  }
  return out;
}

// Operand nodes as lowering makes them: loads, then the compute type.
struct Inputs {
  std::vector<ir::Val> values;
  std::vector<Lane> lanes;
};
Inputs load(ir::BodyBuilder& b, const std::vector<HostTensor>& operands) {
  Inputs in;
  auto add = [&](const HostTensor& t, bool imaginary) {
    DType part = real_part(t.dtype), loaded = is_storage_only(part) ? u8 : part;
    ir::NodeId n = input(b, static_cast<int>(in.lanes.size()), loaded);
    Lane lane;
    for (int64_t k = 0; k < t.size(); ++k)
      lane.push_back(element_bits(t, static_cast<size_t>(k), imaginary));
    in.lanes.push_back(std::move(lane));
    return b.cast(n, real_part(compute_type(loaded)));
  };
  for (const HostTensor& t : operands) {
    ir::Val v{add(t, false)};
    if (is_complex(t.dtype)) v.im = add(t, true);
    in.values.push_back(v);
  }
  return in;
}

double value_of(DType dtype, uint64_t bits) {
  if (dtype == f64) return std::bit_cast<double>(bits);
  if (dtype == f32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  HostTensor t = ops::from_bytes(
      dtype, {1},
      std::as_bytes(std::span(&bits, 1)).first(static_cast<size_t>(byte_size(dtype, 1))));
  return t.f.empty() ? static_cast<double>(t.i[0]) : t.f[0];
}

double unit(DType part, double at) {
  int digits = part == f64 ? 53 : part == f32 ? 24 : part == f16 ? 11 : 8;
  int least = part == f64 ? -1022 : part == f16 ? -14 : -126;
  int e = at == 0 || !std::isfinite(at) ? least : std::max(std::ilogb(at), least);
  return std::ldexp(1.0, e - digits + 1);
}

bool agrees(DType part, double got, double expected, double ulps, double scale) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (std::isinf(expected) || std::isinf(got)) {
    if (got == expected) return true;
    // One of them rounded to infinity.
    double finite = std::isinf(got) ? expected : got;
    return ulps > 0 && std::isfinite(finite) &&
           std::fabs(finite) > 0.999 * (part == f16   ? 65504.0
                                        : part == f64 ? 1.7e308
                                                      : 3.38e38);
  }
  bool exact_zeros = ulps == 0 || (scale < 0 && got == 0 && expected == 0);
  if (exact_zeros) return got == expected && std::signbit(got) == std::signbit(expected);
  return std::fabs(got - expected) <= ulps * unit(part, std::max(std::fabs(expected), scale));
}

// Elementary functions promise 2 ULP; the rest is exact, once rounded. Complex results: relative to
// their length; in c128 the judge's own formulas are no better than the rule's.
double allowed(const OpDef& def, DType operand, DType result) {
  static const std::set<std::string> functions = {"exp", "log",   "tanh", "sigmoid",
                                                  "erf", "power", "rsqrt"};
  bool is_function = functions.contains(def.name);
  if (is_complex(result)) return !is_function ? 4 : result == c128 ? 64 : 8;
  if (def.name == "abs" && is_complex(operand)) return 1;
  if (!is_function) return 0;
  return result == f16 || result == bf16 ? 1 : 2;
}

void compare(const OpDef& def, const std::vector<DType>& dtypes, const ir::Attrs& attrs) {
  std::vector<HostTensor> operands = combinations(dtypes);
  Graph graph;
  Tensors feeds;
  for (const HostTensor& t : operands)
    feeds.push_back(graph.placeholder(t.dtype, {Expr(t.size())}));
  Tensor target = ops::apply(def.name, feeds, attrs);
  HostTensor expected = judged_one(feeds, target, operands);
  DType dtype = expected.dtype, part = real_part(dtype), stored = is_storage_only(part) ? u8 : part;

  ir::BodyBuilder b;
  Inputs in = load(b, operands);
  const ir::Attrs& full = graph.impl()->op(graph.impl()->value(target.id()).op).attrs;
  ops::ScalarContext context{b, full, in.values, dtypes, dtype};
  ir::Val result = def.scalar(context);
  ASSERT_EQ(result.complex(), is_complex(dtype)) << def.name;
  std::vector<ir::NodeId> wanted = {b.cast(result.re, stored)};
  if (result.complex()) wanted.push_back(b.cast(result.im, stored));
  std::vector<Lane> got = evaluate(b.body(), wanted, in.lanes);

  int shown = 0;
  for (size_t k = 0; k < static_cast<size_t>(expected.size()) && shown < 5; ++k) {
    for (size_t p = 0; p < got.size(); ++p) {
      bool same;
      std::string found;
      if (!expected.i.empty() || is_storage_only(dtype)) {
        same = got[p][k] == element_bits(expected, k);
        if (!same && !expected.f.empty())
          same = std::isnan(expected.f[k]) && std::isnan(value_of(dtype, got[p][k]));
        found =
            std::to_string(got[p][k]) + ", expected " + std::to_string(element_bits(expected, k));
      } else {
        double value = expected.c.empty() ? expected.f[k]
                       : p == 0           ? expected.c[k].real()
                                          : expected.c[k].imag();
        double scale = expected.c.empty() ? -1 : std::abs(expected.c[k]);  // -1: a real one
        double actual = value_of(part, got[p][k]);
        bool undefined = !expected.c.empty() &&
                         !std::isfinite(scale);  // infinite complex numbers have no one form
        same = undefined || agrees(part, actual, value, allowed(def, dtypes[0], dtype), scale);
        found = std::to_string(actual) + ", expected " + std::to_string(value);
      }
      if (same) continue;
      ++shown;
      std::string at;
      for (const HostTensor& t : operands)
        at += (t.f.empty() ? t.i.empty() ? std::to_string(t.c[k].real()) + "+i" +
                                               std::to_string(t.c[k].imag())
                                         : std::to_string(t.i[k])
                           : std::to_string(t.f[k])) +
              " ";
      ADD_FAILURE() << def.name << ' ' << name(dtypes[0]) << " -> " << name(dtype) << " at " << at
                    << ": got " << found;
    }
  }
}

// Dtypes of all operands where the operation is at `dtype`; empty: it does not take it.
std::vector<DType> operand_dtypes(const OpDef& def, DType dtype) {
  std::vector<DType> out;
  for (const ops::OperandSpec& spec : def.operands) {
    bool predicate = spec.dtypes == ops::kBool && def.operands.size() == 3;
    DType d = predicate ? bool_ : dtype;
    if (!ops::in_class(d, spec.dtypes)) return {};
    out.push_back(d);
  }
  return out;
}

TEST(ScalarRules, AgreeWithTheJudge) {
  int compared = 0;
  for (const OpDef* def : ops::all_ops()) {
    if (def->kind != ops::Kind::elementwise || !def->scalar) continue;
    for (DType dtype : kEveryDType) {
      std::vector<DType> dtypes = operand_dtypes(*def, dtype);
      if (dtypes.empty() || (def->name == "make_complex" && dtype == bf16)) continue;
      if (def->name == "cast") {
        for (DType to : kEveryDType) compare(*def, dtypes, {{"dtype", to}});
      } else {
        compare(*def, dtypes, def->samples.empty() ? ir::Attrs{} : def->samples[0].attrs);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 250);
}

}  // namespace
}  // namespace heddle::test
