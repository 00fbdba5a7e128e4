#include "base/check.h"
#include "ir/graph.h"

#include <heddle/error.h>

#include <algorithm>

namespace heddle::ir {

using base::cat;

namespace {

// Walks the regions from the top; throws the first broken rule as a Broken.
struct Broken {
  std::string text;
};

// What a rule is about. It becomes text only where the rule is broken: texts of all that holds
// would cost more than the rules.
struct Subject {
  const char* part = nullptr;   // "operand", "result"
  std::optional<size_t> index;  // of the part
  std::string_view attr;
  RegionId region = kNone;  // where it is no operation
  OpId op = kNone;
  std::string_view name = {};  // of the operation

  Subject result(size_t i) const { return {"result", i, {}, region, op, name}; }
  Subject operand() const { return {"an operand", std::nullopt, {}, region, op, name}; }
  Subject attribute(std::string_view a) const {
    return {nullptr, std::nullopt, a, region, op, name};
  }

  friend std::ostream& operator<<(std::ostream& out, const Subject& s) {
    if (s.op == kNone) {
      out << "region " << s.region;
    } else {
      out << "operation " << s.op << " (" << s.name << ")";
    }
    if (s.part != nullptr) out << (s.index ? ", " : ": ") << s.part;
    if (s.index) out << " " << *s.index;
    if (!s.attr.empty()) out << ", " << s.attr;
    return out;
  }
};

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph),
        since_(newest_symbol()),
        defined_(graph.value_count(), false),
        done_(graph.op_count(), false) {}

  void run() {
    const Region& top = graph_.region(kTopRegion);
    require(top.owner == kNone && top.parent == kNone, "the top region has an owner");
    region(kTopRegion, 0);
  }

 private:
  template <class... Parts>
  static void require(bool holds, const Parts&... parts) {
    if (!holds) throw Broken{cat(parts...)};
  }

  void region(RegionId id, int depth) {
    require(depth <= kMaxRegionDepth, "region ", id, ": nested too deep, or in itself");
    const Region& r = graph_.region(id);
    for (size_t i = 0; i < r.arguments.size(); ++i) {
      define(r.arguments[i], kNone, i, id, {"argument", i, {}, id});
    }
    for (OpId op_id : r.ops) op(op_id, id, depth);
    for (ValueId v : r.results) use(v, {"a result", std::nullopt, {}, id});
    // What a closed region defined is out of sight.
    for (ValueId v : r.arguments) defined_[v] = id == kTopRegion;
    for (OpId op_id : r.ops) {
      for (ValueId v : graph_.op(op_id).results) defined_[v] = id == kTopRegion;
      done_[op_id] = id == kTopRegion;
    }
  }

  void define(ValueId v, OpId op, size_t index, RegionId region, const Subject& what) {
    require(v < graph_.value_count(), what, ": value ", v, " does not exist");
    const Value& value = graph_.value(v);
    require(value.op == op && value.index == index && value.region == region, what, ": value ", v,
            " says that it is defined elsewhere");
    require(!defined_[v], what, ": value ", v, " is defined twice");
    check_type(value.type, what);
    if (value.elements) {
      std::optional<int64_t> count =
          value.type.shape ? element_count(*value.type.shape).constant() : std::nullopt;
      require(count == static_cast<int64_t>(value.elements->size()), what,
              ": the number of known elements does not fit the shape");
    }
    defined_[v] = true;
  }

  static void check_type(const Type& type, const Subject& what) {
    require(static_cast<int>(type.dtype) < kDTypeCount, what, ": unknown dtype");
    require(type.rank() <= kMaxRank, what, ": rank ", type.rank());
    if (!type.shape) return;
    for (const Expr& extent : *type.shape) {
      if (extent.upper() < 0) throw Broken{cat(what, ": negative extent in ", to_string(type))};
    }
  }

  void use(ValueId v, const Subject& what) {
    require(v < graph_.value_count(), what, ": value ", v, " does not exist");
    require(defined_[v], what, ": value ", v,
            " is used before its definition or outside its region");
  }

  void op(OpId id, RegionId parent, int depth) {
    require(id < graph_.op_count(), "region ", parent, ": operation ", id, " does not exist");
    const Op& op = graph_.op(id);
    require(op.def != nullptr, "operation ", id, " has no definition");
    Subject what;
    what.op = id, what.name = op.name;
    require(!done_[id], what, " occurs twice");
    require(op.parent == parent, what, ": its parent is another region");
    for (ValueId v : op.operands) use(v, what.operand());
    for (OpId before : op.after) {
      require(before < graph_.op_count() && done_[before], what,
              ": waits for an operation that is not before it");
    }
    for (const auto& [name, value] : op.attrs.items()) attr(value, what.attribute(name));
    for (RegionId r : op.regions) {
      require(r < graph_.region_count() && r != kTopRegion, what, ": region ", r,
              " does not exist");
      require(graph_.region(r).owner == id && graph_.region(r).parent == parent, what, ": region ",
              r, " has another owner or parent");
      region(r, depth + 1);
    }
    types(op, what);
    for (size_t i = 0; i < op.results.size(); ++i) {
      define(op.results[i], id, i, parent, what.result(i));
    }
    done_[id] = true;
  }

  static void attr(const Attr& value, const Subject& what) {
    const auto* literal = std::get_if<LiteralRef>(&value);
    if (literal == nullptr) return;
    require(*literal != nullptr, what, ": no data");
    const Literal& data = **literal;
    int64_t count = 1;
    bool fits = data.dtype != DType::unknown;
    for (int64_t n : data.shape) fits = fits && n >= 0 && !__builtin_mul_overflow(count, n, &count);
    require(fits && static_cast<int64_t>(data.bytes.size()) == byte_size(data.dtype, count), what,
            ": the size of the data does not fit its shape");
  }

  void types(const Op& op, const Subject& what) {
    std::vector<InferredResult> inferred;
    try {
      require(graph_.table().complete(*op.def, op.attrs) == op.attrs, what,
              ": attributes are not complete");
      inferred = graph_.table().infer(graph_, *op.def, op.operands, op.attrs, op.regions);
    } catch (const Error& e) {
      throw Broken{cat(what, ": inference fails: ", e.what())};
    }
    require(inferred.size() == op.results.size(), what, ": has ", op.results.size(),
            " results, inference says ", inferred.size());
    for (size_t i = 0; i < inferred.size(); ++i) {
      require(op.results[i] < graph_.value_count(), what, ": result ", i, " does not exist");
      const Type& stated = graph_.value(op.results[i]).type;
      if (matches_inferred(stated, inferred[i].type, since_)) continue;
      throw Broken{cat(what, ": result ", i, " is ", to_string(stated), ", inference says ",
                       to_string(inferred[i].type))};
    }
  }

  const Graph& graph_;
  uint64_t since_;
  std::vector<bool> defined_, done_;
};

}  // namespace

std::string verify(const Graph& graph) {
  try {
    Verifier(graph).run();
  } catch (const Broken& broken) {
    return broken.text;
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace heddle::ir
