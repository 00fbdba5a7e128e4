// A sequence that one thread extends while others read what is already there.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

namespace heddle::ir {

// Elements are never moved or removed. Pieces double in size, so a piece is found by the place of
// the index's highest bit. One thread at a time may add (the graph's lock); reading an element
// whose index was seen below size() needs no lock.
template <class T>
class StableVector {
 public:
  StableVector() = default;
  StableVector(const StableVector&) = delete;
  StableVector& operator=(const StableVector&) = delete;
  ~StableVector() {
    for (size_t i = size(); i-- > 0;) std::destroy_at(&(*this)[i]);
    for (size_t k = 0; k < kPieces; ++k) {
      T* piece = pieces_[k].load(std::memory_order_relaxed);
      if (piece != nullptr) std::allocator<T>().deallocate(piece, kFirst << k);
    }
  }

  size_t size() const { return size_.load(std::memory_order_acquire); }
  const T& operator[](size_t i) const { return *at(i); }
  T& operator[](size_t i) { return *at(i); }

  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    size_t i = size_.load(std::memory_order_relaxed), k = piece_of(i);
    if (pieces_[k].load(std::memory_order_relaxed) == nullptr)
      pieces_[k].store(std::allocator<T>().allocate(kFirst << k), std::memory_order_release);
    T* element = std::construct_at(at(i), std::forward<Arguments>(arguments)...);
    size_.store(i + 1, std::memory_order_release);
    return *element;
  }
  void push_back(T element) { emplace_back(std::move(element)); }

 private:
  static constexpr size_t kFirst = 16, kPieces = 28;  // more than 2^32 elements
  static constexpr size_t piece_of(size_t i) {
    return static_cast<size_t>(std::bit_width(i + kFirst) - std::bit_width(kFirst));
  }
  T* at(size_t i) const {
    size_t k = piece_of(i);
    return pieces_[k].load(std::memory_order_acquire) + (i + kFirst - (kFirst << k));
  }

  std::array<std::atomic<T*>, kPieces> pieces_{};
  std::atomic<size_t> size_{0};
};

}  // namespace heddle::ir
