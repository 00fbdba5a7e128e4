// Where tests plant defects and ask for proofs: used while plans and layouts are made, never while
// they run. Empty in production.
#pragma once

#include "plan/layout.h"

#include <functional>

namespace heddle::plan {

struct TestHooks {
  std::function<void(ir::Kernel&)> kernel;           // before it is compiled
  std::function<void(const Plan&, Layout&)> layout;  // before it is used
  bool verify_layouts = false;                       // each one, before `layout`
  // Libraries take what they can compute, however small. CompileOptions::claims forbids them.
  bool claim_every_size = false;
};
// One for the process, not synchronised: set it while nothing compiles or runs.
TestHooks& test_hooks();

}  // namespace heddle::plan
