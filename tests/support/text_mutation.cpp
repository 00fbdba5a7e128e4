#include "support/text_mutation.h"

#include "ir/graph.h"
#include "ops/opdef.h"
#include "support/sample_graphs.h"

#include <heddle/error.h>

#include <random>

namespace heddle::test {

namespace {

constexpr const char* kTokens[] = {"%0",
                                   "%1",
                                   "%9",
                                   "@0",
                                   "@0:",
                                   "(",
                                   ")",
                                   "{",
                                   "}",
                                   "[",
                                   "]",
                                   ",",
                                   ":",
                                   "=",
                                   "\"",
                                   "\\x",
                                   "-",
                                   "*",
                                   "/ 0",
                                   "% 0",
                                   "region(",
                                   "yield",
                                   "after",
                                   "loc",
                                   "symbol",
                                   "extent",
                                   "defined",
                                   "data",
                                   "extents[",
                                   "ints[",
                                   "reals[",
                                   "f32[",
                                   "i64[*]",
                                   "?[*]",
                                   "?",
                                   "inf",
                                   "nan",
                                   "-inf",
                                   "true",
                                   "0",
                                   "1",
                                   "-1",
                                   "16",
                                   "0.5",
                                   "1e400",
                                   "9223372036854775807",
                                   "-9223372036854775808",
                                   "18446744073709551615",
                                   "4294967296",
                                   "s0",
                                   "s1",
                                   "min(s0, 3)",
                                   "s0 * s1",
                                   "(s0 + 1) / 2",
                                   "f64",
                                   "bool",
                                   "u8",
                                   "i4",
                                   "c64",
                                   "//",
                                   "\n",
                                   "add",
                                   "cond",
                                   "while_loop",
                                   "for_loop",
                                   "scan",
                                   "call",
                                   "reshape",
                                   "broadcast_to",
                                   "slice",
                                   "concat",
                                   "pad",
                                   "stencil",
                                   "matmul",
                                   "gather",
                                   "scatter_add",
                                   "softmax",
                                   "constant"};

size_t below(std::mt19937_64& rng, size_t n) { return n == 0 ? 0 : rng() % n; }

void replace_number(std::string& text, std::mt19937_64& rng) {
  size_t at = text.find_first_of("0123456789", below(rng, text.size()));
  if (at == std::string::npos) return;
  size_t end = text.find_first_not_of("0123456789", at);
  if (end == std::string::npos) end = text.size();
  static constexpr const char* kNumbers[] = {"0",
                                             "1",
                                             "2",
                                             "-1",
                                             "3",
                                             "17",
                                             "1000000",
                                             "2147483648",
                                             "4611686018427387904",
                                             "9223372036854775807",
                                             "-9223372036854775808"};
  text.replace(at, end - at, kNumbers[below(rng, std::size(kNumbers))]);
}

void edit(std::string& text, const std::vector<std::string>& texts, std::mt19937_64& rng) {
  size_t at = below(rng, text.size());
  size_t length = below(rng, std::min<size_t>(text.size() - at, 40) + 1);
  switch (rng() % 9) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(rng());
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(below(rng, text.size()), length));
      break;
    case 3:
      text.insert(at, std::string(" ") + kTokens[below(rng, std::size(kTokens))] + " ");
      break;
    case 4:
    case 5:
      replace_number(text, rng);
      break;
    case 6: {
      const std::string& other = texts[below(rng, texts.size())];
      text.replace(at, length, other.substr(below(rng, other.size()), 1 + below(rng, 60)));
      break;
    }
    case 7: {  // a whole word
      size_t first = text.find_first_of(" (,[", at);
      if (first == std::string::npos) break;
      size_t last = text.find_first_of(" ),]", first + 1);
      if (last != std::string::npos)
        text.replace(first + 1, last - first - 1, kTokens[below(rng, std::size(kTokens))]);
      break;
    }
    default:
      if (rng() % 8 == 0) text.resize(at);
  }
}

}  // namespace

std::string mutate_text(const std::vector<std::string>& texts, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::string text = texts[below(rng, texts.size())];
  size_t edits = 1 + below(rng, 4);
  for (size_t i = 0; i < edits; ++i) edit(text, texts, rng);
  return text;
}

ParseOutcome try_parse(const std::string& text) {
  std::shared_ptr<ir::Graph> graph;
  try {
    graph = ir::parse(text, ops::op_table());
  } catch (const GraphError& e) {
    bool placed = std::string_view(e.what()).starts_with("line ");
    return {false, placed ? "" : "the error has no position: " + std::string(e.what())};
  } catch (const std::exception& e) {
    return {false, "parse failed in another way: " + std::string(e.what())};
  }
  try {
    std::string broken = ir::verify(*graph);
    if (!broken.empty()) return {true, "the graph is broken: " + broken};
    std::string printed = ir::print(*graph);
    std::shared_ptr<ir::Graph> again = ir::parse(printed, ops::op_table());
    if (!ir::structurally_equal(*graph, *again))
      return {true, "the graph does not round-trip: " + printed};
  } catch (const std::exception& e) {
    return {true, "the printed graph fails: " + std::string(e.what())};
  }
  return {true, ""};
}

std::vector<std::string> sample_texts() {
  std::vector<std::string> texts;
  for (const Graph& graph : sample_graphs()) texts.push_back(ir::print(*graph.impl()));
  return texts;
}

}  // namespace heddle::test
