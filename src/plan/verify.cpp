// The state of a plan at a step is the set of slots that certainly hold what was written to them
// last. A write takes every slot out of it whose bytes it may touch; where paths meet, both must
// hold. In a loop that is what held before it and what nothing in it writes over.
#include "plan/verify.h"

#include "base/check.h"
#include "plan/builder.h"

#include <heddle/error.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace heddle::plan {

namespace {

struct Broken {
  std::string rule;
};

template <class... Args>
[[noreturn]] void broken(const Args&... args) {
  throw Broken{base::cat(args...)};
}

// Reads and writes of one step, without what is nested in it.
struct Accesses {
  std::vector<SlotId> reads;
  std::vector<SlotId> writes;  // wholly
  std::vector<SlotId> rows;    // in part
  std::vector<SlotId> spoils;  // written, worth nothing afterwards
};

bool indirect(const ir::Body& body, const Expr& e) {
  std::vector<SymbolRef> symbols;
  collect_symbols(e, symbols);
  return std::any_of(symbols.begin(), symbols.end(), [&](const SymbolRef& s) {
    return std::any_of(body.symbols.begin(), body.symbols.end(),
                       [&](const SymbolRef& t) { return s->id == t->id; });
  });
}

// A kernel of plain nests whose every store to the buffer is at a place that its data say: it
// stores rows of what others complete.
bool stores_rows(const ir::Kernel& kernel, ir::BufferId buffer) {
  bool any = false;
  for (const ir::Stmt& stmt : kernel.body) {
    if (stmt.kind == ir::StmtKind::barrier) continue;
    if (stmt.kind != ir::StmtKind::nest) return false;
    for (const ir::Phase& phase : stmt.nest->phases) {
      for (const ir::Store& store : phase.body.stores) {
        const ir::Access& access = phase.body.accesses[store.access];
        if (access.buffer != buffer) continue;
        if (std::none_of(access.coords.begin(), access.coords.end(),
                         [&](const Expr& e) { return indirect(phase.body, e); }))
          return false;
        any = true;
      }
    }
  }
  return any;
}

// Which slots may have bytes in common.
class Storage {
 public:
  Storage(const Plan& plan, const Layout* layout) : plan_(plan), layout_(layout) {
    base_.assign(plan.slots.size(), kNone);
    partner_.assign(plan.slots.size(), kNone);
    for (SlotId s = 0; s < plan.slots.size(); ++s) roots_.push_back(root_of(s));
    collect(plan.steps);
  }

  SlotId base(SlotId slot) const { return base_[slot]; }  // of a view, else kNone
  SlotId memory(SlotId slot) const {
    while (base_[slot] != kNone) slot = base_[slot];
    return slot;
  }
  // Is `slot` what the view `part` is a row of, directly or not?
  bool contains(SlotId slot, SlotId part) const {
    while (part != slot && part != kNone) part = base_[part];
    return part == slot;
  }
  // The two that the host exchanges are never in one place.
  bool may_overlap(SlotId a, SlotId b) const {
    a = memory(a), b = memory(b);
    if (a == b) return true;
    if (partner_[a] == b) return false;
    for (SlotId x : {a, partner_[a]}) {
      for (SlotId y : {b, partner_[b]}) {
        if (x != kNone && y != kNone && share_bytes(x, y)) return true;
      }
    }
    return false;
  }
  bool share_bytes(SlotId a, SlotId b) const {
    const Slot &s = plan_.slots[a], &t = plan_.slots[b];
    if (a == b) return true;
    if (s.place != Place::arena || t.place != Place::arena) return false;
    if (layout_ != nullptr) {
      return layout_->offset[a] < layout_->offset[b] + layout_->bytes[b] &&
             layout_->offset[b] < layout_->offset[a] + layout_->bytes[a];
    }
    const Slot &x = plan_.slots[roots_[a]], &y = plan_.slots[roots_[b]];
    return &x == &y || x.end < y.begin || y.end < x.begin;
  }
  // The same bytes, not only some of them.
  bool same_place(SlotId a, SlotId b) const {
    if (a == b) return true;
    if (plan_.slots[a].place != Place::arena || plan_.slots[b].place != Place::arena) return false;
    if (layout_ != nullptr) {
      return layout_->offset[a] == layout_->offset[b] && layout_->bytes[a] == layout_->bytes[b];
    }
    return roots_[a] == roots_[b] && plan_.slots[a].bytes == plan_.slots[b].bytes;
  }

 private:
  SlotId root_of(SlotId slot) const {
    SlotId root = slot;
    for (size_t n = 0; plan_.slots[root].shares != kNone; ++n) {
      root = plan_.slots[root].shares;
      if (root >= plan_.slots.size() || n > plan_.slots.size())
        broken("slot ", slot, " shares the bytes of no slot");
    }
    return root;
  }
  void collect(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (SlotPair row : step.rows) {
        if (plan_.slots[row.a].place != Place::view || base_[row.a] != kNone)
          broken("step ", step.number, ": slot ", row.a, " is not the row of one slot");
        base_[row.a] = row.b;
      }
      if (!step.on_device) {
        for (SlotPair pair : step.advance) {
          for (SlotId s : {pair.a, pair.b}) {
            if (partner_[s] != kNone || plan_.slots[s].place != Place::arena ||
                plan_.slots[s].shares != kNone)
              broken("step ", step.number, ": slot ", s, " is not exchanged by one loop alone");
          }
          partner_[pair.a] = pair.b, partner_[pair.b] = pair.a;
        }
      }
      for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
        collect(*nested);
    }
  }

  const Plan& plan_;
  const Layout* layout_;  // null: any sizes
  std::vector<SlotId> base_, partner_, roots_;
};

// What holds at a step.
class State {
 public:
  explicit State(const Plan& plan) : plan_(&plan), whole_(plan.slots.size(), false) {}

  bool holds(SlotId slot) const { return whole_[slot]; }
  void add(SlotId slot) {
    if (whole_[slot]) return;
    whole_[slot] = true;
    Place place = plan_->slots[slot].place;
    if (place == Place::arena || place == Place::view) live_.push_back(slot);
  }
  void drop(SlotId slot) {
    if (!whole_[slot]) return;
    whole_[slot] = false;
    std::erase(live_, slot);
  }
  // Drops those in the arena and the rows of which `f` is true. What else there is has bytes of its
  // own.
  template <class F>
  void drop_if(const F& f) {
    std::erase_if(live_, [&](SlotId s) {
      if (!f(s)) return false;
      whole_[s] = false;
      return true;
    });
    std::erase_if(rows, f);
  }
  // What holds on both paths.
  void meet(const State& other) {
    for (SlotId s = 0; s < whole_.size(); ++s) whole_[s] = whole_[s] && other.whole_[s];
    std::erase_if(live_, [&](SlotId s) { return !whole_[s]; });
    std::erase_if(rows, [&](SlotId s) { return !other.rows.contains(s); });
    results.insert(other.results.begin(), other.results.end());
  }
  // The first slot that holds here and not there.
  SlotId missing_in(const State& other) const {
    for (SlotId s = 0; s < whole_.size(); ++s) {
      if (whole_[s] && !other.whole_[s]) return s;
    }
    return kNone;
  }

  std::set<SlotId> rows;     // all of whose rows that were stored so far hold
  std::set<SlotId> results;  // outputs that may have been written

 private:
  const Plan* plan_;
  std::vector<bool> whole_;   // by slot: holds what was written to it last
  std::vector<SlotId> live_;  // of the arena and of rows
};

class Verifier {
 public:
  Verifier(const Plan& plan, const Layout* layout)
      : plan_(plan),
        layout_(layout),
        storage_(plan, layout),
        overwritten_(plan.slots.size(), kNone) {}

  void run() {
    State state(plan_);
    for (SlotId s = 0; s < plan_.slots.size(); ++s) {
      Place place = plan_.slots[s].place;
      if (place == Place::input || place == Place::constant || place == Place::variable)
        state.add(s);
    }
    run_steps(plan_.steps, state);
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      if (!state.holds(plan_.outputs[i].slot))
        broken("result ", i, " is not written on every path");
    }
  }

 private:
  // ---- text

  std::string show(const Step& step) const {
    std::string text = base::cat("step ", step.number);
    if (step.kind == StepKind::kernel)
      return base::cat(text, " (", plan_.kernels[step.kernel].kernel->name, ")");
    if (step.kind == StepKind::call)
      return base::cat(text, " (", plan_.calls[step.call].claim, ")");
    const char* names[] = {"kernel", "call", "copy", "fill", "cond", "while", "for"};
    return base::cat(text, " (", names[static_cast<size_t>(step.kind)], ")");
  }
  std::string show(SlotId id) const {
    const Slot& slot = plan_.slots[id];
    return base::cat("slot ", id, " (", to_string(Type{slot.dtype, slot.shape}), ")");
  }

  // ---- what steps do

  void check_slot(const Step& step, SlotId slot) const {
    if (slot >= plan_.slots.size())
      broken(show(step), " names slot ", slot, ", which is not there");
    const Slot& s = plan_.slots[slot];
    if (s.place == Place::view && storage_.base(slot) == kNone)
      broken(show(step), ": ", show(slot), " is a row of nothing");
    bool placed = layout_ == nullptr ? s.begin != kNone : layout_->offset[slot] >= 0;
    if (s.place == Place::arena && !placed) broken(show(step), ": ", show(slot), " has no place");
  }

  const Accesses& accesses_of(const Step& step) {
    auto [it, added] = accesses_.try_emplace(&step);
    if (added) it->second = find_accesses(step);
    return it->second;
  }

  Accesses find_accesses(const Step& step) const {
    Accesses out;
    for (SlotId slot : step.buffers) check_slot(step, slot);
    switch (step.kind) {
      case StepKind::kernel:
        kernel_accesses(step, out);
        break;
      case StepKind::call: {
        auto results = static_cast<std::ptrdiff_t>(step.values.size());
        if (results > std::ssize(step.buffers))
          broken(show(step), " has more results than buffers");
        out.reads.assign(step.buffers.begin(), step.buffers.end() - results);
        out.writes.assign(step.buffers.end() - results, step.buffers.end());
        check_slot(step, step.workspace);
        out.spoils.push_back(step.workspace);
        break;
      }
      case StepKind::copy:
        if (!(plan_.slots[step.buffers[0]].bytes == plan_.slots[step.buffers[1]].bytes))
          broken(show(step), ": ", show(step.buffers[0]), " and ", show(step.buffers[1]),
                 " have different sizes");
        out.writes = {step.buffers[0]}, out.reads = {step.buffers[1]};
        break;
      case StepKind::fill:
        out.writes = {step.buffers[0]};
        break;
      default:
        break;
    }
    return out;
  }

  void kernel_accesses(const Step& step, Accesses& out) const {
    const ir::Kernel& kernel = *plan_.kernels[step.kernel].kernel;
    std::vector<ir::BufferId> ids = argument_buffers(kernel);
    if (ids.size() != step.buffers.size())
      broken(show(step), " has ", step.buffers.size(), " buffers, expected ", ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      SlotId slot = step.buffers[i];
      switch (kernel.buffers[ids[i]].role) {
        case ir::BufferRole::input:
          out.reads.push_back(slot);
          break;
        case ir::BufferRole::output:
          (stores_rows(kernel, ids[i]) ? out.rows : out.writes).push_back(slot);
          break;
        default:
          out.spoils.push_back(slot);
      }
    }
  }

  // No result or scratch of a step lies over another buffer of it, but for in-place results.
  void check_apart(const Step& step, const Accesses& accesses) const {
    std::vector<SlotId> written = accesses.writes;
    written.insert(written.end(), accesses.rows.begin(), accesses.rows.end());
    written.insert(written.end(), accesses.spoils.begin(), accesses.spoils.end());
    for (size_t i = 0; i < written.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (storage_.may_overlap(written[i], written[j]))
          broken(show(step), " writes ", show(written[j]), " and ", show(written[i]),
                 " to the same bytes");
      }
      for (SlotId read : accesses.reads) {
        if (storage_.may_overlap(written[i], read) && !in_place_allowed(step, read, written[i]))
          broken(show(step), " reads ", show(read), " from the bytes where it writes ",
                 show(written[i]));
      }
    }
  }

  bool in_place_allowed(const Step& step, SlotId from, SlotId to) const {
    if (step.kind == StepKind::copy) return from == to;
    if (step.kind != StepKind::kernel || !storage_.same_place(from, to)) return false;
    const ir::Kernel& kernel = *plan_.kernels[step.kernel].kernel;
    std::vector<ir::BufferId> ids = argument_buffers(kernel);
    ir::BufferId a = 0, b = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      bool input = kernel.buffers[ids[i]].role == ir::BufferRole::input;
      if (input && step.buffers[i] == from) a = ids[i];
      if (!input && step.buffers[i] == to) b = ids[i];
    }
    return may_share(kernel, a, b);
  }

  // ---- states

  void require(const State& state, const Step& step, SlotId slot, const char* what) const {
    if (state.holds(slot)) return;
    if (overwritten_[slot] != kNone)
      broken(show(step), " ", what, " ", show(slot), ", over which step ", overwritten_[slot],
             " may have written");
    broken(show(step), " ", what, " ", show(slot), ", which is not written before on every path");
  }

  // Takes out what a write to the slot may destroy.
  void overwrite(State& state, const Step& step, SlotId slot) {
    Place place = plan_.slots[storage_.memory(slot)].place;
    if (place == Place::input || place == Place::constant)
      broken(show(step), " writes to the ", place == Place::input ? "feed" : "constant", " in ",
             show(slot));
    state.drop_if([&](SlotId other) {
      if (storage_.contains(other, slot) || !storage_.may_overlap(other, slot)) return false;
      overwritten_[other] = step.number;
      return true;
    });
  }

  void write(State& state, const Step& step, SlotId slot) {
    overwrite(state, step, slot);
    if (plan_.slots[slot].place == Place::output && !state.results.insert(slot).second)
      broken(show(step), " writes the result in ", show(slot), " a second time");
    state.add(slot);
  }

  void run_steps(const std::vector<Step>& steps, State& state) {
    for (const Step& step : steps) {
      switch (step.kind) {
        case StepKind::cond:
          run_cond(step, state);
          break;
        case StepKind::while_loop:
        case StepKind::for_loop:
          run_loop(step, state);
          break;
        default:
          run_plain(step, state);
      }
    }
  }

  void run_plain(const Step& step, State& state) {
    const Accesses& accesses = accesses_of(step);
    for (SlotId slot : accesses.reads) require(state, step, slot, "reads");
    check_apart(step, accesses);
    for (SlotId slot : accesses.spoils) {
      overwrite(state, step, slot);
      state.drop(slot);
    }
    for (SlotId slot : accesses.rows) overwrite(state, step, slot);
    for (SlotId slot : accesses.writes) write(state, step, slot);
  }

  void run_cond(const Step& step, State& state) {
    check_slot(step, step.predicate);
    require(state, step, step.predicate, "tests");
    State other = state;
    run_steps(step.first, state);
    run_steps(step.second, other);
    state.meet(other);
  }

  // ---- loops

  static const std::vector<Step>& body_of(const Step& loop) {
    return loop.kind == StepKind::for_loop ? loop.first : loop.second;
  }

  // Calls f(step, slot, wholly) for all that the steps may write.
  template <class F>
  void each_write(const std::vector<Step>& steps, const F& f) {
    for (const Step& step : steps) {
      const Accesses& accesses = accesses_of(step);
      for (SlotId slot : accesses.writes) f(step, slot, true);
      for (SlotId slot : accesses.rows) f(step, slot, false);
      for (SlotId slot : accesses.spoils) f(step, slot, false);
      each_write_of_loop(step, f);
      for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
        each_write(*nested, f);
    }
  }

  template <class F>
  void each_write_of_loop(const Step& loop, const F& f) {
    if (counts_on_host(loop)) f(loop, loop.counter, true);
    for (SlotPair pair : loop.advance) {
      f(loop, pair.a, true);
      if (!loop.on_device) f(loop, pair.b, true);
    }
  }

  static bool counts_on_host(const Step& step) {
    return step.kind == StepKind::for_loop && !step.on_device;
  }

  // Leaves what holds at the head of the loop in every iteration.
  void enter_loop(const Step& loop, State& state) {
    auto drop = [&](const Step& step, SlotId slot, bool wholly) {
      overwrite(state, step, slot);
      // In a loop it would be written again and again.
      if (wholly && plan_.slots[slot].place == Place::output) state.results.insert(slot);
    };
    each_write_of_loop(loop, drop);
    for (const auto* nested : {&loop.test, &loop.first, &loop.second}) each_write(*nested, drop);
    if (loop.on_device) return;
    for (SlotPair pair : loop.advance) state.drop(pair.b);
  }

  // Rows of a loop that the host drives, which the body stores.
  std::set<SlotId> stored_views(const Step& loop) {
    std::set<SlotId> views;
    each_write(body_of(loop), [&](const Step&, SlotId slot, bool) {
      for (SlotPair row : loop.rows) {
        if (storage_.contains(row.a, slot)) views.insert(row.a);
      }
    });
    return views;
  }

  // Slots of which the loop stores a row per iteration.
  std::set<SlotId> stacked_by(const Step& loop) {
    std::set<SlotId> stacked;
    for (SlotId view : stored_views(loop)) stacked.insert(storage_.base(view));
    if (!loop.on_device) return stacked;
    for (const Step& step : body_of(loop)) {
      const std::vector<SlotId>& rows = accesses_of(step).rows;
      stacked.insert(rows.begin(), rows.end());
    }
    return stacked;
  }

  void run_loop(const Step& loop, State& state) {
    for (SlotId slot : {loop.predicate, loop.counter, loop.count_slot}) {
      if (slot != kNone) check_slot(loop, slot);
    }
    run_steps(loop.prologue, state);
    if (loop.count_slot != kNone) require(state, loop, loop.count_slot, "counts by");
    std::set<SlotId> stacked = stacked_by(loop);
    state.rows.insert(stacked.begin(), stacked.end());
    enter_loop(loop, state);
    State head = state;
    run_steps(loop.kind == StepKind::for_loop ? loop.test : loop.first, state);
    if (!counts_on_host(loop)) require(state, loop, loop.predicate, "tests");
    State inside = state;
    run_body(loop, inside);
    SlotId lost = head.missing_in(inside);
    if (lost != kNone) broken(show(loop), " does not leave ", show(lost), " to the next iteration");
    for (SlotId slot : stacked) {
      // No row of a while_loop was promised: there the slot was filled before.
      if (loop.kind == StepKind::for_loop && state.rows.contains(slot)) state.add(slot);
      if (plan_.slots[slot].place == Place::output) state.results.insert(slot);
      state.rows.erase(slot);
    }
  }

  void run_body(const Step& loop, State& state) {
    std::set<SlotId> stored = stored_views(loop);
    if (counts_on_host(loop)) write(state, loop, loop.counter);
    for (SlotPair row : loop.rows) {
      check_slot(loop, row.b);
      if (stored.contains(row.a)) continue;
      require(state, loop, row.b, "takes rows of");
      state.add(row.a);
    }
    run_steps(body_of(loop), state);
    for (SlotId view : stored) require(state, loop, view, "stacks");
    for (SlotPair pair : loop.advance) advance(loop, pair, state);
    for (SlotPair row : loop.rows) state.drop(row.a);
  }

  void advance(const Step& loop, SlotPair pair, State& state) {
    check_slot(loop, pair.a), check_slot(loop, pair.b);
    require(state, loop, pair.b, "carries");
    if (storage_.share_bytes(pair.a, pair.b) ||
        !(plan_.slots[pair.a].bytes == plan_.slots[pair.b].bytes))
      broken(show(loop), ": the places of a carried value, ", show(pair.a), " and ", show(pair.b),
             ", are not two of equal size");
    if (loop.on_device) return write(state, loop, pair.a);
    state.add(pair.a);
    state.drop(pair.b);
  }

  const Plan& plan_;
  const Layout* layout_;  // null: any sizes
  Storage storage_;
  std::vector<uint32_t> overwritten_;  // by slot: the last step that may have written over it
  std::unordered_map<const Step*, Accesses> accesses_;
};

// Slots hold the buffers of the kernels that use them.
class KernelBytes {
 public:
  KernelBytes(const Plan& plan, const Layout& layout) : plan_(plan), layout_(layout) {}

  void check(const std::vector<Step>& steps) const {
    for (const Step& step : steps) {
      if (step.kind == StepKind::kernel) check(step);
      for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
        check(*nested);
    }
  }

 private:
  void check(const Step& step) const {
    const ir::Kernel& kernel = *plan_.kernels[step.kernel].kernel;
    auto value = [&](const Symbol& s) -> std::optional<int64_t> {
      for (size_t i = 0; i < step.symbols.size(); ++i) {
        if (step.symbols[i]->id == s.id) return layout_.step_symbols[step.symbol_begin + i];
      }
      return std::nullopt;
    };
    size_t argument = 0;
    for (ir::BufferId id : argument_buffers(kernel)) {
      SlotId slot = step.buffers.at(argument++);
      const ir::Buffer& buffer = kernel.buffers[id];
      int64_t bytes =
          (evaluate(element_count(buffer.extents), value) * bit_width(buffer.dtype) + 7) / 8;
      if (bytes > layout_.bytes[slot])
        broken("step ", step.number, " (", kernel.name, "): buffer ", buffer.name, " has ", bytes,
               " bytes, its slot ", slot, " has ", layout_.bytes[slot]);
    }
  }

  const Plan& plan_;
  const Layout& layout_;
};

void check_bytes(const Plan& plan, const Layout& layout) {
  for (SlotId id = 0; id < plan.slots.size(); ++id) {
    const Slot& slot = plan.slots[id];
    if (slot.place != Place::arena || slot.begin == kNone) continue;
    int64_t offset = layout.offset[id], bytes = layout.bytes[id];
    if (offset < 0 || offset % kAlignment != 0 || offset + bytes > layout.arena_bytes)
      broken("slot ", id, " of ", bytes, " bytes at ", offset, " is not aligned or not inside the ",
             layout.arena_bytes, " bytes of the arena");
  }
}

}  // namespace

std::string verify(const Plan& plan) {
  if (plan.slots.empty()) return "";  // a signature only
  try {
    Verifier(plan, nullptr).run();
  } catch (const Broken& e) {
    return e.rule;
  }
  return "";
}

std::string verify(const Plan& plan, const Layout& layout) {
  if (plan.slots.empty()) return "";
  try {
    check_bytes(plan, layout);
    KernelBytes(plan, layout).check(plan.steps);
    Verifier(plan, &layout).run();
  } catch (const Broken& e) {
    return e.rule;
  }
  return "";
}

}  // namespace heddle::plan
