#include "plan/instance.h"

#include "base/check.h"
#include "plan/execute.h"

#include <heddle/error.h>

#include <algorithm>

namespace heddle::plan {

Instance::Instance(const Plan& plan, std::shared_ptr<const Layout> layout,
                   const Resources& resources)
    : plan_(plan),
      layout_(std::move(layout)),
      device_(resources.device),
      arenas_(*resources.arenas),
      table_(plan.slots.size()),
      args_(plan.arg_count) {
  for (SlotId id = 0; id < plan.slots.size(); ++id) {
    const Slot& slot = plan.slots[id];
    if (slot.place == Place::constant) table_[id] = resources.constants[slot.index];
    if (slot.place == Place::variable) table_[id] = resources.variables[slot.index];
  }
  note_positions(plan.steps);
  std::sort(positions_.begin(), positions_.end());
  fill_arguments(plan.steps);
}

Instance::~Instance() {
  recording_.reset();
  detach();
}

void Instance::attach(target::Stream* stream) {
  if (layout_->arena_bytes == 0 || arena_.memory != nullptr) return;
  arena_ = arenas_.take(layout_->arena_bytes, bound_, stream);
  if (arena_.memory != bound_) bind(arena_.memory);
}

void Instance::detach() noexcept {
  retired_.clear();
  if (arena_.memory == nullptr) return;
  arenas_.give(arena_);
  arena_ = {};
}

void Instance::bind(void* arena) {
  bound_ = arena;
  changed_ = true;
  for (SlotId id = 0; id < plan_.slots.size(); ++id) {
    if (plan_.slots[id].place == Place::arena && layout_->offset[id] >= 0)
      table_[id] = static_cast<std::byte*>(arena) + layout_->offset[id];
  }
  fill_arguments(plan_.steps);
}

void Instance::fill_arguments(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    for (uint32_t i = 0; i < step.buffers.size(); ++i)
      args_[step.arg_begin + i] = table_[step.buffers[i]];
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      fill_arguments(*nested);
  }
}

void Instance::note_positions(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    for (uint32_t i = 0; i < step.buffers.size(); ++i) {
      Place place = plan_.slots[step.buffers[i]].place;
      if (place == Place::input || place == Place::output)
        positions_.emplace_back(step.buffers[i], step.arg_begin + i);
    }
    for (const auto* nested : {&step.prologue, &step.test, &step.first, &step.second})
      note_positions(*nested);
  }
}

void Instance::move(SlotId slot, void* pointer) {
  table_[slot] = pointer;
  changed_ = true;
  auto it =
      std::lower_bound(positions_.begin(), positions_.end(), std::pair<SlotId, uint32_t>(slot, 0));
  for (; it != positions_.end() && it->first == slot; ++it) args_[it->second] = pointer;
}

// Runs of an instance before it is recorded. On an H200 a launch costs the host 3.5 to 4.3 us, that
// of a graph 1.3 whatever it holds, a patched node 0.2, but a recording some 60 and more.
constexpr int64_t kPlainRuns = 2;
// Runs whose addresses move, and whose graph cannot be patched, are not recorded again for ever.
constexpr int64_t kFailedUpdates = 4;

void Instance::execute(target::Stream& stream) {
  bool record = plan_.no_recording.empty() && stream.can_record() && !recording_failed_ &&
                (plan_.device_loops || (runs_ >= kPlainRuns && !plan_.steps.empty()));
  ++runs_;
  if (!record) {
    Executor(plan_, *this, stream).run(plan_.steps, stream.recorder());
    return;
  }
  auto body = [&](target::Recorder& recorder) {
    Executor(plan_, *this, stream).run(plan_.steps, recorder);
  };
  try {
    if (recording_ && changed_ && !stream.update(*recording_, body)) {
      retired_.push_back(std::move(recording_));
      ++failed_updates_;
    } else if (!changed_) {
      failed_updates_ = 0;
    }
    if (!recording_ && (plan_.device_loops || failed_updates_ < kFailedUpdates))
      recording_ = stream.record(body);
  } catch (const UnsupportedError&) {  // something in it runs in order only
    recording_.reset();
  }
  if (!recording_) {
    recording_failed_ = true;
    body(stream.recorder());
    return;
  }
  changed_ = false;
  stream.launch(*recording_);
}

void Instance::execute_step(const Step& step, target::Stream& stream) {
  Executor(plan_, *this, stream).run_step(step, stream.recorder());
}

InstancePool::~InstancePool() { clear(); }

void InstancePool::clear() {
  delete hot_.exchange(nullptr, std::memory_order_acq_rel);
  std::lock_guard lock(mutex_);
  idle_.clear();
}

std::unique_ptr<Instance> InstancePool::take(const Layout& layout) {
  std::unique_ptr<Instance> instance = take_hot();
  if (instance && &instance->layout() == &layout) return instance;
  std::unique_ptr<Instance> dropped;  // destroyed after the lock is gone
  std::lock_guard lock(mutex_);
  if (instance) dropped = park(std::move(instance));
  for (auto it = idle_.rbegin(); it != idle_.rend(); ++it) {
    if (&(*it)->layout() != &layout) continue;
    instance = std::move(*it);
    idle_.erase(std::next(it).base());
    return instance;
  }
  return nullptr;
}

// What had to go for it, or null.
std::unique_ptr<Instance> InstancePool::park(std::unique_ptr<Instance> instance) {
  idle_.push_back(std::move(instance));
  if (idle_.size() <= kLimit) return nullptr;
  std::unique_ptr<Instance> oldest = std::move(idle_.front());
  idle_.erase(idle_.begin());
  return oldest;
}

void InstancePool::give(std::unique_ptr<Instance> instance) {
  instance->detach();
  std::unique_ptr<Instance> before(hot_.exchange(instance.release(), std::memory_order_acq_rel));
  if (!before) return;
  std::unique_ptr<Instance> dropped;  // destroyed after the lock is gone
  std::lock_guard lock(mutex_);
  dropped = park(std::move(before));
}

Instance* InstancePool::join(const Layout& layout, const target::Stream& stream) {
  std::lock_guard lock(mutex_);
  for (Flight& f : flights_) {
    if (f.stream != &stream || &f.instance->layout() != &layout || f.failed) continue;
    ++f.runs;
    return f.instance.get();
  }
  return nullptr;
}

bool InstancePool::in_flight(const Layout& layout, const target::Stream& stream) const {
  std::lock_guard lock(mutex_);
  return std::any_of(flights_.begin(), flights_.end(), [&](const Flight& f) {
    return f.stream == &stream && &f.instance->layout() == &layout && !f.failed;
  });
}

Instance* InstancePool::fly(std::unique_ptr<Instance> instance, const target::Stream& stream) {
  Instance* raw = instance.get();
  std::lock_guard lock(mutex_);
  flights_.push_back({std::move(instance), &stream, 1, false});
  return raw;
}

void InstancePool::land(Instance* instance, bool failed) noexcept {
  std::unique_ptr<Instance> landed;
  {
    std::lock_guard lock(mutex_);
    auto it = std::find_if(flights_.begin(), flights_.end(),
                           [&](const Flight& f) { return f.instance.get() == instance; });
    it->failed |= failed;
    if (--it->runs > 0) return;
    landed = std::move(it->instance);
    failed = it->failed;
    flights_.erase(it);
  }
  if (!failed) give(std::move(landed));
}

}  // namespace heddle::plan
