// What the bit comparison runs: every f32 elementwise operation of the registry, and chains of
// them. Everything follows from integers, so it is the same on every machine.
#pragma once

#include <heddle/heddle.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle::test {

struct Program {
  std::string name;
  int inputs = 1;
  int64_t chunk = 0;                               // inputs a run
  std::function<Tensor(const Tensors& xs)> build;  // operands: f32[chunk]
};
std::vector<Program> elementwise_programs();  // an operation each
std::vector<Program> chain_programs();        // 200, a dozen operations each

// Input number k of operand `stream`: half of them any bit pattern, a quarter special values and
// their neighbours, a quarter in [-8, 8].
float bit_input(int stream, uint64_t k);

}  // namespace heddle::test
