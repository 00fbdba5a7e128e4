// Attributes at the edge of what an integer holds, as graph text may bring them: an error, never a
// crash.
#include "ops/opdef.h"
#include "support/evaluate.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <limits>

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
using Exprs = std::vector<Expr>;
using Ints = std::vector<int64_t>;

// Building may succeed or be refused; both are well defined.
void tolerates(const std::string& op, const Tensors& operands, ir::Attrs attrs) {
  try {
    for (const Tensor& t : ops::apply_all(op, operands, std::move(attrs), {}, operands[0].graph()))
      EXPECT_FALSE(to_string(t.type()).empty());
  } catch (const Error&) {
  }
}

}  // namespace

TEST(Extremes, Attributes) {
  Graph g;
  Tensor x = g.placeholder(f32, {3, 4});
  Tensor w = g.placeholder(f32, {2, 2});
  Tensor i = g.placeholder(i64, {2});
  for (int64_t a : {kLeast, kLeast + 1, int64_t{-1}, int64_t{0}, int64_t{1}, kMost - 1, kMost}) {
    for (int64_t b : {kLeast, int64_t{-5}, int64_t{2}, kMost}) {
      tolerates("slice", {x}, {{"starts", Exprs{a, b}}, {"stops", Exprs{b, a}}});
      tolerates("slice", {x}, {{"strides", Ints{a, b}}});
      tolerates("slice", {x}, {{"starts", Exprs{b, a}}, {"strides", Ints{b, a}}});
      tolerates("unslice", {x},
                {{"starts", Exprs{a, b}}, {"strides", Ints{b, a}}, {"shape", Exprs{a, b}}});
      for (const char* mode : {"constant", "reflect", "symmetric", "periodic", "clamp_to_edge"})
        tolerates("pad", {x},
                  {{"before", Exprs{a, 0}}, {"after", Exprs{b, 1}}, {"mode", std::string(mode)}});
      for (const char* padding : {"explicit", "valid", "same", "same_lower", "explicit_offset"})
        tolerates("stencil", {x, w},
                  {{"strides", Ints{a, 1}},
                   {"dilations", Ints{1, b}},
                   {"before", Exprs{a, b}},
                   {"after", Exprs{b, a}},
                   {"offsets", Exprs{a, b}},
                   {"padding", std::string(padding)}});
      tolerates("stencil_transpose", {x, w}, {{"before", Exprs{a, b}}, {"shape", Exprs{b, a}}});
      tolerates("stencil_weights", {x, x}, {{"before", Exprs{a, b}}, {"window", Exprs{b, a}}});
      tolerates("reshape", {x}, {{"shape", Exprs{a, b}}});
      tolerates("broadcast_to", {x}, {{"shape", Exprs{a, b}}});
      tolerates("coordinate", {x}, {{"shape", Exprs{a, b}}, {"axis", a}});
    }
    tolerates("concat", {x, x}, {{"axis", a}});
    tolerates("gather", {x, i}, {{"axis", a}});
    tolerates("scatter_add", {x, i, x}, {{"axis", a}});
    tolerates("transpose", {x}, {{"permutation", Ints{a, 0}}});
    tolerates("softmax", {x}, {{"axis", a}});
    tolerates("layer_norm", {x}, {{"axes", Ints{a}}});
    tolerates("local_response_norm", {x}, {{"axis", a}, {"size", a}});
  }
}

TEST(Extremes, RegionsAndCounts) {
  Graph g;
  Tensor x = g.placeholder(f32, {3});
  auto graph = g.impl();
  for (int64_t a : {kLeast, int64_t{-1}, int64_t{1}, kMost}) {
    for (const char* name : {"stacked", "slices"}) {
      ir::RegionId r = graph->open_region({type(i64, {}), type(f32, {3})});
      graph->close_region({graph->region(r).arguments[1]});
      EXPECT_NE(graph_error([&] {
                  ops::apply_all("for_loop", {x}, {{"count", Exprs{2}}, {name, a}}, {r}, graph);
                }),
                "no error");
    }
  }
  EXPECT_NE(graph_error([&] { ops::apply_all("for_loop", {x}, {}, {}, graph); }), "no error");
  EXPECT_NE(graph_error([&] { ops::apply_all("cond", {x}, {}, {}, graph); }), "no error");
  EXPECT_NE(graph_error([&] { ops::apply_all("while_loop", {x}, {}, {}, graph); }), "no error");
  EXPECT_NE(graph_error([&] { ops::apply_all("custom_gradient", {x}, {}, {}, graph); }),
            "no error");
}
