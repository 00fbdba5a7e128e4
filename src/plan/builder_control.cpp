// Branches and loops of a plan. Carried values live in pinned slots: `now` is read by the body,
// `next` written by it.
#include "base/check.h"
#include "base/env.h"
#include "plan/builder.h"
#include "plan/helper_kernels.h"

#include <algorithm>

namespace heddle::plan {

using ops::ControlInfo;
using ops::Form;

const loop::BoundKernel* Builder::fused(ir::OpId op) {
  auto [it, added] = fused_.try_emplace(op);
  if (!added) return it->second ? &*it->second : nullptr;
  if (options_.loops == LoopRecording::host || options_.loops == LoopRecording::device_graph)
    return nullptr;
  // The op's own regions are not opaque to it; those of claims and of variables are.
  loop::ScheduleOptions schedule_options{options_.fusion, target_.description};
  std::set<ir::OpId> opaque;
  for (ir::OpId o : opaque_) {
    if (claimed_by_.contains(o) || ops::role_of(graph_->op(o)) != ops::Role::none) opaque.insert(o);
  }
  auto result = loop::fuse_control(*graph_, op, opaque, schedule_options);
  if (auto* refusal = std::get_if<target::Refusal>(&result)) {
    std::string note = base::cat(graph_->op(op).name, ": not one kernel: ", refusal->reason);
    base::verbose("fusion", note);
    plan_.notes.push_back(std::move(note));
    return nullptr;
  }
  it->second = std::move(std::get<loop::BoundKernel>(result));
  return &*it->second;
}

void Builder::emit_control(ir::OpId id, std::vector<Step>& out) {
  if (const loop::BoundKernel* bound = fused(id)) return emit_kernel(*bound, out);
  ControlInfo info = ops::control_info(*graph_, id);
  switch (info.form) {
    case Form::cond:
      return emit_cond(id, info, out);
    case Form::while_loop:
      return emit_while(id, info, out);
    case Form::for_loop:
      return emit_for(id, info, out);
    case Form::call:
      return emit_call(id, info, out);
    case Form::none:
      break;
  }
  HD_CHECK(false, graph_->op(id).name, " has regions but does not say how they run");
}

void Builder::enter(const Step& loop) {
  frames_.push_back({loop.number, {}});
  for (SlotId slot : {loop.predicate, loop.counter, loop.count_slot}) {
    if (slot != kNone) hold(slot);
  }
}

// What a loop tests, counts, carries, or reads and stores by rows is needed from before its first
// iteration until after its last, wherever its slot was made.
void Builder::hold(SlotId slot) {
  std::vector<uint32_t>& home = plan_.slots[slot].home;
  if (lives_inside(slot, frames_.size() - 1, frames_.back().loop)) home.resize(frames_.size() - 1);
  touch(slot, frames_.back().loop);
}

bool Builder::lives_inside(SlotId slot, size_t depth, uint32_t loop) const {
  const std::vector<uint32_t>& home = plan_.slots[slot].home;
  return home.size() > depth && home[depth] == loop;
}

// What lives outside of the loop and was touched in it is needed in every iteration.
void Builder::leave() {
  Frame frame = std::move(frames_.back());
  frames_.pop_back();
  uint32_t last = next_number();
  for (SlotId slot : frame.touched) {
    if (lives_inside(slot, frames_.size(), frame.loop)) continue;
    touch(slot, frame.loop);
    touch(slot, last);
  }
}

void Builder::emit_cond(ir::OpId id, const ControlInfo& info, std::vector<Step>& out) {
  Step step = new_step(StepKind::cond);
  step.predicate = slot_of(info.predicate);
  step.number = next_number();
  step.locations = graph_->op(id).locations;
  step.on_device = device_control_;
  touch(step.predicate, step.number);
  const ir::Op& op = graph_->op(id);
  for (bool first : {true, false}) {
    ir::RegionId region = first ? info.first : info.second;
    Targets targets;
    for (size_t i = 0; i < op.results.size(); ++i) {
      targets.emplace_back(graph_->region(region).results[i], slot_of(op.results[i]));
    }
    emit_region(region, first ? step.first : step.second, targets);
  }
  for (ir::ValueId v : op.results) step.values.emplace_back(v, slot_of(v));
  touch(step.predicate, next_number());
  out.push_back(std::move(step));
}

Builder::Carried Builder::begin_carried(const ControlInfo& info, std::vector<Step>& out) {
  Carried carried;
  for (ir::ValueId v : info.initial) {
    carried.now.push_back(pinned_slot(type_of(v)));
    carried.next.push_back(pinned_slot(type_of(v)));
    emit_copy(carried.now.back(), slot_of(v), out);
  }
  return carried;
}

namespace {

constexpr size_t kCopiesOfAKernel = 16;  // more make its code long for little gain

Words words_of_memory(const Slot& slot) {
  int bits = bit_width(slot.dtype);
  if (bits < 8) return {1, slot.bytes};
  Expr count = element_count(slot.shape);
  return bits == 128 ? Words{8, count * 2} : Words{bits / 8, count};
}

}  // namespace

// On a device each copy is a node of the graph, which costs more than the copy of a small value:
// several carried values go by one kernel.
void Builder::copy_carried(Step& loop, std::vector<Step>& body) {
  std::vector<SlotPair> pairs = std::move(loop.advance);
  loop.advance.clear();
  for (size_t first = 0; first < pairs.size(); first += kCopiesOfAKernel) {
    std::vector<Words> values;
    std::vector<SlotId> buffers;
    size_t last = std::min(first + kCopiesOfAKernel, pairs.size());
    for (size_t k = first; k < last; ++k) {
      values.push_back(words_of_memory(plan_.slots[pairs[k].a]));
      buffers.insert(buffers.end(), {pairs[k].b, pairs[k].a});
    }
    emit_helper(copy_kernel(values), std::move(buffers), body);
  }
}

// Emits the region whose leading results are the next carried values; `targets` has its further
// results.
void Builder::advance(Step& loop, const Carried& carried, ir::RegionId region, Targets targets,
                      std::vector<Step>& body) {
  const std::vector<ir::ValueId>& results = graph_->region(region).results;
  Targets all;
  for (size_t i = 0; i < carried.now.size(); ++i) {
    // A value that the body only passes through stays where it is.
    ir::ValueId root = resolve(results[i]);
    bool unchanged = slot_of_value_[root] == carried.now[i];
    if (unchanged) continue;
    all.emplace_back(results[i], carried.next[i]);
    loop.advance.push_back({carried.now[i], carried.next[i]});
  }
  all.insert(all.end(), targets.begin(), targets.end());
  emit_region(region, body, all);
  for (SlotPair pair : loop.advance) hold(pair.a), hold(pair.b);
  if (loop.on_device && loop.advance.size() > 1) return copy_carried(loop, body);
  uint32_t number = next_number();
  for (SlotPair pair : loop.advance) touch(pair.a, number), touch(pair.b, number);
}

void Builder::begin_counter(Step& loop, std::vector<Step>& out) {
  loop.counter = scalar_slot(DType::i64);
  emit_fill(loop.counter, out);
}

// Where the body's stacked results go: host-driven, views of the rows; on a device, slots that a
// kernel stores from.
Builder::Targets Builder::row_targets(ir::OpId id, const ControlInfo& info, ir::RegionId region,
                                      Step& loop,
                                      std::vector<std::pair<SlotId, SlotId>>& device_rows) {
  Targets targets;
  const std::vector<ir::ValueId>& op_results = graph_->op(id).results;
  const std::vector<ir::ValueId>& results = graph_->region(region).results;
  for (size_t r = 0; r < info.stacked; ++r) {
    ir::ValueId row = results[results.size() - info.stacked + r];
    SlotId stacked = slot_of(op_results[op_results.size() - info.stacked + r]);
    SlotId slot = new_slot(type_of(row), loop.on_device ? Place::arena : Place::view);
    plan_.slots[slot].pinned = true;
    if (loop.on_device) {
      device_rows.emplace_back(slot, stacked);
    } else {
      loop.rows.push_back({slot, stacked});
    }
    hold(stacked);
    targets.emplace_back(row, slot);
  }
  return targets;
}

namespace {

// A row as words for the row kernels.
Words words_of(const Slot& row, std::string_view op) {
  if (bit_width(row.dtype) < 8) {
    throw UnsupportedError(
        base::cat(op, ": rows of ", name(row.dtype), " are not whole bytes in a device loop"));
  }
  return words_of_memory(row);
}

}  // namespace

void Builder::store_rows(const std::vector<std::pair<SlotId, SlotId>>& rows, const Expr& count,
                         const Step& loop, std::vector<Step>& body) {
  for (const auto& [row, stacked] : rows) {
    Words words = words_of(plan_.slots[row], "loop");
    emit_helper(store_row_kernel(words.bytes, words.count, count), {row, loop.counter, stacked},
                body);
  }
}

void Builder::emit_while(ir::OpId id, const ControlInfo& info, std::vector<Step>& out) {
  const ir::Op& op = graph_->op(id);
  Carried carried = begin_carried(info, out);
  Step step = new_step(StepKind::while_loop);
  step.locations = op.locations;
  step.on_device = device_control_;
  step.predicate = scalar_slot(DType::boolean);
  if (info.max_iterations) step.count = Expr(*info.max_iterations);
  if (step.on_device && info.max_iterations) begin_counter(step, out);
  for (size_t r = 0; r < info.stacked; ++r)
    emit_fill(slot_of(op.results[op.results.size() - info.stacked + r]), out);
  step.number = next_number();
  enter(step);

  const ir::Region& before = graph_->region(info.first);
  for (size_t i = 0; i < carried.now.size(); ++i)
    slot_of_value_[before.arguments[i]] = carried.now[i];
  emit_region(info.first, step.first, {{before.results[0], step.predicate}});
  if (step.on_device && step.count) {
    emit_helper(and_less_kernel(*step.count), {step.counter, step.predicate, step.predicate},
                step.first);
  }
  const ir::Region& after = graph_->region(info.second);
  uint32_t test = next_number();
  for (size_t j = 0; j + 1 < before.results.size(); ++j) {
    ir::ValueId value = resolve(before.results[j + 1]);
    touch(slot_of(value), test);
    alias_[after.arguments[j]] = value;
    alias_[op.results[j]] = value;
  }
  std::vector<std::pair<SlotId, SlotId>> device_rows;
  Targets rows = row_targets(id, info, info.second, step, device_rows);
  advance(step, carried, info.second, std::move(rows), step.second);
  store_rows(device_rows, step.count.value_or(Expr(0)), step, step.second);
  if (step.counter != kNone)
    emit_helper(increment_kernel(), {step.counter, step.counter}, step.second);
  leave();
  for (ir::ValueId v : op.results) step.values.emplace_back(v, slot_of(v));
  out.push_back(std::move(step));
}

void Builder::emit_for(ir::OpId id, const ControlInfo& info, std::vector<Step>& out) {
  const ir::Op& op = graph_->op(id);
  Carried carried = begin_carried(info, out);
  Step step = new_step(StepKind::for_loop);
  step.locations = op.locations;
  step.on_device = device_control_;
  step.count = info.count;
  if (info.count) need_symbols(*info.count, "a loop's count");
  if (!info.count) step.count_slot = slot_of(info.count_value);
  step.counter = scalar_slot(DType::i64);
  if (step.on_device) {
    step.predicate = scalar_slot(DType::boolean);
    emit_fill(step.counter, step.prologue);
  }
  step.number = next_number();
  enter(step);
  if (step.on_device) {
    if (info.count) {
      emit_helper(less_kernel(*info.count), {step.counter, step.predicate}, step.test);
    } else {
      emit_helper(less_value_kernel(), {step.counter, step.count_slot, step.predicate}, step.test);
    }
  }

  const ir::Region& body = graph_->region(info.first);
  slot_of_value_[body.arguments[0]] = step.counter;
  for (size_t i = 0; i < carried.now.size(); ++i)
    slot_of_value_[body.arguments[1 + i]] = carried.now[i];
  for (size_t x = 0; x < info.slices.size(); ++x) {
    ir::ValueId argument = body.arguments[1 + carried.now.size() + x];
    SlotId xs = slot_of(info.slices[x]);
    hold(xs);
    SlotId slice = new_slot(type_of(argument), step.on_device ? Place::arena : Place::view);
    plan_.slots[slice].pinned = true;
    plan_.slots[slice].value = argument;
    slot_of_value_[argument] = slice;
    if (step.on_device) {
      Words words = words_of(plan_.slots[slice], op.name);
      emit_helper(load_row_kernel(words.bytes, words.count, (*type_of(info.slices[x]).shape)[0]),
                  {xs, step.counter, slice}, step.first);
    } else {
      step.rows.push_back({slice, xs});
    }
  }
  std::vector<std::pair<SlotId, SlotId>> device_rows;
  Targets rows = row_targets(id, info, info.first, step, device_rows);
  advance(step, carried, info.first, std::move(rows), step.first);
  for (const auto& [row, stacked] : device_rows) {
    store_rows({{row, stacked}}, plan_.slots[stacked].shape[0], step, step.first);
  }
  if (step.on_device) emit_helper(increment_kernel(), {step.counter, step.counter}, step.first);
  leave();
  for (size_t i = 0; i < carried.now.size(); ++i) slot_of_value_[op.results[i]] = carried.now[i];
  for (ir::ValueId v : op.results) step.values.emplace_back(v, slot_of(v));
  out.push_back(std::move(step));
}

void Builder::emit_call(ir::OpId id, const ControlInfo& info, std::vector<Step>& out) {
  const ir::Op& op = graph_->op(id);
  const ir::Region& callee = graph_->region(info.first);
  for (size_t i = 0; i < info.initial.size(); ++i)
    alias_[callee.arguments[i]] = resolve(info.initial[i]);
  emit_region(info.first, out, {});
  for (size_t i = 0; i < op.results.size(); ++i) alias_[op.results[i]] = resolve(callee.results[i]);
}

}  // namespace heddle::plan
