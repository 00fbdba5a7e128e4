#include "plan/execute.h"

#include "base/check.h"
#include "target/counters.h"

namespace heddle::plan {

std::span<void* const> Executor::gather(const Step& step) {
  void** args = instance_.args_.data() + step.arg_begin;
  if (step.moving) {
    for (size_t i = 0; i < step.buffers.size(); ++i) args[i] = instance_.table_[step.buffers[i]];
  }
  return {args, step.buffers.size()};
}

void Executor::run_step(const Step& step, target::Recorder& recorder) {
  switch (step.kind) {
    case StepKind::kernel:
      return run_kernel(step, recorder);
    case StepKind::call:
      return run_call(step, recorder);
    case StepKind::copy: {
      std::span<void* const> args = gather(step);
      if (args[0] != args[1])
        recorder.copy(args[0], args[1], instance_.layout_->bytes[step.buffers[0]]);
      return;
    }
    case StepKind::fill:
      recorder.fill(gather(step)[0], step.byte, instance_.layout_->bytes[step.buffers[0]]);
      return;
    case StepKind::cond:
      return run_cond(step, recorder);
    case StepKind::while_loop:
      return run_while(step, recorder);
    case StepKind::for_loop:
      return run_for(step, recorder);
  }
}

void Executor::run_kernel(const Step& step, target::Recorder& recorder) {
  std::span<const int64_t> symbols(instance_.layout_->step_symbols.data() + step.symbol_begin,
                                   step.symbols.size());
  recorder.launch(*plan_.kernels[step.kernel].compiled, {gather(step), symbols});
}

void Executor::run_call(const Step& step, target::Recorder& recorder) {
  std::span<const int64_t> symbols(instance_.layout_->step_symbols.data() + step.symbol_begin,
                                   step.symbols.size());
  recorder.call(*plan_.calls[step.call].call, gather(step), symbols,
                instance_.table_[step.workspace]);
}

bool Executor::read_predicate(const Step& step, target::Recorder& recorder) {
  uint8_t value = 0;
  recorder.read_back(&value, instance_.table_[step.predicate], 1);
  return value != 0;
}

void Executor::run_cond(const Step& step, target::Recorder& recorder) {
  if (step.on_device && recorder.control_flow()) {
    recorder.if_else(
        instance_.table_[step.predicate], [&](target::Recorder& r) { run(step.first, r); },
        [&](target::Recorder& r) { run(step.second, r); });
    return;
  }
  run(read_predicate(step, recorder) ? step.first : step.second, recorder);
}

void Executor::set_rows(const Step& step, int64_t k) {
  for (SlotPair row : step.rows) {
    auto* base = static_cast<std::byte*>(instance_.table_[row.b]);
    instance_.table_[row.a] = base + k * instance_.layout_->bytes[row.a];
  }
}

// The counter lives on the device: written directly where the host can, else counted there.
void Executor::set_counter(const Step& step, int64_t k, target::Recorder& recorder) {
  void* counter = instance_.table_[step.counter];
  if (instance_.device_->host_memory()) {
    *static_cast<int64_t*>(counter) = k;
  } else if (k == 0) {
    recorder.fill(counter, 0, sizeof(int64_t));
  } else {
    stream_.copy_from_host(counter, &k, sizeof(int64_t));
  }
}

// Device graphs need fixed places, so values are copied there; the host exchanges the two places.
void Executor::advance(const Step& step, target::Recorder& recorder) {
  for (SlotPair pair : step.advance) {
    if (step.on_device) {
      recorder.copy(instance_.table_[pair.a], instance_.table_[pair.b],
                    instance_.layout_->bytes[pair.a]);
    } else {
      std::swap(instance_.table_[pair.a], instance_.table_[pair.b]);
    }
  }
}

void Executor::run_while(const Step& step, target::Recorder& recorder) {
  if (step.on_device) return device_loop(step, recorder);
  int64_t limit = step.count ? instance_.layout_->counts[step.count_index] : INT64_MAX;
  for (int64_t k = 0;; ++k) {
    run(step.first, recorder);
    if (k >= limit || !read_predicate(step, recorder)) return;
    set_rows(step, k);
    run(step.second, recorder);
    advance(step, recorder);
  }
}

void Executor::run_for(const Step& step, target::Recorder& recorder) {
  if (step.on_device) {
    run(step.prologue, recorder);
    return device_loop(step, recorder);
  }
  int64_t count = 0;
  if (step.count) {
    count = instance_.layout_->counts[step.count_index];
  } else {
    recorder.read_back(&count, instance_.table_[step.count_slot], sizeof(count));
  }
  for (int64_t k = 0; k < count; ++k) {
    set_counter(step, k, recorder);
    set_rows(step, k);
    run(step.first, recorder);
    advance(step, recorder);
  }
}

void Executor::device_loop(const Step& step, target::Recorder& recorder) {
  bool is_for = step.kind == StepKind::for_loop;
  auto before = [&](target::Recorder& r) { run(is_for ? step.test : step.first, r); };
  auto after = [&](target::Recorder& r) {
    run(is_for ? step.first : step.second, r);
    advance(step, r);
  };
  if (recorder.control_flow()) {
    recorder.while_loop(instance_.table_[step.predicate], before, after);
    return;
  }
  for (before(recorder); read_predicate(step, recorder); before(recorder)) after(recorder);
}

}  // namespace heddle::plan
