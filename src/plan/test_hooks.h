// Where tests plant defects: called while plans and layouts are made, never while they run. Empty
// in production.
#pragma once

#include "plan/layout.h"

#include <functional>

namespace heddle::plan {

struct TestHooks {
  std::function<void(ir::Kernel&)> kernel;           // before it is compiled
  std::function<void(const Plan&, Layout&)> layout;  // before it is used
};
// One for the process, not synchronised: set it while nothing compiles or runs.
TestHooks& test_hooks();

}  // namespace heddle::plan
