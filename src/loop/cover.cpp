#include "loop/cover.h"

#include <algorithm>

namespace heddle::loop {

namespace {

std::vector<LoopAxis> element_axes(const std::vector<Expr>& extents) {
  std::vector<LoopAxis> axes;
  for (const Expr& e : extents) axes.push_back({make_loop_symbol("e", e), e});
  return axes;
}

// The last block of a row may be shorter: its axis has min(block, what is left) points, and is a
// digit of a number in mixed radix with the block as its radix.
std::vector<std::vector<LoopAxis>> full_blocks(const std::vector<LoopAxis>& axes) {
  std::vector<std::vector<LoopAxis>> out{axes};
  for (int side = 0; side < 2; ++side) {
    std::vector<LoopAxis> full = axes;
    bool any = false;
    for (LoopAxis& a : full) {
      if (a.extent.kind() != ExprKind::min) continue;
      a.extent = Expr(a.extent.operands()[static_cast<size_t>(side)]);
      any = true;
    }
    if (any) out.push_back(std::move(full));
  }
  return out;
}

Bindings solved(const std::vector<Expr>& coords, const std::vector<Expr>& known,
                const std::vector<LoopAxis>& unknowns) {
  std::vector<Equation> equations;
  for (size_t k = 0; k < coords.size(); ++k) {
    equations.push_back({coords[k], known[k]});
    equations.push_back({-coords[k], -known[k]});  // of a row that runs backwards
  }
  Bindings best;
  for (const std::vector<LoopAxis>& axes : full_blocks(unknowns)) {
    Solution s = solve(equations, axes, false);
    if (s.complete) return s.values;
    if (s.values.size() > best.size()) best = s.values;
  }
  return best;
}

}  // namespace

std::optional<Expr> Inverse::at(const LoopAxis& axis, const std::vector<Expr>& coords) const {
  auto it = of.find(axis.var->id);
  if (it == of.end()) return std::nullopt;
  Bindings values;
  for (size_t k = 0; k < element.size(); ++k) values.emplace(element[k].var->id, coords[k]);
  return replaced(values, it->second);
}

Inverse invert(const std::vector<Expr>& coords, const std::vector<LoopAxis>& axes,
               const std::vector<Expr>& extents) {
  Inverse r{element_axes(extents), {}};
  std::vector<Expr> known;
  for (const LoopAxis& a : r.element) known.push_back(Expr(a.var));
  r.of = solved(coords, known, axes);
  // The solver promises nothing: what it found holds if it gives each variable back.
  for (const LoopAxis& a : axes) {
    std::optional<Expr> back = r.at(a, coords);
    if (back && !(*back == Expr(a.var))) r.of.erase(a.var->id);
  }
  return r;
}

bool writes(const Written& store, size_t shared, const std::vector<Expr>& coords,
            const Facts& facts) {
  if (store.coords.size() != coords.size()) return false;
  // Its own variables under new names: both sides may be loops over the same symbols.
  Bindings renamed;
  std::vector<LoopAxis> mine;
  for (size_t k = shared; k < store.axes.size(); ++k) {
    Expr extent = replaced(renamed, store.axes[k].extent);
    mine.push_back({make_loop_symbol(store.axes[k].var->name, extent), extent});
    renamed.emplace(store.axes[k].var->id, Expr(mine.back().var));
  }
  std::vector<Expr> target = replaced(renamed, store.coords);
  Bindings point = solved(target, coords, mine);
  const Facts& here = facts;
  for (const LoopAxis& a : mine) {
    // A variable that the coordinates do not name: any point will do, if there is one.
    Expr v = point.try_emplace(a.var->id, 0).first->second;
    if (!here.proves(v) || !here.proves(replaced(point, a.extent) - Expr(1) - v)) return false;
  }
  for (size_t k = 0; k < coords.size(); ++k) {
    Expr off = here.resolved(replaced(point, target[k])) - here.resolved(coords[k]);
    if (!off.is(0) && !(here.proves(off) && here.proves(-off))) return false;
  }
  return true;
}

bool fill(const Stores& stores, const std::vector<Expr>& extents) {
  std::vector<Expr> coords;
  static const ir::Body kNoBody;
  Facts facts(kNoBody, {});
  for (const LoopAxis& a : element_axes(extents)) {
    coords.push_back(Expr(a.var));
    facts.add_point(a.extent);
  }
  auto covered = [&](const std::vector<Expr>& at) {
    return std::any_of(stores.begin(), stores.end(),
                       [&](const auto& w) { return writes(*w, 0, at, facts); });
  };
  if (covered(coords)) return true;
  if (extents.empty() || !extents.back().is(2)) return false;
  std::vector<Expr> re = coords, im = coords;
  re.back() = 0;
  im.back() = 1;
  return covered(re) && covered(im);
}

}  // namespace heddle::loop
