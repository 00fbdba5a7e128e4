#include "backend/cuda/device.h"

namespace heddle::cuda {

std::vector<target::Claim> library_claims() { return {}; }

}  // namespace heddle::cuda
