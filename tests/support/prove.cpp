// Tests and fuzzers prove every kernel that is scheduled.
#include "loop/prove.h"

namespace heddle::test {
namespace {
[[maybe_unused]] const bool kProving = (loop::prove_every_kernel(true), true);
}  // namespace
}  // namespace heddle::test
