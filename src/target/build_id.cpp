#include "generated/build_info.h"
#include "target/target.h"

namespace heddle::target {

const char* core_build_id() { return HEDDLE_ABI_HASH; }

}  // namespace heddle::target
