#include "ops/judge.h"

#include "base/check.h"
#include "base/hash.h"
#include "ops/opdef.h"

#include <heddle/error.h>

#include <cmath>
#include <memory>

namespace heddle::ops {

using base::cat;
using ir::kTopRegion;
using ir::OpId;
using ir::RegionId;
using ir::ValueId;

namespace {

using HostRef = std::shared_ptr<const HostTensor>;

// Values of one execution of a region; values of enclosing regions are found through `outer`.
struct Scope {
  const Scope* outer = nullptr;
  std::map<ValueId, HostRef> values;

  const HostRef& at(ValueId v) const {
    for (const Scope* s = this; s != nullptr; s = s->outer) {
      auto found = s->values.find(v);
      if (found != s->values.end()) return found->second;
    }
    throw InternalError(cat("judge: value ", v, " was not computed"));
  }
};

class Executor {
 public:
  Executor(const ir::Graph& graph, std::map<int64_t, HostTensor>& variables,
           const JudgeOptions& options)
      : graph_(graph), variables_(variables), options_(options) {}

  std::vector<HostTensor> run(const std::vector<HostTensor>& feeds) {
    const std::vector<ValueId>& arguments = graph_.region(kTopRegion).arguments;
    if (feeds.size() != arguments.size()) {
      throw GraphError(
          cat("judge: ", arguments.size(), " feeds are expected, ", feeds.size(), " given"));
    }
    for (size_t i = 0; i < feeds.size(); ++i) {
      bind(graph_.value(arguments[i]).type, feeds[i], cat("feed ", i));
    }
    std::vector<HostRef> bound;
    for (const HostTensor& feed : feeds) {
      auto own = std::make_shared<HostTensor>(feed);
      add_noise(*own);
      bound.push_back(std::move(own));
    }
    std::vector<HostTensor> results;
    for (const HostRef& r : run_region(kTopRegion, bound, nullptr)) results.push_back(*r);
    return results;
  }

 private:
  std::vector<HostRef> run_region(RegionId id, const std::vector<HostRef>& arguments,
                                  const Scope* outer) {
    const ir::Region& region = graph_.region(id);
    HD_CHECK(arguments.size() == region.arguments.size(), "region ", id, " takes ",
             region.arguments.size(), " arguments, given ", arguments.size());
    Scope scope{outer, {}};
    for (size_t i = 0; i < arguments.size(); ++i) scope.values[region.arguments[i]] = arguments[i];
    for (OpId op : region.ops) run_op(op, scope);
    std::vector<HostRef> results;
    for (ValueId v : region.results) results.push_back(scope.at(v));
    return results;
  }

  void run_op(OpId id, Scope& scope) {
    const ir::Op& op = graph_.op(id);
    if (role_of(op) ==
        Role::variable) {  // the state when the run starts: nothing can assign before
      return keep_results(op, {variable(op.results[0])}, scope);
    }
    HD_CHECK(op.def->judge != nullptr, op.name, " has no judge");
    JudgeContext ctx{op.attrs, {}, {}, [&](const Expr& e) { return number(e); }, {}, {}};
    std::vector<HostRef> operands;
    for (ValueId v : op.operands) operands.push_back(scope.at(v));
    for (const HostRef& operand : operands) ctx.in.push_back(operand.get());
    for (ValueId v : op.results) ctx.result_types.push_back(concrete(graph_.value(v).type));
    ctx.variable = [&](size_t operand) -> HostTensor& { return variable(op.operands.at(operand)); };
    std::vector<int64_t> runs(op.regions.size(), 0);
    ctx.run_region = [&](int region, const std::vector<HostTensor>& arguments) {
      auto index = static_cast<size_t>(region);
      if (runs.at(index)++ > options_.max_iterations) {
        throw DeviceError(
            cat(op.name, ": ran longer than ", options_.max_iterations, " iterations"));
      }
      std::vector<HostRef> bound;
      for (const HostTensor& t : arguments) bound.push_back(std::make_shared<HostTensor>(t));
      std::vector<HostTensor> results;
      for (const HostRef& r : run_region(op.regions[index], bound, &scope)) results.push_back(*r);
      return results;
    };
    keep_results(op, op.def->judge(ctx), scope);
  }

  void keep_results(const ir::Op& op, std::vector<HostTensor> results, Scope& scope) {
    HD_CHECK(results.size() == op.results.size(), op.name, ": the judge gave ", results.size(),
             " results");
    for (size_t i = 0; i < results.size(); ++i) {
      const Type& declared = graph_.value(op.results[i]).type;
      HostTensor& t = results[i];
      bind(declared, t, cat("judge of ", op.name, ", result ", i));
      bool floating = is_real_float(t.dtype) || is_complex(t.dtype);
      if (options_.round || !floating) round_to_dtype(t);
      add_noise(t);
      if (options_.values != nullptr && scope.outer == nullptr)
        (*options_.values)[op.results[i]] = t;
      scope.values[op.results[i]] = std::make_shared<HostTensor>(std::move(t));
    }
  }

  // Numbers with few digits stay: sums and products of them are exact on every device, and what is
  // decided by comparing them must not depend on noise.
  void add_noise(HostTensor& t) {
    if (options_.noise <= 0 || !(is_real_float(t.dtype) || is_complex(t.dtype))) return;
    double unit = options_.noise * epsilon(t.dtype) / 2;
    auto moved = [&](double v) {
      bool few_digits = std::fabs(v) < 4096 && v * 1024 == std::floor(v * 1024);
      if (few_digits || !std::isfinite(v)) return v;
      noise_state_ = base::mix(noise_state_, options_.noise_seed);
      double u = static_cast<double>(noise_state_ >> 11) * 0x1p-52 - 1;  // in [-1, 1)
      return v * (1 + u * unit);
    };
    for (double& v : t.f) v = moved(v);
    for (auto& v : t.c) v = {moved(v.real()), moved(v.imag())};
  }

  // Checks the value against the declared type, and learns the extents that it fixes.
  void bind(const Type& declared, const HostTensor& t, const std::string& what) {
    size_t count = static_cast<size_t>(t.size());
    size_t held = is_complex(t.dtype) ? t.c.size() : t.is_float() ? t.f.size() : t.i.size();
    HD_CHECK(held == count, what, ": holds ", held, " of ", count, " elements");
    Type actual{t.dtype, Shape(t.shape.begin(), t.shape.end())};
    if (declared.shape) {
      for (const Expr& extent : *declared.shape) forget_defined(extent);
    }
    ir::bind_symbols(declared, actual, symbols_, what);
  }

  // A size that is computed on the device may differ at each execution.
  void forget_defined(const Expr& extent) {
    if (extent.kind() == ExprKind::symbol && extent.symbol()->kind == SymbolKind::defined) {
      symbols_.erase(extent.symbol()->id);
    }
  }

  int64_t number(const Expr& e) const {
    return evaluate(e, [&](const Symbol& symbol) -> std::optional<int64_t> {
      auto at = symbols_.find(symbol.id);
      return at == symbols_.end() ? std::nullopt : at->second.second.constant();
    });
  }

  // Extents that are not known yet (sizes defined by the op itself) stay symbols.
  Type concrete(const Type& type) const {
    return std::get<Type>(
        ir::map_exprs(type, [&](const Expr& e) { return ir::apply_bindings(e, symbols_); }));
  }

  HostTensor& variable(ValueId v) {
    OpId op = graph_.value(v).op;
    HD_CHECK(op != ir::kNone && role_of(graph_.op(op)) == Role::variable, "not a variable");
    int64_t id = graph_.op(op).attrs.get<int64_t>("id");
    auto at = variables_.find(id);
    if (at == variables_.end()) {
      at = variables_.emplace(id, from_literal(*literal_of(graph_.op(op)))).first;
    }
    return at->second;
  }

  const ir::Graph& graph_;
  std::map<int64_t, HostTensor>& variables_;
  const JudgeOptions& options_;
  ir::SymbolBindings symbols_;
  uint64_t noise_state_ = 0;
};

}  // namespace

std::vector<HostTensor> judge(const ir::Graph& graph, const std::vector<HostTensor>& feeds,
                              std::map<int64_t, HostTensor>* variables,
                              const JudgeOptions& options) {
  std::map<int64_t, HostTensor> own;
  Executor executor(graph, variables != nullptr ? *variables : own, options);
  return executor.run(feeds);
}

}  // namespace heddle::ops
