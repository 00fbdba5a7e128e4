// Evaluates scalar bodies over many points at once, straight from the meaning of the nodes: for
// sweeps of elementary functions and for comparing scalar rules with the judge.
#pragma once

#include "ir/body.h"

#include <cstdint>
#include <vector>

namespace heddle::test {

// Bit patterns of one node's values at the points of a block.
using Lane = std::vector<uint64_t>;

// A load node of `type` that reads input number `index`.
ir::NodeId input(ir::BodyBuilder& b, int index, DType type);

// Values of the nodes `wanted` for the inputs; all inputs have one length.
std::vector<Lane> evaluate(const ir::Body& body, const std::vector<ir::NodeId>& wanted,
                           const std::vector<Lane>& inputs);

}  // namespace heddle::test
