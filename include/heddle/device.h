// Devices, queues, events.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

namespace target {
class Device;
}

struct MemoryStats {
  int64_t live = 0, peak = 0, reserved = 0, limit = 0;  // bytes; limit 0: none
};

// A usable device of this process: "cpu", "cuda:0", ...
class Device {
 public:
  Device() = default;  // the host CPU
  explicit Device(std::shared_ptr<target::Device> impl) : impl_(std::move(impl)) {}
  std::string name() const;         // "cpu", "cuda:0"
  std::string description() const;  // "NVIDIA H200, sm_90, 139 GiB"
  MemoryStats memory() const;
  void set_memory_limit(int64_t bytes) const;
  void trim() const;  // gives cached free memory back
  const std::shared_ptr<target::Device>& impl() const;
  friend bool operator==(const Device& a, const Device& b);

 private:
  std::shared_ptr<target::Device> impl_;
};

// One line a device that was looked for, with the reason where it cannot be used.
struct DeviceReport {
  std::string name, description, reason;  // reason empty: usable
};
std::vector<DeviceReport> devices();
Device device(std::string_view name);  // "cpu", "cuda", "cuda:1", "judge" (reference evaluator),
                                       // UnsupportedError otherwise
Device default_device();               // HEDDLE_DEVICE, else the first GPU, else the CPU

// A counter that queues and the host signal and wait for; values only grow.
class Event {
 public:
  Event();
  uint64_t value() const;
  void signal(uint64_t value);
  // False on time-out. Rethrows once the error of the work that should have signalled.
  bool wait(uint64_t value,
            std::chrono::milliseconds timeout = std::chrono::milliseconds::max()) const;
  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Work in order on one device. Destroying it waits for its work. Errors of asynchronous work
// surface once, at wait().
class Queue {
 public:
  explicit Queue(const Device& device);
  // A caller's own CUDA stream (CUstream); the caller keeps it alive.
  static Queue wrap(const Device& device, void* native_stream);
  Device device() const;
  void wait() const;
  void signal(const Event& event, uint64_t value) const;
  void wait_for(const Event& event, uint64_t value) const;
  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  Queue() = default;
  std::shared_ptr<State> state_;
};

}  // namespace heddle
