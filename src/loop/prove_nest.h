// What prove() shows of one nest by itself.
#pragma once

#include "base/check.h"
#include "ir/kernel.h"
#include "loop/cover.h"
#include "loop/facts.h"
#include "loop/prove.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace heddle::loop {

// Collects findings, each once.
class Findings {
 public:
  template <class... Parts>
  void broken(const Parts&... parts) {
    add(proof_.broken, base::cat(parts...));
  }
  template <class... Parts>
  void open(const Parts&... parts) {
    add(proof_.open, base::cat(parts...));
  }
  Proof take() { return std::move(proof_); }

 private:
  void add(std::vector<std::string>& list, std::string text) {
    if (seen_.insert(text).second) list.push_back(std::move(text));
  }
  Proof proof_;
  std::set<std::string> seen_;
};

// The loops around a nest.
struct Around {
  std::map<ir::BufferId, Expr> iterations;  // values of their counters
  std::vector<Expr> facts;                  // >= 0
};

class NestProver {
 public:
  NestProver(const ir::Kernel& kernel, const ir::Nest& nest, const Around& around,
             Findings& findings)
      : kernel_(kernel), nest_(nest), around_(around), findings_(findings) {}
  void run() {
    for (size_t p = 0; p < nest_.phases.size(); ++p) phase(p);
    races();
  }
  // At a point of a phase where `mask` holds.
  Facts facts(size_t phase, ir::NodeId mask) const;
  std::vector<LoopAxis> axes(size_t phase) const;  // outer and inner
  std::string at(const ir::Access& a) const;       // for messages

 private:
  struct Touch {
    size_t phase = 0;
    const ir::Access* access = nullptr;
    ir::NodeId mask = ir::kNoNode;
    bool store = false;
  };
  void phase(size_t p);
  void bounds(size_t p, const ir::Access& a, ir::NodeId mask, const Facts& here);
  bool leaves(size_t p, const ir::Access& a, ir::NodeId mask) const;
  void order(const ir::Phase& phase);
  void races();
  void outer_races(const std::vector<Touch>& touches);
  void inner_races(size_t p, const std::vector<Touch>& touches);
  void own_points_only(size_t p, const ir::Access& a);
  void same_point(const Touch& t, const LoopAxis& axis, const std::optional<Expr>& rule);

  const ir::Kernel& kernel_;
  const ir::Nest& nest_;
  const Around& around_;
  Findings& findings_;
};

}  // namespace heddle::loop
