// First and second derivatives through control flow, in every form and on every device. The judge
// is compared with central differences; everything else with the judge.
#include "support/evaluate.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

using Program = std::function<Tensor(Graph&, const Tensors&)>;

struct Case {
  const char* name;
  Program program;
  std::vector<std::vector<int64_t>> shapes = {{4}, {4}};
};

std::string case_name(const testing::TestParamInfo<Case>& info) { return info.param.name; }

Tensor as_float(const Tensor& i) { return cast(i, f64); }
Tensors only(const Tensor& t) { return {t}; }
Tensor row(const Tensor& v) {
  Shape shape = *v.type().shape;
  shape.insert(shape.begin(), Expr(1));
  return reshape(v, shape);
}

Tensor carried_pair(Graph&, const Tensors& x) {
  return for_loop(3, {x[0], x[1]}, [&](const Tensor& i, const Tensors& v) {
    return Tensors{v[0] * v[1] + as_float(i) * x[0], tanh(v[1] + v[0])};
  })[0];
}
Tensor scanned(Graph&, const Tensors& x) {
  Tensor rows = concat({row(x[0]), row(x[1]), row(x[0])}, 0);
  ScanResult r = scan({x[0]}, {rows}, [&](const Tensors& c, const Tensors& s) {
    Tensor t = tanh(c[0] * s[0] + x[1]);
    return ScanResult{{t}, {t * c[0]}};
  });
  return concat({row(r.carried[0]), r.stacked[0]}, 0);
}
Tensor branch_in_loop(Graph&, const Tensors& x) {
  return for_loop(4, {x[0]}, [&](const Tensor&, const Tensors& v) {
    return only(
        cond(sum(v[0]) < 8.0, [&] { return v[0] * 1.5 + x[1]; }, [&] { return v[0] / x[1]; }));
  })[0];
}
Tensor loop_in_branch(Graph&, const Tensors& x) {
  return cond(
      sum(x[0]) < 100.0,
      [&] {
        return for_loop(2, {x[0]}, [&](const Tensor&, const Tensors& v) {
          return only(v[0] * v[0] * x[1]);
        })[0];
      },
      [&] { return x[0]; });
}
Tensor nested(Graph&, const Tensors& x) {
  return for_loop(2, {x[0]}, [&](const Tensor&, const Tensors& v) {
    return for_loop(2, {v[0]}, [&](const Tensor&, const Tensors& u) {
      return only(sigmoid(u[0] * x[1]) + v[0]);
    });
  })[0];
}
Tensor three_deep(Graph&, const Tensors& x) {
  return for_loop(2, {x[0]}, [&](const Tensor& i, const Tensors& a) {
    return for_loop(2, {a[0]}, [&](const Tensor& j, const Tensors& b) {
      return for_loop(2, {b[0]}, [&](const Tensor& k, const Tensors& c) {
        return only(tanh(c[0] * x[1]) + a[0] * 0.25 + b[0] * as_float(i + j + k) * 0.1);
      });
    });
  })[0];
}
Tensor gradient_in_body(Graph&, const Tensors& x) {
  return for_loop(3, {x[0]}, [&](const Tensor&, const Tensors& v) {
    Tensor y = sum(v[0] * v[0] * x[1]);
    return only(v[0] - gradients(y, {v[0]})[0] * 0.1);
  })[0];
}
Tensor gather_by_counter(Graph&, const Tensors& x) {
  return for_loop(4, {x[0]}, [&](const Tensor& i, const Tensors& v) {
    return only(v[0] * gather(x[1], i) + gather(v[0], i));
  })[0];
}
Tensor bounded_while(Graph&, const Tensors& x) {
  return while_loop(
      {x[0]}, [](const Tensors& v) { return sum(v[0]) < 20.0; },
      [&](const Tensors& v) { return only(v[0] * x[1] + v[0]); }, {.max_iterations = 6})[0];
}
Tensor while_that_never_runs(Graph&, const Tensors& x) {
  return while_loop(
      {x[0] * x[1]}, [](const Tensors& v) { return sum(v[0]) < -1.0; },
      [&](const Tensors& v) { return only(v[0] * x[1]); }, {.max_iterations = 3})[0];
}
Tensor no_trips(Graph&, const Tensors& x) {
  return for_loop(0, {x[0] * x[1]},
                  [&](const Tensor&, const Tensors& v) { return only(v[0] * x[1]); })[0];
}
Tensor one_trip(Graph&, const Tensors& x) {
  return for_loop(1, {x[0] * x[1]},
                  [&](const Tensor&, const Tensors& v) { return only(v[0] * x[1] * v[0]); })[0];
}
Tensor while_in_loop(Graph&, const Tensors& x) {
  return for_loop(2, {x[0]}, [&](const Tensor& i, const Tensors& v) {
    return while_loop(
        v, [](const Tensors& w) { return sum(w[0]) < 12.0; },
        [&](const Tensors& w) { return only(w[0] * x[1] + w[0] + as_float(i)); },
        {.max_iterations = 5});
  })[0];
}
Tensor scan_in_scan(Graph&, const Tensors& x) {
  Tensor rows = concat({row(x[0]), row(x[1])}, 0);
  ScanResult outer = scan({x[0]}, {rows}, [&](const Tensors& c, const Tensors& r) {
    ScanResult inner = scan({c[0]}, {rows}, [&](const Tensors& d, const Tensors& q) {
      Tensor t = tanh(d[0] * q[0] + r[0]);
      return ScanResult{{t}, {t * q[0]}};
    });
    return ScanResult{{inner.carried[0] + c[0]}, {sum(inner.stacked[0], {.axes = {0}})}};
  });
  return concat({row(outer.carried[0]), outer.stacked[0]}, 0);
}
// Unread stacked results, and carried ones that nobody reads.
Tensor unread_results(Graph&, const Tensors& x) {
  Tensor rows = concat({row(x[0]), row(x[1]), row(x[1])}, 0);
  return scan({x[0], x[1]}, {rows},
              [&](const Tensors& c, const Tensors& s) {
                Tensor p = c[0] * s[0], t = tanh(p + c[1]);
                return ScanResult{{t + p, p}, {p, t}};
              })
      .carried[0];
}
Tensor recurrent(Graph&, const Tensors& x) {
  Tensor rows = concat({row(x[0]), row(x[0] * 0.5), row(x[0] * 0.25)}, 0);
  ScanResult r = scan({x[0]}, {rows}, [&](const Tensors& h, const Tensors& s) {
    Tensor next = tanh(matmul(h[0], x[1]) + matmul(s[0], x[2]));
    return ScanResult{{next}, {next}};
  });
  return r.stacked[0];
}
Tensor lstm(Graph&, const Tensors& x) {
  Tensor rows = concat({row(x[0]), row(x[0] * 0.5)}, 0);
  ScanResult r = scan({x[0], x[0] * 0.3}, {rows}, [&](const Tensors& s, const Tensors& in) {
    Tensor z = matmul(in[0], x[1]) + matmul(s[0], x[2]);
    Tensor i = sigmoid(z), f = sigmoid(z * 0.5 + 1.0), o = sigmoid(z - 0.2), g = tanh(z * 2.0);
    Tensor c = f * s[1] + i * g;
    return ScanResult{{o * tanh(c), c}, {o}};
  });
  return concat({row(r.carried[0]), row(r.carried[1]), r.stacked[0]}, 0);
}
// Soft assignments to two centres that move.
Tensor soft_means(Graph&, const Tensors& x) {
  return for_loop(3, {x[1]}, [&](const Tensor&, const Tensors& v) {
    Tensor points = reshape(x[0], {4, 1, 2}), centres = reshape(v[0], {1, 2, 2});
    Tensor weights = softmax(-sum(square(points - centres), {.axes = {2}}));
    Tensor total = sum(weights, {.axes = {0}});
    return only(matmul(transpose(weights, {1, 0}), x[0]) / reshape(total, {2, 1}));
  })[0];
}
Tensor wide_power(Graph&, const Tensors& x) {
  return for_loop(2, {x[0]}, [](const Tensor&, const Tensors& v) { return only(v[0] * v[0]); })[0];
}

std::vector<Case> cases() {
  return {{"CarriedPair", carried_pair},
          {"Scan", scanned},
          {"BranchInLoop", branch_in_loop},
          {"LoopInBranch", loop_in_branch},
          {"Nested", nested},
          {"ThreeDeep", three_deep},
          {"GradientInBody", gradient_in_body},
          {"GatherByCounter", gather_by_counter},
          {"BoundedWhile", bounded_while},
          {"WhileThatNeverRuns", while_that_never_runs},
          {"NoTrips", no_trips},
          {"OneTrip", one_trip},
          {"WhileInLoop", while_in_loop},
          {"ScanInScan", scan_in_scan},
          {"UnreadResults", unread_results},
          {"Recurrent", recurrent, {{2, 3}, {3, 3}, {3, 3}}},
          {"Lstm", lstm, {{2, 3}, {3, 3}, {3, 3}}},
          {"SoftMeans", soft_means, {{4, 2}, {2, 2}}},
          {"WidePower", wide_power, {{3, 40}}}};
}

// Between 0.5 and 1.5, another set for each `turn`.
ops::HostTensor feed(const std::vector<int64_t>& shape, size_t which, int turn) {
  int64_t n = 1;
  for (int64_t e : shape) n *= e;
  std::vector<double> v;
  for (int64_t k = 0; k < n; ++k)
    v.push_back(1 + 0.5 * std::sin(1.7 * static_cast<double>(k) + 2.3 * static_cast<double>(which) +
                                   0.9 * turn));
  return floats(shape, v);
}

class ControlForms : public testing::TestWithParam<Case> {};

TEST_P(ControlForms, JudgeAgreesWithDifferences) {
  const Case& c = GetParam();
  std::vector<ops::HostTensor> at;
  for (size_t k = 0; k < c.shapes.size(); ++k) at.push_back(feed(c.shapes[k], k, 0));
  EXPECT_EQ(check_gradient(c.program, at, {.tolerance = 1e-5}), "");
}

struct Form {
  const char* name;
  CompileOptions options;
  bool everywhere = true;  // else on the interpreter alone
};
// With checks the interpreter also looks for races between barriers.
const Form kForms[] = {
    {"host", {.loops = LoopRecording::host}},
    {"device graph", {.loops = LoopRecording::device_graph}},
    {"single kernel", {.loops = LoopRecording::single_kernel}},
    {"automatic", {}},
    {"checked", {.check_bounds = true}},
    {"unfused device graph", {.fusion = false, .loops = LoopRecording::device_graph}, false}};

// Three runs, of other values at other addresses.
void compare(Executable& judge, Executable& e, const Case& c, const std::string& what) {
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Array> in;
    for (size_t k = 0; k < c.shapes.size(); ++k)
      in.push_back(Array::from<double>(c.shapes[k], feed(c.shapes[k], k, turn).f));
    std::vector<Array> want = judge.run(in), got = e.run(in);
    for (size_t k = 0; k < want.size(); ++k) {
      std::vector<double> a = want[k].to_vector<double>(), b = got[k].to_vector<double>();
      for (size_t n = 0; n < a.size(); ++n) {
        ASSERT_NEAR(a[n], b[n], 1e-9 * (1 + std::abs(a[n])))
            << "target " << k << ", element " << n << ", run " << turn << ", " << what << "\n"
            << e.describe();
      }
    }
  }
}

TEST_P(ControlForms, FirstAndSecondOrder) {
  const Case& c = GetParam();
  Graph g;
  Tensors x;
  std::vector<Feed> feeds;
  for (const auto& shape : c.shapes) {
    x.push_back(g.placeholder(f64, Shape(shape.begin(), shape.end())));
    feeds.emplace_back(x.back());
  }
  Tensor y = c.program(g, x);
  Tensors first = gradients(sum(square(y)), x);
  Tensor all = sum(square(first[0]));
  for (size_t k = 1; k < first.size(); ++k) all = all + sum(square(first[k]) * first[k]);
  Tensors second = gradients(all, x);
  std::vector<Device> devices{device("interpreter")};
  if (!(test_device() == devices[0])) devices.push_back(test_device());
  for (const Tensors& wanted : {Tensors{y}, first, second, Tensors{y, first[0], second[0]}}) {
    Executable judge = g.compile({feeds, wanted, {}}, device("judge"));
    for (const Device& d : devices) {
      for (const Form& form : kForms) {
        if (!form.everywhere && d.name() != "interpreter") continue;
        Executable e = g.compile({feeds, wanted, {}}, d, form.options);
        compare(judge, e, c, d.name() + ", " + form.name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gradients, ControlForms, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace heddle::test
