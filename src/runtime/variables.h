// State of a graph's variables on one device, shared by its executables.
#pragma once

#include "ops/host_tensor.h"
#include "plan/plan.h"
#include "runtime/constant_store.h"
#include "target/target.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

namespace heddle::runtime {

// Many readers or one writer. Unlike std::shared_mutex it may be released by another thread than
// the one that took it: a run begins on one thread and ends on another.
class Gate {
 public:
  void enter(bool write);
  void leave(bool write);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int readers_ = 0, writers_waiting_ = 0;
  bool writing_ = false;
};

class VariableState {
 public:
  explicit VariableState(std::shared_ptr<target::Device> device) : device_(std::move(device)) {}
  // The buffer of a variable; uploads its first value where it is new.
  std::shared_ptr<const DeviceBuffer> get(const plan::Variable& variable, target::Stream& stream);
  Gate& gate() { return gate_; }
  std::map<int64_t, ops::HostTensor>& host() { return host_; }  // the judge's, under the gate

 private:
  std::shared_ptr<target::Device> device_;
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const DeviceBuffer>> buffers_;
  std::map<int64_t, ops::HostTensor> host_;
  Gate gate_;
};

}  // namespace heddle::runtime
