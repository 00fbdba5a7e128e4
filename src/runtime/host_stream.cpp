#include "runtime/host_stream.h"

#include "base/check.h"

#include <cstring>

namespace heddle::runtime {

namespace {

// Plans check when they are built that a host device's kernels and calls are of these classes.
const target::HostKernel& host_kernel(const target::CompiledKernel& kernel) {
  return static_cast<const target::HostKernel&>(kernel);
}
const target::HostLibraryCall& host_call(const target::LibraryCall& call) {
  return static_cast<const target::HostLibraryCall&>(call);
}

bool read_predicate(const void* predicate) { return *static_cast<const uint8_t*>(predicate) != 0; }

enum class CommandKind : uint8_t { launch, call, copy, fill, while_loop, if_else };

struct Command {
  CommandKind kind = CommandKind::launch;
  const target::HostKernel* kernel = nullptr;
  const target::HostLibraryCall* call = nullptr;
  std::vector<void*> buffers;
  std::vector<int64_t> symbols;
  void* dst = nullptr;        // also: workspace
  const void* src = nullptr;  // also: predicate
  int64_t bytes = 0;
  uint8_t byte = 0;
  std::vector<Command> first, second;
};

bool same_topology(const std::vector<Command>& a, const std::vector<Command>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].kind != b[i].kind || a[i].kernel != b[i].kernel || a[i].call != b[i].call ||
        a[i].bytes != b[i].bytes || a[i].symbols != b[i].symbols ||
        !same_topology(a[i].first, b[i].first) || !same_topology(a[i].second, b[i].second)) {
      return false;
    }
  }
  return true;
}

struct HostRecording final : target::Recording {
  std::vector<Command> commands;
};

class ListRecorder final : public target::Recorder {
 public:
  explicit ListRecorder(std::vector<Command>& list) : list_(list) {}
  void launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) override {
    Command& c = add(CommandKind::launch);
    c.kernel = &host_kernel(kernel);
    c.buffers.assign(args.buffers.begin(), args.buffers.end());
    c.symbols.assign(args.symbols.begin(), args.symbols.end());
  }
  void call(const target::LibraryCall& call, std::span<void* const> buffers,
            std::span<const int64_t> symbols, void* workspace) override {
    Command& c = add(CommandKind::call);
    c.call = &host_call(call);
    c.buffers.assign(buffers.begin(), buffers.end());
    c.symbols.assign(symbols.begin(), symbols.end());
    c.dst = workspace;
  }
  void copy(void* dst, const void* src, int64_t bytes) override {
    Command& c = add(CommandKind::copy);
    c.dst = dst, c.src = src, c.bytes = bytes;
  }
  void fill(void* dst, uint8_t byte, int64_t bytes) override {
    Command& c = add(CommandKind::fill);
    c.dst = dst, c.byte = byte, c.bytes = bytes;
  }
  void read_back(void* /*host*/, const void* /*src*/, int64_t /*bytes*/) override {
    throw UnsupportedError(
        "read_back: the host cannot read while a device graph is being recorded");
  }
  bool control_flow() const override { return true; }
  void while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                  const std::function<void(Recorder&)>& after) override {
    branch(CommandKind::while_loop, predicate, before, after);
  }
  void if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
               const std::function<void(Recorder&)>& else_block) override {
    branch(CommandKind::if_else, predicate, then_block, else_block);
  }

 private:
  Command& add(CommandKind kind) {
    list_.emplace_back().kind = kind;
    return list_.back();
  }
  void branch(CommandKind kind, const void* predicate, const std::function<void(Recorder&)>& first,
              const std::function<void(Recorder&)>& second) {
    Command c;
    c.kind = kind, c.src = predicate;
    ListRecorder a(c.first), b(c.second);
    first(a);
    second(b);
    list_.push_back(std::move(c));
  }
  std::vector<Command>& list_;
};

void replay(const std::vector<Command>& commands, HostRecorder& out) {
  for (const Command& c : commands) {
    switch (c.kind) {
      case CommandKind::launch:
        c.kernel->run({c.buffers, c.symbols}, out.threads());
        break;
      case CommandKind::call:
        c.call->run(c.buffers, c.symbols, c.dst, out.threads());
        break;
      case CommandKind::copy:
        out.copy(c.dst, c.src, c.bytes);
        break;
      case CommandKind::fill:
        out.fill(c.dst, c.byte, c.bytes);
        break;
      case CommandKind::if_else:
        replay(read_predicate(c.src) ? c.first : c.second, out);
        break;
      case CommandKind::while_loop:
        for (replay(c.first, out); read_predicate(c.src); replay(c.first, out))
          replay(c.second, out);
        break;
    }
  }
}

}  // namespace

void HostRecorder::launch(const target::CompiledKernel& kernel, const target::KernelArgs& args) {
  host_kernel(kernel).run(args, threads_);
}

void HostRecorder::call(const target::LibraryCall& call, std::span<void* const> buffers,
                        std::span<const int64_t> symbols, void* workspace) {
  host_call(call).run(buffers, symbols, workspace, threads_);
}

void HostRecorder::copy(void* dst, const void* src, int64_t bytes) {
  if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
}

void HostRecorder::fill(void* dst, uint8_t byte, int64_t bytes) {
  if (bytes > 0) std::memset(dst, byte, static_cast<size_t>(bytes));
}

void HostRecorder::read_back(void* host, const void* src, int64_t bytes) { copy(host, src, bytes); }

void HostRecorder::while_loop(const void* predicate, const std::function<void(Recorder&)>& before,
                              const std::function<void(Recorder&)>& after) {
  for (before(*this); read_predicate(predicate); before(*this)) after(*this);
}

void HostRecorder::if_else(const void* predicate, const std::function<void(Recorder&)>& then_block,
                           const std::function<void(Recorder&)>& else_block) {
  (read_predicate(predicate) ? then_block : else_block)(*this);
}

std::unique_ptr<target::Recording> HostStream::record(
    const std::function<void(target::Recorder&)>& body) {
  auto recording = std::make_unique<HostRecording>();
  ListRecorder recorder(recording->commands);
  body(recorder);
  return recording;
}

bool HostStream::update(target::Recording& recording,
                        const std::function<void(target::Recorder&)>& body) {
  std::vector<Command> commands;
  ListRecorder recorder(commands);
  body(recorder);
  auto& host = dynamic_cast<HostRecording&>(recording);
  if (!same_topology(host.commands, commands)) return false;
  host.commands = std::move(commands);
  return true;
}

void HostStream::launch(target::Recording& recording) {
  replay(dynamic_cast<HostRecording&>(recording).commands, recorder_);
}

}  // namespace heddle::runtime
