// Operations with regions: branches, loops, calls. How they run is said by ControlInfo.
#include "base/check.h"
#include "ops/support.h"

#include <heddle/graph.h>
#include <heddle/ops.h>

namespace heddle::ops {
namespace {

using base::cat;
using ir::attr_type;
using ir::InferredResult;

const Type kPredicate{DType::boolean, Shape{}};
const Type kCounter{DType::i64, Shape{}};

Type row_type(const Type& stacked) {
  if (!stacked.shape || stacked.shape->empty()) return stacked;  // rank 0 is refused by inference
  return {stacked.dtype, Shape(stacked.shape->begin() + 1, stacked.shape->end())};
}

Type stacked_type(const InferContext& c, const Expr& count, const Type& row) {
  if (!row.shape) return row;
  if (row.rank() >= kMaxRank)
    c.fail(cat("a stacked result has rank ", row.rank() + 1, ", expected at most ", kMaxRank));
  Shape shape{count};
  shape.insert(shape.end(), row.shape->begin(), row.shape->end());
  return {row.dtype, std::move(shape)};
}

std::vector<Type> types_of(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  std::vector<Type> out;
  for (ir::ValueId v : values) out.push_back(graph.value(v).type);
  return out;
}

// Open types are compared once they are known.
bool compatible(const Type& a, const Type& b) { return !a.known() || !b.known() || a == b; }

void check_regions(const InferContext& c, size_t count) {
  if (c.regions.size() != count)
    c.fail(cat("has ", c.regions.size(), " regions, expected ", count));
}

// `what` of the region's arguments or results at [from, ...) are of the expected types.
void check_types(const InferContext& c, const std::string& block, const std::string& verb,
                 const std::string& what, const std::vector<Type>& given,
                 const std::vector<Type>& expected) {
  if (given.size() != expected.size())
    c.fail(cat(block, " ", verb, " ", given.size(), " tensors, expected ", expected.size(), " (",
               what, "s)"));
  for (size_t i = 0; i < given.size(); ++i)
    if (!compatible(given[i], expected[i]))
      c.fail(cat(block, " ", verb, " ", to_string(given[i]), " as ", what, " ", i, ", expected ",
                 to_string(expected[i])));
}

void check_scalar(const InferContext& c, const std::string& what, const Type& type,
                  const Type& expected) {
  if (!compatible(type, expected))
    c.fail(cat(what, " is ", to_string(type), ", expected ", to_string(expected)));
}

void check_row_count(const InferContext& c, size_t given, size_t carried, size_t stacked) {
  if (given < carried || given - carried != stacked)
    c.fail(cat("body gives ", given, " tensors, expected ", carried, " carried values and ",
               stacked, " rows"));
}

std::vector<InferredResult> results_of(const std::vector<Type>& types) {
  std::vector<InferredResult> out;
  for (const Type& t : types) out.push_back({t, std::nullopt});
  return out;
}

// Results of a judge's region run, of which `stacked` trail and go to row k of `stacks`.
void stack_rows(std::vector<HostTensor>& results, size_t carried, std::vector<HostTensor>& stacks,
                int64_t k) {
  for (size_t s = 0; s < stacks.size(); ++s) {
    const HostTensor& row = results[carried + s];
    int64_t n = row.size();
    for (int64_t i = 0; i < n; ++i) copy_element(row, i, stacks[s], k * n + i);
  }
  results.resize(carried);
}

std::vector<HostTensor> empty_stacks(const JudgeContext& c, size_t first) {
  std::vector<HostTensor> out;
  for (size_t i = first; i < c.result_types.size(); ++i)
    out.emplace_back(c.result_types[i].dtype, concrete_shape(c.result_types[i]));
  return out;
}

std::vector<HostTensor> copies(const std::vector<const HostTensor*>& in, size_t count) {
  std::vector<HostTensor> out;
  for (size_t i = 0; i < count; ++i) out.push_back(*in[i]);
  return out;
}

void append(std::vector<HostTensor>& to, std::vector<HostTensor> more) {
  for (HostTensor& t : more) to.push_back(std::move(t));
}

// ---- cond

std::vector<InferredResult> infer_cond(const InferContext& c) {
  check_regions(c, 2);
  check_scalar(c, "predicate", c.type(0), kPredicate);
  for (int which = 0; which < 2; ++which)
    if (!c.graph.region(c.regions[static_cast<size_t>(which)]).arguments.empty())
      c.fail(cat(which == 0 ? "then_block" : "else_block", " has arguments, expected none"));
  std::vector<Type> a = types_of(c.graph, c.graph.region(c.regions[0]).results);
  std::vector<Type> b = types_of(c.graph, c.graph.region(c.regions[1]).results);
  if (a.size() != b.size())
    c.fail(cat("then_block gives ", a.size(), " tensors, else_block gives ", b.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    if (!compatible(a[i], b[i]))
      c.fail(cat("then_block gives ", to_string(a[i]), " as result ", i, ", else_block gives ",
                 to_string(b[i])));
    if (!b[i].known()) a[i] = Type{};
  }
  return results_of(a);
}

const Register cond_entry({
    .name = "cond",
    .kind = Kind::structural,
    .doc = "The results of the first block where the predicate holds, else those of the second; "
           "only that block runs.",
    .operands = {{"predicate", kBool}},
    .results = -1,
    .infer = infer_cond,
    .infer_open = true,
    .judge = [](const JudgeContext& c) { return c.run_region(c.in[0]->i[0] != 0 ? 0 : 1, {}); },
    .control =
        [](const ir::Graph& graph, ir::OpId id) {
          const ir::Op& op = graph.op(id);
          ControlInfo info{.form = Form::cond};
          info.first = op.regions[0];
          info.second = op.regions[1];
          info.predicate = op.operands[0];
          return info;
        },
    .restate =
        [](const ir::Op& op, const ControlInfo& info) {
          return std::pair(std::vector{info.predicate}, op.attrs);
        },
    .region_arguments = [](const InferContext&, int) { return std::vector<Type>{}; },
});

// ---- while_loop

std::vector<Type> while_arguments(const InferContext& c, int which) {
  if (which == 0) return types_of(c.graph, c.operands);
  std::vector<Type> types = types_of(c.graph, c.graph.region(c.regions[0]).results);
  if (!types.empty()) types.erase(types.begin());
  return types;
}

std::vector<InferredResult> infer_while(const InferContext& c) {
  check_regions(c, 2);
  auto stacked = c.attrs.get<int64_t>("stacked");
  auto bound = c.attrs.get<int64_t>("max_iterations");
  const ir::Region& before = c.graph.region(c.regions[0]);
  const ir::Region& after = c.graph.region(c.regions[1]);
  if (bound < -1) c.fail(cat("max_iterations is ", bound, ", expected at least 0"));
  if (stacked < 0 || (stacked > 0 && bound < 0))
    c.fail(cat("stacked is ", stacked, ", expected 0 without max_iterations"));
  std::vector<Type> carried = types_of(c.graph, c.operands);
  check_types(c, "before", "takes", "carried value", types_of(c.graph, before.arguments), carried);
  if (before.results.empty()) c.fail("before gives no tensor, expected a predicate");
  check_scalar(c, "predicate", c.graph.value(before.results[0]).type, kPredicate);
  std::vector<Type> values = while_arguments(c, 1);
  check_types(c, "after", "takes", "value", types_of(c.graph, after.arguments), values);
  std::vector<Type> next = types_of(c.graph, after.results);
  std::vector<Type> rows;
  if (stacked > 0) {
    check_row_count(c, next.size(), carried.size(), static_cast<size_t>(stacked));
    rows.assign(next.begin() + static_cast<std::ptrdiff_t>(carried.size()), next.end());
    next.resize(carried.size());
  }
  check_types(c, "body", "gives", "carried value", next, carried);
  for (const Type& row : rows) values.push_back(stacked_type(c, bound, row));
  return results_of(values);
}

std::vector<HostTensor> judge_while(const JudgeContext& c) {
  auto bound = c.attrs.get<int64_t>("max_iterations");
  auto stacked = static_cast<size_t>(c.attrs.get<int64_t>("stacked"));
  std::vector<HostTensor> carried = copies(c.in, c.in.size());
  std::vector<HostTensor> stacks = empty_stacks(c, c.result_types.size() - stacked);
  for (int64_t k = 0;; ++k) {
    std::vector<HostTensor> values = c.run_region(0, carried);
    bool go_on = values[0].i[0] != 0;
    values.erase(values.begin());
    if (!go_on || k == bound) {
      append(values, std::move(stacks));
      return values;
    }
    carried = c.run_region(1, values);
    stack_rows(carried, c.in.size(), stacks, k);
  }
}

const Register while_entry({
    .name = "while_loop",
    .kind = Kind::structural,
    .doc = "before: carried values -> (predicate, values). While the predicate holds, after: "
           "values -> carried values and "
           "rows; the results are the values that came with the last predicate, then the rows "
           "stacked along axis 0.",
    .operands = {{.name = "initial", .dtypes = kAnyStored, .variadic = true}},
    .attrs = {{"max_iterations", "the loop ends there; -1: no bound", int64_t{-1}},
              {"stacked", "number of trailing results of `after` that are stacked", int64_t{0}}},
    .results = -1,
    .infer = infer_while,
    .infer_open = true,
    .judge = judge_while,
    .control =
        [](const ir::Graph& graph, ir::OpId id) {
          const ir::Op& op = graph.op(id);
          ControlInfo info{.form = Form::while_loop};
          info.first = op.regions[0];
          info.second = op.regions[1];
          info.initial = op.operands;
          auto bound = op.attrs.get<int64_t>("max_iterations");
          if (bound >= 0) info.max_iterations = bound;
          info.stacked = static_cast<size_t>(op.attrs.get<int64_t>("stacked"));
          return info;
        },
    .restate =
        [](const ir::Op& op, const ControlInfo& info) {
          ir::Attrs attrs = op.attrs;
          attrs.set("stacked", static_cast<int64_t>(info.stacked));
          return std::pair(info.initial, std::move(attrs));
        },
    .region_arguments = while_arguments,
});

// ---- for_loop and scan

// Operands of a for_loop: carried values, slices, and the count where the attribute is empty.
struct ForParts {
  size_t carried = 0, slices = 0, stacked = 0;
  std::optional<Expr> count;
};

ForParts for_parts(const ir::Attrs& attrs, size_t operands) {
  ForParts parts;
  const auto& count = attrs.get<std::vector<Expr>>("count");
  if (!count.empty()) parts.count = count[0];
  parts.slices = static_cast<size_t>(attrs.get<int64_t>("slices"));
  parts.stacked = static_cast<size_t>(attrs.get<int64_t>("stacked"));
  parts.carried = operands - parts.slices - (parts.count ? 0 : 1);
  return parts;
}

void check_for_attrs(const InferContext& c) {
  const auto& count = c.attrs.get<std::vector<Expr>>("count");
  auto slices = c.attrs.get<int64_t>("slices");
  auto stacked = c.attrs.get<int64_t>("stacked");
  if (count.size() > 1) c.fail("count has several expressions, expected one or none");
  int64_t free = static_cast<int64_t>(c.operands.size()) - (count.empty() ? 1 : 0);
  if (slices < 0 || slices > free)
    c.fail(cat("slices is ", slices, ", with ", c.operands.size(), " operands"));
  if (stacked < 0) c.fail(cat("stacked is ", stacked));
  if ((slices > 0 || stacked > 0) && count.empty())
    c.fail("slices and stacked results need a count that is an expression");
  if (!count.empty() && count[0].upper() < 0) c.fail(cat("count is ", count[0].to_string()));
}

std::vector<Type> for_arguments(const InferContext& c, int) {
  check_for_attrs(c);
  ForParts parts = for_parts(c.attrs, c.operands.size());
  std::vector<Type> types{kCounter};
  for (size_t i = 0; i < parts.carried; ++i) types.push_back(c.type(i));
  for (size_t i = 0; i < parts.slices; ++i) types.push_back(row_type(c.type(parts.carried + i)));
  return types;
}

std::vector<InferredResult> infer_for(const InferContext& c) {
  check_regions(c, 1);
  check_for_attrs(c);
  ForParts parts = for_parts(c.attrs, c.operands.size());
  if (!parts.count) check_scalar(c, "count", c.type(c.operands.size() - 1), kCounter);
  for (size_t i = 0; i < parts.slices; ++i) {
    const Type& t = c.type(parts.carried + i);
    if (!t.shape) continue;
    if (t.shape->empty() || is_equal((*t.shape)[0], *parts.count) != Ordering::yes)
      c.fail(cat("xs[", i, "] is ", to_string(t), ", expected extent ", parts.count->to_string(),
                 " along axis 0"));
  }
  const ir::Region& body = c.graph.region(c.regions[0]);
  check_types(c, "body", "takes", "argument", types_of(c.graph, body.arguments),
              for_arguments(c, 0));
  std::vector<Type> carried;
  for (size_t i = 0; i < parts.carried; ++i) carried.push_back(c.type(i));
  std::vector<Type> next = types_of(c.graph, body.results);
  std::vector<Type> rows;
  if (parts.stacked > 0) {
    check_row_count(c, next.size(), parts.carried, parts.stacked);
    rows.assign(next.begin() + static_cast<std::ptrdiff_t>(parts.carried), next.end());
    next.resize(parts.carried);
  }
  check_types(c, "body", "gives", "carried value", next, carried);
  for (const Type& row : rows) carried.push_back(stacked_type(c, *parts.count, row));
  return results_of(carried);
}

HostTensor judge_row(const HostTensor& x, int64_t k) {
  HostTensor row(x.dtype, {x.shape.begin() + 1, x.shape.end()});
  int64_t n = row.size();
  for (int64_t i = 0; i < n; ++i) copy_element(x, k * n + i, row, i);
  return row;
}

std::vector<HostTensor> judge_for(const JudgeContext& c) {
  ForParts parts = for_parts(c.attrs, c.in.size());
  int64_t count = parts.count ? c.number(*parts.count) : c.in.back()->i[0];
  std::vector<HostTensor> carried = copies(c.in, parts.carried);
  std::vector<HostTensor> stacks = empty_stacks(c, parts.carried);
  for (int64_t k = 0; k < count; ++k) {
    std::vector<HostTensor> arguments;
    HostTensor counter(i64, {});
    counter.i[0] = k;
    arguments.push_back(std::move(counter));
    append(arguments, std::move(carried));
    for (size_t i = 0; i < parts.slices; ++i)
      arguments.push_back(judge_row(*c.in[parts.carried + i], k));
    carried = c.run_region(0, arguments);
    stack_rows(carried, parts.carried, stacks, k);
  }
  append(carried, std::move(stacks));
  return carried;
}

ControlInfo for_control(const ir::Graph& graph, ir::OpId id) {
  const ir::Op& op = graph.op(id);
  ForParts parts = for_parts(op.attrs, op.operands.size());
  ControlInfo info{.form = Form::for_loop};
  info.first = op.regions[0];
  auto carried = static_cast<std::ptrdiff_t>(parts.carried);
  auto slices = static_cast<std::ptrdiff_t>(parts.slices);
  info.initial.assign(op.operands.begin(), op.operands.begin() + carried);
  info.slices.assign(op.operands.begin() + carried, op.operands.begin() + carried + slices);
  info.count = parts.count;
  if (!parts.count) info.count_value = op.operands.back();
  info.stacked = parts.stacked;
  return info;
}

std::pair<std::vector<ir::ValueId>, ir::Attrs> for_restated(const ir::Op& op,
                                                            const ControlInfo& info) {
  std::vector<ir::ValueId> operands = info.initial;
  operands.insert(operands.end(), info.slices.begin(), info.slices.end());
  if (!info.count) operands.push_back(info.count_value);
  ir::Attrs attrs = op.attrs;
  attrs.set("slices", static_cast<int64_t>(info.slices.size()));
  attrs.set("stacked", static_cast<int64_t>(info.stacked));
  return {std::move(operands), std::move(attrs)};
}

OpDef for_def(const char* name, const char* doc) {
  return {
      .name = name,
      .kind = Kind::structural,
      .doc = doc,
      .operands = {{.name = "operands", .dtypes = kAnyStored, .variadic = true}},
      .attrs = {{"count", "number of iterations; empty: the last operand, a scalar i64",
                 std::vector<Expr>{}},
                {"slices", "number of operands after the carried values that are read row by row",
                 int64_t{0}},
                {"stacked", "number of trailing results of the body that are stacked", int64_t{0}}},
      .results = -1,
      .infer = infer_for,
      .infer_open = true,
      .judge = judge_for,
      .control = for_control,
      .restate = for_restated,
      .region_arguments = for_arguments,
  };
}

const Register for_entry(for_def("for_loop",
                                 "For k = 0 .. count-1: carried values = body(k, carried values). "
                                 "Results: the last carried values."));
const Register scan_entry(for_def("scan",
                                  "For k = 0 .. count-1: (carried values, rows) = body(k, carried "
                                  "values, row k of each of xs). Results: the last "
                                  "carried values, then the rows stacked along axis 0."));

// ---- call

std::vector<InferredResult> infer_call(const InferContext& c) {
  check_regions(c, 1);
  const ir::Region& callee = c.graph.region(c.regions[0]);
  check_types(c, "callee", "takes", "argument", types_of(c.graph, callee.arguments),
              types_of(c.graph, c.operands));
  return results_of(types_of(c.graph, callee.results));
}

const Register call_entry({
    .name = "call",
    .kind = Kind::structural,
    .doc = "The results of a function of the arguments.",
    .operands = {{.name = "arguments", .dtypes = kAnyStored, .variadic = true}},
    .results = -1,
    .infer = infer_call,
    .infer_open = true,
    .judge = [](const JudgeContext& c) { return c.run_region(0, copies(c.in, c.in.size())); },
    .control =
        [](const ir::Graph& graph, ir::OpId id) {
          ControlInfo info{.form = Form::call};
          info.first = graph.op(id).regions[0];
          info.initial = graph.op(id).operands;
          return info;
        },
    .region_arguments = [](const InferContext& c, int) { return types_of(c.graph, c.operands); },
});

}  // namespace

ControlInfo control_info(const ir::Graph& graph, ir::OpId op) {
  const OpDef& def = *graph.op(op).def;
  return def.control ? def.control(graph, op) : ControlInfo{};
}

}  // namespace heddle::ops
