#include "target/counters.h"

namespace heddle::target {

RuntimeCounters& runtime_counters() {
  static RuntimeCounters counters;
  return counters;
}

}  // namespace heddle::target
