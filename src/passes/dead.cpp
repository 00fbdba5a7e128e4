// What neither a target nor an effect needs goes: operations, and of branches and loops the
// results that nobody reads, with what is carried or computed for them alone.
#include "ops/opdef.h"
#include "passes/passes.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace heddle::passes {

namespace {

using ir::OpId;
using ir::RegionId;
using ir::ValueId;
using ops::ControlInfo;
using ops::Form;

// Which ops and values are needed, through operands, control dependencies, carried values, and all
// writes inside of needed ops.
class Liveness {
 public:
  explicit Liveness(const ir::Graph& graph)
      : graph_(graph), values_(graph.value_count(), false), ops_(graph.op_count(), false) {
    const ir::Region& top = graph.region(ir::kTopRegion);
    need(top.results);
    need_writers(ir::kTopRegion);
    while (!open_values_.empty() || !open_ops_.empty()) {
      if (open_ops_.empty()) {
        ValueId v = open_values_.back();
        open_values_.pop_back();
        follow(v);
      } else {
        OpId id = open_ops_.back();
        open_ops_.pop_back();
        follow_op(id);
      }
    }
  }

  bool op(OpId id) const { return ops_[id]; }
  bool value(ValueId id) const { return values_[id]; }
  std::vector<bool> values(const std::vector<ValueId>& list) const {
    std::vector<bool> out;
    for (ValueId v : list) out.push_back(values_[v]);
    return out;
  }

  // Form none where all of the op is needed if any is.
  const ControlInfo& control(OpId id) {
    auto [it, added] = control_.try_emplace(id);
    if (added && graph_.op(id).def->restate) it->second = ops::control_info(graph_, id);
    return it->second;
  }

 private:
  void need(ValueId v) {
    if (values_[v]) return;
    values_[v] = true;
    open_values_.push_back(v);
  }
  void need(const std::vector<ValueId>& list) {
    for (ValueId v : list) need(v);
  }

  void need_op(OpId id) {
    if (ops_[id]) return;
    ops_[id] = true;
    open_ops_.push_back(id);
  }

  void follow_op(OpId id) {
    const ir::Op& op = graph_.op(id);
    for (OpId before : op.after) need_op(before);
    for (RegionId r : op.regions) need_writers(r);
    const ControlInfo& info = control(id);
    switch (info.form) {
      case Form::cond:
        return need(info.predicate);
      case Form::while_loop:
        return need(graph_.region(info.first).results[0]);
      case Form::for_loop:
        if (!info.count) need(info.count_value);
        return;
      default:
        need(op.operands);
        for (RegionId r : op.regions) need(graph_.region(r).results);
        need(op.results);
    }
  }

  void need_writers(RegionId region) {
    for (OpId id : graph_.region(region).ops) {
      if (graph_.effect_of(id) == ops::Effect::write) need_op(id);
    }
  }

  void follow(ValueId v) {
    const ir::Value& value = graph_.value(v);
    if (value.op != ir::kNone) {
      need_op(value.op);
      return follow_result(control(value.op), value.index);
    }
    OpId owner = graph_.region(value.region).owner;
    if (owner != ir::kNone) follow_argument(control(owner), value.region, value.index);
  }

  // Result `i` of a branch or loop is needed.
  void follow_result(const ControlInfo& info, size_t i) {
    if (info.form == Form::none) return;
    const std::vector<ValueId>& first = graph_.region(info.first).results;
    if (info.form == Form::cond) {
      need(first[i]);
      need(graph_.region(info.second).results[i]);
    } else if (info.form == Form::for_loop) {
      need(first[i]);  // carried, or a row
      if (i < info.initial.size()) need_carried(info, i);
    } else {
      size_t count = first.size() - 1;  // of values
      if (i < count) return need(first[1 + i]);
      need(graph_.region(info.second).results[info.initial.size() + (i - count)]);
    }
  }

  // Argument `i` of a region of a loop is needed.
  void follow_argument(const ControlInfo& info, RegionId region, size_t i) {
    if (info.form == Form::while_loop) {
      if (region == info.first) return need_carried(info, i);
      return need(graph_.region(info.first).results[1 + i]);
    }
    if (info.form != Form::for_loop || i == 0) return;  // 0: the counter
    if (--i < info.initial.size()) return need_carried(info, i);
    need(info.slices[i - info.initial.size()]);
  }

  void need_carried(const ControlInfo& info, size_t i) {
    bool is_for = info.form == Form::for_loop;
    need(info.initial[i]);
    need(graph_.region(is_for ? info.first : info.second).results[i]);
    need(graph_.region(info.first).arguments[is_for ? 1 + i : i]);
  }

  const ir::Graph& graph_;
  std::vector<bool> values_, ops_;
  std::unordered_map<OpId, ControlInfo> control_;
  std::vector<ValueId> open_values_;
  std::vector<OpId> open_ops_;
};

template <class T>
std::vector<T> kept_of(const std::vector<T>& items, const std::vector<bool>& kept, size_t from) {
  std::vector<T> out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (kept[from + i]) out.push_back(items[i]);
  }
  return out;
}

// A branch or loop without the parts that nobody needs.
class Narrower {
 public:
  Narrower(const ir::Graph& graph, Liveness& live) : graph_(graph), live_(live) {}

  // False: all of it is needed.
  bool narrow(ir::Cloner& cloner, ir::Graph& out, OpId id) {
    ControlInfo info = live_.control(id);
    if (info.form == Form::none) return false;
    const ir::Op& op = graph_.op(id);
    std::map<RegionId, ir::Cloner::Kept> kept = kept_parts(op, info);
    std::vector<bool> results = kept_results(op, info);
    auto all = [](const std::vector<bool>& b) {
      return std::find(b.begin(), b.end(), false) == b.end();
    };
    bool whole = all(results);
    for (const auto& [region, parts] : kept) whole &= all(parts.arguments) && all(parts.results);
    if (whole) return false;

    info = narrowed(op, info, kept, results);
    auto [operands, attrs] = op.def->restate(op, info);
    operands = cloner.mapped(operands);
    std::vector<RegionId> regions;
    for (RegionId r : op.regions) {
      auto types = out.table().region_arguments(out, *op.def, operands, attrs, regions);
      regions.push_back(cloner.copy_region(r, types, &kept.at(r)));
    }
    OpId made = out.add_op(*op.def, std::move(operands), std::move(attrs), std::move(regions));
    cloner.stand_for(kept_of(op.results, results, 0), out.op(made).results);
    return true;
  }

 private:
  // A carried value is needed in all its places or in none; the counter and predicates stay.
  std::map<RegionId, ir::Cloner::Kept> kept_parts(const ir::Op& op, const ControlInfo& info) const {
    std::map<RegionId, ir::Cloner::Kept> kept;
    for (RegionId r : op.regions) {
      kept[r] = {live_.values(graph_.region(r).arguments), live_.values(graph_.region(r).results)};
    }
    size_t carried = info.initial.size();
    if (info.form == Form::for_loop) {
      kept[info.first].arguments[0] = true;
      for (size_t i = 0; i < carried; ++i)
        kept[info.first].results[i] = kept[info.first].arguments[1 + i];
      keep_rows(op, carried, kept[info.first].results, carried);
    } else if (info.form == Form::while_loop) {
      size_t values = op.results.size() - info.stacked;
      for (size_t i = 0; i < carried; ++i)
        kept[info.second].results[i] = kept[info.first].arguments[i];
      keep_rows(op, values, kept[info.second].results, carried);
      // A value is what the second region takes or the loop gives.
      kept[info.first].results[0] = true;
      for (size_t j = 0; j < values; ++j)
        kept[info.second].arguments[j] = kept[info.first].results[1 + j] =
            live_.value(op.results[j]) || kept[info.second].arguments[j];
    } else {
      for (RegionId r : op.regions) kept[r].results = live_.values(op.results);
    }
    return kept;
  }

  // Rows are needed where the stacked results are, which follow `first` others.
  void keep_rows(const ir::Op& op, size_t first, std::vector<bool>& results, size_t carried) const {
    for (size_t i = carried; i < results.size(); ++i)
      results[i] = live_.value(op.results[first + (i - carried)]);
  }

  std::vector<bool> kept_results(const ir::Op& op, const ControlInfo& info) const {
    std::vector<bool> kept = live_.values(op.results);
    const std::vector<ValueId>& arguments =
        graph_.region(info.form == Form::while_loop ? info.second : info.first).arguments;
    // Carried values and those between the regions are results whether read or not.
    if (info.form == Form::for_loop) {
      for (size_t i = 0; i < info.initial.size(); ++i) kept[i] = live_.value(arguments[1 + i]);
    } else if (info.form == Form::while_loop) {
      for (size_t j = 0; j < arguments.size(); ++j) kept[j] = kept[j] || live_.value(arguments[j]);
    }
    return kept;
  }

  static ControlInfo narrowed(const ir::Op& op, ControlInfo info,
                              const std::map<RegionId, ir::Cloner::Kept>& kept,
                              const std::vector<bool>& results) {
    if (info.form == Form::cond) return info;
    bool is_for = info.form == Form::for_loop;
    const std::vector<bool>& arguments = kept.at(info.first).arguments;
    size_t carried = info.initial.size(), first = op.results.size() - info.stacked;
    info.initial = kept_of(info.initial, arguments, is_for ? 1 : 0);
    if (is_for) info.slices = kept_of(info.slices, arguments, 1 + carried);
    info.stacked = static_cast<size_t>(
        std::count(results.begin() + static_cast<std::ptrdiff_t>(first), results.end(), true));
    return info;
  }

  const ir::Graph& graph_;
  Liveness& live_;
};

}  // namespace

GraphRef eliminate_dead(const ir::Graph& graph) {
  Liveness live(graph);
  Narrower narrower(graph, live);
  auto result = std::make_shared<ir::Graph>(graph.table());
  ir::Cloner cloner(graph, *result);
  cloner.keep = [&](OpId id) { return live.op(id); };
  cloner.replace = [&](ir::Cloner& self, OpId id) { return narrower.narrow(self, *result, id); };
  const ir::Region& top = graph.region(ir::kTopRegion);
  for (ValueId v : top.arguments)
    cloner.values[v] = result->add_argument(graph.value(v).type, graph.value(v).name);
  for (OpId id : top.ops) {
    if (live.op(id)) cloner.copy_op(id);
  }
  result->region(ir::kTopRegion).results = cloner.mapped(top.results);
  return result;
}

}  // namespace heddle::passes
