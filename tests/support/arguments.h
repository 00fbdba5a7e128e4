// Numbers of command lines, for the fuzzers: what is no number is refused, not read as 0.
#pragma once

#include <charconv>
#include <string_view>

namespace heddle::test {

// True where all of `text` is a number that T holds; `value` is left alone otherwise.
//   uint64_t seed = 1;  if (!parse_number("7x", seed)) return usage();
template <typename T>
bool parse_number(std::string_view text, T& value) {
  T parsed{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  value = parsed;
  return true;
}

// "I/N": part I (from 0) of N parts.
template <typename T>
bool parse_part(std::string_view text, T& part, T& parts) {
  size_t slash = text.find('/');
  T i{}, n{};
  if (slash == std::string_view::npos || !parse_number(text.substr(0, slash), i) ||
      !parse_number(text.substr(slash + 1), n) || i >= n)
    return false;
  part = i;
  parts = n;
  return true;
}

}  // namespace heddle::test
