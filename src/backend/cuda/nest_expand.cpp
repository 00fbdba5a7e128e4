#include "backend/cuda/nest_expand.h"

#include "backend/cuda/nest_plan.h"
#include "base/check.h"
#include "ir/fold.h"

#include <algorithm>
#include <unordered_map>

namespace heddle::cuda {

using ir::Axis;
using ir::AxisKind;
using ir::Body;
using ir::BodyBuilder;
using ir::BufferRole;
using ir::kNoNode;
using ir::Node;
using ir::NodeId;
using ir::ScalarOp;

namespace {

constexpr int kMaxRows = 8;          // without columns
constexpr int kMaxTileRows = 4;      // with columns
constexpr size_t kMaxNodes = 1500;   // of an expanded body
constexpr size_t kMaxValues = 64;    // loaded and stored by a thread: they stay in registers
constexpr double kRowGain = 0.7;     // loads of R rows, over R times those of one
constexpr int kDependentRows = 2;    // where addresses are loaded first
constexpr int64_t kLeastFold = 128;  // points of a fold that are left to threads

bool is_compare(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }
bool is_unary(ScalarOp op) { return op >= ScalarOp::neg && op <= ScalarOp::is_nan; }

// Stores write each point's own elements, nothing but folds is carried between points.
bool independent(const ir::Kernel& kernel, const ir::Phase& p) {
  for (const Axis& a : p.inner) {
    if (a.kind != AxisKind::mapped && a.kind != AxisKind::reduced) return false;
  }
  for (const ir::Access& a : p.body.accesses) {
    BufferRole role = kernel.buffers[a.buffer].role;
    if (role == BufferRole::row_local) return false;
  }
  for (const ir::Store& s : p.body.stores) {
    const ir::Buffer& b = kernel.buffers[p.body.accesses[s.access].buffer];
    if (s.kind != ir::StoreKind::set || is_local(b)) return false;
    for (const Node& n : p.body.nodes) {
      // What is stored must not be read by other points of the nest.
      if (n.op == ScalarOp::load &&
          p.body.accesses[n.payload].buffer == p.body.accesses[s.access].buffer)
        return false;
    }
  }
  return std::none_of(p.body.nodes.begin(), p.body.nodes.end(), [](const Node& n) {
    return n.op == ScalarOp::row || n.op == ScalarOp::scan;
  });
}

bool eligible(const ir::Kernel& kernel, const ir::Nest& nest) {
  return nest.phases.size() == 1 && nest.phases[0].reductions.empty() &&
         !nest.phases[0].body.stores.empty() && independent(kernel, nest.phases[0]);
}

// Adds copies of a body at other points to a builder.
class Copier {
 public:
  Copier(const Body& body, BodyBuilder& out) : body_(body), out_(out) {}

  void copy(const std::unordered_map<uint64_t, Expr>& point) {
    map_ = point;
    at_.assign(body_.nodes.size(), kNoNode);
    for (NodeId n = 0; n < body_.nodes.size(); ++n) at_[n] = node(body_.nodes[n]);
    for (const ir::Store& s : body_.stores)
      out_.store(access(s.access), of(s.value), of(s.mask), s.kind);
  }
  // Of the last copy.
  NodeId of(NodeId n) const { return n == kNoNode ? kNoNode : at_[n]; }

 private:
  Expr moved(const Expr& e) const {
    return substitute(e, [&](const SymbolRef& s) -> std::optional<Expr> {
      auto it = map_.find(s->id);
      return it == map_.end() ? std::nullopt : std::optional<Expr>(it->second);
    });
  }
  ir::Access access(uint32_t a) const {
    ir::Access out{body_.accesses[a].buffer, {}};
    for (const Expr& c : body_.accesses[a].coords) out.coords.push_back(moved(c));
    return out;
  }

  // The integer that an i64 node is, where it is known as an expression.
  std::optional<Expr> index_of(NodeId n) const {
    const Node& x = out_.body().nodes[n];
    if (x.type != DType::i64) return std::nullopt;
    if (x.op == ScalarOp::index) return out_.body().exprs[x.payload];
    if (x.op == ScalarOp::constant) return Expr(static_cast<int64_t>(x.bits));
    return std::nullopt;
  }
  // Tests that the bounds of the axes decide.
  std::optional<bool> decided(ScalarOp op, NodeId a, NodeId b) const {
    auto x = index_of(a), y = index_of(b);
    if (!x || !y) return std::nullopt;
    auto at_most = [](const Expr& l, const Expr& r) -> std::optional<bool> {
      Ordering o = is_less_equal(l, r);
      if (o == Ordering::undecided) return std::nullopt;
      return o == Ordering::yes;
    };
    auto inverse = [](std::optional<bool> v) { return v ? std::optional<bool>(!*v) : v; };
    switch (op) {
      case ScalarOp::le:
        return at_most(*x, *y);
      case ScalarOp::ge:
        return at_most(*y, *x);
      case ScalarOp::lt:
        return inverse(at_most(*y, *x));
      case ScalarOp::gt:
        return inverse(at_most(*x, *y));
      default:
        return std::nullopt;
    }
  }

  NodeId node(const Node& n) {
    switch (n.op) {
      case ScalarOp::constant:
        return out_.constant_bits(n.type, n.bits);
      case ScalarOp::index:
        return out_.index(moved(body_.exprs[n.payload]));
      case ScalarOp::load:
        return out_.load(n.type, access(n.payload), of(n.a), of(n.b));
      case ScalarOp::bind:
        return bind(n);
      case ScalarOp::fma:
        return out_.fma(of(n.a), of(n.b), of(n.c));
      case ScalarOp::select:
        return out_.select(of(n.a), of(n.b), of(n.c));
      case ScalarOp::cast:
        return out_.cast(of(n.a), n.type);
      case ScalarOp::bitcast:
        return out_.bitcast(of(n.a), n.type);
      case ScalarOp::call:
        return out_.call(static_cast<ir::LibraryFunction>(n.payload), of(n.a), of(n.b));
      default:
        break;
    }
    if (is_unary(n.op)) return out_.unary(n.op, of(n.a));
    if (is_compare(n.op)) {
      if (auto known = decided(n.op, of(n.a), of(n.b)))
        return out_.constant_int(DType::boolean, *known ? 1 : 0);
    }
    return out_.binary(n.op, of(n.a), of(n.b));
  }
  NodeId bind(const Node& n) {
    const SymbolRef& s = body_.symbols[n.payload];
    std::optional<Expr> extent;
    if (s->extent != nullptr) extent = moved(*s->extent);
    SymbolRef own = out_.bind(of(n.a), s->lower, s->upper, extent ? &*extent : nullptr);
    map_.insert_or_assign(s->id, Expr(own));
    return of(n.a);
  }

  const Body& body_;
  BodyBuilder& out_;
  std::unordered_map<uint64_t, Expr> map_;
  std::vector<NodeId> at_;
};

size_t count_loads(const Body& body, const SymbolRef* along) {
  size_t count = 0;
  for (const Node& n : body.nodes) {
    if (n.op != ScalarOp::load) continue;
    const ir::Access& a = body.accesses[n.payload];
    count += along == nullptr || std::any_of(a.coords.begin(), a.coords.end(),
                                             [&](const Expr& c) { return uses(c, **along); })
                 ? 1
                 : 0;
  }
  return count;
}

// Neighbouring elements of the widest type in a vector.
int vector_of(const ir::Kernel& kernel, const Body& body) {
  int widest = 1;
  for (const ir::Access& a : body.accesses)
    widest = std::max(widest, memory_bytes(kernel.buffers[a.buffer].dtype));
  return std::min(16 / widest, 8);
}
bool runs_along(const ir::Access& a, const SymbolRef& last) {
  if (a.coords.empty()) return false;
  auto along = affine_in(a.coords.back(), last);
  return along && along->first.is(1);
}
bool stores_along(const Body& body, const SymbolRef& last) {
  return std::all_of(body.stores.begin(), body.stores.end(),
                     [&](const ir::Store& s) { return runs_along(body.accesses[s.access], last); });
}

// A phase whose threads make `columns` neighbouring points and fold them before they go on.
ir::Phase several_columns(const ir::Phase& p, int columns) {
  ir::Phase out;
  out.inner = p.inner;
  const Axis& axis = p.inner.back();
  Expr extent(*axis.extent.constant() / columns);
  out.inner.back() = {make_loop_symbol(axis.var->name, extent), extent, axis.kind};
  BodyBuilder builder;
  Copier copier(p.body, builder);
  std::vector<NodeId> folds(p.reductions.size(), kNoNode);
  for (int c = 0; c < columns; ++c) {
    copier.copy({{axis.var->id, Expr(out.inner.back().var) * columns + c}});
    for (size_t r = 0; r < folds.size(); ++r) {
      const ir::Reduction& red = p.reductions[r];
      NodeId v = copier.of(red.value);
      if (builder.type(v) != red.type) v = builder.cast(v, red.type);
      folds[r] = c == 0 ? v : builder.binary(*ir::step_of(red.op), folds[r], v);
    }
  }
  for (NodeId n : folds) builder.keep(n);
  out.body = builder.take();
  for (size_t r = 0; r < folds.size(); ++r)
    out.reductions.push_back(
        {p.reductions[r].op, builder.renumbered(folds[r]), p.reductions[r].type});
  return out;
}

// Windows whose results are folded: the one phase with inner axes makes vectors along the last of
// them.
std::optional<Expanded> expand_fold(const ir::Kernel& kernel, const ir::Nest& nest) {
  size_t at = nest.phases.size();
  for (size_t k = 0; k < nest.phases.size(); ++k) {
    if (nest.phases[k].inner.empty()) continue;
    if (at != nest.phases.size()) return std::nullopt;
    at = k;
  }
  if (at == nest.phases.size()) return std::nullopt;
  const ir::Phase& p = nest.phases[at];
  if (p.reductions.empty() || !independent(kernel, p)) return std::nullopt;
  for (const ir::Reduction& r : p.reductions) {
    if (!ir::step_of(r.op)) return std::nullopt;
  }
  Expr points(1);
  for (const Axis& a : p.inner) {
    if (!a.extent.is_constant()) return std::nullopt;
    points = points * a.extent;
  }
  int columns = vector_of(kernel, p.body);
  auto size = static_cast<size_t>(columns);
  const Axis& last = p.inner.back();
  if (columns < 2 || *last.extent.constant() % columns != 0 ||
      *points.constant() < kLeastFold * columns || p.body.nodes.size() * size > kMaxNodes ||
      !stores_along(p.body, last.var) ||
      std::none_of(p.body.accesses.begin(), p.body.accesses.end(),
                   [&](const ir::Access& a) { return runs_along(a, last.var); }))
    return std::nullopt;
  ir::Phase many = several_columns(p, columns);
  if (count_loads(many.body, &many.inner.back().var) >= count_loads(p.body, &last.var) * size)
    return std::nullopt;
  auto out = std::make_shared<ir::Nest>(nest);
  out->phases[at] = std::move(many);
  return Expanded{std::move(out), 1, columns};
}

class Expander {
 public:
  Expander(const ir::Kernel& kernel, const ir::Nest& nest, int64_t threads)
      : kernel_(kernel), nest_(nest), body_(nest.phases[0].body), threads_(threads) {
    axes_ = nest.outer;
    const std::vector<Axis>& inner = nest.phases[0].inner;
    axes_.insert(axes_.end(), inner.begin(), inner.end());
  }

  std::optional<Expanded> run() {
    for (const Axis& a : axes_) {
      for (const Axis& b : axes_) {
        if (uses(a.extent, *b.var)) return std::nullopt;
      }
    }
    if (axes_.empty()) return std::nullopt;
    int columns = choose_columns();
    auto [axis, rows] = choose_rows(columns);
    if (rows * columns == 1) return std::nullopt;
    std::vector<Axis> axes;
    auto out = std::make_shared<ir::Nest>();
    out->phases.emplace_back();
    out->phases[0].body = build(axis, rows, columns, axes);
    out->outer = std::move(axes);
    out->locations = nest_.locations;
    return Expanded{std::move(out), rows, columns};
  }

 private:
  int64_t points() const {
    Expr n(1);
    for (const Axis& a : axes_) n = n * a.extent;
    return bounded(n, int64_t{1} << 50);
  }
  bool enough_threads(int copies) const { return points() / copies >= threads_; }
  bool divides(size_t axis, int n) const {
    auto e = axes_[axis].extent.constant();
    return e && *e > n && *e % n == 0;
  }

  Body build(size_t row_axis, int rows, int columns, std::vector<Axis>& axes) const {
    axes = axes_;
    auto cut = [&](size_t k, int by) {
      if (by == 1) return;
      Expr extent(*axes_[k].extent.constant() / by);
      axes[k] = {make_loop_symbol(axes_[k].var->name, extent), extent, axes_[k].kind};
    };
    size_t last = axes.size() - 1;
    cut(row_axis, rows);
    cut(last, columns);
    BodyBuilder builder;
    Copier copier(body_, builder);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        std::unordered_map<uint64_t, Expr> point;
        if (rows > 1)
          point.insert_or_assign(axes_[row_axis].var->id, Expr(axes[row_axis].var) * rows + r);
        if (columns > 1)
          point.insert_or_assign(axes_[last].var->id, Expr(axes[last].var) * columns + c);
        copier.copy(point);
      }
    }
    return builder.take();
  }

  // Vectors of the widest stored or loaded type along the last axis, where neighbouring points read
  // the same elements: aligned vectors and their edges are loaded, not each window.
  int choose_columns() const {
    size_t last = axes_.size() - 1;
    int columns = vector_of(kernel_, body_);
    auto size = static_cast<size_t>(columns);
    if (columns < 2 || !divides(last, columns) || !enough_threads(columns) ||
        body_.nodes.size() * size > kMaxNodes || !stores_along(body_, axes_[last].var))
      return 1;
    std::vector<Axis> axes;
    Body many = build(last, 1, columns, axes);
    size_t before = count_loads(body_, &axes_[last].var),
           after = count_loads(many, &axes[last].var);
    return after < before * size ? columns : 1;
  }

  // The axis along which most loads are shared, and how many points of it.
  std::pair<size_t, int> choose_rows(int columns) const {
    std::pair<size_t, int> best(0, 1);
    double least = kRowGain;
    std::vector<Axis> axes;
    auto one = static_cast<double>(count_loads(build(0, 1, columns, axes), nullptr));
    for (size_t k = 0; k + 1 < axes_.size() && one > 0; ++k) {
      for (int rows = columns > 1 ? kMaxTileRows : kMaxRows; rows > 1; --rows) {
        if (!divides(k, rows) || !enough_threads(rows * columns) ||
            body_.nodes.size() * static_cast<size_t>(rows * columns) > kMaxNodes)
          continue;
        Body many = build(k, rows, columns, axes);
        size_t loads = count_loads(many, nullptr);
        double share = static_cast<double>(loads) / (one * rows);
        if (loads + many.stores.size() > kMaxValues || share >= least) continue;
        least = share;
        best = {k, rows};
      }
    }
    if (best.second == 1 && columns == 1) best = dependent_rows();
    return best;
  }

  // Addresses that are loaded first: two rows a thread wait together.
  std::pair<size_t, int> dependent_rows() const {
    if (axes_.size() < 2 || body_.symbols.empty() || body_.stores.size() != 1) return {0, 1};
    size_t k = axes_.size() - 2;
    const SymbolRef& last = axes_.back().var;
    bool along = false;
    for (const Node& n : body_.nodes) {
      if (n.op != ScalarOp::load) continue;
      const ir::Access& a = body_.accesses[n.payload];
      std::vector<SymbolRef> symbols;
      for (const Expr& c : a.coords) collect_symbols(c, symbols);
      bool indirect = std::any_of(symbols.begin(), symbols.end(), [](const SymbolRef& s) {
        return s->kind == SymbolKind::indirect;
      });
      bool row = !a.coords.empty() && uses(a.coords.back(), *last) &&
                 affine_in(a.coords.back(), last).has_value();
      if (indirect && !row) return {0, 1};
      along = along || indirect;
    }
    bool fits = divides(k, kDependentRows) && enough_threads(kDependentRows * 4);
    return along && fits ? std::pair(k, kDependentRows) : std::pair(size_t{0}, 1);
  }

  const ir::Kernel& kernel_;
  const ir::Nest& nest_;
  const Body& body_;
  int64_t threads_;
  std::vector<Axis> axes_;
};

}  // namespace

std::optional<Expanded> expand_nest(const ir::Kernel& kernel, const ir::Nest& nest,
                                    int64_t threads) {
  if (!eligible(kernel, nest)) return expand_fold(kernel, nest);
  return Expander(kernel, nest, threads).run();
}

}  // namespace heddle::cuda
