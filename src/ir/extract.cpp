// What compile() starts from: the part of a user's graph that computes the targets, typed by what
// will be fed.
#include "base/check.h"
#include "ir/describe.h"
#include "ir/graph.h"

#include <heddle/error.h>

#include <set>

namespace heddle::ir {

using base::cat;

std::string describe(const Graph& graph, ValueId v) {
  const Value& value = graph.value(v);
  if (!value.name.empty()) return "'" + value.name + "'";
  return cat("%", v, " (", to_string(value.type), ")");
}

namespace {

void bind_symbol(const SymbolRef& symbol, const Expr& value, SymbolBindings& bound,
                 const std::string& what) {
  auto [at, added] = bound.emplace(symbol->id, std::pair(symbol, value));
  const std::string& name = symbol->name.empty() ? "of an open extent" : symbol->name;
  if (!added && is_equal(at->second.second, value) == Ordering::no) {
    throw GraphError(cat(what, ": extent ", name, " is ", value.to_string(), " here, and ",
                         at->second.second.to_string(), " elsewhere"));
  }
  if (value.upper() < symbol->lower || value.lower() > symbol->upper) {
    throw GraphError(cat(what, ": extent ", name, " is ", value.to_string(),
                         ", which is outside of its bounds ", symbol->lower, " to ",
                         symbol->upper));
  }
}

// Solves declared == actual for the one symbol in which `declared` is affine with a constant
// factor.
bool solve(const Expr& declared, const Expr& actual, SymbolBindings& bound,
           const std::string& what) {
  std::vector<SymbolRef> symbols;
  collect_symbols(declared, symbols);
  if (symbols.size() != 1) return false;
  auto affine = affine_in(declared, symbols[0]);
  if (!affine || !affine->first.is_constant() || affine->first.is(0)) return false;
  Expr rest = actual - affine->second;
  if (!(rest % affine->first).is(0)) return false;
  bind_symbol(symbols[0], rest / affine->first, bound, what);
  return true;
}

}  // namespace

Expr apply_bindings(const Expr& e, const SymbolBindings& bound) {
  if (bound.empty()) return e;
  return substitute(e, [&](const SymbolRef& symbol) -> std::optional<Expr> {
    auto at = bound.find(symbol->id);
    return at == bound.end() ? std::nullopt : std::optional<Expr>(at->second.second);
  });
}

void bind_symbols(const Type& declared, const Type& actual, SymbolBindings& bound,
                  const std::string& what) {
  auto mismatch = [&] {
    return GraphError(cat(what, ": declared ", to_string(declared), ", given ", to_string(actual)));
  };
  if (declared.dtype != DType::unknown && actual.dtype != declared.dtype) throw mismatch();
  if (!declared.shape) return;
  if (declared.rank() != actual.rank()) throw mismatch();
  for (size_t i = 0; i < declared.shape->size(); ++i) {
    const Expr& from = (*declared.shape)[i];
    if (from.kind() == ExprKind::symbol)
      bind_symbol(from.symbol(), (*actual.shape)[i], bound, what);
  }
  for (size_t i = 0; i < declared.shape->size(); ++i) {
    if ((*declared.shape)[i].kind() == ExprKind::symbol) continue;
    Expr from = apply_bindings((*declared.shape)[i], bound);
    const Expr& to = (*actual.shape)[i];
    if (from == to || solve(from, to, bound, what)) continue;
    if (is_equal(from, to) != Ordering::yes) throw mismatch();
  }
}

namespace {

// Which ops are needed: through operands, control dependencies, and all writes inside of needed
// regions.
class Liveness {
 public:
  Liveness(const Graph& graph, std::set<ValueId> fed)
      : graph_(graph), fed_(std::move(fed)), live_(graph.op_count(), false) {}

  void need_value(ValueId v) {
    if (fed_.count(v) != 0) return;
    const Value& value = graph_.value(v);
    if (value.op != kNone) return need_op(value.op);
    if (value.region == kTopRegion) {
      throw GraphError(
          cat("argument ", describe(graph_, v), " is needed by the targets but not fed"));
    }
  }
  void need_op(OpId op) {
    if (live_[op]) return;
    live_[op] = true;
    work_.push_back(op);
  }
  void run() {
    while (!work_.empty()) {
      OpId id = work_.back();
      work_.pop_back();
      visit(id);
    }
  }
  bool live(OpId op) const { return live_[op]; }

 private:
  void visit(OpId id) {
    const Op& op = graph_.op(id);
    if (op.name == "placeholder") {
      throw GraphError(cat("placeholder ", describe(graph_, op.results.at(0)),
                           " is needed by the targets but not fed"));
    }
    for (ValueId v : op.operands) need_value(v);
    for (OpId before : op.after) need_op(before);
    for (RegionId region : op.regions) {
      for (ValueId v : graph_.region(region).results) need_value(v);
      for (OpId inner : graph_.region(region).ops) {
        if (graph_.effect_of(inner) == Effect::write) need_op(inner);
      }
    }
  }

  const Graph& graph_;
  std::set<ValueId> fed_;
  std::vector<bool> live_;
  std::vector<OpId> work_;
};

void check_top_value(const Graph& graph, ValueId v, const char* what) {
  if (v >= graph.value_count()) {
    throw GraphError(
        cat(what, " is tensor ", v, ", but the graph has only ", graph.value_count(), " tensors"));
  }
  if (graph.value(v).region != kTopRegion) {
    throw GraphError(
        cat(what, " ", describe(graph, v), " belongs to a block: return it from the block"));
  }
}

// The types of the arguments, with extents that any feed's type fixes put in everywhere.
std::vector<Type> argument_types(const Graph& graph, const FeedList& feeds, SymbolBindings& bound) {
  for (const auto& [v, given] : feeds) {
    if (given) bind_symbols(graph.value(v).type, *given, bound, "feed " + describe(graph, v));
  }
  std::vector<Type> types;
  for (const auto& [v, given] : feeds) {
    types.push_back(
        std::get<Type>(map_exprs(given ? *given : graph.value(v).type,
                                 [&](const Expr& e) { return apply_bindings(e, bound); })));
  }
  return types;
}

}  // namespace

Extracted extract(const Graph& graph, const FeedList& feeds, const std::vector<ValueId>& targets,
                  const std::vector<OpId>& operations) {
  auto building = graph.lock();
  std::set<ValueId> fed;
  for (const auto& [v, type] : feeds) {
    check_top_value(graph, v, "feed");
    if (!fed.insert(v).second) {
      throw GraphError(cat("feed ", describe(graph, v), " is given twice"));
    }
  }
  Liveness liveness(graph, fed);
  for (ValueId v : targets) {
    check_top_value(graph, v, "target");
    liveness.need_value(v);
  }
  for (OpId op : operations) {
    if (op >= graph.op_count()) {
      throw GraphError(cat("target operation is operation ", op, ", but the graph has only ",
                           graph.op_count(), " operations"));
    }
    if (graph.op(op).parent != kTopRegion) {
      throw GraphError(cat("target operation '", graph.op(op).name,
                           "' belongs to a block: make the operation that has the block a target"));
    }
    liveness.need_op(op);
  }
  liveness.run();

  auto result = std::make_shared<Graph>(graph.table());
  SymbolBindings bound;
  std::vector<Type> types = argument_types(graph, feeds, bound);
  Cloner cloner(graph, *result);
  if (!bound.empty()) {
    cloner.substitution = [&](const SymbolRef& symbol) -> std::optional<Expr> {
      auto at = bound.find(symbol->id);
      return at == bound.end() ? std::nullopt : std::optional<Expr>(at->second.second);
    };
  }
  cloner.keep = [&](OpId op) { return liveness.live(op); };
  for (size_t i = 0; i < feeds.size(); ++i) {
    cloner.values[feeds[i].first] =
        result->add_argument(types[i], graph.value(feeds[i].first).name);
  }
  for (OpId op : graph.region(kTopRegion).ops) {
    if (liveness.live(op)) cloner.copy_op(op);
  }
  result->region(kTopRegion).results = cloner.mapped(targets);
  return {std::move(result)};
}

}  // namespace heddle::ir
