// Mutated graph text: whatever it is, parse() gives a valid graph or a GraphError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::test {

// A few random edits of one of `texts`: bytes, spans, tokens, numbers, splices. Everything follows
// from the seed.
std::string mutate_text(const std::vector<std::string>& texts, uint64_t seed);

struct ParseOutcome {
  bool accepted = false;
  std::string problem;  // empty: a valid graph that round-trips, or a GraphError with a position
};
ParseOutcome try_parse(const std::string& text);

std::vector<std::string> sample_texts();

}  // namespace heddle::test
