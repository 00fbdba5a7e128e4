// Rows of every short length: which of them become straight code, and their values.
#include "backend/cpu/nest_plan.h"
#include "harness.h"

#include <gtest/gtest.h>

#include <cstring>

namespace heddle::test {
namespace {

using ir::AxisKind;
using ir::BodyBuilder;
using ir::BufferRole;
using ir::NodeId;
using ir::ReduceOp;

// Folds of `points` elements per output: of a row each, of a column each, of windows that start one
// element (or `step` elements) after another.
enum class Elements { row, column, window };

ir::Kernel folds(Elements elements, int64_t points, int64_t step = 1) {
  constexpr int64_t kOutputs = 50;
  ir::Kernel k;
  k.name = "folds";
  ir::Axis i = axis("i", kOutputs), j = axis("j", points, AxisKind::reduced);
  std::vector<Expr> shape{kOutputs, points}, at{var(i), var(j)};
  if (elements == Elements::column) shape = {points, kOutputs}, at = {var(j), var(i)};
  if (elements == Elements::window)
    shape = {kOutputs * step + points}, at = {var(i) * step + var(j)};
  k.buffers = {{"x", f32, shape, BufferRole::input},
               {"sum", f32, {kOutputs}, BufferRole::output},
               {"max", f32, {kOutputs}, BufferRole::output},
               {"argmax", i64, {kOutputs}, BufferRole::output}};
  ir::Nest nest;
  nest.outer = {i};
  {
    BodyBuilder b;
    NodeId x = b.keep(b.load(f32, {0, at}));
    ir::Body body = b.take();
    NodeId value = b.renumbered(x);
    nest.phases.push_back({{j},
                           body,
                           {{ReduceOp::sum, value, f32},
                            {ReduceOp::max, value, f32},
                            {ReduceOp::argmax, value, f32}}});
  }
  {
    BodyBuilder b;
    b.store({1, {var(i)}}, b.row(f32, {0, 0, 0}));
    b.store({2, {var(i)}}, b.row(f32, {0, 1, 0}));
    b.store({3, {var(i)}}, b.row(i64, {0, 2, 1}));
    nest.phases.push_back({{}, b.take(), {}});
  }
  add_nest(k, nest);
  return k;
}

size_t copies(const ir::Kernel& k) {
  return cpu::plan_nest(k, *k.body[0].nest, cpu::target_for("x86-64-v4"), {})
      .phases[0]
      .form.copies.size();
}

TEST(CpuRows, LongerRowsStayLoopsAndWindowsDoNot) {
  for (int64_t points : {2, 4}) {
    EXPECT_EQ(copies(folds(Elements::row, points)), static_cast<size_t>(points));
  }
  for (int64_t points : {5, 8, 15, 16, 27, 64, 65}) {
    EXPECT_EQ(copies(folds(Elements::row, points)), 1U) << points;
    EXPECT_EQ(copies(folds(Elements::window, points, points)), 1U) << points;
  }
  for (int64_t points : {9, 27, 64}) {
    EXPECT_EQ(copies(folds(Elements::window, points)), static_cast<size_t>(points));
    EXPECT_EQ(copies(folds(Elements::window, points, 2)), static_cast<size_t>(points));
  }
}

TEST(CpuRows, ValuesAtShortLengths) {
  auto expect_values = [](Elements elements, int64_t points) {
    SCOPED_TRACE(testing::Message() << points << " points, " << static_cast<int>(elements));
    ir::Kernel k = folds(elements, points);
    KernelRun run(k, {}, 3);
    std::vector<float> x(run.inputs[0].size() / sizeof(float));
    for (size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(n * 37 % 101) / 8 - 5;
    std::memcpy(run.inputs[0].data(), x.data(), run.inputs[0].size());
    check(run, true);  // sums of eighths are exact
  };
  for (int64_t points : {1, 4, 5, 16, 27, 33, 64, 65}) expect_values(Elements::row, points);
  for (int64_t points : {9, 33}) {
    expect_values(Elements::column, points);
    expect_values(Elements::window, points);
  }
}

}  // namespace
}  // namespace heddle::test
