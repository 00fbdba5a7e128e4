// Every layout that a test makes is verified at its sizes, as every plan is for all sizes.
#include "plan/test_hooks.h"

namespace {

const bool kVerified = heddle::plan::test_hooks().verify_layouts = true;

}  // namespace
