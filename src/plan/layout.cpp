#include "plan/layout.h"
#include "ir/describe.h"

#include "base/check.h"
#include "base/env.h"
#include "ops/host_tensor.h"
#include "plan/test_hooks.h"
#include "plan/verify.h"

#include <heddle/error.h>

#include <algorithm>

namespace heddle::plan {

namespace {

// Bytes that no machine has; sums of some thousand such values still fit 64 bits.
constexpr int64_t kLargestValue = int64_t{1} << 50;

// Symbols' values by id: a handful, so a flat list.
class Values {
 public:
  const int64_t* find(uint64_t id) const {
    for (const auto& [known, value] : entries_) {
      if (known == id) return &value;
    }
    return nullptr;
  }
  bool contains(uint64_t id) const { return find(id) != nullptr; }
  std::optional<int64_t> known(const Symbol& s) const {
    const int64_t* value = find(s.id);
    return value != nullptr ? std::optional(*value) : std::nullopt;
  }
  int64_t at(uint64_t id) const {
    const int64_t* value = find(id);
    HD_CHECK(value != nullptr, "a symbol of the plan has no value");
    return *value;
  }
  bool add(uint64_t id, int64_t value) {  // false: it has one
    if (contains(id)) return false;
    entries_.emplace_back(id, value);
    return true;
  }

 private:
  std::vector<std::pair<uint64_t, int64_t>> entries_;
};

int64_t value_of(const Expr& e, const Values& values) {
  if (std::optional<int64_t> c = e.constant()) return *c;
  return evaluate(e, [&](const Symbol& s) { return values.known(s); });
}

Values values_by_id(const Plan& plan, const std::vector<int64_t>& symbols) {
  Values values;
  for (size_t i = 0; i < symbols.size(); ++i) values.add(plan.symbols[i]->id, symbols[i]);
  return values;
}

std::string show(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t k = 0; k < shape.size(); ++k) text += base::cat(k > 0 ? "," : "", shape[k]);
  return text + "]";
}

// How a message calls a symbol: by the user's name, else by the first axis that it is the extent
// of.
std::string symbol_name(const Plan& plan, const Symbol& symbol) {
  if (!symbol.name.empty()) return symbol.name;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const Shape& shape = *plan.inputs[i].type.shape;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (shape[k].kind() == ExprKind::symbol && shape[k].symbol()->id == symbol.id)
        return base::cat("axis ", k, " of ", feed_name(plan, i));
    }
  }
  return "an open extent";
}

std::string show_extent(const Plan& plan, const Expr& extent) {
  return to_string(extent, [&](const Symbol& s) { return symbol_name(plan, s); });
}

[[noreturn]] void wrong_extent(const Plan& plan, size_t feed, size_t axis,
                               const std::vector<int64_t>& shape, const std::string& why) {
  throw GraphError(base::cat("run: ", feed_name(plan, feed), ": axis ", axis, " of ", show(shape),
                             " has extent ", shape[axis], ", expected ", input_type(plan, feed),
                             why));
}

void check_bounds(const Plan& plan, size_t feed, size_t axis, const std::vector<int64_t>& shape,
                  const Symbol& s, int64_t value) {
  if (value < s.lower || value > s.upper) {
    wrong_extent(plan, feed, axis, shape,
                 base::cat(" with ", symbol_name(plan, s), " in ", s.lower, "..", s.upper));
  }
}

// The one value of `symbol` at which the affine extent has the fed value.
std::optional<int64_t> solve(const Expr& extent, const SymbolRef& symbol, int64_t fed,
                             const Values& values) {
  auto affine = affine_in(extent, symbol);
  if (!affine) return std::nullopt;
  int64_t factor = value_of(affine->first, values), rest = value_of(affine->second, values);
  if (factor == 0 || (fed - rest) % factor != 0) return std::nullopt;
  return (fed - rest) / factor;
}

struct Interval {
  SlotId slot;
  uint32_t begin, end;
  int64_t bytes;
};

// Largest first, each at the lowest offset where it meets nobody who lives at the same time.
int64_t place(std::vector<Interval> intervals, std::vector<int64_t>& offset) {
  std::stable_sort(intervals.begin(), intervals.end(),
                   [](const Interval& a, const Interval& b) { return a.bytes > b.bytes; });
  std::vector<Interval> placed;  // ordered by offset
  int64_t total = 0;
  for (const Interval& item : intervals) {
    int64_t at = 0;
    for (const Interval& other : placed) {
      if (other.end < item.begin || item.end < other.begin) continue;
      int64_t start = offset[other.slot];
      if (start >= at + item.bytes) break;
      at = std::max(at, start + other.bytes);
    }
    offset[item.slot] = at;
    total = std::max(total, at + item.bytes);
    auto position = std::find_if(placed.begin(), placed.end(),
                                 [&](const Interval& p) { return offset[p.slot] > at; });
    placed.insert(position, item);
  }
  return total;
}

void fill_steps(const std::vector<Step>& steps, const Values& values, Layout& layout) {
  for (const Step& step : steps) {
    for (size_t i = 0; i < step.symbols.size(); ++i) {
      layout.step_symbols[step.symbol_begin + i] = values.at(step.symbols[i]->id);
    }
    if (step.count) layout.counts[step.count_index] = value_of(*step.count, values);
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      fill_steps(*nested, values, layout);
  }
}

std::vector<int64_t> numbers(const Shape& shape, const Values& values) {
  std::vector<int64_t> out;
  for (const Expr& e : shape) {
    out.push_back(value_of(e, values));
    if (out.back() < 0)
      throw GraphError(base::cat("run: an extent of ", to_string(shape), " is ", out.back(),
                                 " for these feeds"));
  }
  return out;
}

int64_t slot_bytes(const Plan& plan, const Slot& slot, const Values& values) {
  if (slot.workspace_of != kNone) {
    const PlanCall& call = plan.calls[slot.workspace_of];
    std::vector<int64_t> symbols;
    for (const SymbolRef& s : call.symbols) symbols.push_back(values.at(s->id));
    return call.call->workspace_bytes(symbols);
  }
  int64_t bytes = value_of(slot.bytes, values);
  if (bytes < 0)
    throw GraphError(base::cat("run: a value of type ", to_string(slot.shape),
                               " has a negative size for these feeds"));
  if (bytes > kLargestValue)
    throw DeviceError(base::cat("run: out of memory: a value of type ", to_string(slot.shape),
                                " has ", bytes, " bytes for these feeds"));
  return bytes;
}

}  // namespace

std::string feed_name(const Plan& plan, size_t index) {
  const std::string& name = plan.inputs[index].name;
  return name.empty() ? base::cat("feed ", index) : base::cat("feed ", index, " (", name, ")");
}

std::string input_type(const Plan& plan, size_t index) {
  const Type& type = plan.inputs[index].type;
  std::string text(name(type.dtype));
  text += "[";
  for (size_t k = 0; k < type.shape->size(); ++k) {
    const Expr& extent = (*type.shape)[k];
    std::string shown = show_extent(plan, extent);
    // An axis that may have any extent says nothing of itself.
    if (shown == base::cat("axis ", k, " of ", feed_name(plan, index))) shown = "?";
    text += (k > 0 ? "," : "") + shown;
  }
  return text + "]";
}

std::vector<int64_t> bind_symbols(const Plan& plan,
                                  const std::vector<std::vector<int64_t>>& shapes) {
  Values values;
  auto each_axis = [&](auto f) {
    for (size_t i = 0; i < plan.inputs.size(); ++i) {
      for (size_t k = 0; k < shapes[i].size(); ++k)
        f(i, k, (*plan.inputs[i].type.shape)[k], shapes[i][k]);
    }
  };
  each_axis([&](size_t i, size_t k, const Expr& extent, int64_t fed) {
    if (extent.kind() == ExprKind::symbol && values.add(extent.symbol()->id, fed)) {
      check_bounds(plan, i, k, shapes[i], *extent.symbol(), fed);
    }
  });
  each_axis([&](size_t i, size_t k, const Expr& extent, int64_t fed) {
    std::vector<SymbolRef> open;
    collect_symbols(extent, open);
    std::erase_if(open, [&](const SymbolRef& s) { return values.contains(s->id); });
    if (open.size() != 1) return;
    std::optional<int64_t> value = solve(extent, open[0], fed, values);
    if (!value) wrong_extent(plan, i, k, shapes[i], "");
    check_bounds(plan, i, k, shapes[i], *open[0], *value);
    values.add(open[0]->id, *value);
  });
  each_axis([&](size_t i, size_t k, const Expr& extent, int64_t fed) {
    int64_t expected = value_of(extent, values);
    if (expected == fed) return;
    wrong_extent(plan, i, k, shapes[i],
                 extent.is_constant()
                     ? ""
                     : base::cat(" where ", show_extent(plan, extent), " is ", expected));
  });
  std::vector<int64_t> out;
  for (const SymbolRef& s : plan.symbols) out.push_back(values.at(s->id));
  return out;
}

namespace {

std::shared_ptr<const Layout> layout_of(const Plan& plan, std::vector<int64_t> symbols) {
  auto layout = std::make_shared<Layout>();
  Values values = values_by_id(plan, symbols);
  ops::check_requirements(plan.requirements, [&](const Symbol& s) { return values.known(s); });
  layout->symbols = std::move(symbols);
  layout->bytes.resize(plan.slots.size());
  layout->offset.assign(plan.slots.size(), -1);
  std::vector<Interval> intervals;
  for (SlotId id = 0; id < plan.slots.size(); ++id) {
    const Slot& slot = plan.slots[id];
    layout->bytes[id] = slot_bytes(plan, slot, values);
    if (slot.place != Place::arena || slot.begin == kNone) continue;
    int64_t bytes =
        (std::max<int64_t>(layout->bytes[id], 1) + kAlignment - 1) / kAlignment * kAlignment;
    layout->unshared_bytes += bytes;
    if (slot.shares == kNone) intervals.push_back({id, slot.begin, slot.end, bytes});
  }
  layout->arena_bytes = place(std::move(intervals), layout->offset);
  for (SlotId id = 0; id < plan.slots.size(); ++id) {
    SlotId root = id;
    while (plan.slots[root].shares != kNone) root = plan.slots[root].shares;
    layout->offset[id] = layout->offset[root];
  }
  layout->step_symbols.resize(plan.symbol_count);
  layout->counts.resize(plan.count_count);
  fill_steps(plan.steps, values, *layout);
  for (const Input& input : plan.inputs)
    layout->input_shapes.push_back(numbers(*input.type.shape, values));
  for (const Output& output : plan.outputs) {
    layout->output_shapes.push_back(numbers(*output.type.shape, values));
    layout->output_strides.push_back(ops::row_major_strides(layout->output_shapes.back()));
  }
  static const bool validates = !base::env("HEDDLE_VALIDATE").value_or("").empty();
  if (validates || test_hooks().verify_layouts) {
    std::string broken = verify(plan, *layout);
    HD_CHECK(broken.empty(), "layout: ", broken);
  }
  if (test_hooks().layout) test_hooks().layout(plan, *layout);
  return layout;
}

}  // namespace

// Sizes beyond 64 bits are as much out of memory as those below.
std::shared_ptr<const Layout> make_layout(const Plan& plan, std::vector<int64_t> symbols) {
  try {
    return layout_of(plan, std::move(symbols));
  } catch (const ir::OverflowError& e) {
    throw DeviceError(base::cat(
        "run: out of memory: a value has more than 2^63 bytes for these feeds (", e.what(), ")"));
  }
}

std::shared_ptr<const Layout> LayoutCache::get(const Plan& plan,
                                               const std::vector<int64_t>& symbols) {
  {
    std::lock_guard lock(mutex_);
    if (auto it = entries_.find(symbols); it != entries_.end()) {
      it->second.used = ++clock_;
      return it->second.layout;
    }
  }
  std::shared_ptr<const Layout> layout = make_layout(plan, symbols);
  std::lock_guard lock(mutex_);
  if (entries_.size() >= kLimit) {
    auto oldest = std::min_element(
        entries_.begin(), entries_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    entries_.erase(oldest);
    ++evictions_;
  }
  Entry& entry = entries_[symbols];
  if (!entry.layout) entry.layout = layout;
  entry.used = ++clock_;
  return entry.layout;
}

int64_t LayoutCache::evictions() const {
  std::lock_guard lock(mutex_);
  return evictions_;
}

size_t LayoutCache::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace heddle::plan
