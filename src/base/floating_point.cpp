#include "base/floating_point.h"

namespace heddle::base {

void StandardFloatingPoint::enter() {
  std::fegetenv(&before_);
  std::fesetenv(FE_DFL_ENV);
#if defined(__x86_64__)
  _mm_setcsr(0x1f80);  // some C libraries leave the flushing of subnormal numbers as it was
#endif
  changed_ = true;
}

void StandardFloatingPoint::leave() { std::fesetenv(&before_); }

}  // namespace heddle::base
