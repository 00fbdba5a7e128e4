#include "solver.h"

#include <algorithm>
#include <chrono>

namespace app {

namespace hd = heddle;

namespace {

// Weights of small filters, as [n, n] constants.
hd::Tensor filter(hd::Graph& graph, int64_t n, std::vector<float> w) {
  return graph.constant(hd::Array::from<float>({n, n}, w));
}

// Outside the picture the nearest pixel stands in, so a neighbour that does not exist adds no
// gradient: 4 f - sum over the four neighbours is then the sum of the differences to those that
// exist, also along the picture's border.
struct Operators {
  hd::Graph& graph;
  hd::Tensor cross = filter(graph, 3, {0, 1, 0, 1, 0, 1, 0, 1, 0});
  hd::Tensor laplacian = filter(graph, 3, {0, -1, 0, -1, 4, -1, 0, -1, 0});
  hd::Tensor smooth = filter(graph, 3, {0.25F, 0.5F, 0.25F, 0.5F, 1, 0.5F, 0.25F, 0.5F, 0.25F});

  hd::Tensor neighbours(const hd::Tensor& f) const {
    return hd::stencil(f, cross, {.boundary = hd::PaddingMode::clamp_to_edge});
  }
  hd::Tensor edges(const hd::Tensor& f) const {
    return hd::stencil(f, laplacian, {.boundary = hd::PaddingMode::clamp_to_edge});
  }
};

// f at the pixel (dy, dx) away, the nearest pixel outside the picture.
hd::Tensor shifted(const hd::Tensor& f, int64_t dy, int64_t dx) {
  hd::PadOptions pad{.before = {0, std::max<int64_t>(-dy, 0), std::max<int64_t>(-dx, 0)},
                     .after = {0, std::max<int64_t>(dy, 0), std::max<int64_t>(dx, 0)},
                     .mode = hd::PaddingMode::clamp_to_edge};
  const hd::Shape& s = f.shape();
  hd::Expr y(std::max<int64_t>(dy, 0)), x(std::max<int64_t>(dx, 0));
  return hd::slice(hd::pad(f, pad), {.starts = {0, y, x}, .stops = {s[0], s[1] + y, s[2] + x}});
}

// The right-hand side: the gradients that the result must have, summed around each pixel.
hd::Tensor guidance(const Operators& ops, const hd::Tensor& source, const hd::Tensor& background,
                    bool mixed) {
  if (!mixed) return ops.edges(source);
  hd::Tensor sum;
  for (auto [dy, dx] : {std::pair<int64_t, int64_t>{-1, 0}, {1, 0}, {0, -1}, {0, 1}}) {
    hd::Tensor s = source - shifted(source, dy, dx), b = background - shifted(background, dy, dx);
    hd::Tensor stronger = hd::select(hd::abs(b) > hd::abs(s), b, s);
    sum = sum.valid() ? sum + stronger : stronger;
  }
  return sum;
}

// A loop's state: the picture first, then what the method keeps; residual and iteration come last.
struct Method {
  hd::Tensors initial;
  std::function<hd::Tensors(const hd::Tensors&)> step;  // same layout, without iteration
};

struct Inputs {
  hd::Tensor picture, right, mask;  // [3, h, w], [3, h, w], bool [1, h, w]
};

hd::Tensor largest(const hd::Tensor& x) { return hd::reduce_max(hd::abs(x)); }

hd::Tensor residual_field(const Operators& ops, const Inputs& in, const hd::Tensor& f) {
  hd::Tensor r = in.right + ops.neighbours(f) - f * 4.0;
  return hd::select(in.mask, r, hd::constant_like(r, 0));
}

Method jacobi(const Operators& ops, const Inputs& in) {
  Method m;
  m.initial = {in.picture, largest(residual_field(ops, in, in.picture)) * 0.25};
  m.step = [ops, in](const hd::Tensors& v) {
    hd::Tensor next = hd::select(in.mask, (ops.neighbours(v[0]) + in.right) * 0.25, v[0]);
    return hd::Tensors{next, largest(next - v[0])};
  };
  return m;
}

hd::Tensor dot(const hd::Tensor& a,
               const hd::Tensor& b) {  // [3, 1, 1]: a colour's system is its own
  return hd::sum(a * b, {.axes = {1, 2}, .keep_axes = true});
}
hd::Tensor ratio(const hd::Tensor& a,
                 const hd::Tensor& b) {  // 0 where b is 0: a solved colour stays
  hd::Tensor zero = hd::constant_like(b, 0);
  return hd::select(hd::not_equal(b, zero), a / b, zero);
}

// Sum over scales of hat functions (Bramble, Pasciak, Xu 1990: parallel multilevel
// preconditioners): restricted with the transpose of the interpolation, so the operator is
// symmetric; one halving a level.
class Multilevel {
 public:
  Multilevel(const Operators& ops, int64_t height, int64_t width) : ops_(ops) {
    for (int64_t side = std::min(height, width); side >= 4 && levels_ < 10; side = (side + 1) / 2)
      ++levels_;
  }
  hd::Tensor apply(const hd::Tensor& r, const hd::Tensor& mask) const {
    hd::Tensor z = correct(r, levels_);
    return hd::select(mask, z, hd::constant_like(z, 0));
  }

 private:
  hd::Tensor correct(const hd::Tensor& r, int level) const {
    if (level == 0) return r * 0.25;
    return r * 0.25 + interpolate(correct(restrict_once(r), level - 1), r.shape());
  }
  // Coarse node i sits on the fine pixel 2 i.
  hd::Tensor restrict_once(const hd::Tensor& r) const {
    auto odd = [&](int axis) { return r.shape()[static_cast<size_t>(axis)].constant_or(0) % 2; };
    return hd::stencil(r, ops_.smooth,
                       {.boundary = hd::PaddingMode::zero,
                        .padding = hd::WindowPadding::explicit_pads,
                        .before = {1, 1},
                        .after = {odd(1), odd(2)},
                        .strides = {2, 2}});
  }
  hd::Tensor interpolate(const hd::Tensor& z, const hd::Shape& fine) const {
    const hd::Shape& s = z.shape();
    hd::Tensor apart = hd::pad(hd::reshape(z, {s[0], s[1], 1, s[2], 1}),
                               {.before = {0, 0, 0, 0, 0}, .after = {0, 0, 1, 0, 1}});
    hd::Tensor spread = hd::reshape(apart, {s[0], s[1] * 2, s[2] * 2});
    hd::Tensor full = hd::stencil(spread, ops_.smooth, {});
    return hd::slice(full, {.starts = {0, 0, 0}, .stops = {fine[0], fine[1], fine[2]}});
  }
  Operators ops_;
  int levels_ = 0;
};

// Conjugate gradients (Hestenes, Stiefel 1952), one system a colour; `precondition` may be empty.
Method conjugate_gradients(const Operators& ops, const Inputs& in,
                           const std::function<hd::Tensor(const hd::Tensor&)>& precondition) {
  auto apply = [precondition](const hd::Tensor& r) { return precondition ? precondition(r) : r; };
  hd::Tensor r = residual_field(ops, in, in.picture);
  hd::Tensor z = apply(r);
  Method m;
  m.initial = {in.picture, r, z, dot(r, z), largest(r) * 0.25};
  m.step = [ops, in, apply](const hd::Tensors& v) {
    const hd::Tensor &f = v[0], &r0 = v[1], &p = v[2], &rz0 = v[3];
    hd::Tensor q = p * 4.0 - ops.neighbours(p);
    q = hd::select(in.mask, q, hd::constant_like(q, 0));
    hd::Tensor alpha = ratio(rz0, dot(p, q));
    hd::Tensor r1 = r0 - alpha * q;
    hd::Tensor z1 = apply(r1);
    hd::Tensor rz = dot(r1, z1);
    return hd::Tensors{f + alpha * p, r1, z1 + ratio(rz, rz0) * p, rz, largest(r1) * 0.25};
  };
  return m;
}

Method make_method(Solver solver, const Operators& ops, const Inputs& in, const Problem& problem) {
  if (solver == Solver::jacobi) return jacobi(ops, in);
  if (solver == Solver::cg) return conjugate_gradients(ops, in, {});
  Multilevel levels(ops, problem.height, problem.width);
  hd::Tensor mask = in.mask;
  return conjugate_gradients(ops, in,
                             [levels, mask](const hd::Tensor& r) { return levels.apply(r, mask); });
}

double ms_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count();
}

// The two executables: `begin` makes the loop's state from the pictures, `advance` runs the loop.
struct Programs {
  hd::Executable begin, advance;
  size_t state = 0;  // arrays of state, residual included
  std::string text;
};

Programs build(const Problem& problem, const SolveOptions& options, const hd::Device& device) {
  hd::Graph graph;
  hd::Shape shape{3, problem.height, problem.width};
  hd::Tensor source = graph.placeholder(hd::f32, shape, "source");
  hd::Tensor background = graph.placeholder(hd::f32, shape, "background");
  hd::Tensor inside = graph.placeholder(hd::u8, {1, problem.height, problem.width}, "mask");
  hd::Tensor tolerance = graph.placeholder(hd::f32, {}, "tolerance");
  hd::Tensor limit = graph.placeholder(hd::i64, {}, "limit");
  Operators ops{graph};
  hd::Tensor mask = hd::cast(inside, hd::bool_);
  hd::Tensor start = options.start == Start::source ? source
                     : options.start == Start::background
                         ? background
                         : hd::broadcast_like(hd::constant_like(source, 0), source);
  Inputs in{hd::select(mask, start, background), guidance(ops, source, background, options.mixed),
            mask};
  Method method = make_method(options.solver, ops, in, problem);

  Programs programs;
  programs.state = method.initial.size();
  hd::Tensors first = method.initial;
  first.push_back(in.right);
  programs.begin = graph.compile({.feeds = {source, background, inside}, .targets = first}, device);

  hd::Tensors carried;
  for (size_t k = 0; k < method.initial.size(); ++k) {
    carried.push_back(graph.placeholder(method.initial[k].dtype(), method.initial[k].shape(),
                                        "state" + std::to_string(k)));
  }
  hd::Tensor right = graph.placeholder(hd::f32, shape, "right");
  hd::Tensor iteration = graph.placeholder(hd::i64, {}, "iteration");
  Inputs fixed{carried[0], right, mask};
  Method loop = make_method(options.solver, ops, fixed, problem);
  hd::Tensors initial = carried;
  initial.push_back(iteration);
  hd::Tensors results = hd::while_loop(
      initial,
      [&](const hd::Tensors& v) {
        return hd::logical_and(v[v.size() - 2] >= tolerance, v.back() < limit);
      },
      [&](const hd::Tensors& v) {
        hd::Tensors next = loop.step(v);
        next.push_back(v.back() + 1.0);
        return next;
      },
      {.name = "solve"});
  hd::CompileSpec spec;
  for (const hd::Tensor& t : carried) spec.feeds.emplace_back(t);
  for (const hd::Tensor& t : {iteration, right, inside, tolerance, limit})
    spec.feeds.emplace_back(t);
  spec.targets = results;
  programs.advance = graph.compile(spec, device);
  programs.text = graph.to_text();
  return programs;
}

template <class T>
hd::Array scalar(T value) {
  return hd::Array::from<T>({}, {value});
}

}  // namespace

Solution solve(const Problem& problem, const SolveOptions& options, const hd::Device& device) {
  auto started = std::chrono::steady_clock::now();
  Programs programs = build(problem, options, device);
  Solution s;
  s.compile_ms = ms_since(started);
  s.description = programs.advance.describe();
  s.graph_text = programs.text;

  started = std::chrono::steady_clock::now();
  std::vector<int64_t> shape{3, problem.height, problem.width};
  hd::Array mask =
      hd::Array::from<uint8_t>({1, problem.height, problem.width}, problem.mask).to(device);
  std::vector<hd::Array> state =
      programs.begin.run({hd::Array::from<float>(shape, problem.source).to(device),
                          hd::Array::from<float>(shape, problem.background).to(device), mask});
  hd::Array right = state.back();
  state.pop_back();
  state.push_back(scalar<int64_t>(0).to(device));
  hd::Array tolerance = scalar<float>(static_cast<float>(options.tolerance)).to(device);
  auto note = [&] {
    s.iterations = state.back().to_vector<int64_t>()[0];
    s.residual = state[programs.state - 1].to_vector<double>()[0];
    s.curve.emplace_back(s.iterations, s.residual);
    if (options.report) options.report(s.iterations, s.residual);
  };
  note();
  s.curve.front().first = 0;
  while (true) {
    int64_t limit = options.max_iterations;
    if (options.report_every > 0) limit = std::min(limit, s.iterations + options.report_every);
    std::vector<hd::Array> inputs = state;
    for (const hd::Array& a : {right, mask, tolerance, scalar<int64_t>(limit).to(device)})
      inputs.push_back(a);
    state = programs.advance.run(inputs);
    note();
    s.converged = s.residual < options.tolerance;
    if (s.converged || s.iterations >= options.max_iterations || s.residual != s.residual) break;
  }
  s.picture = state[0].to_vector<float>();
  s.solve_ms = ms_since(started);
  return s;
}

}  // namespace app
