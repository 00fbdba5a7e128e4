// Every operation of the registry that has a gradient rule, by its own samples: first and second
// order against central differences. An operation without a case fails.
#include "ops/opdef.h"
#include "support/evaluate.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <map>

namespace heddle::test {
namespace {

using ops::HostTensor;
using ops::OpDef;

// ---- operations whose samples cannot say it: one program each

Tensor scan_case(Graph&, const Tensors& x) {
  ScanResult r = scan({x[0]}, {x[1]}, [](const Tensors& v, const Tensors& s) {
    Tensor next = tanh(v[0] * s[0]);
    return ScanResult{{next}, {next * s[0]}};
  });
  return concat({expand_dims(r.carried[0], {0}), r.stacked[0]}, 0);
}

Tensor cond_case(Graph&, const Tensors& x) {
  return cond(sum(x[0]) > 0.0, [&] { return x[0] * exp(x[0]); }, [&] { return square(x[0]); });
}

Tensor for_case(Graph&, const Tensors& x) {
  return for_loop(3, {x[0]}, [&](const Tensor& i, const Tensors& v) {
    return Tensors{v[0] * x[0] + cast(i, f64)};
  })[0];
}

Tensor while_case(Graph&, const Tensors& x) {
  return while_loop(
      {x[0]}, [](const Tensors& v) { return sum(square(v[0])) < 30.0; },
      [&](const Tensors& v) { return Tensors{v[0] * 1.5 + x[0]}; }, {.max_iterations = 6})[0];
}

Tensor call_case(Graph&, const Tensors& x) {
  Graph callee;
  Tensor a = callee.placeholder(x[0].type(), "a");
  return call(callee, {a * exp(a)}, {x[0]})[0];
}

Tensor custom_case(Graph&, const Tensors& x) {
  return custom_gradient(
      {x[0]}, [](const Tensors& v) { return Tensors{v[0] * v[0]}; },
      [](const Tensors& in, const Tensors&, const Tensors& up) {
        return Tensors{up[0] * in[0] * 2.0};
      })[0];
}

// Differences need f64 on both sides: through a complex number and back.
Tensor cast_case(Graph&, const Tensors& x) {
  Tensor z = cast(x[0] * x[1], c128) * make_complex(x[1], x[0]);
  return concat({real(z), imaginary(z)}, 0);
}

struct Program {
  Function build;
  std::vector<std::vector<int64_t>> shapes;
};
const std::map<std::string, Program>& programs() {
  static const std::map<std::string, Program> all{{"cast", {cast_case, {{3}, {3}}}},
                                                  {"scan", {scan_case, {{2}, {3, 2}}}},
                                                  {"cond", {cond_case, {{3}}}},
                                                  {"for_loop", {for_case, {{2}}}},
                                                  {"while_loop", {while_case, {{2}}}},
                                                  {"call", {call_case, {{3}}}},
                                                  {"custom_gradient", {custom_case, {{3}}}}};
  return all;
}

// ---- the others, by their samples

// f64 where the operand takes it, else what it takes.
DType operand_dtype(const OpDef& def, size_t k) {
  uint32_t accepted = def.operands[std::min(k, def.operands.size() - 1)].dtypes;
  for (DType d : {f64, c128, i64, bool_, DType::u4}) {
    if (ops::in_class(d, accepted)) return d;
  }
  return f64;
}

// The product of all floating results' elements' squares is smooth and depends on each of them.
Tensor joined(const Tensors& results) {
  Tensors parts;
  for (const Tensor& t : results) {
    if (is_complex(t.dtype())) {
      parts.push_back(reshape(real(t), {-1}));
      parts.push_back(reshape(imaginary(t), {-1}));
    }
    if (is_real_float(t.dtype())) parts.push_back(reshape(cast(t, f64), {-1}));
  }
  return parts.empty() ? Tensor{} : concat(parts, 0);
}

// "" where the sample's gradients are right, "-" where none of its operands or results is
// differentiable.
std::string check_sample(const OpDef& def, const ops::Sample& sample, bool compiled) {
  std::mt19937_64 rng(test_seed(3));
  std::vector<HostTensor> differentiable;
  std::vector<std::pair<bool, HostTensor>> operands;  // is it one of `differentiable`?
  for (size_t k = 0; k < sample.shapes.size(); ++k) {
    DType d = operand_dtype(def, k);
    HostTensor value = random_tensor(d, sample.shapes[k], rng, sample.low, sample.high);
    operands.emplace_back(is_floating(d), value);
    if (is_floating(d)) differentiable.push_back(value);
  }
  if (differentiable.empty()) return "-";
  bool nothing = false;
  auto build = [&](Graph& g, const Tensors& xs) {
    Tensors in;
    size_t next = 0;
    for (const auto& [is_input, value] : operands)
      in.push_back(is_input ? xs[next++] : g.constant(to_array(value)));
    Tensor y = joined(ops::apply_all(def.name, in, sample.attrs, {}, g.impl()));
    nothing = !y.valid();
    return nothing ? sum(real(xs[0])) : y;
  };
  GradientCheck options{.tolerance = 1e-5, .compiled = compiled};
  std::string wrong = check_gradient(build, differentiable, options);
  return nothing ? "-" : wrong;
}

class EveryGradient : public testing::TestWithParam<std::string> {};

TEST_P(EveryGradient, AgreesWithDifferences) {
  const OpDef& def = *ops::find_op(GetParam());
  auto at = programs().find(def.name);
  ASSERT_TRUE(at != programs().end() || def.kind != ops::Kind::structural)
      << "an operation with regions needs a program here";
  if (at != programs().end()) {
    std::mt19937_64 rng(test_seed(4));
    std::vector<HostTensor> values;
    for (const auto& shape : at->second.shapes)
      values.push_back(random_tensor(f64, shape, rng, 0.2, 1.2));
    EXPECT_EQ(check_gradient(at->second.build, values, {.tolerance = 1e-5}), "");
    return;
  }
  int checked = 0;
  for (const ops::Sample& sample : def.samples) {
    std::string wrong = check_sample(def, sample, checked == 0);
    if (wrong == "-") continue;
    EXPECT_EQ(wrong, "") << "sample " << &sample - def.samples.data();
    ++checked;
  }
  EXPECT_GT(checked, 0) << "no sample has differentiable operands and results";
}

std::vector<std::string> differentiable_ops() {
  ops::link_all_ops();
  std::vector<std::string> names;
  for (const OpDef* def : ops::all_ops()) {
    if (def->role == ops::Role::read) continue;  // cannot be fed: see below
    bool regions = def->kind == ops::Kind::structural;
    if (def->gradient || (regions && !def->no_gradient)) names.push_back(def->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryGradient, testing::ValuesIn(differentiable_ops()),
                         [](const auto& test) { return test.param; });

TEST(GradientCoverage, VariablesAreReachedThroughTheirReads) {
  Graph g;
  Tensor v = g.variable(Array::from<double>({3}, {1, 2, 3}));
  Tensor r = read_variable(v);
  Tensor first = gradients(sum(r * r * r), {v})[0];
  std::vector<Array> out =
      g.run({}, {first, gradients(sum(first), {v})[0]}, {}, device("interpreter"));
  EXPECT_EQ(out[0].to_vector<double>(), (std::vector<double>{3, 12, 27}));
  EXPECT_EQ(out[1].to_vector<double>(), (std::vector<double>{6, 12, 18}));
}

}  // namespace
}  // namespace heddle::test
