// Matrix products by oneDNN.
#pragma once

#include "target/target.h"

#include <vector>

namespace heddle::cpu {

// Best first.
std::vector<target::Claim> matmul_claims();

}  // namespace heddle::cpu
