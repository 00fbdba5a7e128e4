// Text that every generated kernel starts with: types, vector loads, IEEE arithmetic, group folds.
// No includes, so that NVRTC parses little.
#pragma once

#include <string>

namespace heddle::cuda {

// `wide`: 64-bit index arithmetic. What touches the machine (PTX, shuffles, barriers) comes first
// and apart, so that a test can put a host implementation in its place.
std::string prelude_machine();
std::string prelude_common(bool wide);

}  // namespace heddle::cuda
