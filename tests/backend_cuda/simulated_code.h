// Runs CUDA C++ on this machine's CPU: compiled by the host compiler with a prelude that gives each
// thread of a block a fiber.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::test {

// CUDA C++ as a shared library of this machine, made in the temporary folder.
class SimulatedCode {
 public:
  // `text`: what stands behind the prelude's machine part.
  explicit SimulatedCode(const std::string& text);
  ~SimulatedCode();
  SimulatedCode(const SimulatedCode&) = delete;
  SimulatedCode& operator=(const SimulatedCode&) = delete;
  // Every argument is a word: an address or an integer of 64 bits. The blocks run one after the
  // other, or `together`, where they wait for each other.
  void run(const std::string& entry, unsigned grid, unsigned threads,
           const std::vector<uintptr_t>& words, int64_t shared_bytes = 0,
           bool together = false) const;

 private:
  void* library_ = nullptr;
};

// Is there a host compiler at run time?
bool can_simulate();

}  // namespace heddle::test
