// Loops, branches, calls, custom gradients, variables, and gradients of what stands.
#include "support/numeric.h"
#include "support/program/generator.h"

#include <algorithm>

namespace heddle::test {

// Runs `build` with a pool that also holds the region's arguments; what it adds is gone afterwards.
template <class F>
auto ProgramGenerator::inside(const std::string& kind, const Tensors& arguments, F build) {
  struct Scope {
    ProgramGenerator& g;
    size_t kept;
    std::string before;
    ~Scope() {
      g.pool_.resize(kept);
      g.region_ = before;
      --g.depth_;
    }
  } scope{*this, pool_.size(), region_};
  region_ = kind;
  ++depth_;
  pool_.insert(pool_.end(), arguments.begin(), arguments.end());
  return build();
}

void ProgramGenerator::region() {
  if (depth_ > 1) return;
  try {
    switch (tape_.below(6)) {
      case 0:
        return add_for();
      case 1:
        return add_cond();
      case 2:
        return add_scan();
      case 3:
        return add_while();
      case 4:
        return add_call();
      default:
        return add_custom_gradient();
    }
  } catch (const GraphError&) {  // this draw is not valid
  }
}

// A value of this type from what is in reach.
Tensor ProgramGenerator::body_value(const Type& type) {
  size_t steps = 1 + tape_.below(3);
  for (size_t k = 0; k < steps; ++k) {
    if (tape_.chance(15)) {
      region();
    } else {
      step();
    }
  }
  Tensor t = fit_item(pool_.back(), *type.shape, type.dtype);
  if (is_real_float(type.dtype)) return tame(t);
  if (is_complex(type.dtype)) return t * 0.5;
  if (is_integer(type.dtype)) return floor_modulo(t, constant_like(t, 7));
  return t;
}

Tensors ProgramGenerator::carried_values(size_t count) {
  Tensors out;
  for (size_t k = 0; k < count; ++k)
    out.push_back(k == 0 ? any_item(ops::kRealFloat) : any_item(ops::kAny));
  return out;
}

void ProgramGenerator::add_cond() {
  Tensor a = any_item(ops::kRealFloat), p;
  if (tape_.chance(50)) {
    p = reduce_max(fit_item(a, Shape{}, f32)) > 0.25;
  } else {
    p = depth_ > 0 ? equal(fit_item(a, Shape{}, i64), graph_.constant(int64_t{0}, i64))
                   : feed(bool_, {}, 0, 1);
  }
  Type type = any_item(ops::kAny).type();
  bool two = tape_.chance(30);
  auto block = [&] {
    return inside("cond", {}, [&] {
      Tensors out{body_value(type)};
      if (two) out.push_back(body_value(a.type()));
      return out;
    });
  };
  out_.has_branches = true;
  accept_all(cond(p, std::function<Tensors()>(block), std::function<Tensors()>(block)));
}

void ProgramGenerator::add_for() {
  Tensors initial = carried_values(1 + tape_.below(3));
  auto body = [&](const Tensor& i, const Tensors& v) {
    Tensors arguments{i};
    arguments.insert(arguments.end(), v.begin(), v.end());
    return inside("for_loop", arguments, [&] {
      Tensors out;
      for (const Tensor& t : initial) out.push_back(body_value(t.type()));
      if (out.size() > 1 && tape_.chance(20) && initial[0].type() == initial[1].type())
        out[1] = v[0];
      return out;
    });
  };
  out_.has_loops = true;
  static const std::vector<int64_t> kCounts = {2, 1, 3, 0, 5};
  if (depth_ == 0 && tape_.chance(20)) {
    Tensor count = feed(i64, {}, 0, 4);
    accept_all(for_loop(count, initial, body));
  } else if (out_.symbolic && tape_.chance(30)) {
    accept_all(for_loop(min(any_extent(), Expr(6)), initial, body));
  } else {
    size_t counts = depth_ > 0 ? 3 : kCounts.size();
    accept_all(for_loop(Expr(kCounts[tape_.below(counts)]), initial, body));
  }
}

void ProgramGenerator::add_scan() {
  Tensors initial = carried_values(tape_.below(3)), xs;
  Tensor x = any_item(ops::kAny, 1);
  if (size(x.shape()[0]).value_or(0) > (depth_ > 0 ? 4 : 17)) return;
  xs.push_back(x);
  for (const Tensor& t : pool_) {
    if (xs.size() < 3 && t.rank() > 0 && t.shape()[0] == x.shape()[0] && tape_.chance(30))
      xs.push_back(t);
  }
  size_t stacked = initial.empty() ? 1 : tape_.below(3);
  out_.has_loops = true;
  ScanResult r = scan(initial, xs, [&](const Tensors& v, const Tensors& rows) {
    Tensors arguments = v;
    arguments.insert(arguments.end(), rows.begin(), rows.end());
    return inside("scan", arguments, [&] {
      ScanResult out;
      for (const Tensor& t : initial) out.carried.push_back(body_value(t.type()));
      for (size_t k = 0; k < stacked; ++k) {
        step();
        out.stacked.push_back(k == 0 && !out.carried.empty() && tape_.chance(40)
                                  ? out.carried[0]
                                  : tame(pool_.back()));
      }
      return out;
    });
  });
  accept_all(r.carried);
  accept_all(r.stacked);
}

void ProgramGenerator::add_while() {
  Tensors initial = carried_values(1 + tape_.below(2));
  Tensor zero = graph_.constant(int64_t{0}, i64);
  auto limit = static_cast<double>(tape_.below(depth_ > 0 ? 3 : 5));
  initial.push_back(zero);
  WhileOptions options;
  if (tape_.chance(70)) options.max_iterations = static_cast<int64_t>(tape_.below(7));
  bool by_value = is_real_float(initial[0].dtype()) && tape_.chance(40);
  out_.has_loops = true;
  Tensors r = while_loop(
      initial,
      [&](const Tensors& v) {
        Tensor more = v.back() < limit;
        // Of tamed values, so that it holds for long.
        if (by_value) more = logical_and(more, sum(square(tanh(v[0]))) < 1e3);
        return more;
      },
      [&](const Tensors& v) {
        return inside("while_loop", v, [&] {
          Tensors out;
          for (size_t k = 0; k + 1 < initial.size(); ++k)
            out.push_back(body_value(initial[k].type()));
          out.push_back(v.back() + 1.0);
          return out;
        });
      },
      options);
  accept_all(r);
}

void ProgramGenerator::add_call() {
  Tensors arguments = carried_values(1 + tape_.below(2));
  Graph callee;
  Tensors parameters;
  for (const Tensor& t : arguments) parameters.push_back(callee.placeholder(t.type(), ""));
  Graph caller = graph_;
  Tensors outer;
  outer.swap(pool_);
  graph_ = callee;
  struct Restore {
    ProgramGenerator& g;
    Graph& caller;
    Tensors& outer;
    ~Restore() {
      g.graph_ = caller;
      g.pool_ = outer;
    }
  };
  Tensor result;
  {
    Restore restore{*this, caller, outer};
    result = inside("call", parameters, [&] { return body_value(arguments[0].type()); });
  }
  accept_all(call(callee, {result}, arguments));
}

void ProgramGenerator::add_custom_gradient() {
  Tensor x = any_item(ops::kRealFloat);
  Tensors r = custom_gradient(
      {x},
      [&](const Tensors& v) {
        return inside("custom_gradient", v, [&] { return Tensors{body_value(x.type())}; });
      },
      [&](const Tensors& inputs, const Tensors& outputs, const Tensors& upstream) {
        return Tensors{upstream[0] * 0.5 + tanh(inputs[0]) * outputs[0]};
      });
  accept_all(r);
}

void ProgramGenerator::variable_step() {
  Tensor like = any_item(ops::kReal);
  for (const Expr& e : like.shape()) {
    if (!e.is_constant()) return;
  }
  try {
    std::vector<int64_t> shape;
    for (const Expr& e : like.shape()) shape.push_back(*e.constant());
    Tensor v = graph_.variable(to_array(random_values(like.dtype(), shape, -1, 1)),
                               "v" + std::to_string(out_.effects.size()));
    Tensor before = read_variable(v);
    Tensor next = fit(like.shape(), like.dtype(), -1, 1);
    next = is_real_float(like.dtype()) ? tame(next + before)
                                       : floor_modulo(next + before, constant_like(next, 7));
    if (tape_.chance(50)) pool_.push_back(before);
    Operation o = assign(v, next);
    out_.effects.push_back(o);
    out_.has_variables = true;
    for (const char* op : {"variable in ", "read in ", "assign in "})
      out_.coverage.push_back(op + region_);
    out_.coverage.push_back("assign of " + std::string(name(like.dtype())));
    if (tape_.chance(50)) {
      pool_.push_back(
          with_dependencies({o}, std::function<Tensor()>([&] { return read_variable(v); })));
    }
  } catch (const GraphError&) {
  }
}

// First and second gradients of a few values by a few values that they may depend on.
void ProgramGenerator::gradient_step() {
  Tensors floats, xs, ys;
  for (const Tensor& t : pool_) {
    if (is_real_float(t.dtype())) floats.push_back(t);
  }
  if (floats.empty()) return;
  for (const Tensor& f : out_.feeds) {
    if (is_floating(f.dtype()) && (xs.empty() || tape_.chance(60))) xs.push_back(f);
  }
  if (tape_.chance(30)) xs.push_back(tape_.pick(floats));
  ys.push_back(floats.back());
  if (tape_.chance(40)) ys.push_back(tape_.pick(floats));
  if (xs.empty()) return;
  try {
    Tensors seeds;
    for (const Tensor& y : ys) seeds.push_back(fit(y.shape(), y.dtype(), -1, 1));
    Tensors first = gradients(ys, xs, seeds);
    if (!accept_all(first)) return;
    out_.gradients = 1;
    for (const Tensor& y : ys)
      out_.coverage.push_back(
          "gradient of " +
          std::string(graph_.impl()->value(y.id()).op == ir::kNone
                          ? "argument"
                          : graph_.impl()->op(graph_.impl()->value(y.id()).op).name));
    if (!tape_.chance(50)) return;
    Tensors real_first, weights;
    for (const Tensor& g : first) {
      if (!is_real_float(g.dtype())) continue;
      real_first.push_back(g);
      weights.push_back(fit(g.shape(), g.dtype(), -1, 1));
    }
    if (real_first.empty()) return;
    if (accept_all(gradients(real_first, xs, weights))) out_.gradients = 2;
  } catch (const GraphError&) {  // something on the way has no gradient
  }
}

}  // namespace heddle::test
