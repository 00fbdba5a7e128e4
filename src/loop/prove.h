// Proofs about a kernel, from its index expressions alone: every access is inside its buffer, no
// two points that may run side by side touch the same element where one writes it, nothing is read
// before it was written, every output is written as a whole, ordered passes say which order they
// ask for. (ir::verify checks the form of a kernel, and the direction of its loops.)
#pragma once

#include "ir/kernel.h"

#include <string>
#include <vector>

namespace heddle::loop {

struct Proof {
  std::vector<std::string> broken;  // what is wrong, each a sentence that begins with its rule
  std::vector<std::string> open;    // what could be shown neither right nor wrong
};
Proof prove(const ir::Kernel& kernel);

// Whether each scheduled kernel is proven at once, and refused with an InternalError where
// something is wrong: slow, so off but in tests, in fuzzers, and under HEDDLE_VALIDATE.
void prove_every_kernel(bool on);
// Does so, where it is on. HEDDLE_VERBOSE=proofs tells what stays open.
void prove_scheduled(const ir::Kernel& kernel);

}  // namespace heddle::loop
