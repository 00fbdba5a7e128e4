#include "plan/builder.h"

#include "base/check.h"
#include "base/env.h"
#include "ops/opdef.h"
#include "plan/kernel_cache.h"
#include "plan/test_hooks.h"

#include <cstdio>

namespace heddle::plan {

using ops::Form;
using ops::Role;

Builder::Builder(std::shared_ptr<const ir::Graph> graph, std::map<ir::OpId, ChosenClaim> claims,
                 const Target& target, const CompileOptions& options, Plan& plan)
    : graph_(std::move(graph)),
      claims_(std::move(claims)),
      target_(target),
      options_(options),
      plan_(plan),
      slot_of_value_(graph_->value_count(), kNone) {
  device_control_ = target.can_record && options.loops != LoopRecording::host;
  for (const auto& [root, claim] : claims_) {
    for (ir::OpId member : claim.ops) claimed_by_[member] = root;
    opaque_.insert(claim.ops.begin(), claim.ops.end());
    if (!claim.offer.recordable && device_control_) {
      device_control_ = false;
      plan_.notes.push_back(
          base::cat("control flow is driven by the host: ", claim.name, " cannot be recorded"));
    }
  }
}

void Builder::run() {
  auto visit = [&](auto&& self, ir::RegionId region) -> void {
    for (ir::OpId id : graph_->region(region).ops) {
      const ir::Op& op = graph_->op(id);
      Role role = ops::role_of(op);
      if (role == Role::assign)
        written_.insert(graph_->op(ops::variable_of(*graph_, id)).attrs.get<int64_t>("id"));
      if (role == Role::assign || role == Role::read || role == Role::variable ||
          !op.regions.empty())
        opaque_.insert(id);
      for (ir::RegionId r : op.regions) self(self, r);
    }
  };
  visit(visit, ir::kTopRegion);
  find_direct_uses();

  set_signature(*graph_, plan_);
  for (const SymbolRef& s : plan_.symbols) known_symbols_.insert(s->id);
  const ir::Region& top = graph_->region(ir::kTopRegion);
  for (uint32_t i = 0; i < plan_.inputs.size(); ++i) {
    plan_.inputs[i].slot = new_slot(plan_.inputs[i].type, Place::input, i);
    plan_.slots[plan_.inputs[i].slot].value = top.arguments[i];
    slot_of_value_[top.arguments[i]] = plan_.inputs[i].slot;
  }
  Targets targets;
  for (uint32_t i = 0; i < plan_.outputs.size(); ++i) {
    plan_.outputs[i].slot = new_slot(plan_.outputs[i].type, Place::output, i);
    targets.emplace_back(top.results[i], plan_.outputs[i].slot);
  }
  emit_region(ir::kTopRegion, plan_.steps, targets);
  compile_kernels();
  finish();
}

void Builder::compile_kernels() {
  if (plan_.kernels.empty()) return;
  std::vector<const ir::Kernel*> kernels;
  for (const PlanKernel& k : plan_.kernels) kernels.push_back(k.kernel.get());
  auto compiled =
      compile_cached(*target_.emitter, kernels, {options_.check_bounds, options_.threads});
  for (size_t k = 0; k < compiled.size(); ++k) {
    HD_CHECK(!target_.host_memory ||
                 dynamic_cast<const target::HostKernel*>(compiled[k].get()) != nullptr,
             "the emitter of ", target_.name, " makes kernels that the host cannot run");
    plan_.kernels[k].compiled = std::move(compiled[k]);
  }
}

// ---- slots

std::vector<uint32_t> Builder::loop_path() const {
  std::vector<uint32_t> path;
  for (const Frame& f : frames_) path.push_back(f.loop);
  return path;
}

SlotId Builder::new_slot(const Type& type, Place place, uint32_t index) {
  HD_CHECK(type.known(), "a value of a plan has the open type ", to_string(type));
  Slot slot;
  slot.dtype = type.dtype;
  slot.shape = *type.shape;
  Expr count = element_count(slot.shape);
  int bits = bit_width(type.dtype);
  slot.bytes = bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;
  slot.place = place;
  slot.index = index;
  slot.home = loop_path();
  plan_.slots.push_back(std::move(slot));
  return static_cast<SlotId>(plan_.slots.size() - 1);
}

SlotId Builder::scalar_slot(DType dtype) { return pinned_slot(Type{dtype, Shape{}}); }

SlotId Builder::pinned_slot(const Type& type) {
  SlotId slot = new_slot(type, Place::arena);
  plan_.slots[slot].pinned = true;
  return slot;
}

ir::ValueId Builder::resolve(ir::ValueId value) const {
  for (auto it = alias_.find(value); it != alias_.end(); it = alias_.find(value))
    value = it->second;
  return value;
}

SlotId Builder::slot_of(ir::ValueId value) {
  value = resolve(value);
  SlotId& slot = slot_of_value_[value];
  if (slot != kNone) return slot;
  const ir::Value& v = graph_->value(value);
  HD_CHECK(v.op != ir::kNone, "the argument ", value, " of region ", v.region, " has no buffer");
  Role role = ops::role_of(graph_->op(v.op));
  if (role == Role::constant) {
    slot = constant_slot(v.op);
  } else if (role == Role::variable) {
    slot = plan_.variables[variable_index(v.op)].slot;
  } else {
    slot = new_slot(v.type, Place::arena);
  }
  plan_.slots[slot].value = value;
  return slot;
}

SlotId Builder::constant_slot(ir::OpId op) {
  SlotId slot = new_slot(type_of(graph_->op(op).results[0]), Place::constant,
                         static_cast<uint32_t>(plan_.constants.size()));
  plan_.constants.push_back(ops::literal_of(graph_->op(op)));
  plan_.constant_slots.push_back(slot);
  return slot;
}

uint32_t Builder::variable_index(ir::OpId op) {
  const ir::Op& variable = graph_->op(op);
  auto id = variable.attrs.get<int64_t>("id");
  auto [it, added] = variable_by_id_.try_emplace(id, static_cast<uint32_t>(plan_.variables.size()));
  if (added) {
    const ir::Value& v = graph_->value(variable.results[0]);
    SlotId slot = new_slot(v.type, Place::variable, it->second);
    plan_.variables.push_back({id, v.name, ops::literal_of(variable), written_.contains(id), slot});
  }
  return it->second;
}

SlotId Builder::touch(SlotId id, uint32_t number) {
  Slot& slot = plan_.slots[id];
  slot.begin = std::min(slot.begin, number);
  slot.end = std::max(slot.end, number);
  if (!frames_.empty()) frames_.back().touched.insert(id);
  return id;
}

// ---- steps

Step Builder::new_step(StepKind kind) const {
  Step step;
  step.kind = kind;
  return step;
}

std::set<ir::ValueId> Builder::produced(const loop::RegionSchedule& schedule) {
  std::set<ir::ValueId> values;
  auto add_outputs = [&](const loop::BoundKernel& bound) {
    size_t argument = 0;
    for (const ir::Buffer& buffer : bound.kernel.buffers) {
      if (buffer.role == ir::BufferRole::scalar_local || buffer.role == ir::BufferRole::row_local)
        continue;
      ir::ValueId value = bound.bindings[argument++];
      if (buffer.role == ir::BufferRole::output && value != ir::kNone) values.insert(value);
    }
  };
  for (const loop::Item& item : schedule.items) {
    if (const auto* bound = std::get_if<loop::BoundKernel>(&item)) {
      add_outputs(*bound);
      continue;
    }
    ir::OpId id = std::get<ir::OpId>(item);
    if (auto claimed = claimed_by_.find(id); claimed != claimed_by_.end()) {
      const target::ClaimOffer& offer = claims_.at(claimed->second).offer;
      values.insert(offer.outputs.begin(), offer.outputs.end());
      continue;
    }
    ops::ControlInfo info = ops::control_info(*graph_, id);
    if (info.form == Form::none) continue;
    if (const loop::BoundKernel* bound = fused(id)) {
      add_outputs(*bound);
      continue;
    }
    const std::vector<ir::ValueId>& results = graph_->op(id).results;
    if (info.form == Form::cond) values.insert(results.begin(), results.end());
    values.insert(results.end() - static_cast<int64_t>(info.stacked), results.end());
  }
  return values;
}

void Builder::emit_region(ir::RegionId region, std::vector<Step>& out, const Targets& targets) {
  loop::ScheduleOptions schedule_options{options_.fusion, target_.description};
  loop::RegionSchedule schedule = loop::schedule_region(*graph_, region, opaque_, schedule_options);
  for (const auto& [result, value] : schedule.aliases) {
    if (result != value) alias_[result] = value;
  }
  std::set<ir::ValueId> made = produced(schedule);
  Targets copies;
  for (const auto& [value, slot] : targets) {
    ir::ValueId root = resolve(value);
    if (made.contains(root) && slot_of_value_[root] == kNone) {
      slot_of_value_[root] = slot;
      plan_.slots[slot].value = root;
    } else {
      copies.emplace_back(value, slot);
    }
  }
  for (const loop::Item& item : schedule.items) {
    if (const auto* id = std::get_if<ir::OpId>(&item)) {
      if (auto claimed = claimed_by_.find(*id); claimed != claimed_by_.end())
        ++claim_items_left_[claimed->second];
    }
  }
  contexts_.push_back(make_context(schedule, region));
  assign_in_place(made);
  for (const loop::Item& item : schedule.items) {
    emit_item(item, out);
    ++contexts_.back().at;
  }
  contexts_.pop_back();
  for (const auto& [value, slot] : copies) emit_copy(slot, slot_of(value), out);
}

void Builder::emit_item(const loop::Item& item, std::vector<Step>& out) {
  if (const auto* bound = std::get_if<loop::BoundKernel>(&item)) {
    emit_kernel(*bound, out);
  } else {
    emit_op(std::get<ir::OpId>(item), out);
  }
}

uint32_t Builder::add_kernel(const ir::Kernel& scheduled, std::vector<std::string> notes) {
  auto kernel = std::make_shared<ir::Kernel>(scheduled);
  if (test_hooks().kernel) test_hooks().kernel(*kernel);
  if (base::env_has("HEDDLE_DUMP", "kernels"))
    std::fprintf(stderr, "%s\n", ir::print(*kernel).c_str());
  HD_CHECK(target_.emitter != nullptr, "the device ", target_.name, " has no emitter");
  PlanKernel entry;
  entry.kernel = kernel;
  entry.notes = std::move(notes);
  plan_.kernels.push_back(std::move(entry));
  return static_cast<uint32_t>(plan_.kernels.size() - 1);
}

void Builder::emit_kernel(const loop::BoundKernel& bound, std::vector<Step>& out) {
  Step step = new_step(StepKind::kernel);
  step.number = next_number();
  step.symbols = bound.kernel.symbols;
  size_t argument = 0;
  for (const ir::Buffer& buffer : bound.kernel.buffers) {
    if (buffer.role == ir::BufferRole::scalar_local || buffer.role == ir::BufferRole::row_local)
      continue;
    ir::ValueId value = bound.bindings.at(argument++);
    SlotId slot = value != ir::kNone ? slot_of(value)
                                     : new_slot(Type{buffer.dtype, buffer.extents}, Place::arena);
    step.buffers.push_back(touch(slot, step.number));
    if (value != ir::kNone && buffer.role == ir::BufferRole::output)
      step.values.emplace_back(value, slot);
  }
  need_symbols(step.symbols, bound.kernel.name.c_str());
  step.kernel = add_kernel(bound.kernel, bound.notes);
  for (const ir::Stmt& stmt : bound.kernel.body) {
    if (stmt.nest)
      step.locations.insert(step.locations.end(), stmt.nest->locations.begin(),
                            stmt.nest->locations.end());
  }
  ++plan_.kernel_steps;
  out.push_back(std::move(step));
}

void Builder::emit_helper(ir::Kernel kernel, std::vector<SlotId> buffers, std::vector<Step>& out) {
  Step step = new_step(StepKind::kernel);
  step.number = next_number();
  step.symbols = kernel.symbols;
  for (SlotId slot : buffers) step.buffers.push_back(touch(slot, step.number));
  need_symbols(step.symbols, kernel.name.c_str());
  step.kernel = add_kernel(kernel, {});
  out.push_back(std::move(step));
}

void Builder::emit_op(ir::OpId id, std::vector<Step>& out) {
  if (auto claimed = claimed_by_.find(id); claimed != claimed_by_.end()) {
    // The call comes where its last operation stood: everything that it reads is there by then.
    if (--claim_items_left_[claimed->second] == 0) emit_claim(claims_.at(claimed->second), out);
    return;
  }
  const ir::Op& op = graph_->op(id);
  switch (ops::role_of(op)) {
    case Role::constant:
    case Role::placeholder:
      return;
    case Role::variable:
      return emit_variable(id, out);
    case Role::read:
      return emit_read(id, out);
    case Role::assign:
      return emit_assign(id, out);
    case Role::none:
      break;
  }
  if (!op.regions.empty()) return emit_control(id, out);
  throw UnsupportedError(base::cat(op.name, ": neither a kernel nor a library of the device ",
                                   target_.name, " computes it"));
}

void Builder::emit_claim(const ChosenClaim& claim, std::vector<Step>& out) {
  HD_CHECK(!target_.host_memory ||
               dynamic_cast<const target::HostLibraryCall*>(claim.offer.call.get()) != nullptr,
           claim.name, " offers a call that the host cannot run");
  Step step = new_step(StepKind::call);
  step.number = next_number();
  step.call = static_cast<uint32_t>(plan_.calls.size());
  step.symbols = claim.offer.symbols;
  need_symbols(step.symbols, claim.name.c_str());
  for (ir::ValueId v : claim.offer.inputs) step.buffers.push_back(touch(slot_of(v), step.number));
  for (ir::ValueId v : claim.offer.outputs) {
    step.buffers.push_back(touch(slot_of(v), step.number));
    step.values.emplace_back(v, step.buffers.back());
  }
  step.workspace = new_slot(Type{DType::u8, Shape{Expr(0)}}, Place::arena);
  plan_.slots[step.workspace].workspace_of = step.call;
  touch(step.workspace, step.number);
  plan_.calls.push_back({claim.name, claim.offer.call, claim.offer.recordable, step.symbols});
  for (ir::OpId op : claim.ops) {
    const auto& locations = graph_->op(op).locations;
    step.locations.insert(step.locations.end(), locations.begin(), locations.end());
  }
  out.push_back(std::move(step));
}

void Builder::emit_copy(SlotId to, SlotId from, std::vector<Step>& out) {
  if (to == from) return;
  Step step = new_step(StepKind::copy);
  step.number = next_number();
  step.buffers = {touch(to, step.number), touch(from, step.number)};
  out.push_back(std::move(step));
}

void Builder::emit_fill(SlotId to, std::vector<Step>& out) {
  Step step = new_step(StepKind::fill);
  step.number = next_number();
  step.buffers = {touch(to, step.number)};
  out.push_back(std::move(step));
}

}  // namespace heddle::plan
