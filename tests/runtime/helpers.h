// What the runtime's tests share.
#pragma once

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace heddle::test {

using Values = std::vector<float>;

// HEDDLE_TEST_DEVICE, else the interpreter.
inline Device runtime_device() {
  const char* name = std::getenv("HEDDLE_TEST_DEVICE");
  return device(name != nullptr && *name != 0 ? name : "interpreter");
}

// Is the CPU backend there? Builds under a sanitizer leave it out.
inline bool has_cpu() {
  std::vector<DeviceReport> all = devices();
  return std::any_of(all.begin(), all.end(),
                     [](const DeviceReport& d) { return d.name == "cpu" && d.reason.empty(); });
}

// The sentence of the error that f throws.
template <class F>
std::string message(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

#define EXPECT_MESSAGE(statement, part)                           \
  do {                                                            \
    std::string said = heddle::test::message([&] { statement; }); \
    EXPECT_NE(said.find(part), std::string::npos) << said;        \
  } while (false)

}  // namespace heddle::test
