// The choices that a random program is made of. A tape is drawn from a seed, or replayed: a
// replayed tape that was cut or changed still makes a valid program, which is how failing programs
// shrink.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace heddle::test {

class Tape {
 public:
  explicit Tape(uint64_t seed) : rng_(seed) {}
  explicit Tape(std::vector<uint32_t> choices) : choices_(std::move(choices)), replay_(true) {}

  // A number below n; 0 is the simplest choice, and the only one after the end of a replayed tape.
  uint32_t below(size_t n) {
    uint32_t limit = static_cast<uint32_t>(std::max<size_t>(n, 1));
    if (!replay_) {
      choices_.push_back(static_cast<uint32_t>(rng_() % limit));
      return choices_.back();
    }
    uint32_t v = at_ < choices_.size() ? std::min(choices_[at_], limit - 1) : 0;
    ++at_;
    return v;
  }
  bool chance(uint32_t percent) { return below(100) >= 100 - percent; }
  int64_t between(int64_t low, int64_t high) {
    // The number nearest to 0 is the simplest.
    int64_t simplest = std::clamp<int64_t>(0, low, high);
    auto k = static_cast<int64_t>(below(static_cast<size_t>(high - low + 1)));
    return low + (k + simplest - low) % (high - low + 1);
  }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[below(list.size())];
  }
  const std::vector<uint32_t>& choices() const { return choices_; }

 private:
  std::mt19937_64 rng_{0};
  std::vector<uint32_t> choices_;
  bool replay_ = false;
  size_t at_ = 0;
};

}  // namespace heddle::test
