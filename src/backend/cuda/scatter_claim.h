#pragma once

#include "target/target.h"

namespace heddle::cuda {

// scatter_add where an axis is long: updates ordered by index, each row's added in order.
target::Claim scatter_claim(const std::string& arch);

}  // namespace heddle::cuda
