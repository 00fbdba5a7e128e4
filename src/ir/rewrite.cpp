#include "base/check.h"
#include "ir/graph.h"

#include <algorithm>

namespace heddle::ir {

namespace {

// The values that stand for the results of a replaced op take over its names and locations.
void take_over(const Graph& in, Graph& out, OpId id, const std::vector<ValueId>& values,
               OpId first_new) {
  const Op& op = in.op(id);
  HD_CHECK(values.size() == op.results.size(), op.name, ": replaced by ", values.size(), " values");
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& old = in.value(op.results[i]);
    Value& value = out.value(values[i]);
    HD_CHECK(!old.type.known() || old.type == value.type, op.name, ": ", to_string(old.type),
             " was replaced by ", to_string(value.type));
    if (value.name.empty()) value.name = old.name;
    if (value.op == kNone || value.op >= first_new) continue;  // the cloner sees to new ops
    std::vector<std::string>& locations = out.op(value.op).locations;
    for (const std::string& location : op.locations) {
      if (std::find(locations.begin(), locations.end(), location) == locations.end()) {
        locations.push_back(location);
      }
    }
  }
}

}  // namespace

std::shared_ptr<Graph> rewrite(const Graph& graph, const Replace& replace) {
  auto result = std::make_shared<Graph>(graph.table());
  Graph& out = *result;
  Cloner cloner(graph, out);
  RewriteContext context{graph, out, [&](ValueId v) { return cloner.mapped(v); },
                         [&](RegionId region) { return cloner.copy_region(region); },
                         [&](RegionId region, const std::vector<ValueId>& arguments) {
                           return cloner.inline_region(region, arguments);
                         }};
  cloner.replace = [&](Cloner& self, OpId id) {
    auto first_new = static_cast<OpId>(out.op_count());
    std::optional<std::vector<ValueId>> values = replace(context, id);
    if (!values) return false;
    take_over(graph, out, id, *values, first_new);
    for (size_t i = 0; i < values->size(); ++i) {
      self.values[graph.op(id).results[i]] = (*values)[i];
    }
    return true;
  };
  for (ValueId v : graph.region(kTopRegion).arguments) {
    cloner.values[v] = out.add_argument(graph.value(v).type, graph.value(v).name);
  }
  for (OpId op : graph.region(kTopRegion).ops) cloner.copy_op(op);
  out.region(kTopRegion).results = cloner.mapped(graph.region(kTopRegion).results);
  return result;
}

}  // namespace heddle::ir
