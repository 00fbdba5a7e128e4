// Streams of host devices: work runs on the calling thread, at once; a recording is a list of
// commands.
#pragma once

#include "target/host_kernel.h"
#include "target/target.h"

#include <memory>
#include <vector>

namespace heddle::runtime {

class HostRecorder final : public target::Recorder {
 public:
  explicit HostRecorder(bool control_flow) : control_flow_(control_flow) {}
  void launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) override;
  void call(const target::LibraryCall& call, std::span<void* const> buffers,
            std::span<const int64_t> symbols, void* workspace) override;
  void copy(void* dst, const void* src, int64_t bytes) override;
  void fill(void* dst, uint8_t byte, int64_t bytes) override;
  void read_back(void* host, const void* src, int64_t bytes) override;
  bool control_flow() const override { return control_flow_; }
  void while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                  const std::function<void(Recorder&)>& after) override;
  void if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
               const std::function<void(Recorder&)>& else_block) override;
  void limit_threads(int threads) { threads_ = threads; }
  int threads() const { return threads_; }

 private:
  bool control_flow_;
  int threads_ = 0;
};

class HostStream final : public target::Stream {
 public:
  explicit HostStream(bool recording) : recorder_(recording), recording_(recording) {}
  target::Recorder& recorder() override { return recorder_; }
  void copy_from_host(void* dst, const void* src, int64_t bytes) override {
    recorder_.copy(dst, src, bytes);
  }
  void copy_to_host(void* dst, const void* src, int64_t bytes) override {
    recorder_.copy(dst, src, bytes);
  }
  void synchronize() override {}
  void run_on_host(std::function<void()> f) override { f(); }
  void limit_threads(int threads) override { recorder_.limit_threads(threads); }
  bool can_record() const override { return recording_; }
  std::unique_ptr<target::Recording> record(
      const std::function<void(target::Recorder&)>& body) override;
  bool update(target::Recording& recording,
              const std::function<void(target::Recorder&)>& body) override;
  void launch(target::Recording& recording) override;

 private:
  HostRecorder recorder_;
  bool recording_;
};

}  // namespace heddle::runtime
