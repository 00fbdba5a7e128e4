// The ten programs on the test device in every form that a loop, a kernel or a product can take:
// results, first and second gradients against the reference evaluator and central differences.
#include "programs.h"
#include "writers.h"

#include "ops/judge.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

namespace heddle::test {

const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"softmax_classifier", softmax_classifier},
      {"mlp_classifier", mlp_classifier},
      {"tanh_rnn", tanh_rnn},
      {"lstm", lstm},
      {"transformer_block", transformer_block},
      {"heat_equation", heat_equation},
      {"k_means", k_means},
      {"picture_filter", picture_filter},
      {"conjugate_gradients", conjugate_gradients},
      {"multigrid", multigrid},
  };
  return all;
}

namespace {

using ops::HostTensor;

// A program with all that is asked of it: results, loss, first gradients, second gradients.
struct Written {
  Graph graph;
  Tensors feeds, targets;
  std::vector<HostTensor> values;
  size_t loss = 0, first = 0, second = 0;  // where they begin among the targets
  std::vector<size_t> parameters;          // places among the feeds
};

HostTensor random_feed(const ProgramFeed& f, std::mt19937_64& rng) {
  return random_tensor(f.tensor.dtype(), f.shape, rng, f.low, f.high);
}

size_t feed_of(const Tensors& feeds, const Tensor& t) {
  auto at =
      std::find_if(feeds.begin(), feeds.end(), [&](const Tensor& f) { return f.id() == t.id(); });
  return static_cast<size_t>(at - feeds.begin());
}

// The second gradients are those of the first ones' products with fixed weights.
Written write(const Program& program, DType dtype, bool open) {
  ProgramBuilder b(dtype, open);
  ProgramResult r = program.write(b);
  Tensors first = gradients(r.loss, r.parameters);
  std::vector<ProgramFeed> feeds = b.feeds;
  Tensor product;
  Tensors tensors;
  for (const ProgramFeed& f : feeds) tensors.push_back(f.tensor);
  for (size_t k = 0; k < first.size(); ++k) {
    ProgramFeed weight = feeds[feed_of(tensors, r.parameters[k])];
    weight.low = -1, weight.high = 1;
    weight.tensor = b.graph.placeholder(dtype, weight.tensor.shape(), "weight" + std::to_string(k));
    feeds.push_back(weight);
    Tensor part = sum(first[k] * weight.tensor);
    product = product.valid() ? product + part : part;
  }
  Tensors second = gradients(product, r.parameters);
  Written w;
  w.graph = b.graph;
  w.targets = r.results;
  w.loss = w.targets.size();
  w.targets.push_back(r.loss);
  w.first = w.targets.size();
  w.targets.insert(w.targets.end(), first.begin(), first.end());
  w.second = w.targets.size();
  w.targets.insert(w.targets.end(), second.begin(), second.end());
  std::mt19937_64 rng(7);
  for (const ProgramFeed& f : feeds) {
    w.feeds.push_back(f.tensor);
    w.values.push_back(random_feed(f, rng));
    // The same numbers for every dtype, so that bounds can be carried over.
    if (dtype == f64 && is_real_float(w.values.back().dtype)) {
      HostTensor narrow = w.values.back();
      narrow.dtype = f32;
      ops::round_to_dtype(narrow);
      w.values.back().f = narrow.f;
    }
  }
  for (const Tensor& p : r.parameters) w.parameters.push_back(feed_of(w.feeds, p));
  return w;
}

std::vector<HostTensor> reference(const Written& w, const std::vector<HostTensor>& values,
                                  bool round) {
  std::vector<std::pair<ir::ValueId, std::optional<Type>>> fed;
  std::vector<ir::ValueId> wanted;
  for (const Tensor& t : w.feeds) fed.emplace_back(t.id(), std::nullopt);
  for (const Tensor& t : w.targets) wanted.push_back(t.id());
  ops::JudgeOptions options;
  options.round = round;
  return ops::judge(*ir::extract(*w.graph.impl(), fed, wanted, {}).graph, values, nullptr, options);
}

double largest(const HostTensor& t) {
  double m = 0;
  for (double v : t.f) m = std::max(m, std::fabs(v));
  return m;
}

// What roundings may change in each target: measured on the f32 program, whose evaluation with and
// without roundings differs by what they grow to, and carried over by the ratio of the roundings.
struct Truth {
  std::vector<HostTensor> exact;
  std::vector<double> allowed;
};

Truth truth_of(const Program& program, const Written& w, DType dtype) {
  Truth t;
  t.exact = reference(w, w.values, false);
  Written narrow = write(program, f32, false);
  std::vector<HostTensor> with = reference(narrow, narrow.values, true),
                          without = reference(narrow, narrow.values, false);
  for (size_t k = 0; k < with.size(); ++k) {
    double gap = 0;
    for (size_t i = 0; i < with[k].f.size(); ++i)
      gap = std::max(gap, std::fabs(with[k].f[i] - without[k].f[i]));
    double scale = std::max(1.0, largest(without[k]));
    double narrow_allowed = 16 * gap + 64 * epsilon(f32) * scale;
    t.allowed.push_back(narrow_allowed * epsilon(dtype) / epsilon(f32));
  }
  return t;
}

struct Form {
  std::string name;
  CompileOptions options;
};

std::vector<Form> forms() {
  std::vector<Form> out{{"default", {}}};
  auto add = [&](const std::string& name, auto set) {
    out.push_back({name, {}});
    set(out.back().options);
  };
  add("unfused", [](CompileOptions& o) { o.fusion = false; });
  add("own kernels", [](CompileOptions& o) { o.claims = false; });
  add("one thread", [](CompileOptions& o) { o.threads = 1; });
  add("host", [](CompileOptions& o) { o.loops = LoopRecording::host; });
  add("device graph", [](CompileOptions& o) { o.loops = LoopRecording::device_graph; });
  add("single kernel", [](CompileOptions& o) { o.loops = LoopRecording::single_kernel; });
  add("host, own kernels", [](CompileOptions& o) {
    o.loops = LoopRecording::host;
    o.claims = false;
  });
  add("device graph, own kernels", [](CompileOptions& o) {
    o.loops = LoopRecording::device_graph;
    o.claims = false;
  });
  add("device graph, unfused", [](CompileOptions& o) {
    o.loops = LoopRecording::device_graph;
    o.fusion = false;
  });
  return out;
}

std::vector<Array> arrays(const std::vector<HostTensor>& values) {
  std::vector<Array> out;
  for (const HostTensor& v : values) out.push_back(to_array(v));
  return out;
}

Executable compile(Written& w, const CompileOptions& options) {
  CompileSpec spec;
  for (const Tensor& t : w.feeds) spec.feeds.emplace_back(t);
  spec.targets = w.targets;
  return w.graph.compile(spec, test_device(), options);
}

struct Case {
  Program program;
  DType dtype;
  bool open;
};

class Programs : public testing::TestWithParam<Case> {};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.program.name + "_" + std::string(name(info.param.dtype)) +
         (info.param.open ? "_open" : "");
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Program& p : programs()) {
    out.push_back({p, f32, false});
    out.push_back({p, f64, true});
  }
  return out;
}

void expect_equal(const std::vector<Array>& got, const Truth& truth, const std::string& what) {
  ASSERT_EQ(got.size(), truth.exact.size());
  for (size_t k = 0; k < got.size(); ++k) {
    EXPECT_EQ(difference(to_host(got[k]), truth.exact[k], {0, truth.allowed[k]}), "")
        << what << ", target " << k << ", allowed " << truth.allowed[k];
  }
}

// Sum of a list of tensors' products with directions.
double along(const std::vector<HostTensor>& gradients, const std::vector<HostTensor>& direction) {
  double total = 0;
  for (size_t k = 0; k < gradients.size(); ++k) {
    for (size_t i = 0; i < gradients[k].f.size(); ++i)
      total += gradients[k].f[i] * direction[k].f[i];
  }
  return total;
}

std::vector<HostTensor> part(const std::vector<HostTensor>& all, size_t from, size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(from),
          all.begin() + static_cast<std::ptrdiff_t>(from + count)};
}

}  // namespace

TEST_P(Programs, EveryFormHasTheReferencesValues) {
  const Case& c = GetParam();
  Written w = write(c.program, c.dtype, c.open);
  Truth truth = truth_of(c.program, w, c.dtype);
  std::vector<Array> inputs = arrays(w.values);
  for (Form& f : forms()) {
    Executable e = compile(w, f.options);
    // The third run of one executable may be the first of a recording.
    for (int run = 0; run < 3; ++run)
      expect_equal(e.run(inputs), truth, f.name + ", run " + std::to_string(run));
  }
}

// Each target alone: what nobody fetches must not change what somebody does.
TEST_P(Programs, TargetsAloneHaveTheSameValues) {
  const Case& c = GetParam();
  Written w = write(c.program, c.dtype, c.open);
  Truth truth = truth_of(c.program, w, c.dtype);
  std::vector<Array> inputs = arrays(w.values);
  for (size_t k = 0; k < w.targets.size(); ++k) {
    CompileSpec spec;
    for (const Tensor& t : w.feeds) spec.feeds.emplace_back(t);
    spec.targets = {w.targets[k]};
    std::vector<Array> got = w.graph.compile(spec, test_device()).run(inputs);
    EXPECT_EQ(difference(to_host(got[0]), truth.exact[k], {0, truth.allowed[k]}), "")
        << "target " << k << ", allowed " << truth.allowed[k];
  }
}

// Own kernels give the same bits for any number of threads, and in every run.
TEST_P(Programs, ThreadsDoNotChangeBits) {
  const Case& c = GetParam();
  Written w = write(c.program, c.dtype, c.open);
  std::vector<Array> inputs = arrays(w.values);
  CompileOptions many, one;
  many.claims = one.claims = false;
  one.threads = 1;
  Executable e = compile(w, many);
  std::vector<Array> first = e.run(inputs), again = e.run(inputs),
                     alone = compile(w, one).run(inputs);
  for (size_t k = 0; k < first.size(); ++k) {
    EXPECT_EQ(first[k].to_bytes(), again[k].to_bytes()) << "target " << k << ", second run";
    EXPECT_EQ(first[k].to_bytes(), alone[k].to_bytes()) << "target " << k << ", one thread";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(cases()), name_of);

namespace {

class ProgramGradients : public testing::TestWithParam<Program> {};

}  // namespace

// The reference's gradients are derivatives: along a random direction, of the loss and of the
// first gradients' product.
TEST_P(ProgramGradients, AgreeWithCentralDifferences) {
  Written w = write(GetParam(), f64, false);
  std::vector<HostTensor> at = reference(w, w.values, false);
  std::mt19937_64 rng(11);
  std::vector<HostTensor> direction, weights;
  size_t n = w.parameters.size();
  for (size_t k = 0; k < n; ++k) {
    direction.push_back(random_tensor(f64, w.values[w.parameters[k]].shape, rng, -1, 1));
    weights.push_back(w.values[w.values.size() - n + k]);
  }
  constexpr double kStep = 1e-5;
  auto moved = [&](double by) {
    std::vector<HostTensor> values = w.values;
    for (size_t k = 0; k < n; ++k) {
      for (size_t i = 0; i < direction[k].f.size(); ++i)
        values[w.parameters[k]].f[i] += by * direction[k].f[i];
    }
    return reference(w, values, false);
  };
  std::vector<HostTensor> above = moved(kStep), below = moved(-kStep);
  double slope = (above[w.loss].f[0] - below[w.loss].f[0]) / (2 * kStep);
  double first = along(part(at, w.first, n), direction);
  EXPECT_NEAR(first, slope, 2e-6 * std::max(1.0, std::fabs(slope)));
  double curvature =
      (along(part(above, w.first, n), weights) - along(part(below, w.first, n), weights)) /
      (2 * kStep);
  double second = along(part(at, w.second, n), direction);
  EXPECT_NEAR(second, curvature, 2e-6 * std::max(1.0, std::fabs(curvature)));
}

// A permutation of the rows of a batch permutes what belongs to rows, and nothing else changes
// beyond rounding.
TEST(ProgramBatches, RowsMayComeInAnyOrder) {
  for (const char* chosen : {"softmax_classifier", "transformer_block"}) {
    auto program = std::find_if(programs().begin(), programs().end(),
                                [&](const Program& p) { return p.name == chosen; });
    Written w = write(*program, f32, false);
    Truth truth = truth_of(*program, w, f32);
    Executable e = compile(w, {});
    std::vector<HostTensor> values = w.values;
    auto turn = [](HostTensor& t) {  // the last row comes first
      auto rows = t.shape[0], width = t.size() / rows;
      auto rotate = [&](auto& list) {
        if (!list.empty()) std::rotate(list.begin(), list.end() - width, list.end());
      };
      rotate(t.f), rotate(t.i);
    };
    int64_t rows = truth.exact[0].shape[0];
    for (size_t k = 0; k < values.size(); ++k) {
      std::string given = w.graph.impl()->value(w.feeds[k].id()).name;
      if (given == "x" || given == "labels") turn(values[k]);
    }
    std::vector<Array> got = e.run(arrays(values));
    turn(truth.exact[0]);
    EXPECT_EQ(truth.exact[0].shape[0], rows);
    for (size_t k : {size_t{0}, w.loss}) {
      EXPECT_EQ(difference(to_host(got[k]), truth.exact[k], {0, truth.allowed[k]}), "")
          << chosen << ", target " << k;
    }
  }
}

// Every step of every program agrees with the reference where that is asked for.
TEST_P(ProgramGradients, StepsPassValidation) {
  Written w = write(GetParam(), f32, false);
  setenv("HEDDLE_VALIDATE", "reference", 1);
  Executable e = compile(w, {});
  unsetenv("HEDDLE_VALIDATE");
  EXPECT_NO_THROW(e.run(arrays(w.values)));
}

INSTANTIATE_TEST_SUITE_P(All, ProgramGradients, testing::ValuesIn(programs()),
                         [](const auto& p) { return p.param.name; });

}  // namespace heddle::test
