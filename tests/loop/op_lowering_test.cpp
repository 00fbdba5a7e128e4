// The lowering of every operation of the registry, with numbers and with symbols as extents,
// through the interpreter with bounds checks, against the judge of the operation itself.
#include "loop/run_scheduled.h"
#include "ops/judge.h"
#include "ops/opdef.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace heddle::test {
namespace {

using ops::HostTensor;
using ops::OpDef;

constexpr DType kDTypes[] = {f64, f32, f16, bf16,  i8,  i16, i32,  i64,           u8,
                             u16, u32, u64, bool_, c32, c64, c128, DType::f8e5m2, DType::i4};

DType operand_dtype(const OpDef& def, size_t k, DType dtype) {
  uint32_t accepted = def.operands[std::min(k, def.operands.size() - 1)].dtypes;
  for (DType d : {dtype, i64, bool_, f32, c64})
    if (ops::in_class(d, accepted)) return d;
  return f32;
}

class OpLowering : public testing::TestWithParam<std::string> {
 protected:
  // Returns whether the combination is valid.
  bool check(const OpDef& def, const ops::Sample& sample, DType dtype, bool symbolic);
  std::mt19937_64 rng_{11};
};

Shape placeholder_shape(const std::vector<int64_t>& extents, bool symbolic,
                        std::map<int64_t, Dim>& dims) {
  Shape shape;
  for (int64_t n : extents) {
    bool named = symbolic && n > 1;
    if (named && !dims.contains(n)) dims.emplace(n, Dim("n" + std::to_string(n)));
    shape.push_back(named ? Expr(dims.at(n)) : Expr(n));
  }
  return shape;
}

double largest(const std::vector<HostTensor>& ts) {
  double m = 1;
  for (const HostTensor& t : ts) {
    for (double v : t.f) m = std::isfinite(v) ? std::max(m, std::fabs(v)) : m;
    for (const auto& v : t.c) m = std::max(m, std::abs(v));
  }
  return m;
}

bool OpLowering::check(const OpDef& def, const ops::Sample& sample, DType dtype, bool symbolic) {
  Graph graph;
  Tensors operands, results;
  std::vector<HostTensor> feeds;
  std::map<int64_t, Dim> dims;
  int64_t length = 1;
  for (size_t k = 0; k < sample.shapes.size(); ++k) {
    DType d = operand_dtype(def, k, dtype);
    operands.push_back(graph.placeholder(d, placeholder_shape(sample.shapes[k], symbolic, dims)));
    feeds.push_back(random_tensor(d, sample.shapes[k], rng_, sample.low, sample.high));
    length = std::max(length, feeds.back().size());
  }
  try {
    results = ops::apply_all(def.name, operands, sample.attrs, {}, graph.impl());
  } catch (const GraphError&) {
    return false;
  }
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
  std::vector<ir::ValueId> wanted;
  for (const Tensor& t : operands) fed.emplace_back(t.id(), std::nullopt);
  for (const Tensor& t : results) wanted.push_back(t.id());
  std::vector<HostTensor> expected =
      ops::judge(*ir::extract(*graph.impl(), fed, wanted, {}).graph, feeds);
  ScheduledRun run = run_scheduled(*prepare(graph, operands, results), feeds);
  bool elementwise = def.kind == ops::Kind::elementwise || def.kind == ops::Kind::view;
  for (size_t k = 0; k < expected.size(); ++k) {
    Tolerance t = tolerance(expected[k].dtype, elementwise ? 1 : length, largest(feeds));
    EXPECT_EQ(difference(run.results[k], expected[k], t), "")
        << run.text << ir::print(*graph.impl());
  }
  return true;
}

TEST_P(OpLowering, AgreesWithTheJudge) {
  const OpDef& def = *ops::find_op(GetParam());
  int ran = 0;
  for (const ops::Sample& sample : def.samples) {
    for (DType dtype : kDTypes) {
      for (bool symbolic : {false, true}) {
        SCOPED_TRACE(def.name + " " + std::string(name(dtype)) + (symbolic ? " symbolic" : "") +
                     " sample " + std::to_string(&sample - def.samples.data()));
        ran += check(def, sample, dtype, symbolic);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(ran, 0);
}

std::vector<std::string> names() {
  ops::link_all_ops();
  std::vector<std::string> list;
  for (const OpDef* def : ops::all_ops())
    if (def->kind != ops::Kind::structural && def->kind != ops::Kind::source)
      list.push_back(def->name);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Registry, OpLowering, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace heddle::test
