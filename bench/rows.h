// The benchmark's rows: a graph, its inputs and outputs, and how many bytes the row must move at
// the least.
#pragma once

#include <heddle/heddle.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace heddle::bench {

// One compiled row. `sets` rotate so that no input stays in a cache that a larger program would not
// find warm.
struct Row {
  std::string name;
  Executable executable;
  struct Set {
    std::vector<Array> inputs, outputs;
  };
  std::vector<Set> sets;
  // Inputs once, outputs once; 0 where the row's work stays in a cache or is not about memory.
  int64_t read = 0, written = 0;
  int64_t divisor = 1;           // the figure is for one of so many iterations
  std::function<double()> once;  // a row with its own way of timing: microseconds of one sample
};

struct RowMaker {
  std::string name, what;
  std::function<Row(const Device&)> make;
};

// Sizes are the device's: those of the CPU table, or of the GPU table.
const std::vector<RowMaker>& rows();

}  // namespace heddle::bench
