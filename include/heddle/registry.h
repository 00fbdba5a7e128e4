// What the registry says of every operation: for tools and documentation.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct OperationInfo {
  std::string name, kind, summary, documentation;
  std::vector<std::pair<std::string, std::string>> operands;    // name, accepted dtypes
  std::vector<std::pair<std::string, std::string>> attributes;  // name, meaning and default
  std::string gradient;                                         // "rule", "none", "zero"
};
std::vector<OperationInfo> operations();  // sorted by name

}  // namespace heddle
