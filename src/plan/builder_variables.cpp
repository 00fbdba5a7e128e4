// Variables: reads that need no copy, and assigns whose value is computed in place.
#include "plan/builder.h"

#include <algorithm>

namespace heddle::plan {

using ops::Role;

int64_t Builder::variable_id(ir::OpId access) const {
  return graph_->op(ops::variable_of(*graph_, access)).attrs.get<int64_t>("id");
}

std::set<ir::ValueId> Builder::reads_of(const loop::Item& item) const {
  std::set<ir::ValueId> reads;
  auto add = [&](const std::vector<ir::ValueId>& values) {
    for (ir::ValueId v : values) {
      if (v != ir::kNone) reads.insert(resolve(v));
    }
  };
  if (const auto* bound = std::get_if<loop::BoundKernel>(&item)) {
    add(bound->bindings);
    return reads;
  }
  ir::OpId id = std::get<ir::OpId>(item);
  if (auto claimed = claimed_by_.find(id); claimed != claimed_by_.end()) {
    add(claims_.at(claimed->second).offer.inputs);
    return reads;
  }
  add(graph_->op(id).operands);
  for (ir::RegionId region : graph_->op(id).regions) add(graph_->captures(region));
  return reads;
}

Builder::RegionContext Builder::make_context(const loop::RegionSchedule& schedule,
                                             ir::RegionId region) {
  RegionContext context;
  context.schedule = &schedule;
  for (const loop::Item& item : schedule.items) context.reads.push_back(reads_of(item));
  for (ir::ValueId v : graph_->region(region).results) context.results.insert(resolve(v));
  return context;
}

size_t Builder::RegionContext::last_use(ir::ValueId value) const {
  for (size_t i = reads.size(); i-- > 0;) {
    if (reads[i].contains(value)) return i;
  }
  return 0;
}

bool Builder::writes(const loop::Item& item, int64_t variable) const {
  const auto* id = std::get_if<ir::OpId>(&item);
  if (id == nullptr) return false;
  auto inside = [&](auto&& self, ir::OpId op) -> bool {
    if (ops::role_of(graph_->op(op)) == Role::assign && variable_id(op) == variable) return true;
    for (ir::RegionId region : graph_->op(op).regions) {
      const std::vector<ir::OpId>& ops = graph_->region(region).ops;
      if (std::any_of(ops.begin(), ops.end(), [&](ir::OpId o) { return self(self, o); }))
        return true;
    }
    return false;
  };
  return inside(inside, *id);
}

void Builder::emit_variable(ir::OpId id, std::vector<Step>& out) {
  const ir::Op& op = graph_->op(id);
  SlotId state = plan_.variables[variable_index(id)].slot;
  SlotId& slot = slot_of_value_[op.results[0]];
  // The result is the state at the start: a copy where something changes it.
  bool used_directly = false;
  auto use = [&](ir::ValueId v) { used_directly |= v == op.results[0]; };
  for (size_t i = 0; i < graph_->op_count(); ++i) {
    const ir::Op& user = graph_->op(static_cast<ir::OpId>(i));
    Role role = ops::role_of(user);
    for (size_t k = role == Role::read || role == Role::assign ? 1 : 0; k < user.operands.size();
         ++k)
      use(user.operands[k]);
  }
  for (size_t r = 0; r < graph_->region_count(); ++r) {
    for (ir::ValueId v : graph_->region(static_cast<ir::RegionId>(r)).results) use(v);
  }
  if (!used_directly || !written_.contains(op.attrs.get<int64_t>("id"))) {
    slot = state;
    return;
  }
  if (slot == kNone) slot = new_slot(type_of(op.results[0]), Place::arena);
  emit_copy(slot, state, out);
}

// A read is another name of the state if the state does not change before the last use of what was
// read.
bool Builder::read_may_alias(ir::OpId read) {
  int64_t variable = variable_id(read);
  if (!written_.contains(variable)) return true;
  const RegionContext& context = contexts_.back();
  ir::ValueId value = graph_->op(read).results[0];
  if (context.results.contains(resolve(value))) return false;
  const std::vector<loop::Item>& items = context.schedule->items;
  for (size_t i = context.at + 1; i < items.size(); ++i) {
    if (!writes(items[i], variable)) continue;
    // An assign reads its operand before it writes.
    bool plain = graph_->op(std::get<ir::OpId>(items[i])).regions.empty();
    return context.last_use(value) < i + (plain ? 1 : 0);
  }
  return true;
}

void Builder::emit_read(ir::OpId id, std::vector<Step>& out) {
  const ir::Op& op = graph_->op(id);
  SlotId state = plan_.variables[variable_index(ops::variable_of(*graph_, id))].slot;
  SlotId& slot = slot_of_value_[op.results[0]];
  if (slot == kNone && read_may_alias(id)) {
    slot = state;
    return;
  }
  emit_copy(slot_of(op.results[0]), state, out);
}

// The kernel that computes an assigned value may write the state itself if nothing reads the old
// state from there on, and the kernel reads it at most at the element that it stores.
bool Builder::may_assign_in_place(size_t assign, const std::set<ir::ValueId>& made) {
  const RegionContext& context = contexts_.back();
  const std::vector<loop::Item>& items = context.schedule->items;
  ir::OpId id = std::get<ir::OpId>(items[assign]);
  int64_t variable = variable_id(id);
  ir::ValueId value = resolve(graph_->op(id).operands[1]);
  if (!made.contains(value) || slot_of_value_[value] != kNone || context.results.contains(value))
    return false;

  auto binding = [&](const loop::BoundKernel& bound, ir::ValueId v,
                     ir::BufferRole role) -> std::optional<ir::BufferId> {
    std::vector<ir::BufferId> buffers = argument_buffers(bound.kernel);
    for (size_t k = 0; k < buffers.size(); ++k) {
      bool same = bound.bindings[k] != ir::kNone && resolve(bound.bindings[k]) == v;
      if (same && bound.kernel.buffers[buffers[k]].role == role) return buffers[k];
    }
    return std::nullopt;
  };
  size_t producer = items.size();
  std::optional<ir::BufferId> to;
  for (size_t i = 0; i < assign && !to; ++i) {
    if (const auto* bound = std::get_if<loop::BoundKernel>(&items[i])) {
      to = binding(*bound, value, ir::BufferRole::output);
      producer = i;
    }
  }
  if (!to) return false;
  const auto& kernel = std::get<loop::BoundKernel>(items[producer]);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > producer && i != assign && writes(items[i], variable)) {
      // The new state must last as long as the value is used.
      if (i < assign || context.last_use(value) >= i) return false;
    }
    const auto* op = std::get_if<ir::OpId>(&items[i]);
    if (op == nullptr || ops::role_of(graph_->op(*op)) != Role::read ||
        variable_id(*op) != variable)
      continue;
    if (i > producer && i < assign) return false;
    if (i > assign) continue;
    ir::ValueId old = resolve(graph_->op(*op).results[0]);
    size_t last = context.last_use(old);
    if (last > producer || context.results.contains(old)) return false;
    if (last < producer) continue;
    std::optional<ir::BufferId> from = binding(kernel, old, ir::BufferRole::input);
    if (!from || !may_share(kernel.kernel, *from, *to)) return false;
  }
  return true;
}

void Builder::assign_in_place(const std::set<ir::ValueId>& made) {
  const std::vector<loop::Item>& items = contexts_.back().schedule->items;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto* id = std::get_if<ir::OpId>(&items[i]);
    if (id == nullptr || ops::role_of(graph_->op(*id)) != Role::assign ||
        !may_assign_in_place(i, made))
      continue;
    ir::ValueId value = resolve(graph_->op(*id).operands[1]);
    slot_of_value_[value] = plan_.variables[variable_index(ops::variable_of(*graph_, *id))].slot;
  }
}

void Builder::emit_assign(ir::OpId id, std::vector<Step>& out) {
  uint32_t index = variable_index(ops::variable_of(*graph_, id));
  plan_.variables[index].written = true;
  emit_copy(plan_.variables[index].slot, slot_of(graph_->op(id).operands[1]), out);
}

}  // namespace heddle::plan
