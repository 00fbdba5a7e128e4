// The registry of operations, and the graph level's view of it.
#include "base/check.h"
#include "base/floating_point.h"
#include "ops/opdef.h"

#include <heddle/error.h>

#include <algorithm>
#include <map>
#include <memory>

namespace heddle::ops {

using base::cat;

namespace {

using Registry = std::map<std::string, std::unique_ptr<OpDef>, std::less<>>;

Registry& registry() {
  static Registry entries;
  return entries;
}

bool has_lowering(const OpDef& def) {
  return def.scalar || def.element || def.reduce || def.scan || def.scatter || def.decompose;
}

// The first thing that an entry lacks, or nothing.
std::string missing_field(const OpDef& def) {
  if (def.name.empty()) return "name";
  if (def.doc.empty()) return "doc";
  if (!def.infer) return "infer";
  if (def.results < 0 && !def.infer_open) return "infer_open (the number of results varies)";
  bool computes = def.kind != Kind::source && def.kind != Kind::structural;
  if (computes && !def.judge) return "judge";
  if (computes && !has_lowering(def)) return "a lowering";
  for (size_t i = 0; i < def.operands.size(); ++i) {
    const OperandSpec& spec = def.operands[i];
    if (spec.variadic && i + 1 < def.operands.size()) return "order: a variadic operand is last";
    bool next_required = i + 1 < def.operands.size() && !def.operands[i + 1].optional &&
                         !def.operands[i + 1].variadic;
    if (spec.optional && next_required) return "order: optional operands are last";
  }
  return "";
}

std::string class_name(uint32_t dtype_class) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {{kAnyStored, "any dtype"},
                                                                {kAny, "a dtype with arithmetic"},
                                                                {kNumber, "a number"},
                                                                {kFloating, "a float or complex"},
                                                                {kReal, "a real number"}};
  for (const auto& [bits, text] : kNames) {
    if (dtype_class == bits) return text;
  }
  static constexpr std::pair<uint32_t, const char*> kParts[] = {{kRealFloat, "a real float"},
                                                                {kComplex, "complex"},
                                                                {kInteger, "an integer"},
                                                                {kBool, "bool"},
                                                                {kStorage, "a storage type"}};
  std::string text;
  for (const auto& [bit, part] : kParts) {
    if ((dtype_class & bit) != 0) text += (text.empty() ? "" : " or ") + std::string(part);
  }
  return text;
}

const OperandSpec& operand_spec(const OpDef& def, size_t i) {
  return def.operands[std::min(i, def.operands.size() - 1)];
}

std::string operand_name(const OpDef& def, size_t i) {
  if (def.operands.empty()) return cat("argument ", i);
  const OperandSpec& spec = operand_spec(def, i);
  if (!spec.variadic) return "argument '" + spec.name + "'";
  return cat("argument '", spec.name, "' number ", i + 1 - (def.operands.size() - 1));
}

void check_operand_count(const OpDef& def, size_t given) {
  size_t least = 0, most = def.operands.size();
  for (const OperandSpec& spec : def.operands) least += !spec.optional && !spec.variadic;
  bool variadic = !def.operands.empty() && def.operands.back().variadic;
  if (given >= least && (variadic || given <= most)) return;
  std::string expected = variadic        ? cat("at least ", least)
                         : least == most ? cat(least)
                                         : cat(least, " to ", most);
  throw GraphError(cat(def.name, ": expects ", expected, " argument", expected == "1" ? "" : "s",
                       ", given ", given));
}

void check_dtypes(const InferContext& ctx, const OpDef& def) {
  for (size_t i = 0; i < ctx.operands.size(); ++i) {
    DType dtype = ctx.dtype(i);
    uint32_t wanted = operand_spec(def, i).dtypes;
    if (dtype == DType::unknown || in_class(dtype, wanted)) continue;
    ctx.fail(cat(operand_name(def, i), " expects ", class_name(wanted), ", given ",
                 to_string(ctx.type(i))));
  }
}

// Plain integers are accepted where a number or extents are expected.
ir::Attr coerce(ir::Attr value, int wanted) {
  if (const auto* n = std::get_if<int64_t>(&value)) {
    if (wanted == ir::attr_type<double>) return static_cast<double>(*n);
    if (wanted == ir::attr_type<Expr>) return Expr(*n);
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    if (wanted == ir::attr_type<std::vector<Expr>>) {
      return std::vector<Expr>(list->begin(), list->end());
    }
    if (wanted == ir::attr_type<std::vector<double>>) {
      return std::vector<double>(list->begin(), list->end());
    }
  }
  return value;
}

class RegistryTable final : public ir::OpTable {
 public:
  const OpDef* find(std::string_view name) const override { return find_op(name); }
  std::string_view name(const OpDef& def) const override { return def.name; }
  Effect effect(const OpDef& def) const override { return def.effect; }
  std::string operand_name(const OpDef& def, size_t i) const override {
    if (def.operands.empty()) return cat("argument ", i);
    size_t last = def.operands.size() - 1;
    if (!def.operands[std::min(i, last)].variadic) return def.operands[std::min(i, last)].name;
    return cat(def.operands[last].name, "[", i - std::min(i, last), "]");
  }

  ir::Attrs complete(const OpDef& def, ir::Attrs attrs) const override {
    for (const auto& [name, value] : attrs.items()) find_spec(def, name);
    ir::Attrs result;
    for (const AttrSpec& spec : def.attrs) {
      const ir::Attr* given = attrs.find(spec.name);
      int type = spec.fallback ? static_cast<int>(spec.fallback->index()) : spec.type;
      if (given != nullptr) {
        ir::Attr value = coerce(*given, type);
        if (type >= 0 && static_cast<int>(value.index()) != type) {
          throw GraphError(cat(def.name, ": attribute '", spec.name, "' expects ",
                               ir::attr_type_name(type), ", given ",
                               ir::attr_type_name(static_cast<int>(value.index()))));
        }
        const auto* literal = std::get_if<ir::LiteralRef>(&value);
        if (literal != nullptr && *literal == nullptr) {
          throw GraphError(cat(def.name, ": attribute '", spec.name, "' has no data"));
        }
        result.set(spec.name, std::move(value));
      } else if (spec.fallback) {
        result.set(spec.name, *spec.fallback);
      } else if (!spec.optional) {
        throw GraphError(cat(def.name, ": attribute '", spec.name, "' is required"));
      }
    }
    return result;
  }

  std::vector<ir::InferredResult> infer(const ir::Graph& graph, const OpDef& def,
                                        const std::vector<ir::ValueId>& operands,
                                        const ir::Attrs& attrs,
                                        const std::vector<ir::RegionId>& regions) const override {
    InferContext ctx{graph, def.name, operands, attrs, regions};
    check_operand_count(def, operands.size());
    check_dtypes(ctx, def);
    if (!regions.empty() && def.kind != Kind::structural) ctx.fail("has no regions");
    bool open = false;
    for (size_t i = 0; i < operands.size(); ++i) open |= !ctx.type(i).known();
    if (open && !def.infer_open) {
      return std::vector<ir::InferredResult>(static_cast<size_t>(def.results));
    }
    std::vector<ir::InferredResult> results = def.infer(ctx);
    HD_CHECK(def.results < 0 || results.size() == static_cast<size_t>(def.results), def.name,
             ": inference gave ", results.size(), " results");
    for (ir::InferredResult& result : results) drop_long_elements(result);
    return results;
  }

  std::optional<std::vector<Type>> region_arguments(
      const ir::Graph& graph, const OpDef& def, const std::vector<ir::ValueId>& operands,
      const ir::Attrs& attrs, const std::vector<ir::RegionId>& built) const override {
    if (!def.region_arguments) return std::nullopt;
    InferContext ctx{graph, def.name, operands, attrs, built};
    return def.region_arguments(ctx, static_cast<int>(built.size()));
  }

 private:
  static const AttrSpec& find_spec(const OpDef& def, const std::string& name) {
    for (const AttrSpec& spec : def.attrs) {
      if (spec.name == name) return spec;
    }
    throw GraphError(cat(def.name, ": has no attribute '", name, "'"));
  }

  // Shapes have at most kMaxRank extents; arithmetic on long vectors, or on expressions that double
  // at each op, would cost without bound for nothing.
  static void drop_long_elements(ir::InferredResult& result) {
    constexpr size_t kMost = 4 * kMaxRank;
    constexpr int kMostNodes = 256;
    if (!result.elements) return;
    bool small = result.elements->size() <= kMost;
    for (const Expr& e : *result.elements)
      small = small && ir::expr_size(e, kMostNodes) < kMostNodes;
    if (!small) result.elements.reset();
  }
};

}  // namespace

bool in_class(DType dtype, uint32_t dtype_class) {
  uint32_t bit = is_real_float(dtype)      ? kRealFloat
                 : is_complex(dtype)       ? kComplex
                 : is_integer(dtype)       ? kInteger
                 : dtype == DType::boolean ? kBool
                 : is_storage_only(dtype)  ? kStorage
                                           : 0u;
  return (bit & dtype_class) != 0;
}

void InferContext::fail(const std::string& message) const {
  throw GraphError(cat(op, ": ", message));
}

void InferContext::require_equal(const Expr& value, const Expr& bound,
                                 const std::string& message) const {
  Ordering holds = is_equal(value, bound);
  if (holds == Ordering::no) fail(message);
  if (holds == Ordering::undecided && open != nullptr)
    open->push_back({value, bound, true, cat(op, ": ", message)});
}

void InferContext::require_at_least(const Expr& value, const Expr& bound,
                                    const std::string& message) const {
  Ordering holds = is_less_equal(bound, value);
  if (holds == Ordering::no) fail(message);
  if (holds == Ordering::undecided && open != nullptr)
    open->push_back({value, bound, false, cat(op, ": ", message)});
}

std::vector<Requirement> requirements(const ir::Graph& graph) {
  std::vector<Requirement> all;
  for (size_t id = 0; id < graph.op_count(); ++id) {
    const ir::Op& op = graph.op(static_cast<ir::OpId>(id));
    if (!op.regions.empty()) continue;  // their operations speak for themselves
    InferContext ctx{graph, op.def->name, op.operands, op.attrs, op.regions, &all};
    bool known = true;
    for (size_t i = 0; i < op.operands.size(); ++i) known = known && ctx.type(i).known();
    if (known) op.def->infer(ctx);
  }
  return all;
}

void check_requirements(const std::vector<Requirement>& requirements,
                        const std::function<std::optional<int64_t>(const Symbol&)>& value) {
  for (const Requirement& r : requirements) {
    std::vector<SymbolRef> symbols;
    collect_symbols(r.value, symbols);
    collect_symbols(r.bound, symbols);
    bool known = std::all_of(symbols.begin(), symbols.end(),
                             [&](const SymbolRef& s) { return value(*s).has_value(); });
    if (!known) continue;
    int64_t given = evaluate(r.value, value), bound = evaluate(r.bound, value);
    if (r.equal ? given == bound : given >= bound) continue;
    std::string sizes;
    for (const SymbolRef& s : symbols)
      sizes += cat(sizes.empty() ? "" : ", ", s->name, " is ", *value(*s));
    throw GraphError(cat(r.message, " (", sizes, " in this run: ", given, " given, ",
                         r.equal ? "" : "at least ", bound, " expected)"));
  }
}

Register::Register(OpDef def) {
  std::string missing = missing_field(def);
  HD_CHECK(missing.empty(), "operation '", def.name, "' lacks ", missing);
  std::string key = def.name;
  bool added = registry().emplace(key, std::make_unique<OpDef>(std::move(def))).second;
  HD_CHECK(added, "operation '", key, "' is registered twice");
}

const OpDef* find_op(std::string_view name) {
  auto at = registry().find(name);
  return at == registry().end() ? nullptr : at->second.get();
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> all;
  for (const auto& [name, def] : registry()) all.push_back(def.get());
  return all;
}

const ir::OpTable& op_table() {
  static const RegistryTable table;
  return table;
}

// The layers are object libraries: every family is part of libheddle. What can go wrong is a build
// that drops them.
void link_all_ops() { HD_CHECK(!registry().empty(), "no operations are linked in"); }

namespace {

// The graph of the operands; trailing empty tensors are optional operands that are left out.
std::shared_ptr<ir::Graph> common_graph(const OpDef& def, const Tensors& operands, size_t count,
                                        std::shared_ptr<ir::Graph> graph) {
  for (size_t i = 0; i < count; ++i) {
    if (!operands[i].valid()) {
      throw GraphError(cat(def.name, ": ", operand_name(def, i), " is an empty Tensor"));
    }
    if (graph == nullptr) graph = operands[i].graph();
    if (operands[i].graph() != graph) {
      throw GraphError(cat(def.name, ": ", operand_name(def, i),
                           " belongs to another graph than the arguments before it"));
    }
  }
  HD_CHECK(graph != nullptr, def.name, ": no operands and no graph");
  return graph;
}

}  // namespace

Tensors apply_all(std::string_view op, const Tensors& operands, ir::Attrs attrs,
                  std::vector<ir::RegionId> regions, const std::shared_ptr<ir::Graph>& graph) {
  base::StandardFloatingPoint mode;
  const OpDef* def = find_op(op);
  HD_CHECK(def != nullptr, "operation '", op, "' is not registered");
  size_t count = operands.size();
  while (count > 0 && count <= def->operands.size() && !operands[count - 1].valid() &&
         def->operands[count - 1].optional) {
    --count;
  }
  std::shared_ptr<ir::Graph> home = common_graph(*def, operands, count, graph);
  std::vector<ir::ValueId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(operands[i].id());
  ir::OpId id = home->add_op(*def, std::move(ids), std::move(attrs), std::move(regions));
  Tensors results;
  for (ir::ValueId v : home->op(id).results) results.push_back(home->tensor(v));
  return results;
}

Tensor apply(std::string_view op, const Tensors& operands, ir::Attrs attrs) {
  Tensors results = apply_all(op, operands, std::move(attrs));
  HD_CHECK(results.size() == 1, op, " has ", results.size(), " results");
  return results[0];
}

const ir::Op* producer(const Tensor& t) {
  ir::OpId op = t.graph()->value(t.id()).op;
  return op == ir::kNone ? nullptr : &t.graph()->op(op);
}

}  // namespace heddle::ops
