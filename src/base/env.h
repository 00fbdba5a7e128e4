// Every environment variable that Heddle reads, in one table (docs/debugging.md is generated from
// `all_switches`).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heddle::base {

struct Switch {
  const char* name;
  const char* meaning;
  std::string_view allowed = {};  // comma-separated words; empty: whoever reads it checks it
};
std::span<const Switch> all_switches();
// The variable's value; InternalError for a name that is not in the table. Words that are not
// allowed, and HEDDLE_ variables of other names, are told of on stderr, once each.
std::optional<std::string> env(std::string_view name);
// The variable's number, if it is set and not empty. GraphError for another text or a number
// outside of least..most.
std::optional<double> env_number(std::string_view name, double least, double most);
// The same for whole numbers.
std::optional<int64_t> env_integer(std::string_view name, int64_t least, int64_t most);
// Is `word` one of the comma-separated words of the variable? e.g. env_has("HEDDLE_DUMP",
// "kernels").
bool env_has(std::string_view name, std::string_view word);
// A line on stderr where HEDDLE_VERBOSE holds `topic` (claims, fusion, cache).
void verbose(std::string_view topic, const std::string& line);

}  // namespace heddle::base
