// Hashing of structures: 64-bit, deterministic across processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle::base {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_string(std::string_view s, uint64_t seed = 0) {
  return hash_bytes(s.data(), s.size(), seed);
}

// Order-dependent mixing (splitmix64 finaliser, Steele et al. 2014).
inline uint64_t mix(uint64_t h, uint64_t v) {
  uint64_t z = h + 0x9e3779b97f4a7c15ULL + v * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace heddle::base
