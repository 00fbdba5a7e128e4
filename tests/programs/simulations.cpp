// Physics, clustering, pictures, solvers of linear systems.
#include "programs.h"
#include "writers.h"

namespace heddle::test {

namespace {

// A filter as a constant of the program's dtype.
Tensor filter(ProgramBuilder& b, const std::vector<int64_t>& shape, const std::vector<float>& w) {
  return cast(b.graph.constant(Array::from<float>(shape, w)), b.dtype);
}

Tensor dot(const Tensor& x, const Tensor& y) { return sum(x * y); }

}  // namespace

// Explicit steps of u_t = k laplacian(u) + source; nothing flows through the border.
ProgramResult heat_equation(ProgramBuilder& b) {
  Extent height = b.extent("height", 9), width = b.extent("width", 7);
  Tensor u = b.feed("u", {height, width}), k = b.feed("k", {height, width}, 0.05, 0.2),
         source = b.feed("source", {height, width});
  Tensor laplacian = filter(b, {3, 3}, {0, 1, 0, 1, -4, 1, 0, 1, 0});
  Tensors run = for_loop(Expr(5), {u}, [&](const Tensor& step, const Tensors& v) {
    Tensor flow = stencil(v[0], laplacian, {.boundary = PaddingMode::clamp_to_edge});
    Tensor fading = 1.0 / (cast(step, b.dtype) + 1.0);
    return Tensors{v[0] + k * flow + source * (fading * 0.1)};
  });
  return {{run[0], sum(run[0], {.axes = {0}})}, mean(square(run[0])), {u, k, source}};
}

// Lloyd's steps. A centre that attracts nobody stays where it is.
ProgramResult k_means(ProgramBuilder& b) {
  Extent points = b.extent("points", 12), features = b.extent("features", 3),
         centres = b.extent("centres", 4);
  // Each point lies near one of the centres, so that rounding does not decide where it belongs.
  Tensor c = b.feed("c", {centres, features}, -8, 8),
         noise = b.feed("noise", {points, features}, -0.25, 0.25);
  Tensor near = b.integers("near", {points}, 0, 3);
  Tensor x = gather(c, near) * 1.03125 + noise;
  auto distances = [&](const Tensor& to) {
    return sum(square(expand_dims(x, {1}) - expand_dims(to, {0})), {.axes = {2}});
  };
  Tensors run = for_loop(Expr(3), {c}, [&](const Tensor&, const Tensors& v) {
    Tensor nearest = argmin(distances(v[0]), {.axis = 1});
    Tensor sums = scatter_add(v[0] * 0.0, nearest, x);
    Tensor ones = sum(x * 0.0, {.axes = {1}, .keep_axes = true}) + 1.0;
    Tensor counts = scatter_add(sum(v[0] * 0.0, {.axes = {1}, .keep_axes = true}), nearest, ones);
    Tensor moved = sums / maximum(counts, constant_like(counts, 1));
    return Tensors{select(counts > 0.0, moved, v[0])};
  });
  Tensor d = distances(run[0]);
  return {{run[0], argmin(d, {.axis = 1})}, mean(reduce_min(d, {.axes = {1}})), {noise, c}};
}

// Blur and sharpen, then a tone curve by a table, and an equalised copy by a running sum of the
// histogram.
ProgramResult picture_filter(ProgramBuilder& b) {
  Extent height = b.extent("height", 10), width = b.extent("width", 8),
         levels = b.extent("levels", 16), three = {Expr(3), 3};
  Tensor picture = b.feed("picture", {height, width}), weights = b.feed("weights", {three, three}),
         curve = b.feed("curve", {levels});
  Tensor tones = b.integers("tones", {height, width}, 0, 15);
  Tensor blurred = stencil(picture, weights, {.boundary = PaddingMode::reflect});
  Tensor sharp = picture + (picture - blurred) * 0.5;
  Tensor toned = sharp * gather(curve, tones);
  Tensor flat = reshape(tones, {height.expr * width.expr});
  Tensor weight = reshape(abs(picture) + 0.125, {height.expr * width.expr});
  Tensor histogram = scatter_add(curve * 0.0, flat, weight);
  Tensor ranks = cumulative_sum(histogram) / sum(histogram);
  Tensor equalised = gather(ranks, tones);
  Tensor loss = mean(square(toned)) + mean(equalised * picture);
  return {{toned, equalised, histogram}, loss, {picture, weights, curve}};
}

// A x = y by conjugate gradients (Hestenes, Stiefel 1952), A = m m^T + 4, one vector.
ProgramResult conjugate_gradients(ProgramBuilder& b) {
  Extent n = b.extent("n", 6);
  Tensor m = b.feed("m", {n, n}), y = b.feed("y", {n});
  auto apply = [&](const Tensor& v) {
    Tensor column = expand_dims(v, {1});
    return squeeze(matmul(m, matmul(m, column, {.transpose_a = true})), {1}) + v * 4.0;
  };
  Tensor zero = b.graph.constant(int64_t{0}, i64);
  Tensors run = while_loop(
      {y * 0.0, y, y, dot(y, y), zero},
      [&](const Tensors& v) { return logical_and(v[4] < 3.0, v[3] > 1e-30); },
      [&](const Tensors& v) {
        Tensor q = apply(v[2]);
        Tensor alpha = v[3] / dot(v[2], q);
        Tensor r = v[1] - alpha * q;
        Tensor rr = dot(r, r);
        return Tensors{v[0] + alpha * v[2], r, r + (rr / v[3]) * v[2], rr, v[4] + 1.0};
      },
      {.max_iterations = 8});
  return {{run[0], run[3]}, dot(run[0], y), {y, m}};
}

// Two V-cycles of one coarse grid for (a - laplacian) u = f on a periodic line: damped Jacobi
// sweeps, half weighting, linear interpolation.
ProgramResult multigrid(ProgramBuilder& b) {
  Extent half = b.extent("half", 8), n{half.expr * 2, half.size * 2};
  Tensor f = b.feed("f", {n}), a = b.feed("a", {n}, 0.5, 1.5);
  Tensor second = filter(b, {3}, {-1, 2, -1}), weighting = filter(b, {3}, {0.25F, 0.5F, 0.25F});
  StencilOptions ring{.boundary = PaddingMode::periodic};
  auto residual = [&](const Tensor& u, const Tensor& right, const Tensor& shift, double scale) {
    return right - shift * u - stencil(u, second, ring) * scale;
  };
  auto smooth = [&](const Tensor& u0, const Tensor& right, const Tensor& shift, double scale,
                    int sweeps) {
    return for_loop(Expr(sweeps), {u0}, [&](const Tensor&, const Tensors& u) {
      Tensor r = residual(u[0], right, shift, scale);
      return Tensors{u[0] + r * 0.6 / (shift + 2.0 * scale)};
    })[0];
  };
  auto coarse = [&](const Tensor& v) {
    SliceOptions even{.starts = {0}, .stops = {n.expr}, .strides = {2}};
    return slice(stencil(v, weighting, ring), even);
  };
  auto fine = [&](const Tensor& v) {
    Tensor next = concat(
        {slice(v, {.starts = {1}, .stops = {half.expr}}), slice(v, {.starts = {0}, .stops = {1}})},
        0);
    Tensor pairs = concat({expand_dims(v, {1}), expand_dims((v + next) * 0.5, {1})}, 1);
    return reshape(pairs, {n.expr});
  };
  Tensors run = for_loop(Expr(2), {f * 0.0}, [&](const Tensor&, const Tensors& v) {
    Tensor u = smooth(v[0], f, a, 1.0, 2);
    Tensor right = coarse(residual(u, f, a, 1.0));
    Tensor error = smooth(right * 0.0, right, coarse(a), 0.25, 4);
    return Tensors{smooth(u + fine(error), f, a, 1.0, 1)};
  });
  Tensor left = residual(run[0], f, a, 1.0);
  return {{run[0], left}, dot(run[0], f) + dot(left, left), {f, a}};
}

}  // namespace heddle::test
