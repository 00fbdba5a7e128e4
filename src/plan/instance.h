// One run's worth of memory and arguments of a plan; pooled, so that a warm run prepares nothing.
#pragma once

#include "plan/arena.h"
#include "plan/layout.h"
#include "target/target.h"

#include <atomic>

namespace heddle::plan {

// What holds for all instances of a plan on a device, fixed after compilation.
struct Resources {
  std::shared_ptr<target::Device> device;
  ArenaPool* arenas = nullptr;   // the device's
  std::vector<void*> constants;  // addresses, by Plan::constants
  std::vector<void*> variables;  // by Plan::variables
};

class Instance {
 public:
  Instance(const Plan& plan, std::shared_ptr<const Layout> layout, const Resources& resources);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Takes an arena before the run, gives it back when the run's work is done.
  void attach(target::Stream* stream);
  void detach() noexcept;

  const Layout& layout() const { return *layout_; }
  const std::shared_ptr<const Layout>& layout_ref() const { return layout_; }
  void set_input(size_t index, void* pointer) { set(plan_.inputs[index].slot, pointer); }
  void set_output(size_t index, void* pointer) { set(plan_.outputs[index].slot, pointer); }
  void* pointer(SlotId slot) const { return table_[slot]; }

  // Gives the work to the stream: in order, or as a device graph from the third run on.
  void execute(target::Stream& stream);

  // For validation: the steps of the top level one by one.
  void execute_step(const Step& step, target::Stream& stream);

 private:
  friend class Executor;
  friend class InstancePool;
  void set(SlotId slot, void* pointer) {
    if (table_[slot] == pointer) return;
    move(slot, pointer);
  }
  void move(SlotId slot, void* pointer);
  void bind(void* arena);
  void fill_arguments(const std::vector<Step>& steps);
  void note_positions(const std::vector<Step>& steps);

  const Plan& plan_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<target::Device> device_;
  ArenaPool& arenas_;
  Arena arena_;               // while attached
  void* bound_ = nullptr;     // the arena that the addresses refer to
  std::vector<void*> table_;  // by slot
  std::vector<void*> args_;   // flat, by Step::arg_begin
  std::vector<std::pair<SlotId, uint32_t>>
      positions_;  // where inputs and outputs stand in args_, sorted
  std::unique_ptr<target::Recording> recording_;
  bool recording_failed_ = false;
  bool changed_ = true;                                      // pointers moved since the recording
  int64_t runs_ = 0, failed_updates_ = 0;                    // the latter in a row
  std::vector<std::unique_ptr<target::Recording>> retired_;  // work may still use them
};

// Instances of a plan that no thread prepares a run on. Idle ones, bounded by count, hold addresses
// and recordings; their arenas are back in the device's pool. Those in flight are used by runs that
// a stream has not finished; the next run on the same stream comes after those and takes the same
// one with its arena, so that runs one behind the other need no more than one.
class InstancePool {
 public:
  ~InstancePool();
  // Null where none is idle for this layout.
  std::unique_ptr<Instance> take(const Layout& layout);
  // The one that ran last, whatever its layout; null where another thread has it. Takes no lock.
  std::unique_ptr<Instance> take_hot() {
    return std::unique_ptr<Instance>(hot_.exchange(nullptr, std::memory_order_acquire));
  }
  void give(std::unique_ptr<Instance> instance);
  // In flight on this stream: one run more uses it. Null where there is none.
  Instance* join(const Layout& layout, const target::Stream& stream);
  bool in_flight(const Layout& layout, const target::Stream& stream) const;
  // The first run that uses it on this stream.
  Instance* fly(std::unique_ptr<Instance> instance, const target::Stream& stream);
  // A run is done. The last one makes it idle, or destroys it where any has failed.
  void land(Instance* instance, bool failed) noexcept;
  void clear();

 private:
  static constexpr size_t kLimit = 8;
  struct Flight {
    std::unique_ptr<Instance> instance;
    const target::Stream* stream = nullptr;
    int64_t runs = 0;
    bool failed = false;
  };
  std::unique_ptr<Instance> park(std::unique_ptr<Instance> instance);  // under the lock
  std::atomic<Instance*> hot_{nullptr};  // the one that ran last: taken without a lock
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Instance>> idle_;
  std::vector<Flight> flights_;  // a few, one an executable size and stream at work
};

}  // namespace heddle::plan
