// The verifier of plans: it accepts what is built, finds each kind of planted fault, and whatever
// it accepts computes the right values.
#include "plan/verify.h"
#include "plan/test_hooks.h"
#include "runtime/executable.h"
#include "support/library_device.h"
#include "support/numeric.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <map>

using namespace heddle;
using namespace heddle::test;

namespace {

using plan::Layout;
using plan::Plan;
using plan::SlotId;
using plan::Step;
using plan::StepKind;

const Plan& plan_of(const Executable& e) { return *e.impl()->plan; }

struct Program {
  std::string name;
  Graph graph;
  Tensors feeds, targets;
  std::vector<Array> values;

  // One operation per kernel makes many buffers.
  Executable compile(bool device_graph, bool fusion = false) {
    std::vector<Feed> fed(feeds.begin(), feeds.end());
    return graph.compile(
        {fed, targets, {}}, library_device(true, 1),
        {.fusion = fusion,
         .loops = device_graph ? LoopRecording::device_graph : LoopRecording::host});
  }
};

Array filled(std::vector<int64_t> shape, float from) {
  int64_t count = 1;
  for (int64_t n : shape) count *= n;
  std::vector<float> v;
  for (int64_t i = 0; i < count; ++i) v.push_back(from + 0.125F * static_cast<float>(i));
  return Array::from<float>(std::move(shape), v);
}

Tensor feed(Program& p, std::vector<int64_t> shape, float from) {
  p.feeds.push_back(p.graph.placeholder(f32, Shape(shape.begin(), shape.end())));
  p.values.push_back(filled(std::move(shape), from));
  return p.feeds.back();
}

// Steps between which values must be stored.
Tensor stage(const Tensor& x) { return cumulative_sum(x, {.axis = 0}); }

// Chains, branches, loops of each kind, rows read and stored, nested, with library calls.
std::vector<std::unique_ptr<Program>> programs() {
  std::vector<std::unique_ptr<Program>> all;
  auto add = [&](const char* name, const std::function<void(Program&)>& build) {
    all.push_back(std::make_unique<Program>());
    all.back()->name = name;
    build(*all.back());
  };
  add("chain", [](Program& p) {
    Tensor x = feed(p, {5}, 0.5F), y = stage(x), z = stage(y * 0.5), u = stage(z + y);
    p.targets = {stage(u * z), u};
  });
  add("branch", [](Program& p) {
    Tensor x = feed(p, {4}, -0.5F), y = stage(x);
    Tensors r = cond(
        sum(y) > 0.0, [&] { return Tensors{stage(y * 2.0), stage(stage(x))}; },
        [&] { return Tensors{y + 1.0, stage(stage(y) * 0.5)}; });
    p.targets = {stage(r[0] * y), r[1]};
  });
  add("for", [](Program& p) {
    Tensor x = feed(p, {4}, 0.25F), y = stage(x);
    Tensors r = for_loop(3, {x, y}, [&](const Tensor& k, const Tensors& v) {
      Tensor t = stage(v[0] * 0.5 + y);
      return Tensors{v[1], stage(t) + cast(k, f32)};
    });
    p.targets = {stage(r[0]), r[1] + y};
  });
  add("while", [](Program& p) {
    Tensor x = feed(p, {3}, 0.5F);
    Tensors r = while_loop(
        {x, x * 0.5}, [&](const Tensors& v) { return sum(stage(v[0])) < 40.0; },
        [&](const Tensors& v) { return Tensors{stage(v[0]) + v[1], stage(v[1] * 0.5)}; },
        {.max_iterations = 6});
    p.targets = {stage(r[0]) + r[1], r[1]};
  });
  add("scan", [](Program& p) {
    Tensor h = feed(p, {2, 3}, 0.1F), x = feed(p, {3, 2, 3}, -0.4F), w = feed(p, {3, 3}, 0.2F);
    ScanResult r = scan({h}, {x}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      Tensor a = matmul(s[0], w), b = matmul(v[0], w), next = tanh(a + b);
      return {{next}, {a, next}};
    });
    p.targets = {r.carried[0], stage(r.stacked[0]), stage(r.stacked[1]) * 2.0};
  });
  add("nested", [](Program& p) {
    Tensor h = feed(p, {3}, 0.1F), x = feed(p, {2, 4, 3}, -0.4F);
    ScanResult r = scan({h}, {x}, [&](const Tensors& s, const Tensors& v) -> ScanResult {
      ScanResult in = scan({s[0]}, {v[0]}, [&](const Tensors& c, const Tensors& row) -> ScanResult {
        Tensor t = stage(c[0] * 0.5 + row[0]);
        Tensor next = cond(sum(t) > 0.0, [&] { return stage(t) * 0.25; }, [&] { return t + h; });
        return {{next}, {stage(next)}};
      });
      return {{in.carried[0]}, {in.stacked[0]}};
    });
    p.targets = {r.carried[0], stage(r.stacked[0])};
  });
  return all;
}

bool equal(const std::vector<Array>& a, const std::vector<Array>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].to_vector<float>() != b[i].to_vector<float>()) return false;
  }
  return true;
}

template <class F>
void for_each_list(std::vector<Step>& steps, const F& f) {
  f(steps);
  for (Step& step : steps) {
    for (auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      for_each_list(*nested, f);
  }
}

bool is_control(const Step& step) {
  return step.kind == StepKind::cond || step.kind == StepKind::while_loop ||
         step.kind == StepKind::for_loop;
}

// What a plan computes, in order, without the steps that only count, test and move.
void trace(const Plan& plan, const std::vector<Step>& steps, std::vector<std::string>& out) {
  for (const Step& step : steps) {
    std::string line = std::to_string(static_cast<int>(step.kind));
    if (is_control(step) || !step.values.empty()) {
      for (const auto& [value, slot] : step.values) line += " v" + std::to_string(value);
      for (SlotId slot : step.buffers) line += " s" + std::to_string(plan.slots[slot].value);
      out.push_back(line);
    }
    for (const auto* nested : {&step.first, &step.second}) trace(plan, *nested, out);
  }
}

}  // namespace

TEST(PlanVerifier, BothFormsComputeTheSameInTheSameOrder) {
  for (auto& p : programs()) {
    Executable host = p->compile(false, true), graph = p->compile(true, true);
    EXPECT_TRUE(plan_of(host).no_recording.empty() || !plan_of(host).device_loops) << p->name;
    std::vector<std::string> a, b;
    trace(plan_of(host), plan_of(host).steps, a);
    trace(plan_of(graph), plan_of(graph).steps, b);
    EXPECT_EQ(a, b) << p->name;
    EXPECT_TRUE(equal(host.run(p->values), graph.run(p->values))) << p->name;
  }
}

// Everything that these plans compute is needed.
TEST(PlanVerifier, FindsEveryMissingStep) {
  for (auto& p : programs()) {
    for (bool device_graph : {false, true}) {
      Plan plan = plan_of(p->compile(device_graph));
      ASSERT_EQ(plan::verify(plan), "") << p->name;
      for_each_list(plan.steps, [&](std::vector<Step>& list) {
        for (size_t i = 0; i < list.size(); ++i) {
          // Steps that only count and move leave a value where it was, if an old one.
          bool computes = list[i].kind == StepKind::kernel || list[i].kind == StepKind::call;
          if (!(computes && !list[i].values.empty()) && list[i].kind != StepKind::cond) continue;
          Step step = list[i];
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_NE(plan::verify(plan), "") << p->name << ", step " << step.number;
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), std::move(step));
        }
        for (Step& step : list) {
          for (size_t i = 0; i < step.rows.size(); ++i) {
            plan::SlotPair pair = step.rows[i];
            step.rows.erase(step.rows.begin() + static_cast<std::ptrdiff_t>(i));
            EXPECT_NE(plan::verify(plan), "")
                << p->name << ", step " << step.number << ", row " << i;
            step.rows.insert(step.rows.begin() + static_cast<std::ptrdiff_t>(i), pair);
          }
        }
      });
      ASSERT_EQ(plan::verify(plan), "") << p->name;
    }
  }
}

// Every two slots are laid over each other. Where the verifier finds nothing wrong with that, the
// results are right.
TEST(PlanVerifier, WhatItAcceptsIsRight) {
  int accepted = 0, refused = 0;
  for (auto& p : programs()) {
    for (bool device_graph : {false, true}) {
      Executable right = p->compile(device_graph);
      std::vector<Array> expected = right.run(p->values);
      const Plan& plan = plan_of(right);
      Layout layout = *plan::make_layout(plan, {});
      for (SlotId a = 0; a < plan.slots.size(); ++a) {
        for (SlotId b = 0; b < a; ++b) {
          if (layout.offset[a] < 0 || layout.offset[b] < 0 || layout.offset[a] == layout.offset[b])
            continue;
          auto plant = [a, b](const Plan&, Layout& l) {
            l.offset[a] = l.offset[b];
            l.arena_bytes += plan::kAlignment;
          };
          Layout changed = layout;
          plant(plan, changed);
          bool ok = plan::verify(plan, changed).empty();
          (ok ? accepted : refused) += 1;
          if (!ok) continue;
          plan::test_hooks().layout = plant;
          Executable planted = p->compile(device_graph);
          plan::test_hooks().layout = nullptr;
          for (int run = 0; run < 2; ++run) {
            EXPECT_TRUE(equal(planted.run(p->values), expected))
                << p->name << (device_graph ? ", device graph" : ", host") << ": slots " << a
                << " and " << b << "\n"
                << right.describe();
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 2 * accepted);
}

TEST(PlanVerifier, NamesTheRuleThatIsBroken) {
  Program p;
  Tensor x = feed(p, {4}, 0.5F), y = stage(x);
  p.targets = {stage(y)};
  const Plan right = plan_of(p.compile(false));
  auto message = [&](const std::function<void(Plan&)>& change) {
    Plan plan = right;
    change(plan);
    return plan::verify(plan);
  };
  ASSERT_EQ(right.steps.size(), 2U);
  auto holds = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::string text = message([](Plan& plan) { std::swap(plan.steps[0], plan.steps[1]); });
  EXPECT_TRUE(holds(text, "which is not written before on every path")) << text;
  text = message([](Plan& plan) { plan.steps[1].buffers.back() = plan.inputs[0].slot; });
  EXPECT_TRUE(holds(text, "writes to the feed")) << text;
  text = message([](Plan& plan) { plan.steps.push_back(plan.steps[1]); });
  EXPECT_TRUE(holds(text, "a second time")) << text;
  text = message([](Plan& plan) { plan.steps[0].buffers.pop_back(); });
  EXPECT_TRUE(holds(text, "buffers, expected 2")) << text;
  // A scan reads elements that other points store.
  text = message([](Plan& plan) { plan.steps[1].buffers.back() = plan.steps[1].buffers.front(); });
  EXPECT_TRUE(holds(text, "from the bytes where it writes")) << text;

  auto layout = plan::make_layout(right, {});
  Layout small = *layout;
  small.arena_bytes = 4;
  EXPECT_TRUE(holds(plan::verify(right, small), "not inside the 4 bytes of the arena"));
  small = *layout;
  small.bytes[right.steps[0].buffers.back()] = 8;
  EXPECT_TRUE(holds(plan::verify(right, small), "has 16 bytes, its slot"));
}
