// A whole control operation as one kernel. The regions are scheduled as usual; their kernels' nests
// become statements of one kernel, between which grid barriers stand where memory that one nest
// touched is touched again. Scalars live in registers (scalar_local) and need no barrier. Carried
// arrays have two buffers that swap names.
#include "base/check.h"
#include "loop/kernel_builder.h"
#include "loop/limits.h"
#include "loop/row_access.h"

#include <algorithm>
#include <set>

namespace heddle::loop {

using base::cat;
using ir::BufferId;
using ir::BufferRole;
using ir::kNoNode;
using ir::NodeId;
using ir::OpId;
using ir::RegionId;
using ir::Stmt;
using ir::StmtKind;
using ir::ValueId;

namespace {

struct Refused {
  std::string reason;
};

// Memory that was touched since the last grid barrier.
struct Hazards {
  std::set<BufferId> read, written;
  bool clash(const Hazards& next) const {
    auto meets = [](const std::set<BufferId>& a, const std::set<BufferId>& b) {
      return std::any_of(a.begin(), a.end(), [&](BufferId x) { return b.contains(x); });
    };
    return meets(next.read, written) || meets(next.written, written) || meets(next.written, read);
  }
  void add(const Hazards& next) {
    read.insert(next.read.begin(), next.read.end());
    written.insert(next.written.begin(), next.written.end());
  }
};

// Statements in order, with barriers put in where they are needed.
struct Sequence {
  std::vector<Stmt> list;
  Hazards open;  // since the last barrier
  Hazards head;  // up to the first barrier
  Hazards all;   // everything that the sequence touches
  bool has_barrier = false;
  void touch(const Hazards& h) {
    open.add(h);
    all.add(h);
    if (!has_barrier) head.add(h);
  }
};

class LoopBuilder {
 public:
  LoopBuilder(const ir::Graph& graph, const std::set<OpId>& opaque, const ScheduleOptions& options)
      : graph_(graph), opaque_(opaque), options_(options), kernel_(graph) {}
  BoundKernel run(OpId op);

 private:
  // Two buffers of a carried value that take turns.
  struct Carried {
    BufferId now = 0, next = 0;
  };

  using Wanted = std::map<ValueId, BufferId>;
  void region(Sequence& s, RegionId id, const std::vector<BufferId>& arguments,
              const Wanted& wanted = {});
  void region_into(Sequence& s, RegionId id, const std::vector<BufferId>& arguments, size_t first,
                   const std::vector<BufferId>& targets);
  void inline_kernel(Sequence& s, const BoundKernel& k);
  std::vector<BufferId> control(Sequence& s, OpId op, std::vector<BufferId> targets);
  std::vector<BufferId> cond(Sequence& s, OpId op, const ops::ControlInfo& info,
                             std::vector<BufferId> targets);
  std::vector<BufferId> while_loop(Sequence& s, OpId op, const ops::ControlInfo& info);
  std::vector<BufferId> for_loop(Sequence& s, OpId op, const ops::ControlInfo& info);
  std::vector<Carried> carry(Sequence& s, const std::vector<ValueId>& initial,
                             const std::vector<ValueId>& arguments);
  void advance(Sequence& s, RegionId id, const std::vector<BufferId>& arguments,
               const std::vector<Carried>& carried, const std::vector<RowOf>& stacked);
  std::vector<RowOf> stack(Sequence& s, OpId id, const ops::ControlInfo& info, BufferId counter,
                           bool zero);
  BufferId bounded(Sequence& s, BufferId predicate, BufferId counter, int64_t bound);

  BufferId value(Sequence& s, ValueId v);
  BufferId fresh(ValueId v, const char* what);
  BufferId scalar(std::string name, DType dtype);
  bool is_scalar(ValueId v) const {
    return graph_.value(v).type.rank() == 0 && !is_complex(graph_.value(v).type.dtype);
  }

  void nest(Sequence& s, ir::Nest n);
  void barrier(Sequence& s);
  void nested(Sequence& s, Stmt stmt, const Hazards& touched);
  void copy(Sequence& s, BufferId to, BufferId from);
  void copy_row(Sequence& s, const RowOf& row, BufferId buffer, bool store);
  void fill_zero(Sequence& s, BufferId to);
  void set_scalar(Sequence& s, BufferId to, int64_t value);
  void add_one(Sequence& s, BufferId counter);
  void swap(Sequence& s, BufferId a, BufferId b);
  void close_iteration(Sequence& s);
  BufferId to_scalar(Sequence& s, BufferId b, const char* what);

  const ir::Graph& graph_;
  const std::set<OpId>& opaque_;
  const ScheduleOptions& options_;
  KernelBuilder kernel_;
  std::map<ValueId, BufferId> env_;
  std::map<ValueId, ValueId> aliases_;
  std::map<ValueId, RowOf> slices_;  // arguments that are rows of an array
  std::map<ValueId, RowOf> rows_;    // results that become rows of one; erased once they are
  std::set<BufferId> private_;       // scratch of one inlined kernel: dead after it
  size_t nests_ = 0;
  std::vector<std::string> notes_;
};

Hazards touched_by(const KernelBuilder& kernel, const ir::Nest& n) {
  Hazards h;
  auto local = [&](BufferId b) {
    BufferRole r = kernel.at(b).role;
    return r == BufferRole::scalar_local || r == BufferRole::row_local;
  };
  for (const ir::Phase& p : n.phases) {
    for (const ir::Node& node : p.body.nodes) {
      if (node.op != ir::ScalarOp::load) continue;
      BufferId b = p.body.accesses[node.payload].buffer;
      if (!local(b)) h.read.insert(b);
    }
    for (const ir::Store& st : p.body.stores) {
      BufferId b = p.body.accesses[st.access].buffer;
      if (!local(b)) h.written.insert(b);
    }
  }
  return h;
}

// ---- statements

void LoopBuilder::barrier(Sequence& s) {
  Stmt b;
  b.kind = StmtKind::barrier;
  b.barrier = ir::BarrierScope::grid;
  s.list.push_back(b);
  s.open = {};
  s.has_barrier = true;
}

void LoopBuilder::nest(Sequence& s, ir::Nest n) {
  bool counts = !n.outer.empty() || n.phases.size() > 1 || !n.phases[0].inner.empty();
  if (counts && ++nests_ > limits::kLoopNests)
    throw Refused{cat("more than ", limits::kLoopNests, " loop nests")};
  Hazards h = touched_by(kernel_, n);
  if (s.open.clash(h)) barrier(s);
  s.touch(h);
  Stmt st;
  st.kind = StmtKind::nest;
  st.nest = std::make_shared<const ir::Nest>(std::move(n));
  s.list.push_back(std::move(st));
}

// A statement with statements inside, which start with nothing open.
void LoopBuilder::nested(Sequence& s, Stmt stmt, const Hazards& touched) {
  if (s.open.clash(touched)) barrier(s);
  s.all.add(touched);
  if (!s.has_barrier) s.head.add(touched);
  s.list.push_back(std::move(stmt));
}

void LoopBuilder::swap(Sequence& s, BufferId a, BufferId b) {
  Stmt st;
  st.kind = StmtKind::swap;
  st.a = a;
  st.b = b;
  s.list.push_back(st);
  for (std::set<BufferId>* set : {&s.open.read, &s.open.written}) {
    bool has_a = set->erase(a) > 0, has_b = set->erase(b) > 0;
    if (has_a) set->insert(b);
    if (has_b) set->insert(a);
  }
}

// What is open at the end of an iteration meets the next one up to its first barrier. Private
// scratch that is still read gets a twin, which the next iteration writes; for anything else a
// barrier ends the iteration.
void LoopBuilder::close_iteration(Sequence& s) {
  if (!s.has_barrier) {
    if (!s.all.written.empty()) barrier(s);
    return;
  }
  if (!s.open.clash(s.head)) return;
  std::vector<BufferId> twins;
  Hazards rest = s.open;
  for (BufferId b : s.open.read) {
    if (!private_.contains(b) || !s.head.written.contains(b) || s.open.written.contains(b))
      continue;
    twins.push_back(b);
    rest.read.erase(b);
  }
  if (rest.clash(s.head)) {
    barrier(s);
    return;
  }
  for (BufferId b : twins) {
    const ir::Buffer from = kernel_.at(b);
    BufferId twin = kernel_.scratch(from.name + "t", from.dtype, from.extents);
    private_.insert(twin);
    s.all.add({{twin}, {twin}});
    swap(s, b, twin);
  }
}

BufferId LoopBuilder::scalar(std::string name, DType dtype) {
  return kernel_.local(std::move(name), dtype, {}, BufferRole::scalar_local);
}

// One nest over a buffer's elements.
struct Pass {
  std::vector<LoopAxis> axes;
  std::vector<Expr> coords;
};
Pass pass_over(const std::vector<Expr>& extents) {
  Pass p;
  for (size_t k = 0; k < extents.size(); ++k) {
    if (extents[k].is(1)) {
      p.coords.push_back(0);
      continue;
    }
    p.axes.push_back({make_loop_symbol("c" + std::to_string(k), extents[k]), extents[k]});
    p.coords.push_back(Expr(p.axes.back().var));
  }
  return p;
}
ir::Nest one_phase(const std::vector<LoopAxis>& axes, ir::BodyBuilder& b) {
  ir::Nest n;
  n.outer = to_axes(axes, ir::AxisKind::mapped);
  n.phases.emplace_back();
  n.phases[0].body = b.take();
  return n;
}

void LoopBuilder::copy(Sequence& s, BufferId to, BufferId from) {
  if (to == from) return;
  const std::vector<Expr>&to_extents = kernel_.at(to).extents,
        &from_extents = kernel_.at(from).extents;
  Pass p = pass_over(to_extents);
  std::vector<Expr> at = p.coords;
  if (to_extents != from_extents) {  // the same elements in row-major order
    Expr flat = flat_coordinate(p.coords, to_extents), below(1);
    at.assign(from_extents.size(), 0);
    for (size_t k = from_extents.size(); k-- > 0;) {
      if (from_extents[k].is(1)) continue;
      at[k] = flat / below % from_extents[k];
      below = below * from_extents[k];
    }
  }
  ir::BodyBuilder b;
  b.store({to, p.coords}, b.load(kernel_.at(from).dtype, {from, at}));
  nest(s, one_phase(p.axes, b));
}

// Copies a row to a buffer, or with `store` the other way round.
void LoopBuilder::copy_row(Sequence& s, const RowOf& row, BufferId buffer, bool store) {
  Pass p = pass_over(kernel_.at(buffer).extents);
  DType dtype = kernel_.at(buffer).dtype;
  ir::BodyBuilder b;
  // A buffer id that no other access has stands for the row.
  BufferId stand_in = UINT32_MAX;
  BufferId from = store ? buffer : stand_in, to = store ? stand_in : buffer;
  b.store({to, p.coords}, b.load(dtype, {from, p.coords}));
  ir::Nest n = one_phase(p.axes, b);
  use_rows(n.phases[0], {{stand_in, row}}, {});
  nest(s, std::move(n));
}

void LoopBuilder::fill_zero(Sequence& s, BufferId to) {
  Pass p = pass_over(kernel_.at(to).extents);
  ir::BodyBuilder b;
  b.store({to, p.coords}, b.constant_bits(kernel_.at(to).dtype, 0));
  nest(s, one_phase(p.axes, b));
}

void LoopBuilder::set_scalar(Sequence& s, BufferId to, int64_t value) {
  ir::BodyBuilder b;
  b.store({to, {}}, b.constant_int(kernel_.at(to).dtype, value));
  nest(s, one_phase({}, b));
}

void LoopBuilder::add_one(Sequence& s, BufferId counter) {
  ir::BodyBuilder b;
  NodeId k = b.load(DType::i64, {counter, {}});
  b.store({counter, {}}, b.binary(ir::ScalarOp::add, k, b.constant_int(DType::i64, 1)));
  nest(s, one_phase({}, b));
}

// A scalar of memory in registers, where control flow can test it.
BufferId LoopBuilder::to_scalar(Sequence& s, BufferId b, const char* what) {
  if (kernel_.at(b).role == BufferRole::scalar_local) return b;
  BufferId local = scalar(what, kernel_.at(b).dtype);
  copy(s, local, b);
  return local;
}

// ---- values

// The buffer that holds a value here; another name of one is copied where its shape differs.
BufferId LoopBuilder::value(Sequence& s, ValueId v) {
  if (auto it = env_.find(v); it != env_.end()) return it->second;
  if (auto it = slices_.find(v); it != slices_.end()) {
    BufferId own = fresh(v, "slice");
    copy_row(s, it->second, own, false);
    return own;
  }
  auto alias = aliases_.find(v);
  if (alias == aliases_.end()) return kernel_.input(v);
  BufferId held = value(s, alias->second);
  const Type& type = graph_.value(v).type;
  if (kernel_.at(held).extents == memory_extents(type)) return held;
  BufferId own = fresh(v, "v");
  copy(s, own, held);
  return own;
}

BufferId LoopBuilder::fresh(ValueId v, const char* what) {
  const Type& type = graph_.value(v).type;
  std::string name = what + std::to_string(v);
  if (is_scalar(v)) return scalar(name, memory_type(type.dtype));
  return kernel_.scratch(name, memory_type(type.dtype), memory_extents(type));
}

// Does a nest read memory that it writes itself?
bool reads_own_stores(const ir::Kernel& k, const ir::Nest& n) {
  std::set<BufferId> loads, stores;
  for (const ir::Phase& p : n.phases) {
    for (const ir::Node& node : p.body.nodes) {
      if (node.op == ir::ScalarOp::load) loads.insert(p.body.accesses[node.payload].buffer);
    }
    for (const ir::Store& st : p.body.stores) stores.insert(p.body.accesses[st.access].buffer);
  }
  return std::any_of(stores.begin(), stores.end(), [&](BufferId b) {
    return k.buffers[b].role != BufferRole::row_local && loads.contains(b);
  });
}

// Can a scalar stay in registers? Nests without outer axes are run by every thread alike; memory
// that one of them writes is then written once, so it must not be read in the same nest.
bool fits_registers(const ir::Kernel& k, BufferId b) {
  for (const Stmt& s : k.body) {
    if (s.kind != StmtKind::nest) continue;
    bool stored = false;
    for (const ir::Phase& p : s.nest->phases) {
      for (const ir::Store& st : p.body.stores) {
        stored = stored || p.body.accesses[st.access].buffer == b;
      }
    }
    if (stored && (!s.nest->outer.empty() || reads_own_stores(k, *s.nest))) return false;
  }
  return true;
}

// A phase of an inlined kernel on this kernel's buffers.
void rebind(ir::Phase& p, const std::vector<BufferId>& map, const std::map<BufferId, RowOf>& slices,
            const std::map<BufferId, RowOf>& rows) {
  // Rows name this kernel's buffers already: what is added for them comes after `accesses`.
  std::vector<BufferId> before;
  for (const ir::Access& a : p.body.accesses) before.push_back(a.buffer);
  use_rows(p, slices, rows);
  for (size_t k = 0; k < before.size(); ++k) {
    if (!slices.contains(before[k])) p.body.accesses[k].buffer = map[before[k]];
  }
}

void LoopBuilder::inline_kernel(Sequence& s, const BoundKernel& k) {
  std::vector<BufferId> map;
  std::vector<std::pair<BufferId, BufferId>> late;  // register, memory
  std::map<BufferId, RowOf> slices, rows;           // by the inlined kernel's buffers
  size_t binding = 0;
  for (const ir::Buffer& b : k.kernel.buffers) {
    if (b.role == BufferRole::scalar_local || b.role == BufferRole::row_local) {
      map.push_back(kernel_.local(b.name, b.dtype, b.extents, b.role));
      continue;
    }
    ValueId v = k.bindings[binding++];
    if (v == ir::kNone) {
      map.push_back(kernel_.scratch(b.name, b.dtype, b.extents));
      private_.insert(map.back());
      continue;
    }
    auto buffer = static_cast<BufferId>(map.size());
    if (auto slice = slices_.find(v); slice != slices_.end()) {
      slices.emplace(buffer, slice->second);
      map.push_back(slice->second.whole);
      continue;
    }
    if (b.role != BufferRole::output) {
      map.push_back(value(s, v));
      continue;
    }
    if (auto row = rows_.find(v); row != rows_.end()) {
      rows.emplace(buffer, row->second);
      rows_.erase(row);
    }
    auto it = env_.find(v);
    BufferId target = it != env_.end() ? it->second : fresh(v, "v");
    env_[v] = target;
    bool registers = kernel_.at(target).role == BufferRole::scalar_local;
    if (registers && !fits_registers(k.kernel, static_cast<BufferId>(map.size()))) {
      BufferId memory = kernel_.scratch(b.name, b.dtype, {});
      late.emplace_back(target, memory);
      target = memory;
    }
    map.push_back(target);
  }
  for (const Stmt& st : k.kernel.body) {
    if (st.kind != StmtKind::nest) continue;  // barriers are put in anew
    ir::Nest n = *st.nest;
    for (ir::Phase& p : n.phases) rebind(p, map, slices, rows);
    nest(s, std::move(n));
  }
  for (const auto& [local, memory] : late) copy(s, local, memory);
}

// Emits a region with its arguments bound; its results' buffers are value(results) afterwards.
// Values of its kernels that are `wanted` in a buffer are written there at once.
void LoopBuilder::region(Sequence& s, RegionId id, const std::vector<BufferId>& arguments,
                         const Wanted& wanted) {
  const ir::Region& r = graph_.region(id);
  for (size_t k = 0; k < arguments.size(); ++k) env_[r.arguments[k]] = arguments[k];
  RegionSchedule schedule = schedule_region(graph_, id, opaque_, options_);
  for (const auto& [from, to] : schedule.aliases) aliases_[from] = to;
  for (const auto& [v, buffer] : wanted) {
    if (!aliases_.contains(v)) env_.try_emplace(v, buffer);
  }
  for (const Item& item : schedule.items) {
    if (const auto* k = std::get_if<BoundKernel>(&item)) {
      inline_kernel(s, *k);
      continue;
    }
    OpId op = std::get<OpId>(item);
    if (opaque_.contains(op) || ops::control_info(graph_, op).form == ops::Form::none) {
      throw Refused{cat(graph_.op(op).name, " is not part of a kernel")};
    }
    std::vector<BufferId> results = control(s, op, {});
    for (size_t k = 0; k < results.size(); ++k) {
      ValueId v = graph_.op(op).results[k];
      auto [it, fresh_value] = env_.try_emplace(v, results[k]);
      if (!fresh_value) copy(s, it->second, results[k]);
    }
  }
}

// Emits a region whose results `first`... must end up in `targets`. A result that one of its
// kernels computes is written there at once, any other one is copied.
void LoopBuilder::region_into(Sequence& s, RegionId id, const std::vector<BufferId>& arguments,
                              size_t first, const std::vector<BufferId>& targets) {
  const ir::Region& r = graph_.region(id);
  Wanted wanted;
  for (size_t k = 0; k < targets.size(); ++k) {
    ValueId v = r.results[first + k];
    const ir::Value& made = graph_.value(v);
    bool here = made.region == id && made.op != ir::kNone &&
                ops::role_of(graph_.op(made.op)) == ops::Role::none;
    if (here) wanted.emplace(v, targets[k]);
  }
  region(s, id, arguments, wanted);
  for (size_t k = 0; k < targets.size(); ++k) copy(s, targets[k], value(s, r.results[first + k]));
}

// ---- control

std::vector<LoopBuilder::Carried> LoopBuilder::carry(Sequence& s,
                                                     const std::vector<ValueId>& initial,
                                                     const std::vector<ValueId>& arguments) {
  std::vector<Carried> out;
  for (size_t k = 0; k < initial.size(); ++k) {
    Carried c;
    c.now = fresh(arguments[k], "now");
    c.next = fresh(arguments[k], "next");
    copy(s, c.now, value(s, initial[k]));
    out.push_back(c);
  }
  return out;
}

// The region that computes the next carried values (results from `first`), and the step to them.
void LoopBuilder::advance(Sequence& s, RegionId id, const std::vector<BufferId>& arguments,
                          const std::vector<Carried>& carried, const std::vector<RowOf>& stacked) {
  const ir::Region& r = graph_.region(id);
  // A value that is handed on as it is stays where it is.
  std::vector<size_t> moving;
  std::vector<BufferId> next;
  for (size_t k = 0; k < carried.size(); ++k) {
    // Arguments beyond the bound ones are rows, which have no buffer of their own.
    auto bound = r.arguments.begin() + static_cast<int64_t>(arguments.size());
    auto it = std::find(r.arguments.begin(), bound, r.results[k]);
    if (it != bound && arguments[static_cast<size_t>(it - r.arguments.begin())] == carried[k].now)
      continue;
    moving.push_back(k);
  }
  std::vector<BufferId> targets(carried.size());
  for (size_t k = 0; k < carried.size(); ++k) {
    bool moves = std::find(moving.begin(), moving.end(), k) != moving.end();
    targets[k] = moves ? carried[k].next : carried[k].now;
  }
  for (size_t k = 0; k < stacked.size(); ++k) {
    rows_.try_emplace(r.results[carried.size() + k], stacked[k]);
  }
  region_into(s, id, arguments, 0, targets);
  for (size_t k = 0; k < stacked.size(); ++k) {
    ValueId v = r.results[carried.size() + k];
    auto row = rows_.find(v);
    bool written = row == rows_.end();
    // One value may be several rows; only the first went along with its kernel.
    bool first = std::find(r.results.begin() + static_cast<int64_t>(carried.size()),
                           r.results.begin() + static_cast<int64_t>(carried.size() + k),
                           v) == r.results.begin() + static_cast<int64_t>(carried.size() + k);
    if (written && first) continue;
    copy_row(s, stacked[k], value(s, v), true);
  }
  for (size_t k = 0; k < stacked.size(); ++k) rows_.erase(r.results[carried.size() + k]);
  for (size_t k : moving) {
    if (kernel_.at(carried[k].now).role == BufferRole::scalar_local) {
      copy(s, carried[k].now, carried[k].next);
    } else {
      swap(s, carried[k].now, carried[k].next);
    }
  }
}

std::vector<RowOf> LoopBuilder::stack(Sequence& s, OpId id, const ops::ControlInfo& info,
                                      BufferId counter, bool zero) {
  const ir::Op& op = graph_.op(id);
  std::vector<RowOf> out;
  for (size_t k = op.results.size() - info.stacked; k < op.results.size(); ++k) {
    const Type& type = graph_.value(op.results[k]).type;
    if (elements_per_byte(type.dtype) > 1) throw Refused{"rows of a packed type"};
    out.push_back({kernel_.scratch("stacked" + std::to_string(k), memory_type(type.dtype),
                                   memory_extents(type)),
                   counter, (*type.shape)[0]});
    if (zero) fill_zero(s, out.back().whole);
  }
  return out;
}

std::vector<BufferId> LoopBuilder::cond(Sequence& s, OpId id, const ops::ControlInfo& info,
                                        std::vector<BufferId> targets) {
  BufferId p = to_scalar(s, value(s, info.predicate), "if");
  if (targets.empty()) {
    for (ValueId v : graph_.op(id).results) targets.push_back(fresh(v, "v"));
  }
  Stmt st;
  st.kind = StmtKind::if_else;
  st.predicate = p;
  Sequence then_block, else_block;
  region_into(then_block, info.first, {}, 0, targets);
  region_into(else_block, info.second, {}, 0, targets);
  st.first = std::move(then_block.list);
  st.second = std::move(else_block.list);
  Hazards touched = then_block.all;
  touched.add(else_block.all);
  nested(s, std::move(st), touched);
  s.open.add(then_block.open);
  s.open.add(else_block.open);
  return targets;
}

// predicate && counter < bound
BufferId LoopBuilder::bounded(Sequence& s, BufferId predicate, BufferId counter, int64_t bound) {
  ir::BodyBuilder b;
  NodeId k = b.load(DType::i64, {counter, {}});
  NodeId below = b.binary(ir::ScalarOp::lt, k, b.constant_int(DType::i64, bound));
  BufferId both_hold = scalar("go", DType::boolean);
  b.store({both_hold, {}},
          b.binary(ir::ScalarOp::bit_and, b.load(DType::boolean, {predicate, {}}), below));
  nest(s, one_phase({}, b));
  return both_hold;
}

std::vector<BufferId> LoopBuilder::while_loop(Sequence& s, OpId id, const ops::ControlInfo& info) {
  const ir::Region& before = graph_.region(info.first);
  std::vector<Carried> carried = carry(s, info.initial, before.arguments);
  BufferId counter = 0;
  bool counts = info.max_iterations || info.stacked > 0;
  if (counts) {
    counter = scalar("iteration", DType::i64);
    set_scalar(s, counter, 0);
  }
  std::vector<RowOf> stacked = stack(s, id, info, counter, true);
  std::vector<BufferId> now;
  for (const Carried& c : carried) now.push_back(c.now);
  Sequence first;
  region(first, info.first, now);
  BufferId p = to_scalar(first, value(first, before.results[0]), "while");
  if (info.max_iterations) p = bounded(first, p, counter, *info.max_iterations);
  std::vector<BufferId> passed;
  for (size_t k = 1; k < before.results.size(); ++k)
    passed.push_back(value(first, before.results[k]));
  Sequence second;
  second.open = first.open;
  second.head = first.head;
  second.all = first.all;
  second.has_barrier = first.has_barrier;
  advance(second, info.second, passed, carried, stacked);
  if (counts) add_one(second, counter);
  close_iteration(second);
  Stmt st;
  st.kind = StmtKind::while_loop;
  st.predicate = p;
  st.first = std::move(first.list);
  st.second = std::move(second.list);
  nested(s, std::move(st), second.all);
  s.open.add(first.open);
  s.open.add(second.open);  // still there where `first` has no barrier
  std::vector<BufferId> results = passed;
  for (const RowOf& k : stacked) {
    results.push_back(k.whole);
    s.open.written.insert(k.whole);
  }
  return results;
}

std::vector<BufferId> LoopBuilder::for_loop(Sequence& s, OpId id, const ops::ControlInfo& info) {
  const ir::Region& body = graph_.region(info.first);
  size_t n = info.initial.size();
  std::vector<ValueId> arguments(body.arguments.begin() + 1,
                                 body.arguments.begin() + 1 + static_cast<int64_t>(n));
  std::vector<Carried> carried = carry(s, info.initial, arguments);
  Stmt st;
  st.kind = StmtKind::for_loop;
  st.counter = scalar("iteration", DType::i64);
  if (info.count) {
    st.count = *info.count;
  } else {
    st.has_count_buffer = true;
    st.predicate = to_scalar(s, value(s, info.count_value), "count");
  }
  std::vector<RowOf> stacked = stack(s, id, info, st.counter, false);
  Sequence inside;
  std::vector<BufferId> bound{st.counter};
  for (const Carried& c : carried) bound.push_back(c.now);
  for (size_t k = 0; k < info.slices.size(); ++k) {
    ValueId slice = body.arguments[1 + n + k];
    if (elements_per_byte(graph_.value(slice).type.dtype) > 1)
      throw Refused{"rows of a packed type"};
    const Expr& count = (*graph_.value(info.slices[k]).type.shape)[0];
    slices_.emplace(slice, RowOf{value(s, info.slices[k]), st.counter, count});
  }
  advance(inside, info.first, bound, carried, stacked);
  close_iteration(inside);
  Hazards touched = inside.all;
  st.first = std::move(inside.list);
  nested(s, std::move(st), touched);
  s.open.add(inside.open);
  std::vector<BufferId> results;
  for (const Carried& c : carried) results.push_back(c.now);
  for (const RowOf& k : stacked) results.push_back(k.whole);
  return results;
}

std::vector<BufferId> LoopBuilder::control(Sequence& s, OpId op, std::vector<BufferId> targets) {
  ops::ControlInfo info = ops::control_info(graph_, op);
  switch (info.form) {
    case ops::Form::cond:
      return cond(s, op, info, std::move(targets));
    case ops::Form::while_loop:
      return while_loop(s, op, info);
    case ops::Form::for_loop:
      return for_loop(s, op, info);
    case ops::Form::call: {
      std::vector<BufferId> arguments, results;
      for (ValueId v : info.initial) arguments.push_back(value(s, v));
      region(s, info.first, arguments);
      for (ValueId v : graph_.region(info.first).results) results.push_back(value(s, v));
      return results;
    }
    default:
      throw Refused{cat(graph_.op(op).name, " has no form of control")};
  }
}

BoundKernel LoopBuilder::run(OpId id) {
  const ir::Op& op = graph_.op(id);
  kernel_.set_locations(op.locations);
  std::vector<BufferId> outputs;
  for (ValueId v : op.results) outputs.push_back(kernel_.output(v));
  Sequence s;
  bool direct = ops::control_info(graph_, id).form == ops::Form::cond;
  std::vector<BufferId> results = control(s, id, direct ? outputs : std::vector<BufferId>{});
  for (size_t k = 0; k < outputs.size(); ++k) copy(s, outputs[k], results[k]);
  kernel_.set_body(std::move(s.list));
  return kernel_.finish(std::string(op.name) + "_" + std::to_string(id), std::move(notes_));
}

}  // namespace

std::variant<BoundKernel, target::Refusal> fuse_control(const ir::Graph& graph, OpId op,
                                                        const std::set<OpId>& opaque,
                                                        const ScheduleOptions& options) {
  try {
    return LoopBuilder(graph, opaque, options).run(op);
  } catch (const Refused& r) {
    return target::Refusal{r.reason};
  }
}

}  // namespace heddle::loop
