// Internal invariants and message building. HD_CHECK is always on and never reachable from a user's
// input.
#pragma once

#include <heddle/error.h>

#include <sstream>
#include <string>

namespace heddle::base {

template <class... Parts>
std::string cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& detail);

}  // namespace heddle::base

#define HD_CHECK(condition, ...)                                                        \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::heddle::base::check_failed(__FILE__, __LINE__, #condition,                      \
                                   ::heddle::base::cat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
