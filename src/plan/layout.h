// A plan at one set of sizes: bytes, places in the arena, arguments of kernels.
#pragma once

#include "plan/plan.h"

#include <map>
#include <mutex>

namespace heddle::plan {

inline constexpr int64_t kAlignment = 256;  // bytes, of every slot in an arena

struct Layout {
  std::vector<int64_t> symbols;  // values of Plan::symbols
  std::vector<int64_t> bytes;    // by slot
  std::vector<int64_t> offset;   // by slot, arena slots only, else -1
  int64_t arena_bytes = 0;
  int64_t unshared_bytes = 0;         // what the arena would be without reuse
  std::vector<int64_t> step_symbols;  // flat, Step::symbol_begin
  std::vector<int64_t> counts;        // Step::count_index
  std::vector<std::vector<int64_t>> input_shapes, output_shapes;
  std::vector<std::vector<int64_t>> output_strides;  // packed
};

// Checks the fed extents against the types (GraphError names the feed, expected and given) and
// binds the symbols. `shapes`: one a feed, ranks already checked.
std::vector<int64_t> bind_symbols(const Plan& plan,
                                  const std::vector<std::vector<int64_t>>& shapes);

std::shared_ptr<const Layout> make_layout(const Plan& plan, std::vector<int64_t> symbols);

// How a feed is called in messages: its name and its place in the list.
std::string feed_name(const Plan& plan, size_t index);
// Its type as messages have it: extents by the user's names, by the axis of another feed that they
// equal, or "?" where any will do.
std::string input_type(const Plan& plan, size_t index);

// Layouts of a plan by their symbols' values: bounded, least recently used first out. Thread-safe.
class LayoutCache {
 public:
  std::shared_ptr<const Layout> get(const Plan& plan, const std::vector<int64_t>& symbols);
  size_t size() const;
  int64_t evictions() const;
  static constexpr size_t kLimit = 64;

 private:
  mutable std::mutex mutex_;
  uint64_t clock_ = 0;
  int64_t evictions_ = 0;
  struct Entry {
    std::shared_ptr<const Layout> layout;
    uint64_t used = 0;
  };
  std::map<std::vector<int64_t>, Entry> entries_;
};

}  // namespace heddle::plan
