// Symbols, recordability and the flat argument arrays of a finished plan.
#include "base/check.h"
#include "plan/builder.h"

#include <algorithm>

namespace heddle::plan {

// A feed's extent that is a bare symbol binds it; the rest is checked against the bound ones at
// each run.
void Builder::bind_symbols() {
  std::vector<SymbolRef> all;
  for (const Input& input : plan_.inputs) {
    for (const Expr& extent : *input.type.shape) {
      if (extent.kind() == ExprKind::symbol && !known_symbols_.contains(extent.symbol()->id)) {
        known_symbols_.insert(extent.symbol()->id);
        plan_.symbols.push_back(extent.symbol());
      }
    }
  }
  // Extents such as 2 * n bind n where nothing else does.
  for (const Input& input : plan_.inputs) {
    for (const Expr& extent : *input.type.shape) {
      all.clear();
      collect_symbols(extent, all);
      std::erase_if(all, [&](const SymbolRef& s) { return known_symbols_.contains(s->id); });
      if (all.size() != 1 || !affine_in(extent, all[0])) continue;
      known_symbols_.insert(all[0]->id);
      plan_.symbols.push_back(all[0]);
    }
  }
}

void Builder::need_symbols(const std::vector<SymbolRef>& symbols, const char* what) {
  for (const SymbolRef& s : symbols) {
    if (!known_symbols_.contains(s->id)) {
      throw UnsupportedError(base::cat(what, ": the extent ", s->name,
                                       " does not follow from the shapes of the feeds"));
    }
  }
}

void Builder::need_symbols(const Expr& e, const char* what) {
  std::vector<SymbolRef> symbols;
  collect_symbols(e, symbols);
  need_symbols(symbols, what);
}

void Builder::collect_moving(const std::vector<Step>& steps, std::set<SlotId>& moving) const {
  for (const Step& step : steps) {
    for (SlotPair row : step.rows) moving.insert(row.a);
    if (!step.on_device) {
      for (SlotPair pair : step.advance) moving.insert(pair.a), moving.insert(pair.b);
    }
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      collect_moving(*nested, moving);
  }
}

void Builder::number_arguments(std::vector<Step>& steps, const std::set<SlotId>& moving) {
  for (Step& step : steps) {
    step.arg_begin = plan_.arg_count;
    plan_.arg_count += static_cast<uint32_t>(step.buffers.size());
    step.symbol_begin = plan_.symbol_count;
    plan_.symbol_count += static_cast<uint32_t>(step.symbols.size());
    if (step.count) step.count_index = plan_.count_count++;
    step.moving = std::any_of(step.buffers.begin(), step.buffers.end(),
                              [&](SlotId s) { return moving.contains(s); });
    for (auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      number_arguments(*nested, moving);
  }
}

void Builder::check_recording(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    bool control = step.kind == StepKind::cond || step.kind == StepKind::while_loop ||
                   step.kind == StepKind::for_loop;
    if (control && !step.on_device) plan_.no_recording = "the host drives its control flow";
    if (control && step.on_device) plan_.device_loops = true;
    if (step.kind == StepKind::call && !plan_.calls[step.call].recordable) {
      plan_.no_recording = base::cat(plan_.calls[step.call].claim, " cannot be recorded");
    }
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      check_recording(*nested);
  }
}

// The host exchanges the two places of a carried value, so each must live as long as the other.
void Builder::join_lifetimes(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    for (SlotPair pair : step.advance) {
      Slot &a = plan_.slots[pair.a], &b = plan_.slots[pair.b];
      a.begin = b.begin = std::min(a.begin, b.begin);
      a.end = b.end = std::max(a.end, b.end);
    }
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      join_lifetimes(*nested);
  }
}

void Builder::finish() {
  if (!device_control_) join_lifetimes(plan_.steps);
  for (const Slot& slot : plan_.slots) need_symbols(slot.bytes, "a value");
  for (const Output& output : plan_.outputs) {
    for (const Expr& extent : *output.type.shape) need_symbols(extent, "a target");
  }
  share_in_place(plan_);
  std::set<SlotId> moving;
  collect_moving(plan_.steps, moving);
  number_arguments(plan_.steps, moving);
  if (!target_.can_record) plan_.no_recording = "the device does not record";
  check_recording(plan_.steps);
}

}  // namespace heddle::plan
