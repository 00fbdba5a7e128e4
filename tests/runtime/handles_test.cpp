// Handles of tensors and operations that the graph does not have, in C++ and in C.
#include "helpers.h"

#include <heddle/heddle.h>
#include <heddle/heddle_c.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace hd = heddle;
namespace {

TEST(Handles, WrongIdsAreNamed) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {2}, "x");
  for (uint32_t id : {1U, 99999U, UINT32_MAX}) {
    std::string number = std::to_string(id);
    EXPECT_MESSAGE(hd::Tensor(g.impl(), id), "there is no tensor " + number);
    EXPECT_MESSAGE(hd::Operation(g.impl(), id), "there is no operation " + number);
  }
  EXPECT_TRUE(hd::Tensor(g.impl(), x.id()).is(x));
  EXPECT_MESSAGE(hd::Tensor().type(), "an empty Tensor was used");
}

TEST(Handles, WrongIdsAreNamedInC) {
  hd_graph* g = nullptr;
  ASSERT_EQ(hd_graph_create(&g), HD_OK);
  hd_tensor bad = 77, out = 0;
  hd_executable* e = nullptr;
  auto names_it = [] { return std::string(hd_last_error()).find("77") != std::string::npos; };
  EXPECT_EQ(hd_graph_op(g, "exp", &bad, 1, nullptr, 0, &out, 1), HD_GRAPH_ERROR);
  EXPECT_TRUE(names_it()) << hd_last_error();
  EXPECT_EQ(hd_graph_compile(g, nullptr, 0, &bad, 1, "interpreter", &e), HD_GRAPH_ERROR);
  EXPECT_TRUE(names_it()) << hd_last_error();
  EXPECT_EQ(hd_graph_compile(g, &bad, 1, nullptr, 0, "interpreter", &e), HD_GRAPH_ERROR);
  EXPECT_TRUE(names_it()) << hd_last_error();
  hd_graph_destroy(g);
}

}  // namespace
