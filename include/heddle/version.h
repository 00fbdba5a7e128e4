// The version of the library that is linked.
#pragma once

namespace heddle {

const char* version();  // "0.1.0"

}  // namespace heddle
