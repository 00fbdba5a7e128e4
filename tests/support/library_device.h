// A host device with a library: matrix products of f32 and f64 are calls, everything else is
// interpreted.
#pragma once

#include <heddle/device.h>

namespace heddle::test {

// Products below `least` multiply-adds are not worth a call there. `recording`: streams record
// command lists with control flow, as a GPU's do, and the calls can be recorded.
Device library_device(bool recording, int64_t least = 64);

}  // namespace heddle::test
