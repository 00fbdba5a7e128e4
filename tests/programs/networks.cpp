// Classifiers that train inside a loop, recurrent networks, a transformer block.
#include "programs.h"
#include "writers.h"

namespace heddle::test {

namespace {

ReduceOptions along(int axis) { return {.axes = {axis}, .keep_axes = true}; }

// Mean over the rows of -log softmax(logits)[label]; logits [rows, classes], labels i64 [rows].
Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  Tensor shifted = logits - reduce_max(logits, along(1));
  Tensor log_softmax = shifted - log(sum(exp(shifted), along(1)));
  Tensor classes = coordinate_like(logits, 1, i64);
  Tensor chosen = cast(equal(classes, expand_dims(labels, {1})), logits.dtype());
  return negate(mean(sum(log_softmax * chosen, {.axes = {1}})));
}

}  // namespace

// Three steps of gradient descent in a loop; the loss after training, as a function of where it
// began.
ProgramResult softmax_classifier(ProgramBuilder& b) {
  Extent rows = b.extent("rows", 6), features = b.extent("features", 5),
         classes = b.extent("classes", 3);
  Tensor x = b.feed("x", {rows, features}), w = b.feed("w", {features, classes}),
         bias = b.feed("bias", {classes});
  Tensor labels = b.integers("labels", {rows}, 0, 2);
  auto loss = [&](const Tensors& p) { return cross_entropy(matmul(x, p[0]) + p[1], labels); };
  Tensors trained = for_loop(Expr(3), {w, bias}, [&](const Tensor&, const Tensors& p) {
    Tensors g = gradients(loss(p), p);
    return Tensors{p[0] - g[0] * 0.5, p[1] - g[1] * 0.5};
  });
  Tensor probabilities = softmax(matmul(x, trained[0]) + trained[1]);
  return {{probabilities, trained[0]}, loss(trained), {w, bias, x}};
}

// Minibatches by scan, momentum beside the weights.
ProgramResult mlp_classifier(ProgramBuilder& b) {
  Extent steps = b.extent("steps", 2), rows = b.extent("rows", 4),
         features = b.extent("features", 6), hidden = b.extent("hidden", 5),
         classes = b.extent("classes", 3);
  Tensor x = b.feed("x", {steps, rows, features});
  Tensor labels = b.integers("labels", {steps, rows}, 0, 2);
  Tensor w1 = b.feed("w1", {features, hidden}), b1 = b.feed("b1", {hidden}),
         w2 = b.feed("w2", {hidden, classes}), b2 = b.feed("b2", {classes});
  auto logits = [](const Tensor& input, const Tensors& p) {
    return matmul(gelu(matmul(input, p[0]) + p[1]), p[2]) + p[3];
  };
  Tensors initial{w1, b1, w2, b2};
  for (size_t k = 0; k < 4; ++k) initial.push_back(initial[k] * 0.0);
  ScanResult run = scan(initial, {x, labels}, [&](const Tensors& state, const Tensors& batch) {
    Tensors p(state.begin(), state.begin() + 4);
    Tensor loss = cross_entropy(logits(batch[0], p), batch[1]);
    Tensors g = gradients(loss, p), next, speeds;
    for (size_t k = 0; k < 4; ++k) {
      speeds.push_back(state[4 + k] * 0.9 + g[k]);
      next.push_back(p[k] - speeds[k] * 0.25);
    }
    next.insert(next.end(), speeds.begin(), speeds.end());
    return ScanResult{next, {loss}};
  });
  Tensors p(run.carried.begin(), run.carried.begin() + 4);
  Tensor all = reshape(x, {steps.expr * rows.expr, features.expr});
  Tensor loss = cross_entropy(logits(all, p), reshape(labels, {steps.expr * rows.expr}));
  return {{run.stacked[0], p[0], p[3]}, loss, {w1, b1, w2}};
}

ProgramResult tanh_rnn(ProgramBuilder& b) {
  Extent steps = b.extent("steps", 4), rows = b.extent("rows", 3),
         features = b.extent("features", 5), hidden = b.extent("hidden", 4);
  Tensor x = b.feed("x", {steps, rows, features}), h = b.feed("h", {rows, hidden}),
         wx = b.feed("wx", {features, hidden}), wh = b.feed("wh", {hidden, hidden}),
         bias = b.feed("bias", {hidden});
  ScanResult run = scan({h}, {x}, [&](const Tensors& state, const Tensors& in) {
    Tensor next = tanh(matmul(in[0], wx) + matmul(state[0], wh) + bias);
    return ScanResult{{next}, {next}};
  });
  Tensor loss = mean(square(run.stacked[0])) + sum(run.carried[0]) * 0.1;
  return {{run.carried[0], run.stacked[0]}, loss, {wx, wh, bias, h}};
}

ProgramResult lstm(ProgramBuilder& b) {
  Extent steps = b.extent("steps", 3), rows = b.extent("rows", 2),
         features = b.extent("features", 3), hidden = b.extent("hidden", 4);
  Expr n = hidden.expr;
  Extent gates{n * 4, hidden.size * 4};
  Tensor x = b.feed("x", {steps, rows, features}), h = b.feed("h", {rows, hidden}),
         c = b.feed("c", {rows, hidden}), wx = b.feed("wx", {features, gates}),
         wh = b.feed("wh", {hidden, gates}), bias = b.feed("bias", {gates});
  auto gate = [&](const Tensor& z, int k) {
    return slice(z, {.starts = {0, n * k}, .stops = {rows.expr, n * (k + 1)}});
  };
  ScanResult run = scan({h, c}, {x}, [&](const Tensors& state, const Tensors& in) {
    Tensor z = matmul(in[0], wx) + matmul(state[0], wh) + bias;
    Tensor cell = sigmoid(gate(z, 1)) * state[1] + sigmoid(gate(z, 0)) * tanh(gate(z, 2));
    Tensor out = sigmoid(gate(z, 3)) * tanh(cell);
    return ScanResult{{out, cell}, {out}};
  });
  Tensor loss = mean(square(run.stacked[0])) + mean(run.carried[1]);
  return {{run.carried[0], run.carried[1], run.stacked[0]}, loss, {wx, wh, bias}};
}

// One head of attention and a feed-forward part, each behind a layer norm and around a shortcut.
ProgramResult transformer_block(ProgramBuilder& b) {
  Extent rows = b.extent("rows", 2), length = b.extent("length", 5), width = b.extent("width", 8),
         inner = b.extent("inner", 12);
  Tensor x = b.feed("x", {rows, length, width});
  Tensor gain = b.feed("gain", {width}, 0.5, 1.5), shift = b.feed("shift", {width});
  Tensor wq = b.feed("wq", {width, width}), wk = b.feed("wk", {width, width}),
         wv = b.feed("wv", {width, width}), wo = b.feed("wo", {width, width}),
         up = b.feed("up", {width, inner}), down = b.feed("down", {inner, width});
  Tensor n = layer_norm(x, gain, shift);
  Tensor scores = matmul(matmul(n, wq), matmul(n, wk), {.transpose_b = true}) * 0.35;
  Tensor later = greater(coordinate_like(scores, 2, i64), coordinate_like(scores, 1, i64));
  Tensor attention = softmax(select(later, constant_like(scores, -1e4), scores));
  Tensor y = x + matmul(matmul(attention, matmul(n, wv)), wo);
  Tensor z = y + matmul(gelu(matmul(layer_norm(y, gain, shift), up)), down);
  return {{z, attention}, mean(square(z)), {x, wq, wv, up, gain}};
}

}  // namespace heddle::test
