// Copying parts of graphs: the base of extraction, rewriting, inlining and of calls.
#include "base/check.h"
#include "ir/graph.h"

#include <heddle/error.h>

#include <algorithm>

namespace heddle::ir {

using base::cat;

namespace {

template <class T>
void append_new(std::vector<T>& to, const std::vector<T>& from) {
  for (const T& item : from) {
    if (std::find(to.begin(), to.end(), item) == to.end()) to.push_back(item);
  }
}

std::vector<ValueId> kept_of(const std::vector<ValueId>& values, const std::vector<bool>& kept) {
  std::vector<ValueId> out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (kept[i]) out.push_back(values[i]);
  }
  return out;
}

bool fresh_symbol(const Expr& e, uint64_t since) {
  return e.kind() == ExprKind::symbol && e.symbol()->id > since;
}

}  // namespace

uint64_t newest_symbol() { return make_symbol(SymbolKind::extent, "", 0, INT64_MAX)->id; }

bool matches_inferred(const Type& stated, const Type& inferred, uint64_t since) {
  if (stated.dtype != inferred.dtype || stated.rank() != inferred.rank()) return false;
  if (!stated.shape) return true;
  for (size_t i = 0; i < stated.shape->size(); ++i) {
    const Expr& made = (*inferred.shape)[i];
    if (!((*stated.shape)[i] == made) && !fresh_symbol(made, since)) return false;
  }
  return true;
}

Cloner::Cloner(const Graph& in, Graph& out) : in_(in), out_(out), since_(newest_symbol()) {}

ValueId Cloner::mapped(ValueId old) const {
  auto at = values.find(old);
  if (at != values.end()) return at->second;
  HD_CHECK(&in_ == &out_, "value ", old, " was not copied");
  return old;
}

std::vector<ValueId> Cloner::mapped(const std::vector<ValueId>& old) const {
  std::vector<ValueId> result;
  result.reserve(old.size());
  for (ValueId v : old) result.push_back(mapped(v));
  return result;
}

std::vector<OpId> Cloner::mapped_dependencies(const std::vector<OpId>& after) const {
  std::vector<OpId> result;
  for (OpId old : after) {
    auto at = ops_.find(old);
    if (at != ops_.end())
      append_new(result, at->second);
    else if (&in_ == &out_)
      append_new(result, {old});
  }
  return result;
}

void Cloner::copy_op(OpId id) {
  auto first = static_cast<OpId>(out_.op_count());
  RegionId here = out_.insertion_region();
  if (!replace || !replace(*this, id)) copy_plain(id);
  std::vector<OpId> made;
  for (auto op = first; op < out_.op_count(); ++op) {
    if (out_.op(op).parent == here) made.push_back(op);
  }
  std::vector<OpId> after = mapped_dependencies(in_.op(id).after);
  for (OpId op : made) {
    append_new(out_.op(op).after, after);
    append_new(out_.op(op).locations, in_.op(id).locations);
  }
  // What waits for an op that vanished waits for what that op waited for.
  ops_[id] = made.empty() ? after : made;
}

void Cloner::copy_plain(OpId id) {
  const Op& op = in_.op(id);
  Attrs attrs;
  if (substitution) {
    for (const auto& [name, value] : op.attrs.items()) {
      attrs.set(name, map_exprs(value, [&](const Expr& e) { return map(e); }));
    }
  } else {
    attrs = op.attrs;
  }
  std::vector<ValueId> operands = mapped(op.operands);
  std::vector<RegionId> regions;
  for (RegionId region : op.regions) {
    regions.push_back(copy_region(
        region, out_.table().region_arguments(out_, *op.def, operands, attrs, regions)));
  }
  OpId copy = out_.add_op(*op.def, std::move(operands), std::move(attrs), std::move(regions));
  const std::vector<ValueId>& results = out_.op(copy).results;
  HD_CHECK(results.size() == op.results.size(), op.name, ": the copy has ", results.size(),
           " results");
  stand_for(op.results, results);
}

void Cloner::stand_for(const std::vector<ValueId>& old, const std::vector<ValueId>& made) {
  for (size_t i = 0; i < old.size(); ++i) {
    const Value& from = in_.value(old[i]);
    Value& to = out_.value(made[i]);
    to.name = from.name;
    // Extents that only the device knows keep their symbols, which other ops may name.
    if (!(to.type == from.type) && matches_inferred(from.type, to.type, since_)) {
      to.type = from.type;
    }
    values[old[i]] = made[i];
  }
}

void Cloner::copy_ops(const std::vector<OpId>& ops) {
  for (OpId op : ops) {
    if (!keep || keep(op)) copy_op(op);
  }
}

RegionId Cloner::copy_region(RegionId id, const std::optional<std::vector<Type>>& argument_types,
                             const Kept* kept) {
  const Region& region = in_.region(id);
  std::vector<ValueId> old = region.arguments, old_results = region.results;
  if (kept != nullptr) {
    old = kept_of(old, kept->arguments);
    old_results = kept_of(old_results, kept->results);
  }
  std::vector<Type> types;
  if (argument_types && argument_types->size() == old.size()) {
    types = *argument_types;
  } else {
    for (ValueId v : old) {
      types.push_back(
          std::get<Type>(map_exprs(in_.value(v).type, [&](const Expr& e) { return map(e); })));
    }
  }
  RegionId copy = out_.open_region(types);
  try {
    const std::vector<ValueId>& arguments = out_.region(copy).arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      out_.value(arguments[i]).name = in_.value(old[i]).name;
      values[old[i]] = arguments[i];
    }
    copy_ops(region.ops);
    out_.close_region(mapped(old_results));
  } catch (...) {
    out_.abandon_region();
    throw;
  }
  return copy;
}

std::vector<ValueId> Cloner::inline_region(RegionId id, const std::vector<ValueId>& arguments) {
  const Region& region = in_.region(id);
  HD_CHECK(arguments.size() == region.arguments.size(), "region ", id, " takes ",
           region.arguments.size(), " arguments, given ", arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) values[region.arguments[i]] = arguments[i];
  copy_ops(region.ops);
  return mapped(region.results);
}

}  // namespace heddle::ir
