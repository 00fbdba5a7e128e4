// HEDDLE_ variables: wrong names and values are told of, and none silently means something else.
#include "base/env.h"

#include "helpers.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace hd = heddle;

namespace {

// What f writes to stderr with the variable set.
template <class F>
std::string told(const char* name, const char* value, F f) {
  const char* before = std::getenv(name);
  std::string kept = before != nullptr ? before : "";
  ::setenv(name, value, 1);
  testing::internal::CaptureStderr();
  f();
  std::string text = testing::internal::GetCapturedStderr();
  before != nullptr ? ::setenv(name, kept.c_str(), 1) : ::unsetenv(name);
  return text;
}

TEST(Switches, UnknownWordsAreToldOfOnce) {
  int checked = 0;
  for (const hd::base::Switch& s : hd::base::all_switches()) {
    if (s.allowed.empty()) continue;
    ++checked;
    auto read = [&] { hd::base::env(s.name); };
    std::string text = told(s.name, "nonsense", read);
    for (const std::string& part :
         {std::string(s.name), std::string("'nonsense'"), std::string(s.allowed)})
      EXPECT_NE(text.find(part), std::string::npos) << text;
    EXPECT_EQ(told(s.name, "nonsense", read), "");
    EXPECT_EQ(told(s.name, "", read), "");
    std::string all(s.allowed);
    EXPECT_EQ(told(s.name, all.c_str(), read), "");
  }
  EXPECT_GE(checked, 7);
}

TEST(Switches, NumbersThatCannotBeReadNameTheSwitch) {
  told("HEDDLE_WAIT_LIMIT", "soon", [] {
    EXPECT_MESSAGE(hd::base::env_number("HEDDLE_WAIT_LIMIT", 0, 10), "HEDDLE_WAIT_LIMIT is 'soon'");
  });
  told("HEDDLE_LOOPS", "sideways", [] {
    hd::Graph g;
    hd::Tensor x = g.placeholder(hd::f32, {1}, "x");
    EXPECT_MESSAGE(g.compile({.feeds = {x}, .targets = {x + 1.0}}, hd::test::runtime_device()),
                   "HEDDLE_LOOPS is sideways");
  });
}

// In processes of their own, since devices are looked for once.
[[noreturn]] void in_child(const char* name, const char* value) {
  ::unsetenv("HEDDLE_DEVICE");
  ::setenv(name, value, 1);
  try {
    hd::Graph g;
    hd::Tensor x = g.placeholder(hd::f32, {1}, "x");
    g.run({{x, hd::Array::zeros(hd::f32, {1})}}, {x + 1.0}, {}, hd::Device());
  } catch (const hd::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    std::exit(3);
  }
  std::exit(0);
}

class SwitchesDeathTest : public ::testing::Test {
 protected:
  SwitchesDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SwitchesDeathTest, AWrongBackendPathIsAnError) {
  EXPECT_EXIT(in_child("HEDDLE_BACKEND_PATH", "/nonexistent"), testing::ExitedWithCode(3),
              "error: HEDDLE_BACKEND_PATH is /nonexistent, which holds no libheddle_cpu.so");
}

TEST_F(SwitchesDeathTest, WrongNumbersOfThreadsNameTheSwitch) {
  if (!heddle::test::has_cpu()) GTEST_SKIP() << "the CPU backend is not installed";
  for (const char* wrong : {"many", "0", "-1", "1.5", "99999999999999999999"})
    EXPECT_EXIT(in_child("HEDDLE_THREADS", wrong), testing::ExitedWithCode(3),
                "error: HEDDLE_THREADS is '");
}

TEST_F(SwitchesDeathTest, UnknownNamesAreToldOf) {
  EXPECT_EXIT(in_child("HEDDLE_FUSIONS", "off"), testing::ExitedWithCode(0),
              "heddle: HEDDLE_FUSIONS is no switch of Heddle");
}

}  // namespace
