#include "plan/item_uses.h"

#include <algorithm>

namespace heddle::plan {

namespace {

size_t first_after(const std::vector<size_t>& items, size_t item) {
  auto it = std::upper_bound(items.begin(), items.end(), item);
  return it == items.end() ? ItemUses::kNever : *it;
}

}  // namespace

void ItemUses::read(size_t item, int64_t variable, ir::ValueId value) {
  Accesses& a = accesses_[variable];
  a.reads.push_back(item);
  a.values.push_back(value);
  variable_read_[value] = variable;
}

void ItemUses::write(size_t item, int64_t variable) {
  std::vector<size_t>& writes = accesses_[variable].writes;
  if (writes.empty() || writes.back() != item) writes.push_back(item);
}

void ItemUses::finish(const std::vector<ir::ValueId>& results) {
  for (ir::ValueId v : results) last_use_[v] = kNever;
  for (auto& [variable, a] : accesses_) {
    size_t last = 0;
    for (ir::ValueId v : a.values) {
      last = std::max(last, last_use(v));
      a.last_use_until.push_back(last);
    }
  }
}

const ItemUses::Accesses& ItemUses::accesses(int64_t variable) const {
  static const Accesses none;
  auto it = accesses_.find(variable);
  return it == accesses_.end() ? none : it->second;
}

size_t ItemUses::last_use(ir::ValueId value) const {
  auto it = last_use_.find(value);
  return it == last_use_.end() ? 0 : it->second;
}

std::optional<size_t> ItemUses::producer(ir::ValueId value) const {
  auto it = producer_.find(value);
  if (it == producer_.end()) return std::nullopt;
  return it->second;
}

size_t ItemUses::next_write(size_t item, int64_t variable) const {
  return first_after(accesses(variable).writes, item);
}

size_t ItemUses::next_read(size_t item, int64_t variable) const {
  return first_after(accesses(variable).reads, item);
}

size_t ItemUses::last_use_of_reads_before(size_t item, int64_t variable) const {
  const Accesses& a = accesses(variable);
  auto count = std::lower_bound(a.reads.begin(), a.reads.end(), item) - a.reads.begin();
  return count == 0 ? 0 : a.last_use_until[static_cast<size_t>(count) - 1];
}

bool ItemUses::is_read_of(ir::ValueId value, int64_t variable) const {
  auto it = variable_read_.find(value);
  return it != variable_read_.end() && it->second == variable;
}

}  // namespace heddle::plan
