// What the items of a scheduled region do with values and variables, looked up without a search
// through the items.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

namespace heddle::plan {

// Items are named by their index. They are told in order; values are resolved. A variable is named
// by its attribute "id".
class ItemUses {
 public:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();

  void use(size_t item, ir::ValueId value) { last_use_[value] = item; }
  void make(size_t item, ir::ValueId value) { producer_.try_emplace(value, item); }
  void read(size_t item, int64_t variable, ir::ValueId value);
  // An assign to the variable is the item, or in it.
  void write(size_t item, int64_t variable);
  // After all items: a value that the region returns is used for ever.
  void finish(const std::vector<ir::ValueId>& results);

  // 0 where no item uses the value; kNever where the region returns it.
  size_t last_use(ir::ValueId value) const;
  // The kernel that makes the value.
  std::optional<size_t> producer(ir::ValueId value) const;
  // The first item after `item` that writes the variable; kNever where there is none.
  size_t next_write(size_t item, int64_t variable) const;
  // The first item after `item` that reads it; kNever where there is none.
  size_t next_read(size_t item, int64_t variable) const;
  // When that which the reads before `item` gave is last used; 0 where there are none.
  size_t last_use_of_reads_before(size_t item, int64_t variable) const;
  // Is the value what a read of this variable by an item of this region gave?
  bool is_read_of(ir::ValueId value, int64_t variable) const;

 private:
  struct Accesses {
    std::vector<size_t> writes, reads;  // items, ascending
    std::vector<ir::ValueId> values;    // by read: what it gave
    std::vector<size_t>
        last_use_until;  // by read: the last use of what it and those before it gave
  };
  const Accesses& accesses(int64_t variable) const;

  std::unordered_map<ir::ValueId, size_t> last_use_, producer_;
  std::unordered_map<ir::ValueId, int64_t> variable_read_;
  std::unordered_map<int64_t, Accesses> accesses_;
};

}  // namespace heddle::plan
