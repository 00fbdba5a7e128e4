// The op matrix: every operation of the registry x dtype x kinds of feeds and outputs, against the
// judge. The cases come from each OpDef's samples; shapes are varied (empty, zero-rank, size 1,
// primes, rank 9) wherever inference accepts them.
#include "ops/judge.h"
#include "ops/opdef.h"
#include "support/layouts.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace heddle::test {
namespace {

using ops::HostTensor;
using ops::OpDef;
using Shapes = std::vector<std::vector<int64_t>>;

const ops::OperandSpec& operand_spec(const OpDef& def, size_t k) {
  return def.operands[std::min(k, def.operands.size() - 1)];
}

// The dtype of operand k where the matrix is at `dtype`: itself, or one that the operand accepts.
DType operand_dtype(const OpDef& def, size_t k, DType dtype) {
  uint32_t accepted = operand_spec(def, k).dtypes;
  if (ops::in_class(dtype, accepted)) return dtype;
  for (DType d : {i64, bool_, f32, f64, c64}) {
    if (ops::in_class(d, accepted)) return d;
  }
  return f32;
}

// Consistent renaming of extents over all operands.
Shapes renamed(const Shapes& shapes, const std::map<int64_t, int64_t>& names) {
  Shapes out = shapes;
  for (auto& shape : out) {
    for (int64_t& n : shape) {
      auto it = names.find(n);
      if (it != names.end()) n = it->second;
    }
  }
  return out;
}

std::vector<Shapes> shape_variants(const OpDef& def, const Shapes& shapes) {
  std::vector<Shapes> variants = {shapes};
  std::set<int64_t> extents;
  for (const auto& shape : shapes) extents.insert(shape.begin(), shape.end());
  extents.erase(1);
  std::map<int64_t, int64_t> primes;
  int64_t next[] = {13, 37, 17, 11, 7, 5};
  size_t used = 0;
  for (int64_t n : extents) {
    variants.push_back(renamed(shapes, {{n, 0}}));
    variants.push_back(renamed(shapes, {{n, 1}}));
    primes[n] = next[used++ % 6];
  }
  variants.push_back(renamed(shapes, primes));
  if (def.kind == ops::Kind::elementwise) {
    variants.push_back(Shapes(shapes.size()));             // zero-rank
    variants.push_back(Shapes(shapes.size(), {67, 259}));  // vectors with tails, several rows
    Shapes deep = shapes;
    for (auto& shape : deep) {
      while (shape.size() < 9) shape.insert(shape.begin(), shape.size() % 3 == 0 ? 2 : 1);
    }
    variants.push_back(deep);
  }
  return variants;
}

// Every element of the first axis alike, as a stride-0 array.
std::pair<HostTensor, Array> repeated(const HostTensor& t) {
  if (t.shape.empty() || t.size() == 0) return {t, to_array(t)};
  Array row = to_array(t).slice(0, 0, 1);
  Array wide = row.broadcast_to(t.shape);
  return {to_host(wide), wide};
}

int64_t total(const Shapes& shapes) {
  int64_t n = 1;
  for (const auto& s : shapes) n = std::max(n, ops::element_count(s));
  return n;
}

double largest(const std::vector<HostTensor>& feeds) {
  double m = 1;
  for (const HostTensor& t : feeds) {
    for (double v : t.f) m = std::isfinite(v) ? std::max(m, std::fabs(v)) : m;
    for (const auto& v : t.c) m = std::max(m, std::abs(v));
  }
  return m;
}

class OpMatrix : public testing::TestWithParam<std::string> {
 protected:
  void run_case(const OpDef& def, const ops::Sample& sample, const Shapes& shapes, DType dtype);
  void check(const std::string& what, const std::vector<Array>& results,
             const std::vector<HostTensor>& expected, Tolerance t) {
    for (size_t k = 0; k < expected.size(); ++k) {
      std::string d = difference(to_host(results[k]), expected[k], t);
      EXPECT_EQ(d, "") << what << ", result " << k;
    }
  }
  Device device_ = test_device();
  std::mt19937_64 rng_{7};
  // HEDDLE_TEST_SAMPLE=N: each N-th case of an operation, the first one at least.
  static int every() {
    return static_cast<int>(std::max<uint64_t>(1, test_number("HEDDLE_TEST_SAMPLE", 1)));
  }
  int case_ = 0;
  int ran_ = 0;
  std::set<DType> dtypes_;
};

std::string describe_case(const OpDef& def, const Shapes& shapes, DType dtype) {
  std::string s = def.name + "(" + std::string(name(dtype)) + ";";
  for (const auto& shape : shapes) {
    s += " [";
    for (size_t k = 0; k < shape.size(); ++k) s += (k > 0 ? "," : "") + std::to_string(shape[k]);
    s += "]";
  }
  return s + ")";
}

void OpMatrix::run_case(const OpDef& def, const ops::Sample& sample, const Shapes& shapes,
                        DType dtype) {
  Graph graph;
  Tensors operands;
  std::vector<HostTensor> feeds;
  for (size_t k = 0; k < shapes.size(); ++k) {
    DType d = operand_dtype(def, k, dtype);
    operands.push_back(graph.placeholder(d, Shape(shapes[k].begin(), shapes[k].end())));
    feeds.push_back(random_tensor(d, shapes[k], rng_, sample.low, sample.high));
  }
  Tensors results;
  try {
    results = ops::apply_all(def.name, operands, sample.attrs, {}, graph.impl());
  } catch (const GraphError&) {
    return;  // this combination is not valid
  }
  std::string what = describe_case(def, shapes, dtype);
  SCOPED_TRACE(what);
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
  std::vector<ir::ValueId> wanted;
  CompileSpec spec;
  for (const Tensor& t : operands) {
    fed.emplace_back(t.id(), std::nullopt);
    spec.feeds.emplace_back(t);
  }
  for (const Tensor& t : results) wanted.push_back(t.id());
  spec.targets = results;
  auto judged = ir::extract(*graph.impl(), fed, wanted, {}).graph;
  std::vector<HostTensor> expected = ops::judge(*judged, feeds);
  int64_t length = def.kind == ops::Kind::elementwise ? 1 : total(shapes);
  // Normalisations divide by what a sum leaves: a few terms may nearly cancel.
  if (def.kind == ops::Kind::composite) length *= 64;
  Tolerance t = tolerance(results[0].dtype(), length, largest(feeds));
  t.poles = def.name == "sigmoid" || def.name == "tanh";

  Executable executable = graph.compile(spec, device_);
  std::vector<Array> packed, stepped, transposed, same;
  std::vector<HostTensor> same_feeds;
  for (const HostTensor& f : feeds) {
    packed.push_back(to_array(f));
    stepped.push_back(lay_out(f, Layout::stepped));
    transposed.push_back(lay_out(f, Layout::transposed));
    auto [host, array] = repeated(f);
    same_feeds.push_back(host);
    same.push_back(array);
  }
  check("packed", executable.run(packed), expected, t);
  check("stepped with an offset", executable.run(stepped), expected, t);
  check("transposed", executable.run(transposed), expected, t);
  check("stride 0", executable.run(same), ops::judge(*judged, same_feeds), t);
  std::vector<Array> outputs;
  for (const HostTensor& e : expected)
    outputs.push_back(lay_out(HostTensor(e.dtype, e.shape), Layout::stepped));
  executable.run_into(packed, outputs);
  check("given strided outputs", outputs, expected, t);
  ++ran_;
  dtypes_.insert(dtype);
}

TEST_P(OpMatrix, AgreesWithTheJudge) {
  const OpDef& def = *ops::find_op(GetParam());
  ASSERT_FALSE(def.samples.empty()) << "the registry's entry has no samples";
  for (const ops::Sample& sample : def.samples) {
    for (const Shapes& shapes : shape_variants(def, sample.shapes)) {
      for (DType dtype : kEveryDType) {
        if (dtype != f32 && shapes.empty()) continue;
        if (++case_ % every() != 1 % every()) continue;
        run_case(def, sample, shapes, dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(ran_, 0);
  RecordProperty("cases", ran_);
  RecordProperty("dtypes", static_cast<int>(dtypes_.size()));
}

std::vector<std::string> names() {
  ops::link_all_ops();
  std::vector<std::string> list;
  for (const OpDef* def : ops::all_ops()) {
    if (def->kind != ops::Kind::structural && def->kind != ops::Kind::source)
      list.push_back(def->name);
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Registry, OpMatrix, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace heddle::test
