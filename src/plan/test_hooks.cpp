#include "plan/test_hooks.h"

namespace heddle::plan {

TestHooks& test_hooks() {
  static TestHooks hooks;
  return hooks;
}

}  // namespace heddle::plan
