// The processor's floating-point mode while Heddle computes: rounding to nearest, subnormal numbers
// kept, no traps. A host program may have chosen another one, and threads start with the mode of
// the thread that made them.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::base {

// The standard mode for the life of the object, then the calling thread's own again, its status
// flags included. Where the mode is the standard one already, this only looks.
class StandardFloatingPoint {
 public:
  StandardFloatingPoint() {
    if (!is_standard()) [[unlikely]]
      enter();
  }
  ~StandardFloatingPoint() {
    if (changed_) [[unlikely]]
      leave();
  }
  StandardFloatingPoint(const StandardFloatingPoint&) = delete;
  StandardFloatingPoint& operator=(const StandardFloatingPoint&) = delete;

 private:
  static bool is_standard() {
#if defined(__x86_64__)
    // Without the status flags. MXCSR: all exceptions masked, rounding to nearest, no flushing;
    // x87, which computes `long double`: the same, and its full precision.
    constexpr uint32_t kVectorControl = 0xffc0, kVectorStandard = 0x1f80;
    constexpr uint16_t kControl = 0x0f3f, kStandard = 0x033f;
    uint16_t control = 0;
    asm volatile("fnstcw %0" : "=m"(control));
    return (_mm_getcsr() & kVectorControl) == kVectorStandard && (control & kControl) == kStandard;
#else
    return false;
#endif
  }
  void enter();
  void leave();

  bool changed_ = false;
  std::fenv_t before_;
};

}  // namespace heddle::base
