// From an optimised graph to the steps of a plan.
#pragma once

#include "loop/schedule.h"
#include "ops/control_ops.h"
#include "plan/claims.h"
#include "plan/item_uses.h"
#include "plan/plan.h"

#include <map>
#include <set>

namespace heddle::plan {

class Builder {
 public:
  Builder(std::shared_ptr<const ir::Graph> graph, std::map<ir::OpId, ChosenClaim> claims,
          const Target& target, const CompileOptions& options, Plan& plan);
  void run();

 private:
  using Targets =
      std::vector<std::pair<ir::ValueId, SlotId>>;  // a region's result -> where it must end

  // slots
  SlotId new_slot(const Type& type, Place place, uint32_t index = kNone);
  SlotId scalar_slot(DType dtype);
  SlotId pinned_slot(const Type& type);
  ir::ValueId resolve(ir::ValueId value) const;
  SlotId slot_of(ir::ValueId value);
  SlotId touch(SlotId slot, uint32_t number);
  SlotId constant_slot(ir::OpId op);
  uint32_t variable_index(ir::OpId op);
  std::vector<uint32_t> loop_path() const;
  const Type& type_of(ir::ValueId value) const { return graph_->value(value).type; }

  // steps
  Step new_step(StepKind kind) const;
  uint32_t next_number() { return number_++; }
  void emit_region(ir::RegionId region, std::vector<Step>& out, const Targets& targets);
  void emit_item(const loop::Item& item, std::vector<Step>& out);
  void emit_kernel(const loop::BoundKernel& bound, std::vector<Step>& out);
  void emit_op(ir::OpId op, std::vector<Step>& out);
  void emit_claim(const ChosenClaim& claim, std::vector<Step>& out);
  void emit_copy(SlotId to, SlotId from, std::vector<Step>& out);
  void emit_fill(SlotId to, std::vector<Step>& out);
  // variables (builder_variables.cpp)
  void emit_variable(ir::OpId op, std::vector<Step>& out);
  void emit_read(ir::OpId op, std::vector<Step>& out);
  void emit_assign(ir::OpId op, std::vector<Step>& out);
  int64_t variable_id(ir::OpId access) const;
  void find_direct_uses();
  bool read_may_alias(ir::OpId read);
  void assign_in_place(const std::set<ir::ValueId>& made);
  bool may_assign_in_place(size_t assign, const std::set<ir::ValueId>& made);
  void emit_helper(ir::Kernel kernel, std::vector<SlotId> buffers, std::vector<Step>& out);
  void compile_kernels();
  uint32_t add_kernel(const ir::Kernel& kernel, std::vector<std::string> notes);

  // control (builder_control.cpp)
  struct Carried {
    std::vector<SlotId> now, next;
  };
  void emit_control(ir::OpId op, std::vector<Step>& out);
  void emit_cond(ir::OpId op, const ops::ControlInfo& info, std::vector<Step>& out);
  void emit_while(ir::OpId op, const ops::ControlInfo& info, std::vector<Step>& out);
  void emit_for(ir::OpId op, const ops::ControlInfo& info, std::vector<Step>& out);
  void emit_call(ir::OpId op, const ops::ControlInfo& info, std::vector<Step>& out);
  Carried begin_carried(const ops::ControlInfo& info, std::vector<Step>& out);
  void copy_carried(Step& loop, std::vector<Step>& body);
  void advance(Step& loop, const Carried& carried, ir::RegionId region, Targets targets,
               std::vector<Step>& body);
  Targets row_targets(ir::OpId op, const ops::ControlInfo& info, ir::RegionId region, Step& loop,
                      std::vector<std::pair<SlotId, SlotId>>& device_rows);
  void store_rows(const std::vector<std::pair<SlotId, SlotId>>& rows, const Expr& count,
                  const Step& loop, std::vector<Step>& body);
  void begin_counter(Step& loop, std::vector<Step>& out);
  void enter(const Step& loop);
  void hold(SlotId slot);
  // Is the slot made anew in each iteration of `loop`, which stands within `depth` others?
  bool lives_inside(SlotId slot, size_t depth, uint32_t loop) const;
  void leave();
  const loop::BoundKernel* fused(ir::OpId op);
  std::set<ir::ValueId> produced(const loop::RegionSchedule& schedule);

  // A region while it is emitted.
  struct RegionContext {
    const loop::RegionSchedule* schedule = nullptr;
    ItemUses uses;
    size_t at = 0;  // the item that is being emitted
  };
  RegionContext make_context(const loop::RegionSchedule& schedule, ir::RegionId region);
  void add_uses(size_t at, const loop::Item& item, ItemUses& uses) const;
  template <class F>
  void each_read(const loop::Item& item, const F& f) const;
  template <class F>
  void each_argument(const loop::BoundKernel& bound, ir::BufferRole role, const F& f) const;

  // finishing (builder_finish.cpp)
  void finish();
  void join_lifetimes(const std::vector<Step>& steps);
  void check_recording(const std::vector<Step>& steps);
  void number_arguments(std::vector<Step>& steps, const std::set<SlotId>& moving);
  void collect_moving(const std::vector<Step>& steps, std::set<SlotId>& moving) const;
  void need_symbols(const std::vector<SymbolRef>& symbols, const char* what);
  void need_symbols(const Expr& e, const char* what);

  std::shared_ptr<const ir::Graph> graph_;
  std::map<ir::OpId, ChosenClaim> claims_;
  std::map<ir::OpId, ir::OpId> claimed_by_;      // member -> root
  std::map<ir::OpId, size_t> claim_items_left_;  // root -> items still to come
  const Target& target_;
  const CompileOptions& options_;
  Plan& plan_;
  bool device_control_ = false;  // loops and branches for a device graph
  std::set<ir::OpId> opaque_;
  std::map<ir::OpId, std::optional<loop::BoundKernel>> fused_;
  std::vector<SlotId> slot_of_value_;
  std::map<ir::ValueId, ir::ValueId> alias_;
  std::map<int64_t, uint32_t> variable_by_id_;
  std::set<int64_t> written_;        // variables with an assign anywhere
  std::vector<bool> used_directly_;  // by value: other than by the reads and assigns of a variable
  struct Frame {
    uint32_t loop;
    std::set<SlotId> touched;
  };
  std::vector<Frame> frames_;
  std::vector<RegionContext> contexts_;
  std::set<uint64_t> known_symbols_;
  uint32_t number_ = 0;
};

// Lets outputs of kernels take the place of inputs that die there, where each point reads and
// writes the same element.
void share_in_place(Plan& plan);
bool may_share(const ir::Kernel& kernel, ir::BufferId from, ir::BufferId to);
// Buffer ids of a kernel's arguments, in order of passing.
std::vector<ir::BufferId> argument_buffers(const ir::Kernel& kernel);

}  // namespace heddle::plan
