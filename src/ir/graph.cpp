#include "ir/graph.h"

#include "base/check.h"
#include "ir/describe.h"

#include <algorithm>
#include <set>

namespace heddle::ir {

using base::cat;

namespace {

// Bits of all elements must be addressable, whatever the dtype.
constexpr int kMaxExprSize = 4096;
constexpr int64_t kMaxElements = int64_t{1} << 56;

// Protects every later stage from ranks and sizes that nothing can hold.
void check_type(const Type& type, std::string_view op) {
  if (!type.shape) return;
  if (type.shape->size() > kMaxRank) {
    throw GraphError(cat(op, ": the result has rank ", type.shape->size(), ", at most ", kMaxRank,
                         " is possible"));
  }
  int64_t count = 1;
  bool empty = false;
  for (const Expr& extent : *type.shape) {
    if (extent.upper() < 0) {
      throw GraphError(cat(op, ": the result ", to_string(type), " has a negative extent"));
    }
    if (expr_size(extent, kMaxExprSize) >= kMaxExprSize) {
      throw GraphError(cat(op, ": an extent of the result is too large an expression"));
    }
    empty |= extent.is(0);
    int64_t n = std::max<int64_t>(extent.constant_or(1), 1);
    count = count > kMaxElements / n ? kMaxElements + 1 : count * n;  // saturates
  }
  if (count > kMaxElements && !empty) {
    throw GraphError(cat(op, ": the result ", to_string(type), " has more elements than fit"));
  }
}

}  // namespace

int expr_size(const Expr& e, int most) {
  int size = 1;
  for (const Expr& operand : e.operands()) {
    if (size >= most) break;
    size += expr_size(operand, most - size);
  }
  return size;
}

Graph::Graph(const OpTable& table) : table_(&table) { regions_.emplace_back(); }

// An error in the middle of a region may have left it open, with its lock.
Graph::~Graph() {
  while (stack_.size() > 1) abandon_region();
}

ValueId Graph::add_value(Type type, RegionId region, OpId op, size_t index) {
  Value value;
  value.type = std::move(type);
  value.op = op;
  value.index = static_cast<uint32_t>(index);
  value.region = region;
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

void Graph::check_operands(const ops::OpDef& def, const std::vector<ValueId>& operands) const {
  for (size_t i = 0; i < operands.size(); ++i) {
    auto what = [&] { return cat(table_->name(def), ": ", table_->operand_name(def, i)); };
    if (operands[i] >= values_.size()) {
      throw GraphError(cat(what(), " is tensor ", operands[i], ", but the graph has only ",
                           values_.size(), " tensors"));
    }
    if (!visible(operands[i], insertion_region())) {
      throw GraphError(cat(what(), " ", describe(*this, operands[i]),
                           " belongs to another region: it was made inside a block that is closed, "
                           "return it from the block instead"));
    }
  }
}

void Graph::check_regions(std::string_view name, const std::vector<RegionId>& regions) const {
  for (size_t i = 0; i < regions.size(); ++i) {
    bool fits = regions[i] < regions_.size() && regions_[regions[i]].owner == kNone &&
                regions_[regions[i]].parent == insertion_region() &&
                std::find(regions.begin(), regions.begin() + i, regions[i]) == regions.begin() + i;
    HD_CHECK(fits, name, ": region ", i, " was not opened here, or has an owner");
    HD_CHECK(std::find(stack_.begin(), stack_.end(), regions[i]) == stack_.end(), name, ": region ",
             i, " is still open");
  }
}

std::vector<OpId> Graph::pending_dependencies(std::string_view name) const {
  std::vector<OpId> after;
  for (const std::vector<OpId>& group : dependencies_) {
    for (OpId op : group) {
      if (std::find(after.begin(), after.end(), op) != after.end()) continue;
      if (!encloses(ops_[op].parent, insertion_region())) {
        throw GraphError(cat(name, ": depends on operation '", ops_[op].name,
                             "' of a block that is closed: depend on the operation that has the "
                             "block"));
      }
      after.push_back(op);
    }
  }
  return after;
}

OpId Graph::add_op(const ops::OpDef& def, std::vector<ValueId> operands, Attrs attrs,
                   std::vector<RegionId> regions) {
  auto building = lock();
  std::string_view name = table_->name(def);
  check_operands(def, operands);
  check_regions(name, regions);
  std::vector<OpId> after = pending_dependencies(name);
  attrs = table_->complete(def, std::move(attrs));
  std::vector<InferredResult> inferred = table_->infer(*this, def, operands, attrs, regions);
  for (const InferredResult& result : inferred) check_type(result.type, name);

  OpId id = static_cast<OpId>(ops_.size());
  Op op;
  op.def = &def;
  op.name = name;
  op.operands = std::move(operands);
  op.attrs = std::move(attrs);
  op.regions = std::move(regions);
  op.after = std::move(after);
  op.parent = insertion_region();
  for (size_t i = 0; i < inferred.size(); ++i) {
    ValueId v = add_value(std::move(inferred[i].type), op.parent, id, i);
    values_[v].elements = std::move(inferred[i].elements);
    op.results.push_back(v);
  }
  for (RegionId region : op.regions) regions_[region].owner = id;
  ops_.push_back(std::move(op));
  regions_[insertion_region()].ops.push_back(id);
  return id;
}

ValueId Graph::add_argument(const Type& type, std::string name) {
  auto building = lock();
  check_type(type, "argument of the graph");
  std::vector<ValueId>& arguments = regions_[kTopRegion].arguments;
  ValueId v = add_value(type, kTopRegion, kNone, arguments.size());
  values_[v].name = std::move(name);
  arguments.push_back(v);
  return v;
}

// The lock stays with the thread until the region is closed or abandoned.
RegionId Graph::open_region(const std::vector<Type>& argument_types) {
  auto building = lock();
  if (stack_.size() > kMaxRegionDepth) {
    throw GraphError(cat("blocks are nested more than ", kMaxRegionDepth, " deep"));
  }
  for (const Type& type : argument_types) check_type(type, "argument of a block");
  RegionId id = static_cast<RegionId>(regions_.size());
  regions_.emplace_back();
  regions_[id].parent = insertion_region();
  for (size_t i = 0; i < argument_types.size(); ++i) {
    regions_[id].arguments.push_back(add_value(argument_types[i], id, kNone, i));
  }
  stack_.push_back(id);
  [[maybe_unused]] auto* held = building.release();  // held until the block is closed
  return id;
}

void Graph::close_region(std::vector<ValueId> results) {
  HD_CHECK(stack_.size() > 1, "no region is open");
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] >= values_.size() || !visible(results[i], insertion_region())) {
      throw GraphError(cat("result ", i, " of a block belongs to another region or graph"));
    }
  }
  regions_[insertion_region()].results = std::move(results);
  stack_.pop_back();
  building_.unlock();
}

void Graph::abandon_region() {
  HD_CHECK(stack_.size() > 1, "no region is open");
  stack_.pop_back();
  building_.unlock();
}

void Graph::push_dependencies(std::vector<OpId> ops) {
  auto building = lock();
  for (OpId op : ops) HD_CHECK(op < ops_.size(), "operation of another graph");
  dependencies_.push_back(std::move(ops));
  [[maybe_unused]] auto* held = building.release();  // held until they are popped
}

void Graph::pop_dependencies() {
  HD_CHECK(!dependencies_.empty(), "no dependencies are pushed");
  dependencies_.pop_back();
  building_.unlock();
}

bool Graph::encloses(RegionId outer, RegionId inner) const {
  while (inner != outer && inner != kNone) inner = regions_[inner].parent;
  return inner == outer;
}

Effect Graph::effect_of(OpId id) const {
  Effect effect = table_->effect(*ops_[id].def);
  for (RegionId region : ops_[id].regions) {
    for (OpId inner : regions_[region].ops) effect = std::max(effect, effect_of(inner));
  }
  return effect;
}

namespace {

struct CaptureCollector {
  const Graph& graph;
  RegionId root;
  std::vector<ValueId> found;
  std::set<ValueId> seen;

  void use(ValueId v) {
    if (!graph.encloses(root, graph.value(v).region) && seen.insert(v).second) found.push_back(v);
  }
  void walk(RegionId region) {
    for (OpId id : graph.region(region).ops) {
      for (ValueId v : graph.op(id).operands) use(v);
      for (RegionId inner : graph.op(id).regions) walk(inner);
    }
    for (ValueId v : graph.region(region).results) use(v);
  }
};

}  // namespace

std::vector<ValueId> Graph::captures(RegionId region) const {
  CaptureCollector collector{*this, region, {}, {}};
  collector.walk(region);
  return collector.found;
}

std::vector<ValueId> Graph::placeholders() const {
  auto building = lock();
  std::vector<ValueId> found = regions_[kTopRegion].arguments;
  for (OpId id : regions_[kTopRegion].ops) {
    if (ops_[id].name == "placeholder") found.push_back(ops_[id].results.at(0));
  }
  return found;
}

}  // namespace heddle::ir
