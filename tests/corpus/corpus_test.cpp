// Saved programs read back as they were written. heddle-fuzz-programs --corpus runs them.
#include "support/program/corpus.h"
#include "support/program/readers.h"

#include <gtest/gtest.h>

#include <cmath>

namespace heddle::test {
namespace {

TEST(Corpus, ProgramsReadBackAsTheyWereWritten) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Tape tape(seed);
    std::string text = program_text(random_program(tape));
    EXPECT_EQ(program_text(program_from_text(text)), text) << "seed " << seed;
  }
}

TEST(Corpus, WhatAProgramContainsIsRead) {
  RandomProgram p = program_from_text(R"(// a remark
graph 1 {
  symbol s0 "n" extent 0..
  body(%0: f32[s0], %1: c64[], %2: bool[]) {
    %3 "v" = variable() {id = 1, initial = data f32[] [1.0]}
    @0: assign(%3, %3)
    %4 = cond(%2) region() {
      yield %0
    } region() {
      yield %0
    }
    yield %4, %1
  }
}
// feed 0: f32[2] = -0.5, nan
// feed 1: c64[] = 1, -inf
// feed 2: bool[] = 1
// feed 0, second sizes: f32[0] = 
// feed 1, second sizes: c64[] = 0, 2
// feed 2, second sizes: bool[] = 0
)");
  EXPECT_TRUE(p.symbolic && p.has_variables && p.has_branches && !p.has_loops);
  EXPECT_EQ(p.feeds.size(), 3U);
  EXPECT_EQ(p.targets.size(), 2U);
  EXPECT_EQ(p.effects.size(), 1U);
  ASSERT_EQ(p.values.size(), 2U);
  EXPECT_EQ(p.values[0][0].f[0], -0.5);
  EXPECT_TRUE(std::isnan(p.values[0][0].f[1]));
  EXPECT_TRUE(std::isinf(p.values[0][1].c[0].imag()));
  EXPECT_EQ(p.values[0][2].i[0], 1);
  EXPECT_EQ(p.values[1][0].size(), 0);
}

std::string refusal(const std::string& feeds) {
  try {
    program_from_text("graph 1 {\n  body(%0: f32[2]) {\n    yield %0\n  }\n}\n" + feeds);
  } catch (const GraphError& error) {
    return error.what();
  }
  return "";
}

TEST(Corpus, FeedsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal("// feed 0: f32[2] = 1, 2\n"), "");
  EXPECT_NE(refusal("").find("feed 0 of the program has no line"), std::string::npos);
  EXPECT_NE(refusal("// feed 0: f64[2] = 1, 2\n").find("another dtype"), std::string::npos);
  EXPECT_NE(refusal("// feed 0: f32[2] = 1, 2\n// feed 1: f32[] = 1\n").find("too many"),
            std::string::npos);
  for (const char* line :
       {"// feed 0: f32[2] = 1\n", "// feed 0: f32[2] = 1, 2, 3\n", "// feed 0: f32[2] = 1, x\n",
        "// feed 0: f31[2] = 1, 2\n", "// feed 0: f32[-2] = 1, 2\n", "// feed 0 f32[2]\n",
        "// feed -1: f32[2] = 1, 2\n", "// feed 99999999999: f32[2] = 1, 2\n",
        "// feed 0, third sizes: f32[2] = 1, 2\n", "// feed 0: f32[99999999,999999999999] = 1\n"})
    EXPECT_NE(refusal(line).find("feed line"), std::string::npos) << line;
}

}  // namespace
}  // namespace heddle::test
