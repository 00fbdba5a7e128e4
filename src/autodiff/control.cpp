// Gradients through branches, loops and calls. A loop is run again with its carried values stacked,
// iteration by iteration; then a second loop walks the iterations backwards.
#include "autodiff/reverse.h"

#include "base/check.h"
#include "ops/support.h"

#include <heddle/ops.h>

#include <algorithm>

namespace heddle::autodiff {

using base::cat;
using ops::build_region;
using ops::zeros_like;

namespace {

std::vector<ValueId> ids_of(const Tensors& ts) {
  std::vector<ValueId> out;
  for (const Tensor& t : ts) out.push_back(t.id());
  return out;
}

std::vector<Type> types_of(const Tensors& ts) {
  std::vector<Type> out;
  for (const Tensor& t : ts) out.push_back(t.type());
  return out;
}

Tensors tensors_of(const GraphRef& graph, const std::vector<ValueId>& ids) {
  Tensors out;
  for (ValueId v : ids) out.push_back(graph->tensor(v));
  return out;
}

Tensors inlined(const GraphRef& graph, ir::RegionId region, const Tensors& arguments) {
  return tensors_of(graph, ir::Cloner(*graph, *graph).inline_region(region, ids_of(arguments)));
}

void append(Tensors& to, const Tensors& more) { to.insert(to.end(), more.begin(), more.end()); }

// Takes the next `count` tensors of a list.
class Reader {
 public:
  explicit Reader(const Tensors& list) : list_(list) {}
  Tensors take(size_t count) {
    auto from = list_.begin() + static_cast<std::ptrdiff_t>(at_);
    at_ += count;
    return {from, from + static_cast<std::ptrdiff_t>(count)};
  }

 private:
  const Tensors& list_;
  size_t at_ = 0;
};

Tensors filled(const Tensors& gradients, const Tensors& like) {
  Tensors out;
  for (size_t i = 0; i < like.size(); ++i)
    out.push_back(gradients[i].valid() ? gradients[i] : zeros_like(like[i]));
  return out;
}

Tensors floats_of(const Tensors& ts) {
  Tensors out;
  for (const Tensor& t : ts)
    if (carries_gradient(t.type())) out.push_back(t);
  return out;
}

// Spreads the tensors of the floating ones over a list with as many places as `like`, invalid
// elsewhere.
Tensors spread(const Tensors& floats, const Tensors& like) {
  Tensors out;
  size_t next = 0;
  for (const Tensor& t : like)
    out.push_back(carries_gradient(t.type()) ? floats[next++] : Tensor{});
  return out;
}

// What the op's regions capture and a gradient is wanted of.
Tensors wanted_captures(const GraphRef& graph, ir::OpId op, const std::set<ValueId>& wanted) {
  Tensors out;
  std::set<ValueId> seen;
  for (ir::RegionId region : graph->op(op).regions)
    for (ValueId v : graph->captures(region))
      if (wanted.contains(v) && carries_gradient(graph->value(v).type) && seen.insert(v).second)
        out.push_back(graph->tensor(v));
  return out;
}

void add_all(Contributions& into, const Tensors& values, const Tensors& gradients) {
  for (size_t i = 0; i < values.size(); ++i) into.add(values[i].id(), gradients[i]);
}

// Gradients of `xs` from the seeds of the tensors `ys` that were just built from them; zeros where
// nothing flows.
Tensors local_reverse(const GraphRef& graph, const Tensors& ys, const Tensors& seeds,
                      const Tensors& xs) {
  return filled(reverse(graph, ids_of(ys), seeds, ids_of(xs), true), xs);
}

Tensors added(const Tensors& a, const Tensors& b) {
  Tensors out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(a[i] + b[i]);
  return out;
}

// ---- call, cond

void call_gradient(const GraphRef& graph, const ops::ControlInfo& info, const Tensors& upstream,
                   const Tensors& captures, Contributions& into) {
  // Identities keep two equal arguments apart.
  Tensors arguments;
  for (ValueId v : info.initial) arguments.push_back(identity(graph->tensor(v)));
  Tensors results = inlined(graph, info.first, arguments);
  Tensors xs = arguments;
  append(xs, captures);
  Tensors gradients = reverse(graph, ids_of(results), upstream, ids_of(xs), true);
  Reader reader(gradients);
  add_all(into, tensors_of(graph, info.initial), reader.take(arguments.size()));
  add_all(into, captures, reader.take(captures.size()));
}

void cond_gradient(const GraphRef& graph, const ops::ControlInfo& info, const Tensors& upstream,
                   const Tensors& captures, Contributions& into) {
  if (captures.empty()) return;
  auto block = [&](ir::RegionId region) {
    return build_region(graph, {}, "gradients of cond", "block", [&](const Tensors&) {
      Tensors results = inlined(graph, region, {});
      return local_reverse(graph, results, upstream, captures);
    });
  };
  ir::RegionId first = block(info.first);
  ir::RegionId second = block(info.second);
  Tensors gradients = ops::apply_all("cond", {graph->tensor(info.predicate)}, {}, {first, second});
  add_all(into, captures, gradients);
}

// ---- for_loop

Tensor reversed(const Tensor& stacked) {
  SliceOptions flip;
  flip.strides.assign(stacked.shape().size(), 1);
  flip.strides[0] = -1;
  return slice(stacked, flip);
}

Tensors all_reversed(const Tensors& stacked) {
  Tensors out;
  for (const Tensor& t : stacked) out.push_back(reversed(t));
  return out;
}

// An i64 scalar with the value of an expression that is at least 0.
Tensor expression_tensor(const GraphRef& graph, const Expr& e) {
  if (std::optional<int64_t> n = e.constant())
    return reshape(ops::index_constant(graph, {*n}), Shape{});
  Tensor sized = ops::zeros_of(graph, type(DType::boolean, {e}));
  return reshape(shape_of(sized), Shape{});
}

std::vector<Type> row_types(const Tensors& stacked) {
  std::vector<Type> out;
  for (const Tensor& t : stacked)
    out.push_back({t.dtype(), Shape(t.shape().begin() + 1, t.shape().end())});
  return out;
}

// A counted loop: body(k, carried, rows of xs) -> carried, rows. Gives carried values, then stacked
// rows.
Tensors counted_loop(
    const GraphRef& graph, const Expr& count, const Tensors& initial, const Tensors& xs,
    size_t stacked,
    const std::function<Tensors(const Tensor&, const Tensors&, const Tensors&)>& body) {
  std::vector<Type> types{type(i64, {})};
  for (const Type& t : types_of(initial)) types.push_back(t);
  for (const Type& t : row_types(xs)) types.push_back(t);
  ir::RegionId region =
      build_region(graph, types, "gradients of for_loop", "body", [&](const Tensors& arguments) {
        Reader reader(arguments);
        Tensor k = reader.take(1)[0];
        Tensors carried = reader.take(initial.size());
        return body(k, carried, reader.take(xs.size()));
      });
  Tensors operands = initial;
  append(operands, xs);
  ir::Attrs attrs{{"count", std::vector<Expr>{count}},
                  {"slices", static_cast<int64_t>(xs.size())},
                  {"stacked", static_cast<int64_t>(stacked)}};
  return ops::apply_all("scan", operands, std::move(attrs), {region}, graph);
}

// The carried values at the start of each iteration, stacked.
Tensors stacked_states(const GraphRef& graph, const ops::ControlInfo& info, const Tensors& initial,
                       const Tensors& xs) {
  if (initial.empty()) return {};
  auto body = [&](const Tensor& k, const Tensors& carried, const Tensors& rows) {
    Tensors arguments{k};
    append(arguments, carried);
    append(arguments, rows);
    Tensors results = inlined(graph, info.first, arguments);
    results.resize(carried.size());
    append(results, carried);
    return results;
  };
  Tensors results = counted_loop(graph, *info.count, initial, xs, initial.size(), body);
  return {results.begin() + static_cast<std::ptrdiff_t>(initial.size()), results.end()};
}

void for_gradient(const GraphRef& graph, const ops::ControlInfo& info, const Tensors& upstream,
                  const Tensors& captures, Contributions& into) {
  if (!info.count)
    throw GraphError(
        "gradients: for_loop has a count that is known only when it runs: give the count as an "
        "expression, or use "
        "while_loop with WhileOptions::max_iterations");
  Tensors initial = tensors_of(graph, info.initial);
  Tensors xs = tensors_of(graph, info.slices);
  Tensors states = stacked_states(graph, info, initial, xs);
  size_t carried = initial.size();
  Tensors carried_upstream(upstream.begin(),
                           upstream.begin() + static_cast<std::ptrdiff_t>(carried));
  // Upstream gradients of the stacked results, those that there are.
  Tensors row_upstream(upstream.begin() + static_cast<std::ptrdiff_t>(carried), upstream.end());
  Tensors flowing;
  for (const Tensor& t : row_upstream)
    if (t.valid()) flowing.push_back(t);

  Tensors float_states = floats_of(initial);
  Tensors float_xs = floats_of(xs);
  Tensors adjoints = floats_of(filled(carried_upstream, initial));
  for (const Tensor& c : captures) adjoints.push_back(zeros_like(c));
  Tensors walked = all_reversed(states);
  append(walked, all_reversed(xs));
  append(walked, all_reversed(flowing));
  Tensor last = expression_tensor(graph, max(*info.count - 1, Expr(0)));

  auto body = [&](const Tensor& j, const Tensors& adjoint, const Tensors& rows) {
    Reader of_adjoint(adjoint), of_rows(rows);
    Tensors state_adjoint = of_adjoint.take(float_states.size());
    Tensors capture_adjoint = of_adjoint.take(captures.size());
    Tensors state = of_rows.take(carried);
    Tensors slices = of_rows.take(xs.size());
    Tensors row_seeds = of_rows.take(flowing.size());
    Tensors arguments{last - j};
    append(arguments, state);
    append(arguments, slices);
    Tensors results = inlined(graph, info.first, arguments);
    Tensors seeds = spread(state_adjoint, state);
    size_t next = 0;
    for (const Tensor& t : row_upstream) seeds.push_back(t.valid() ? row_seeds[next++] : Tensor{});
    Tensors wanted = floats_of(state);
    append(wanted, captures);
    append(wanted, floats_of(slices));
    Tensors gradients = local_reverse(graph, results, seeds, wanted);
    Reader reader(gradients);
    Tensors out = reader.take(state_adjoint.size());
    append(out, added(capture_adjoint, reader.take(captures.size())));
    append(out, reader.take(float_xs.size()));
    return out;
  };
  Tensors results = counted_loop(graph, *info.count, adjoints, walked, float_xs.size(), body);
  Reader reader(results);
  add_all(into, float_states, reader.take(float_states.size()));
  add_all(into, captures, reader.take(captures.size()));
  add_all(into, float_xs, all_reversed(reader.take(float_xs.size())));
}

// ---- while_loop

// The loop run again: the carried values of the last `before`, the number of iterations, the
// carried values stacked.
struct WhileTrace {
  Tensors last, stacked;
  Tensor count;
};

WhileTrace trace_while(const GraphRef& graph, const ops::ControlInfo& info,
                       const Tensors& initial) {
  Tensors carried = initial;
  carried.push_back(expression_tensor(graph, 0));
  std::vector<Type> value_types;
  ir::RegionId first = build_region(
      graph, types_of(carried), "gradients of while_loop", "before", [&](const Tensors& v) {
        Tensors results = inlined(graph, info.first, Tensors(v.begin(), v.end() - 1));
        append(results, v);
        value_types = types_of(results);
        value_types.erase(value_types.begin());
        return results;
      });
  size_t n = initial.size();
  ir::RegionId second = build_region(graph, value_types, "gradients of while_loop", "after",
                                     [&](const Tensors& values) {
                                       Reader reader(values);
                                       Tensors u = reader.take(values.size() - n - 1);
                                       Tensors states = reader.take(n);
                                       Tensor k = reader.take(1)[0];
                                       Tensors results = inlined(graph, info.second, u);
                                       results.resize(n);
                                       results.push_back(k + constant_like(k, 1));
                                       append(results, states);
                                       return results;
                                     });
  ir::Attrs attrs{{"max_iterations", *info.max_iterations}, {"stacked", static_cast<int64_t>(n)}};
  Tensors results = ops::apply_all("while_loop", carried, std::move(attrs), {first, second});
  Reader reader(results);
  reader.take(results.size() - 2 * n - 1);
  WhileTrace trace;
  trace.last = reader.take(n);
  trace.count = reader.take(1)[0];
  trace.stacked = reader.take(n);
  return trace;
}

Tensors all_rows(const Tensors& stacked, const Tensor& k) {
  Tensors out;
  for (const Tensor& t : stacked) out.push_back(gather(t, k));
  return out;
}

void while_gradient(const GraphRef& graph, const ops::ControlInfo& info, const Tensors& upstream,
                    const Tensors& captures, Contributions& into) {
  if (!info.max_iterations)
    throw GraphError(
        "gradients: while_loop has no bound on its iterations: set WhileOptions::max_iterations");
  Tensors initial = tensors_of(graph, info.initial);
  WhileTrace trace = trace_while(graph, info, initial);
  size_t values = upstream.size() - info.stacked;
  Tensors value_seeds(upstream.begin(), upstream.begin() + static_cast<std::ptrdiff_t>(values));
  Tensors row_upstream(upstream.begin() + static_cast<std::ptrdiff_t>(values), upstream.end());

  // The last `before`, whose values are the results.
  Tensors wanted = floats_of(trace.last);
  size_t floats = wanted.size();
  append(wanted, captures);
  Tensors results = inlined(graph, info.first, trace.last);
  results.erase(results.begin());
  Tensors adjoints = local_reverse(graph, results, value_seeds, wanted);

  auto step = [&](const Tensor& k, const Tensors& adjoint) {
    Reader reader(adjoint);
    Tensors state_adjoint = reader.take(floats);
    Tensors capture_adjoint = reader.take(captures.size());
    Tensors state = all_rows(trace.stacked, k);
    Tensors u = inlined(graph, info.first, state);
    u.erase(u.begin());
    Tensors next = inlined(graph, info.second, u);
    Tensors seeds = spread(state_adjoint, state);
    for (const Tensor& t : row_upstream) seeds.push_back(t.valid() ? gather(t, k) : Tensor{});
    Tensors xs = floats_of(state);
    append(xs, captures);
    Tensors gradients = local_reverse(graph, next, seeds, xs);
    Reader parts(gradients);
    Tensors out = parts.take(floats);
    append(out, added(capture_adjoint, parts.take(captures.size())));
    return out;
  };
  // Walks k = count - 1 .. 0; bounded as the loop itself, so that it has a gradient too.
  Tensors carried = adjoints;
  carried.push_back(trace.count - constant_like(trace.count, 1));
  Tensors back = while_loop(
      carried, [&](const Tensors& v) { return v.back() >= constant_like(v.back(), 0); },
      [&](const Tensors& v) {
        Tensors out = step(v.back(), Tensors(v.begin(), v.end() - 1));
        out.push_back(v.back() - constant_like(v.back(), 1));
        return out;
      },
      {.max_iterations = info.max_iterations});
  Reader reader(back);
  add_all(into, floats_of(initial), reader.take(floats));
  add_all(into, captures, reader.take(captures.size()));
}

}  // namespace

void control_gradient(const GraphRef& graph, ir::OpId op, const Tensors& upstream,
                      const std::set<ValueId>& wanted, Contributions& into) {
  if (graph->effect_of(op) == ir::Effect::write)
    throw GraphError(
        cat("gradients: ", graph->op(op).name, " assigns a variable, which has no gradient"));
  ops::ControlInfo info = ops::control_info(*graph, op);
  Tensors captures = wanted_captures(graph, op, wanted);
  switch (info.form) {
    case ops::Form::call:
      return call_gradient(graph, info, upstream, captures, into);
    case ops::Form::cond:
      return cond_gradient(graph, info, upstream, captures, into);
    case ops::Form::for_loop:
      return for_gradient(graph, info, upstream, captures, into);
    case ops::Form::while_loop:
      return while_gradient(graph, info, upstream, captures, into);
    case ops::Form::none:
      break;
  }
  throw InternalError(cat("gradients: ", graph->op(op).name, " has no form of control"));
}

}  // namespace heddle::autodiff
