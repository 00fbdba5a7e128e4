// Walks the steps of a plan and gives them to a recorder.
#pragma once

#include "plan/instance.h"

namespace heddle::plan {

class Executor {
 public:
  Executor(const Plan& plan, Instance& instance, target::Stream& stream)
      : plan_(plan), instance_(instance), stream_(stream) {}
  void run(const std::vector<Step>& steps, target::Recorder& recorder) {
    for (const Step& step : steps) run_step(step, recorder);
  }
  void run_step(const Step& step, target::Recorder& recorder);

 private:
  std::span<void* const> gather(const Step& step);
  void run_kernel(const Step& step, target::Recorder& recorder);
  void run_call(const Step& step, target::Recorder& recorder);
  void run_cond(const Step& step, target::Recorder& recorder);
  void run_while(const Step& step, target::Recorder& recorder);
  void run_for(const Step& step, target::Recorder& recorder);
  // Device loops: on the device's timeline where the recorder can, else driven from here.
  void device_loop(const Step& step, target::Recorder& recorder);
  bool read_predicate(const Step& step, target::Recorder& recorder);
  void set_rows(const Step& step, int64_t k);
  void set_counter(const Step& step, int64_t k, target::Recorder& recorder);
  void advance(const Step& step, target::Recorder& recorder);

  const Plan& plan_;
  Instance& instance_;
  target::Stream& stream_;
};

}  // namespace heddle::plan
