// Defects that are planted on purpose, one at a time: the fuzzer must find each.
#pragma once

#include <string>
#include <vector>

namespace heddle::test {

struct Defect {
  std::string name;
  std::string what;
  bool quick = false;    // found within a few dozen graphs: part of CI
  bool ordered = false;  // shows as a race, which the interpreter sees
  void (*plant)() = nullptr;
};
const std::vector<Defect>& defects();
void remove_defects();

}  // namespace heddle::test
