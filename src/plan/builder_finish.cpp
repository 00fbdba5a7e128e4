// Symbols, recordability and the flat argument arrays of a finished plan.
#include "base/check.h"
#include "plan/builder.h"

#include <algorithm>

namespace heddle::plan {

// A feed's extent that is a bare symbol binds it; the rest is checked against the bound ones at
// each run.
void set_signature(const ir::Graph& graph, Plan& plan) {
  const ir::Region& top = graph.region(ir::kTopRegion);
  for (ir::ValueId v : top.arguments)
    plan.inputs.push_back({graph.value(v).type, graph.value(v).name});
  for (ir::ValueId v : top.results) plan.outputs.push_back({graph.value(v).type});
  std::set<uint64_t> known;
  auto bind = [&](const SymbolRef& s) {
    if (known.insert(s->id).second) plan.symbols.push_back(s);
  };
  auto each_extent = [&](auto f) {
    for (const Input& input : plan.inputs) {
      HD_CHECK(input.type.known(), "a feed has the open type ", to_string(input.type));
      for (const Expr& extent : *input.type.shape) f(extent);
    }
  };
  each_extent([&](const Expr& extent) {
    if (extent.kind() == ExprKind::symbol) bind(extent.symbol());
  });
  // Extents such as 2 * n bind n where nothing else does.
  each_extent([&](const Expr& extent) {
    std::vector<SymbolRef> open;
    collect_symbols(extent, open);
    std::erase_if(open, [&](const SymbolRef& s) { return known.contains(s->id); });
    if (open.size() == 1 && affine_in(extent, open[0])) bind(open[0]);
  });
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
