// Concatenations of any number of parts: values, and bodies that do not grow with the number.
#include "loop/run_scheduled.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace heddle::test {
namespace {

ops::HostTensor iota(const std::vector<int64_t>& shape, double from) {
  ops::HostTensor t(f32, shape);
  for (size_t k = 0; k < t.f.size(); ++k) t.f[k] = from + static_cast<double>(k);
  return t;
}

// Parts of 0 to 2 rows (or columns), in this order.
TEST(Concat, OfAnyNumberOfParts) {
  for (int axis : {0, 1}) {
    for (int n : {1, 2, 16, 17, 33, 70}) {
      SCOPED_TRACE(testing::Message() << n << " parts along axis " << axis);
      ops::HostTensor x =
          iota(axis == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3, 2}, 1);
      auto build = [&](const Tensors& xs) {
        Tensors parts;
        for (int k = 0; k < n; ++k) {
          SliceOptions part{.starts = {0, 0}, .stops = *xs[0].type().shape, .strides = {}};
          part.stops[static_cast<size_t>(axis)] = Expr(k % 3);
          parts.push_back(slice(xs[0], part) * static_cast<double>(k + 1));
        }
        Tensor y = concat(parts, axis);
        return Tensors{y, gradients(sum(y * y), xs)[0]};
      };
      std::vector<ops::HostTensor> got = check_schedules({x}, build, false);
      std::vector<double> expected(
          x.f.size());  // of the gradient: 2 c^2 x for each part that has x
      for (int k = 0; k < n; ++k) {
        for (size_t e = 0; e < x.f.size(); ++e) {
          auto at = static_cast<int>(axis == 0 ? e / 3 : e % 2);
          if (at < k % 3) expected[e] += 2.0 * (k + 1) * (k + 1) * x.f[e];
        }
      }
      for (size_t e = 0; e < expected.size(); ++e)
        EXPECT_NEAR(got[1].f[e], expected[e], 1e-5 * expected[e]);
    }
  }
}

size_t longest_body(const std::vector<ir::Stmt>& statements) {
  size_t most = 0;
  for (const ir::Stmt& s : statements) {
    if (s.nest) {
      for (const ir::Phase& p : s.nest->phases) most = std::max(most, p.body.nodes.size());
    }
    most = std::max({most, longest_body(s.first), longest_body(s.second)});
  }
  return most;
}

TEST(Concat, BodiesDoNotGrowWithTheNumberOfParts) {
  for (bool open : {false, true}) {
    std::vector<size_t> longest, kernels;
    for (int n : {100, 400}) {
      Graph graph;
      Tensors parts;
      for (int k = 0; k < n; ++k)
        parts.push_back(graph.placeholder(f32, {open ? Dim("d") : Expr(1), 2}));
      std::shared_ptr<ir::Graph> g = prepare(graph, parts, {concat(parts, 0)});
      loop::RegionSchedule s = loop::schedule_region(*g, ir::kTopRegion, {}, {});
      longest.push_back(0);
      for (const auto& item : s.items) {
        if (const auto* k = std::get_if<loop::BoundKernel>(&item))
          longest.back() = std::max(longest.back(), longest_body(k->kernel.body));
      }
      kernels.push_back(s.items.size());
    }
    EXPECT_LT(longest[1], 400U);
    EXPECT_LT(longest[1], 3 * longest[0]);
    EXPECT_LT(kernels[1], 5 * kernels[0]);
    EXPECT_LT(kernels[1], 400 / 4);
  }
}

}  // namespace
}  // namespace heddle::test
