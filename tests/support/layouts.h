// Arrays that hold the same elements in other ways.
#pragma once

#include "ops/host_tensor.h"

#include <heddle/array.h>

namespace heddle::test {

enum class Layout : uint8_t { packed, transposed, stepped };

// stepped: in a larger array, with gaps and an offset.
Array lay_out(const ops::HostTensor& t, Layout layout);

}  // namespace heddle::test
