#include "loop/row_access.h"

#include <algorithm>
#include <utility>

namespace heddle::loop {

using ir::BufferId;
using ir::kNoNode;
using ir::NodeId;

namespace {

// Puts nodes that read counters and bind them to symbols in front of a body.
class RowIndices {
 public:
  explicit RowIndices(ir::Body& body) : body_(body) {}

  Expr index(const RowOf& row) {
    if (row.count.is(1)) return 0;
    for (const auto& [counter, count, symbol] : made_) {
      if (counter == row.counter && count == row.count) return Expr(symbol);
    }
    int64_t last = std::max<int64_t>(row.count.constant_or(INT64_MAX) - 1, 0);
    SymbolRef symbol =
        make_symbol(SymbolKind::indirect, "row", 0, last, std::make_shared<const Expr>(row.count));
    ir::Node load, bind;
    load.op = ir::ScalarOp::load;
    load.type = DType::i64;
    load.payload = static_cast<uint32_t>(body_.accesses.size());
    body_.accesses.push_back({row.counter, {}});
    bind.op = ir::ScalarOp::bind;
    bind.type = DType::i64;
    bind.a = static_cast<NodeId>(front_.size());
    bind.payload = static_cast<uint32_t>(body_.symbols.size());
    body_.symbols.push_back(symbol);
    front_.push_back(load);
    front_.push_back(bind);
    made_.push_back({row.counter, row.count, symbol});
    return Expr(symbol);
  }

  NodeId shifted(NodeId n) const {
    return n == kNoNode ? n : n + static_cast<NodeId>(front_.size());
  }
  void finish() {
    for (ir::Node& n : body_.nodes) {
      n.a = shifted(n.a);
      n.b = shifted(n.b);
      n.c = shifted(n.c);
    }
    for (ir::Store& s : body_.stores) {
      s.value = shifted(s.value);
      s.mask = shifted(s.mask);
    }
    body_.nodes.insert(body_.nodes.begin(), front_.begin(), front_.end());
  }

 private:
  struct Made {
    BufferId counter;
    Expr count;
    SymbolRef symbol;
  };
  ir::Body& body_;
  std::vector<ir::Node> front_;
  std::vector<Made> made_;
};

}  // namespace

void use_rows(ir::Phase& phase, const std::map<BufferId, RowOf>& rows,
              const std::map<BufferId, RowOf>& copies) {
  ir::Body& body = phase.body;
  RowIndices indices(body);
  size_t accesses = body.accesses.size(), stores = body.stores.size();
  // By value: making an index adds accesses.
  auto to_row = [&](ir::Access from, const RowOf& row) {
    ir::Access a{row.whole, {indices.index(row)}};
    a.coords.insert(a.coords.end(), from.coords.begin(), from.coords.end());
    return a;
  };
  for (size_t k = 0; k < stores; ++k) {
    auto it = copies.find(body.accesses[body.stores[k].access].buffer);
    if (it == copies.end()) continue;
    ir::Store copy = body.stores[k];
    ir::Access access = to_row(body.accesses[copy.access], it->second);
    copy.access = static_cast<uint32_t>(body.accesses.size());
    body.accesses.push_back(std::move(access));
    body.stores.push_back(copy);
  }
  for (size_t k = 0; k < accesses; ++k) {
    auto it = rows.find(body.accesses[k].buffer);
    if (it != rows.end()) body.accesses[k] = to_row(body.accesses[k], it->second);
  }
  indices.finish();
  for (ir::Reduction& r : phase.reductions) r.value = indices.shifted(r.value);
}

}  // namespace heddle::loop
