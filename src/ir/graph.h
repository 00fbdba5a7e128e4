// The graph level: typed SSA values, operations with regions. Knows no operation by name.
//
// Invariants (verify.h): a region's ops are in program order, and every operand is defined before
// its use, in the same region or an enclosing one (regions capture freely); a region's argument and
// result counts fit its owner; types of operands and results are what the op's inference says;
// effects stay in program order; ids are never reused.
#pragma once

#include "ir/attr.h"
#include "ir/stable_vector.h"

#include <heddle/tensor.h>
#include <heddle/type.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::ops {
struct OpDef;  // the registry's entry; this level only carries the pointer
}

namespace heddle::ir {

using ValueId = uint32_t;
using OpId = uint32_t;
using RegionId = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr RegionId kTopRegion = 0;
inline constexpr int kMaxRegionDepth = 64;

// read: may be dropped where unused, is never merged or moved past a write. write: stays.
enum class Effect : uint8_t { none, read, write };

struct Value {
  Type type;
  OpId op = kNone;          // producer, or kNone for a region's argument
  uint32_t index = 0;       // which result or argument
  RegionId region = kNone;  // where it is defined
  std::string name;         // the user's, may be empty
  // Small integer tensors whose elements are known expressions (row-major); kept through inference
  // so that shape -> concat -> reshape chains stay symbolic.
  std::optional<std::vector<Expr>> elements;
};

struct Op {
  const ops::OpDef* def = nullptr;
  std::string_view name;  // def's, static storage
  std::vector<ValueId> operands, results;
  std::vector<RegionId> regions;
  Attrs attrs;
  std::vector<OpId> after;             // control dependencies
  std::vector<std::string> locations;  // user names, model nodes; merged by passes
  RegionId parent = kTopRegion;
};

struct Region {
  std::vector<ValueId> arguments;
  std::vector<OpId> ops;  // program order
  std::vector<ValueId> results;
  OpId owner = kNone;       // kNone: the top region, or not attached yet
  RegionId parent = kNone;  // where it was opened; kNone: the top region
};

// What the graph level asks of the registry (implemented in ops/, injected by the facade and
// tests).
struct InferredResult {
  Type type;
  std::optional<std::vector<Expr>> elements;
};
class OpTable {
 public:
  virtual ~OpTable() = default;
  // What the documentation calls operand i: "lhs", "xs[2]".
  virtual std::string operand_name(const ops::OpDef& def, size_t i) const = 0;
  virtual const ops::OpDef* find(std::string_view name) const = 0;
  virtual std::string_view name(const ops::OpDef& def) const = 0;
  virtual Effect effect(const ops::OpDef& def) const = 0;  // without its regions, see effect_of
  // Fills defaults in; GraphError for an unknown, missing or mistyped attribute.
  virtual Attrs complete(const ops::OpDef& def, Attrs attrs) const = 0;
  // Types of the results; throws GraphError. Open operand types give open results.
  virtual std::vector<InferredResult> infer(const Graph& graph, const ops::OpDef& def,
                                            const std::vector<ValueId>& operands,
                                            const Attrs& attrs,
                                            const std::vector<RegionId>& regions) const = 0;
  // Argument types of the region number built.size(), whose predecessors are `built`; nullopt: the
  // op does not say.
  virtual std::optional<std::vector<Type>> region_arguments(
      const Graph& graph, const ops::OpDef& def, const std::vector<ValueId>& operands,
      const Attrs& attrs, const std::vector<RegionId>& built) const = 0;
};

// Any thread may build and read; one at a time builds. The lock is held from the opening of a
// region to its end, and while dependencies are pushed, so that a block gets its own thread's ops
// only. Reading by id (value, op, region) needs no lock: what has an id does not move, and types,
// operands and closed regions do not change.
class Graph : public std::enable_shared_from_this<Graph> {
 public:
  explicit Graph(const OpTable& table);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  const OpTable& table() const { return *table_; }
  // For several steps that belong together, and for what looks at all of a graph. Recursive.
  std::unique_lock<std::recursive_mutex> lock() const { return std::unique_lock(building_); }

  const Value& value(ValueId id) const { return values_[id]; }
  Value& value(ValueId id) { return values_[id]; }
  const Op& op(OpId id) const { return ops_[id]; }
  Op& op(OpId id) { return ops_[id]; }
  const Region& region(RegionId id) const { return regions_[id]; }
  Region& region(RegionId id) { return regions_[id]; }
  size_t value_count() const { return values_.size(); }
  size_t op_count() const { return ops_.size(); }
  size_t region_count() const { return regions_.size(); }

  // Appends an op to the innermost open region; completes attributes, infers the result types.
  // Operands must be visible there (GraphError "<op>: argument <i> belongs to another
  // region/graph"). References to values, ops and regions stay valid while the graph grows.
  OpId add_op(const ops::OpDef& def, std::vector<ValueId> operands, Attrs attrs,
              std::vector<RegionId> regions = {});

  ValueId add_argument(const Type& type, std::string name);  // of the top region
  // Region builders: open, create ops, set results, close. The stack belongs to the graph (nothing
  // thread-local).
  RegionId open_region(const std::vector<Type>& argument_types);
  void close_region(std::vector<ValueId> results);
  void abandon_region();  // after an exception in a builder block
  RegionId insertion_region() const {
    auto building = lock();
    return stack_.back();
  }

  // Control dependencies added to every op created while pushed.
  void push_dependencies(std::vector<OpId> ops);
  void pop_dependencies();

  bool encloses(RegionId outer, RegionId inner) const;  // outer == inner counts
  bool visible(ValueId value, RegionId from) const { return encloses(values_[value].region, from); }
  Effect effect_of(OpId op) const;  // the strongest of the op itself and of its regions' ops
  // Values defined outside `region` that its ops (nested regions included) or results use; each
  // once, in order of use.
  std::vector<ValueId> captures(RegionId region) const;
  // What can be fed: arguments of the top region, then results of ops named "placeholder", in
  // order.
  std::vector<ValueId> placeholders() const;

  Tensor tensor(ValueId id) { return Tensor(shared_from_this(), id); }

  // Facade-side state that lives as long as the graph (executable cache, variables); opaque here.
  std::shared_ptr<void> attachment;

 private:
  const OpTable* table_;
  ValueId add_value(Type type, RegionId region, OpId op, size_t index);
  void check_operands(const ops::OpDef& def, const std::vector<ValueId>& operands) const;
  void check_regions(std::string_view name, const std::vector<RegionId>& regions) const;
  std::vector<OpId> pending_dependencies(std::string_view name) const;

  mutable std::recursive_mutex building_;
  StableVector<Value> values_;
  StableVector<Op> ops_;
  StableVector<Region> regions_;
  std::vector<RegionId> stack_{kTopRegion};
  std::vector<std::vector<OpId>> dependencies_;
};

// Copies parts of `in` to the insertion point of `out` (which may be `in` itself), op by op through
// add_op, so that types are inferred again. Names, locations, control dependencies and regions come
// along. Values that are not in `values` are taken as they are where in == out (captures), else
// InternalError.
class Cloner {
 public:
  Cloner(const Graph& in, Graph& out);
  std::map<ValueId, ValueId> values;  // old -> new; what is bound beforehand is not computed again
  Substitution substitution;          // of symbols in attributes and argument types; may be empty
  std::function<bool(OpId)> keep;     // ops of regions to copy; empty: all
  std::function<bool(Cloner&, OpId)> replace;  // takes over an op (false: copy it)

  ValueId mapped(ValueId old) const;
  std::vector<ValueId> mapped(const std::vector<ValueId>& old) const;
  void copy_op(OpId op);
  // What of a region to copy; by index.
  struct Kept {
    std::vector<bool> arguments, results;
  };
  RegionId copy_region(RegionId region,
                       const std::optional<std::vector<Type>>& argument_types = std::nullopt,
                       const Kept* kept = nullptr);
  // New values take the place of old ones, with their names and the extents that only the device
  // knows.
  void stand_for(const std::vector<ValueId>& old, const std::vector<ValueId>& made);
  // The region's ops at the insertion point, its arguments bound; returns its results.
  std::vector<ValueId> inline_region(RegionId region, const std::vector<ValueId>& arguments);

 private:
  void copy_plain(OpId op);
  void copy_ops(const std::vector<OpId>& ops);
  std::vector<OpId> mapped_dependencies(const std::vector<OpId>& after) const;
  Expr map(const Expr& e) const { return substitution ? substitute(e, substitution) : e; }
  const Graph& in_;
  Graph& out_;
  uint64_t since_;  // symbols newer than this were made by inference
  std::map<OpId, std::vector<OpId>>
      ops_;  // old op -> the new ops that stand for it as a dependency
};

// Nodes of the expression as a tree, counted up to `most`.
int expr_size(const Expr& e, int most);
using SymbolBindings = std::map<uint64_t, std::pair<SymbolRef, Expr>>;  // by the symbol's id
Expr apply_bindings(const Expr& e, const SymbolBindings& bound);
// Binds the symbols of `declared` so that it becomes `actual`; GraphError "<what>: declared ...,
// given
// ..." where that cannot be. Extents that are not plain symbols are solved where affine in one.
void bind_symbols(const Type& declared, const Type& actual, SymbolBindings& bound,
                  const std::string& what);
// Are the types equal but for symbols newer than `since` (made by inference) in `inferred`?
bool matches_inferred(const Type& stated, const Type& inferred, uint64_t since);
uint64_t newest_symbol();  // a bound for matches_inferred

// The subgraph that computes `targets` and `operations` from `feeds`, as a new graph whose top
// region's arguments are the feeds (re-typed where a type is given) and whose results are the
// targets; effects kept in program order. GraphError for a placeholder that is needed and not fed,
// and for tensors of another graph.
struct Extracted {
  std::shared_ptr<Graph> graph;
};
using FeedList = std::vector<std::pair<ValueId, std::optional<Type>>>;
Extracted extract(const Graph& graph, const FeedList& feeds, const std::vector<ValueId>& targets,
                  const std::vector<OpId>& operations);

// Rebuilds a graph op by op. `replace` may emit other ops through `out` (the new graph, insertion
// point set) and return the new values of the op's results; nullopt copies the op. Regions are
// rebuilt recursively.
struct RewriteContext {
  const Graph& in;
  Graph& out;
  std::function<ValueId(ValueId)> mapped;         // old value -> new value
  std::function<RegionId(RegionId)> copy_region;  // rebuilds an old region as a new one
  // Inlines an old region's ops at the insertion point with its arguments bound; returns the mapped
  // results.
  std::function<std::vector<ValueId>(RegionId, const std::vector<ValueId>&)> inline_region;
};
using Replace = std::function<std::optional<std::vector<ValueId>>(RewriteContext&, OpId)>;
std::shared_ptr<Graph> rewrite(const Graph& graph, const Replace& replace);

// Text form; parse(print(g)) is equal to g. Errors of parse: GraphError with line and column.
std::string print(const Graph& graph);
std::shared_ptr<Graph> parse(std::string_view text, const OpTable& table);

// Invariants above; empty: all hold, else the first broken one in a sentence that names its rule.
std::string verify(const Graph& graph);

// Independent of value names, locations and symbol names; symbols are numbered by first occurrence.
uint64_t structural_hash(const Graph& graph);
bool structurally_equal(const Graph& a, const Graph& b);
// Two regions of one graph: what they capture and symbols by identity.
uint64_t region_hash(const Graph& graph, RegionId region);
bool regions_equal(const Graph& graph, RegionId a, RegionId b);

}  // namespace heddle::ir
