#include "support/program/generator.h"

#include "support/numeric.h"

#include <algorithm>
#include <cmath>

namespace heddle::test {

using ops::HostTensor;
using ops::OpDef;

namespace {

// What a step may add by itself. Structural operations and sources have steps of their own.
const std::vector<const OpDef*>& plain_operations() {
  static const auto list = [] {
    std::vector<const OpDef*> out;
    ops::link_all_ops();
    for (const OpDef* def : ops::all_ops()) {
      bool plain = def->kind != ops::Kind::structural && def->kind != ops::Kind::source;
      if (plain && !def->samples.empty()) out.push_back(def);
    }
    return out;
  }();
  return list;
}

constexpr int64_t kExtents[] = {3, 1, 4, 2, 0, 5, 1, 8, 17, 2, 33, 64, 65, 7, 16, 100};

}  // namespace

ProgramGenerator::ProgramGenerator(Tape& tape, RandomProgram& out)
    : tape_(tape), out_(out), graph_(out.graph), operations_(plain_operations()) {
  out_.symbolic = tape_.chance(30);
  few_digits_ = tape_.chance(50);
  for (int k = 0; k < 3; ++k) {
    int64_t n = kExtents[tape_.below(std::size(kExtents))];
    if (!out_.symbolic) {
      extents_.emplace_back(n);
      continue;
    }
    bool never_empty = tape_.chance(60);
    if (never_empty && n == 0) n = 2;
    Dim d("d" + std::to_string(k), never_empty ? 1 : 0);
    symbol_sizes_[d.symbol()->id] = {n, n + static_cast<int64_t>(tape_.below(3))};
    extents_.push_back(d);
  }
  extents_.emplace_back(1);
}

// ---- sizes and values

Expr ProgramGenerator::any_extent() { return extents_[tape_.below(extents_.size())]; }

std::optional<int64_t> ProgramGenerator::size(const Expr& e, size_t which) const {
  try {
    return evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
      auto it = symbol_sizes_.find(s.id);
      return it == symbol_sizes_.end() ? std::nullopt : std::optional(it->second[which]);
    });
  } catch (const Error&) {
    return std::nullopt;
  }
}

HostTensor ProgramGenerator::random_values(DType dtype, const std::vector<int64_t>& shape,
                                           double low, double high) {
  std::mt19937_64 rng(tape_.below(1U << 20) + 1);
  HostTensor t = random_tensor(dtype, shape, rng, low, high);
  if (few_digits_) {
    for (double& v : t.f) v = std::round(v * 8) / 8;
    for (auto& v : t.c) v = {std::round(v.real() * 8) / 8, std::round(v.imag() * 8) / 8};
    ops::round_to_dtype(t);
  }
  return t;
}

Tensor ProgramGenerator::feed(DType dtype, const Shape& shape, double low, double high) {
  size_t sets = out_.symbolic ? 2 : 1;
  out_.values.resize(sets);
  std::vector<std::vector<int64_t>> shapes;
  for (size_t set = 0; set < sets; ++set) {
    shapes.emplace_back();
    for (const Expr& e : shape) {
      std::optional<int64_t> n = size(e, set);
      if (!n || *n < 0 || *n > 200) throw GraphError("feed: its size does not suit the program");
      shapes.back().push_back(*n);
    }
    if (ops::element_count(shapes.back()) > 4096) throw GraphError("feed: too large");
  }
  Tensor t = graph_.placeholder(dtype, shape, "x" + std::to_string(out_.feeds.size()));
  out_.feeds.push_back(t);
  // Now and then the same data as another feed: they are then one array.
  std::optional<size_t> twin;
  for (size_t k = 0; k + 1 < out_.feeds.size() && !twin; ++k) {
    bool same = out_.feeds[k].type() == t.type() && dtype != bool_ && low == -2;
    if (same && tape_.chance(15)) twin = k;
  }
  for (size_t set = 0; set < sets; ++set) {
    Feeds& values = out_.values[set];
    values.push_back(twin ? values[*twin] : random_values(dtype, shapes[set], low, high));
  }
  return t;
}

Tensor ProgramGenerator::constant(DType dtype, const Shape& shape, double low, double high) {
  std::vector<int64_t> numbers;
  for (const Expr& e : shape) {
    if (!e.is_constant()) {
      Tensor one = graph_.constant(to_array(random_values(dtype, {}, low, high)));
      return broadcast_to(one, shape);
    }
    numbers.push_back(*e.constant());
  }
  return graph_.constant(to_array(random_values(dtype, numbers, low, high)));
}

DType ProgramGenerator::any_dtype(uint32_t classes) {
  static const std::vector<DType> kOften = {f32,   f32, f64, f32, f16, i32,         i64, bf16, u8,
                                            bool_, i8,  c64, u32, i16, DType::c128, u64, u16};
  for (int k = 0; k < 12; ++k) {
    DType d = tape_.pick(kOften);
    if (ops::in_class(d, classes)) return d;
  }
  for (DType d : kEveryDType) {
    if (ops::in_class(d, classes)) return d;
  }
  return f32;
}

Tensor ProgramGenerator::any_item(uint32_t classes, int least_rank) {
  std::vector<Tensor> fitting;
  for (const Tensor& t : pool_) {
    if (ops::in_class(t.dtype(), classes) && t.rank() >= least_rank) fitting.push_back(t);
  }
  // The latest are the simplest: chains are what gets fused.
  std::reverse(fitting.begin(), fitting.end());
  if (!fitting.empty() && !tape_.chance(5)) return tape_.pick(fitting);
  Shape shape;
  int rank = std::max(least_rank, static_cast<int>(tape_.below(3)));
  for (int k = 0; k < rank; ++k) shape.push_back(any_extent());
  return source(any_dtype(classes), shape, -2, 2);
}

// ---- what joins the pool

bool ProgramGenerator::stable(const Tensor& t) {
  for (const Feeds& values : out_.values) {
    Evaluations e = evaluate_program(graph_, out_.feeds, values, {t}, {}, 3);
    const HostTensor& exact = e.exact()[0];
    if (exact.size() > 20000 || !is_stable(e, 0)) return false;
    if (largest_finite(exact) > 1e4) return false;
    for (int64_t v : exact.i) {
      if (v > (int64_t{1} << 40) || v < -(int64_t{1} << 40)) return false;
    }
  }
  return true;
}

bool ProgramGenerator::accept(Tensor t) {
  if (!t.valid() || !t.type().known() || is_storage_only(t.dtype())) return false;
  if (t.rank() > 6) return false;
  if (depth_ > 0) {
    pool_.push_back(t);
    return true;
  }
  try {
    if (!stable(t)) {
      if (!is_real_float(t.dtype())) return false;
      t = tame(t);
      if (!stable(t)) return false;
    }
  } catch (const Error&) {
    return false;  // sizes that fit no run, a loop that never ends
  }
  pool_.push_back(t);
  return true;
}

bool ProgramGenerator::accept_all(const Tensors& ts) {
  bool any = false;
  for (const Tensor& t : ts) any |= accept(t);
  return any;
}

// ---- the whole

void ProgramGenerator::run() {
  size_t feeds = 1 + tape_.below(3);
  for (size_t k = 0; k < feeds; ++k) {
    Shape shape;
    size_t rank = tape_.below(4);
    for (size_t r = 0; r < rank; ++r) shape.push_back(any_extent());
    try {
      pool_.push_back(feed(k == 0 ? f32 : any_dtype(ops::kAny), shape, -2, 2));
    } catch (const GraphError&) {
    }
  }
  if (pool_.empty()) pool_.push_back(feed(f32, {3}, -2, 2));
  // Each symbol is bound by a feed.
  for (size_t k = 0; out_.symbolic && k + 1 < extents_.size(); ++k)
    pool_.insert(pool_.begin(), feed(f32, {extents_[k]}, -2, 2));
  bool with_regions = tape_.chance(40), with_variables = tape_.chance(12),
       with_gradients = tape_.chance(40);
  size_t steps = 2 + tape_.below(7);
  for (size_t k = 0; k < steps; ++k) {
    if (with_regions && tape_.chance(40)) {
      region();
    } else if (with_variables && tape_.chance(40)) {
      variable_step();
    } else {
      step();
    }
  }
  if (with_gradients) gradient_step();
  finish();
}

void ProgramGenerator::finish() {
  // Feeds alone say nothing.
  std::vector<Tensor> made;
  for (const Tensor& t : pool_) {
    bool fed = std::any_of(out_.feeds.begin(), out_.feeds.end(),
                           [&](const Tensor& f) { return f.id() == t.id(); });
    bool again =
        std::any_of(made.begin(), made.end(), [&](const Tensor& m) { return m.id() == t.id(); });
    if (!fed && !again) made.push_back(t);
  }
  std::reverse(made.begin(), made.end());
  if (made.empty()) made.push_back(pool_.front() + constant_like(pool_.front(), 1));
  out_.targets.push_back(made[0]);
  for (size_t k = 1; k < made.size() && out_.targets.size() < 6; ++k) {
    if (tape_.chance(35)) out_.targets.push_back(made[k]);
  }
  ir::FeedList fed;
  std::vector<ir::ValueId> wanted;
  for (const Tensor& t : out_.feeds) fed.emplace_back(t.id(), std::nullopt);
  for (const Tensor& t : out_.targets) wanted.push_back(t.id());
  out_.operations =
      static_cast<int>(ir::extract(*graph_.impl(), fed, wanted, {}).graph->op_count());
}

RandomProgram random_program(Tape& tape) {
  RandomProgram out;
  ProgramGenerator(tape, out).run();
  return out;
}

}  // namespace heddle::test
