// What is known at a point of a nest where some conditions of its body hold: proves bounds of index
// expressions from it.
#pragma once

#include "ir/body.h"

#include <map>
#include <vector>

namespace heddle::loop {

enum class Verdict : uint8_t {
  proven,
  open,    // neither could be shown
  broken,  // false at every point
};

class Facts {
 public:
  // `known`: values of nodes that the body alone does not tell (an iteration's number, an index
  // that an earlier phase found).
  Facts(const ir::Body& body, std::map<ir::NodeId, Expr> known);

  // e >= 0
  void add(const Expr& e) { facts_.push_back(e); }
  // A loop of this extent has a point.
  void add_point(const Expr& extent);
  // The condition holds (or does not), with all that follows.
  void assume(ir::NodeId condition, bool holds);
  // Is e >= 0? Yes also where the facts contradict each other: there is no such point.
  bool proves(const Expr& e) const;
  // Is 0 <= e < extent?
  Verdict inside(const Expr& e, const Expr& extent) const;
  // Do a bind's operand and its symbol's bounds agree?
  bool bound_holds(const ir::Node& bind) const;
  // Bound symbols written as what they are, where a condition tells.
  Expr resolved(const Expr& e) const;

 private:
  Expr value(ir::NodeId id) const;
  Expr opaque(ir::NodeId id) const;
  bool in_bounds(ir::NodeId value, const Symbol& symbol, int depth) const;
  bool proves(const Expr& e, int depth) const;

  const ir::Body* body_;
  std::map<ir::NodeId, bool> holds_;
  std::vector<Expr> facts_;
  mutable std::map<ir::NodeId, Expr> unknown_;
};

}  // namespace heddle::loop
