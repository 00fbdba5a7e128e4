// The C interface.
#include "runtime/dlpack_abi.h"

#include <heddle/heddle.h>
#include <heddle/heddle_c.h>

#include <gtest/gtest.h>

#include <string>

namespace {

TEST(C, BuildsCompilesAndRuns) {
  hd_graph* g = nullptr;
  ASSERT_EQ(hd_graph_create(&g), HD_OK);
  hd_tensor x = 0, y = 0, total = 0;
  int64_t shape[] = {-1, 2};
  ASSERT_EQ(hd_graph_placeholder(g, "f32", 2, shape, "x", &x), HD_OK) << hd_last_error();
  hd_tensor both[] = {x, x};
  ASSERT_EQ(hd_graph_op(g, "multiply", both, 2, nullptr, 0, &y, 1), HD_OK) << hd_last_error();
  int64_t order[] = {1, 0};
  hd_attribute permutation{"permutation", nullptr, order, nullptr, 2};
  ASSERT_EQ(hd_graph_op(g, "transpose", &y, 1, &permutation, 1, &total, 1), HD_OK)
      << hd_last_error();
  hd_executable* e = nullptr;
  ASSERT_EQ(hd_graph_compile(g, &x, 1, &total, 1, "interpreter", &e), HD_OK) << hd_last_error();
  DLManagedTensor* in = heddle::Array::from<float>({3, 2}, {1, 2, 3, 4, 5, 6}).to_dlpack();
  DLManagedTensor* out = nullptr;
  ASSERT_EQ(hd_executable_run(e, &in, 1, &out, 1), HD_OK) << hd_last_error();
  in->deleter(in);
  heddle::Array result = heddle::Array::from_dlpack(out);
  EXPECT_EQ(result.shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(result.to_vector<float>(), (std::vector<float>{1, 9, 25, 4, 16, 36}));
  hd_executable_destroy(e);

  size_t needed = 0;
  ASSERT_EQ(hd_graph_to_text(g, nullptr, 0, &needed), HD_OK);
  std::string text(needed, ' ');
  ASSERT_EQ(hd_graph_to_text(g, text.data(), text.size(), nullptr), HD_OK);
  hd_graph* again = nullptr;
  ASSERT_EQ(hd_graph_from_text(text.c_str(), &again), HD_OK) << hd_last_error();
  hd_tensor found = 99;
  EXPECT_EQ(hd_graph_find(again, "x", &found), HD_OK) << text;
  size_t count = 0;
  EXPECT_EQ(hd_graph_placeholders(again, &found, 1, &count), HD_OK);
  EXPECT_EQ(count, 1U);
  hd_graph_destroy(again);
  hd_graph_destroy(g);
}

TEST(C, SaysWhatIsWrong) {
  hd_graph* g = nullptr;
  ASSERT_EQ(hd_graph_create(&g), HD_OK);
  hd_tensor x = 0;
  EXPECT_EQ(hd_graph_placeholder(g, "f31", 0, nullptr, nullptr, &x), HD_GRAPH_ERROR);
  EXPECT_NE(std::string(hd_last_error()).find("f31"), std::string::npos);
  EXPECT_EQ(hd_graph_op(g, "frobnicate", nullptr, 0, nullptr, 0, &x, 1), HD_GRAPH_ERROR);
  EXPECT_NE(std::string(hd_last_error()).find("frobnicate"), std::string::npos);
  hd_tensor nothing = 77;
  EXPECT_EQ(hd_graph_op(g, "exp", &nothing, 1, nullptr, 0, &x, 1), HD_GRAPH_ERROR);
  EXPECT_EQ(hd_graph_from_text("nonsense", &g), HD_GRAPH_ERROR);
  hd_executable* e = nullptr;
  EXPECT_EQ(hd_graph_compile(g, nullptr, 0, nullptr, 0, "abacus", &e), HD_UNSUPPORTED_ERROR);
  EXPECT_EQ(hd_graph_create(nullptr), HD_GRAPH_ERROR);
  EXPECT_EQ(hd_graph_from_text("", nullptr), HD_GRAPH_ERROR);
  EXPECT_EQ(hd_graph_compile(g, nullptr, 0, nullptr, 0, "interpreter", nullptr), HD_GRAPH_ERROR);
  hd_graph_destroy(g);
}

}  // namespace
