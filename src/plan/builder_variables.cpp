// Variables: reads that need no copy, and assigns whose value is computed in place.
#include "plan/builder.h"

namespace heddle::plan {

using ops::Role;

// Calls f(buffer, resolved value) for the kernel's arguments of this role.
template <class F>
void Builder::each_argument(const loop::BoundKernel& bound, ir::BufferRole role, const F& f) const {
  std::vector<ir::BufferId> buffers = argument_buffers(bound.kernel);
  for (size_t k = 0; k < buffers.size(); ++k) {
    if (bound.bindings[k] != ir::kNone && bound.kernel.buffers[buffers[k]].role == role)
      f(buffers[k], resolve(bound.bindings[k]));
  }
}

int64_t Builder::variable_id(ir::OpId access) const {
  return graph_->op(ops::variable_of(*graph_, access)).attrs.get<int64_t>("id");
}

template <class F>
void Builder::each_read(const loop::Item& item, const F& f) const {
  auto each = [&](const std::vector<ir::ValueId>& values) {
    for (ir::ValueId v : values) {
      if (v != ir::kNone) f(resolve(v));
    }
  };
  if (const auto* bound = std::get_if<loop::BoundKernel>(&item)) return each(bound->bindings);
  ir::OpId id = std::get<ir::OpId>(item);
  if (auto claimed = claimed_by_.find(id); claimed != claimed_by_.end())
    return each(claims_.at(claimed->second).offer.inputs);
  each(graph_->op(id).operands);
  for (ir::RegionId region : graph_->op(id).regions) each(graph_->captures(region));
}

void Builder::add_uses(size_t at, const loop::Item& item, ItemUses& uses) const {
  each_read(item, [&](ir::ValueId v) { uses.use(at, v); });
  if (const auto* bound = std::get_if<loop::BoundKernel>(&item)) {
    each_argument(*bound, ir::BufferRole::output,
                  [&](ir::BufferId, ir::ValueId v) { uses.make(at, v); });
    return;
  }
  ir::OpId id = std::get<ir::OpId>(item);
  if (ops::role_of(graph_->op(id)) == Role::read)
    uses.read(at, variable_id(id), resolve(graph_->op(id).results[0]));
  auto add_writes = [&](auto&& self, ir::OpId op) -> void {
    if (ops::role_of(graph_->op(op)) == Role::assign) uses.write(at, variable_id(op));
    for (ir::RegionId region : graph_->op(op).regions) {
      for (ir::OpId inner : graph_->region(region).ops) self(self, inner);
    }
  };
  add_writes(add_writes, id);
}

Builder::RegionContext Builder::make_context(const loop::RegionSchedule& schedule,
                                             ir::RegionId region) {
  RegionContext context;
  context.schedule = &schedule;
  for (size_t i = 0; i < schedule.items.size(); ++i) add_uses(i, schedule.items[i], context.uses);
  std::vector<ir::ValueId> results;
  for (ir::ValueId v : graph_->region(region).results) results.push_back(resolve(v));
  context.uses.finish(results);
  return context;
}

// A read names its variable, and an assign too: neither uses the state at the start.
void Builder::find_direct_uses() {
  used_directly_.assign(graph_->value_count(), false);
  auto use = [&](ir::ValueId v) {
    if (v != ir::kNone) used_directly_[v] = true;
  };
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
}

void Builder::emit_variable(ir::OpId id, std::vector<Step>& out) {
  const ir::Op& op = graph_->op(id);
  SlotId state = plan_.variables[variable_index(id)].slot;
  SlotId& slot = slot_of_value_[op.results[0]];
  // The result is the state at the start: a copy where something changes it.
  if (!used_directly_[op.results[0]] || !written_.contains(op.attrs.get<int64_t>("id"))) {
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
  size_t last = context.uses.last_use(resolve(graph_->op(read).results[0]));
  if (last == ItemUses::kNever) return false;
  size_t write = context.uses.next_write(context.at, variable);
  if (write == ItemUses::kNever) return true;
  // An assign reads its operand before it writes.
  bool plain = graph_->op(std::get<ir::OpId>(context.schedule->items[write])).regions.empty();
  return last < write + (plain ? 1 : 0);
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
  const ItemUses& uses = context.uses;
  ir::OpId id = std::get<ir::OpId>(context.schedule->items[assign]);
  int64_t variable = variable_id(id);
  ir::ValueId value = resolve(graph_->op(id).operands[1]);
  size_t last = uses.last_use(value);
  if (!made.contains(value) || slot_of_value_[value] != kNone || last == ItemUses::kNever)
    return false;
  std::optional<size_t> producer = uses.producer(value);
  if (!producer || *producer > assign) return false;
  if (uses.next_write(*producer, variable) < assign || uses.next_read(*producer, variable) < assign)
    return false;
  // The new state must last as long as the value is used.
  size_t next = uses.next_write(assign, variable);
  if (next != ItemUses::kNever && last >= next) return false;
  size_t last_of_old = uses.last_use_of_reads_before(*producer, variable);
  if (last_of_old != *producer) return last_of_old < *producer;

  const auto& bound = std::get<loop::BoundKernel>(context.schedule->items[*producer]);
  std::optional<ir::BufferId> to;
  each_argument(bound, ir::BufferRole::output, [&](ir::BufferId buffer, ir::ValueId v) {
    if (v == value && !to) to = buffer;
  });
  bool share = true;
  each_argument(bound, ir::BufferRole::input, [&](ir::BufferId buffer, ir::ValueId v) {
    if (uses.is_read_of(v, variable)) share = share && may_share(bound.kernel, buffer, *to);
  });
  return share;
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
