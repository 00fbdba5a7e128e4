// Proofs about finished plans, from their steps alone: what the builder thought of the lives of
// slots counts only as what the arena may do with them.
#pragma once

#include "plan/layout.h"

#include <string>

namespace heddle::plan {

// Empty, or the first broken rule in a sentence that names the step and the slot. On every path
// (loops of no, one or many iterations, both branches, the host's form and the device's):
//   - what a step reads was written before it, and nothing was written over it since; so values
//     whose lives overlap share no bytes;
//   - a kernel's output takes the place of an input only where each point reads and writes the same
//     element; a library's never does;
//   - every row of a stacked result is stored in every iteration;
//   - the two places of a carried value that the host exchanges are of equal size and apart, and
//     both stay its own;
//   - feeds and constants are not written, results are written once and hold values at the end.
// Of loops `on_device` it proves the order of the steps that the recorder is given: prologue, test,
// body, copies of carried values. That a device runs them in this order is the recorder's part.
//
// For all sizes: two slots may share bytes if one takes the other's place or the numbers of their
// first and last steps leave them apart.
std::string verify(const Plan& plan);
// At the sizes of a layout, by the bytes themselves, which are also aligned, inside the arena, and
// hold what kernels access.
std::string verify(const Plan& plan, const Layout& layout);

}  // namespace heddle::plan
