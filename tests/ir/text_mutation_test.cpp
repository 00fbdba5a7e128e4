// A small share of what fuzz/text runs for long.
#include "support/text_mutation.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(TextMutation, GivesAGraphOrAnError) {
  uint64_t seed = test::test_seed(1);
  std::vector<std::string> texts = test::sample_texts();
  int accepted = 0;
  for (uint64_t i = 0; i < 5000; ++i) {
    std::string text = test::mutate_text(texts, seed + i);
    test::ParseOutcome outcome = test::try_parse(text);
    accepted += outcome.accepted;
    ASSERT_EQ(outcome.problem, "") << "HEDDLE_SEED=" << seed + i << "\n" << text;
  }
  EXPECT_GT(accepted, 50);  // mutants that are all refused early would test little
}

}  // namespace
}  // namespace heddle
