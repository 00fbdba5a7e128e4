// What code is generated for: instruction set and vector width.
#pragma once

#include "target/target.h"

#include <string>

namespace heddle::cpu {

struct CpuTarget {
  std::string arch;           // "x86-64-v4", "x86-64-v3", "x86-64"
  int vector_bytes = 16;      // of the widest register that is used
  bool fma = false;           // fused multiply-add and F16C in hardware (x86-64-v3)
  bool masked_small = false;  // masked loads and stores of 1- and 2-byte elements (x86-64-v4)
  bool masked_words = false;  // of 4- and 8-byte elements

  // Vectors of a whole cache line; there are 32 registers of them, else 16.
  bool wide() const { return vector_bytes >= 64; }
};

// Of "x86-64-v4", "x86-64-v3", "x86-64"; UnsupportedError for another name.
CpuTarget target_for(const std::string& arch);
// The best set that this processor has, or what HEDDLE_CPU_ARCH says (UnsupportedError where the
// processor lacks it).
std::string host_arch();
// The processor's name as it reports it.
std::string host_name();
int host_threads();  // HEDDLE_THREADS, else the processors that this process may use

}  // namespace heddle::cpu
