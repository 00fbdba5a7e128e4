#include "backend/cpu/cpu_kernel.h"

#include "backend/cpu/control_emitter.h"
#include "backend/cpu/run_context.h"
#include "base/check.h"
#include "base/env.h"
#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace heddle::cpu {

// The first access outside its buffer.
struct Failure {
  std::atomic<bool> taken{false};
  int64_t buffer = 0, axis = 0, value = 0, limit = 0;
};

namespace {

constexpr size_t kRecentKernels = 4096;

// Memory of row_local buffers: one block a thread, grown as needed.
class Scratch {
 public:
  ~Scratch() { std::free(memory_); }
  void* get(int64_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = (bytes + 4095) / 4096 * 4096;
      memory_ = std::aligned_alloc(4096, static_cast<size_t>(size_));
      if (memory_ == nullptr) {
        size_ = 0;
        std::abort();  // not reachable in practice: a row of one thread does not fit the machine's
                       // memory
      }
    }
    return memory_;
  }

 private:
  void* memory_ = nullptr;
  int64_t size_ = 0;
};
thread_local Scratch scratch_memory;

void* scratch(RunContext* /*context*/, int64_t bytes) {
  return scratch_memory.get(std::max<int64_t>(bytes, 64));
}

struct Fork {
  RunContext* context;
  ForkedFunction function;
  void* frame;
};

void fork(RunContext* context, ForkedFunction f, void* frame, int64_t count, int64_t picoseconds) {
  auto worth = static_cast<int>(std::min<int64_t>(picoseconds / kThreadPicoseconds + 1, 1024));
  Fork task{context, f, frame};
  runtime::parallel_for(
      count, std::min(context->threads, worth),
      [](void* self, int64_t begin, int64_t end) {
        auto* t = static_cast<Fork*>(self);
        t->function(t->context, t->frame, begin, end);
      },
      &task);
}

void fail(RunContext* context, int64_t buffer, int64_t axis, int64_t value, int64_t limit) {
  Failure& f = *context->failure;
  if (f.taken.exchange(true)) return;
  f.buffer = buffer, f.axis = axis, f.value = value, f.limit = limit;
}

void exchange(char* a, char* b, int64_t bytes) {
  char block[4096];
  for (int64_t at = 0; at < bytes; at += 4096) {
    auto n = static_cast<size_t>(std::min<int64_t>(4096, bytes - at));
    std::memcpy(block, a + at, n);
    std::memcpy(a + at, b + at, n);
    std::memcpy(b + at, block, n);
  }
}

// A negative size: scratch, whose contents are dead.
void restore(RunContext* /*context*/, void** now, void* const* passed, const int64_t* bytes,
             int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (now[i] == passed[i] || bytes[i] < 0) continue;
    int64_t j = 0;
    while (j < count && now[j] != passed[i]) ++j;
    if (bytes[j] < 0) {
      std::memcpy(passed[i], now[i], static_cast<size_t>(bytes[i]));
    } else {
      exchange(static_cast<char*>(passed[i]), static_cast<char*>(now[i]), bytes[i]);
    }
    std::swap(now[i], now[j]);
  }
}

}  // namespace

CpuKernel::CpuKernel(const ir::Kernel& kernel, const CpuTarget& target, bool check_bounds,
                     int64_t code_bytes, std::shared_ptr<const LoadedCode> code)
    : kernel_(kernel),
      target_(target),
      check_bounds_(check_bounds),
      code_bytes_(code_bytes),
      code_(std::move(code)) {
  for (const ir::Buffer& b : kernel.buffers)
    buffers_ +=
        b.role != ir::BufferRole::scalar_local && b.role != ir::BufferRole::row_local ? 1 : 0;
}

std::string CpuKernel::code() const {
  std::string text;
  emit_kernel(kernel_, target_, check_bounds_,
              [&](llvm::Module& module) { text = disassemble(module, target_); });
  return text;
}

void CpuKernel::report(const Failure& f) const {
  if (f.buffer < 0) {
    throw InternalError(base::cat(kernel_.name, ": bound index ", f.value,
                                  " is outside its bounds, at most ", f.limit));
  }
  const ir::Buffer& b = kernel_.buffers[static_cast<size_t>(f.buffer)];
  throw InternalError(base::cat(kernel_.name, ": access outside buffer '", b.name, "': coordinate ",
                                f.value, " of axis ", f.axis, ", extent ", f.limit));
}

void CpuKernel::run(const target::KernelArgs& args, int threads) const {
  static const int all = host_threads();
  HD_CHECK(code_ != nullptr, kernel_.name, " was compiled for another machine");
  HD_CHECK(args.buffers.size() == buffers_ && args.symbols.size() == kernel_.symbols.size(),
           kernel_.name, ": number of arguments");
  RunContext context{&fork, &scratch, &fail, &restore, threads > 0 ? threads : all, nullptr};
  if (!check_bounds_) {
    code_->function()(&context, args.buffers.data(), args.symbols.data());
    return;
  }
  Failure failure;
  context.failure = &failure;
  code_->function()(&context, args.buffers.data(), args.symbols.data());
  if (failure.taken) report(failure);
}

// ---------------------------------------------------------------------------------------- emitter

CpuEmitter::CpuEmitter(const CpuTarget& target, bool runnable)
    : target_(target), runnable_(runnable), disk_("cpu") {}

std::shared_ptr<const CpuKernel> CpuEmitter::build(const ir::Kernel& kernel, const std::string& key,
                                                   bool check_bounds) {
  std::string object;
  if (auto cached = disk_.find(key)) {
    object = std::move(*cached);
  } else {
    emit_kernel(kernel, target_, check_bounds,
                [&](llvm::Module& module) { object = generate_object(module, target_); });
    disk_.put(key, object);
  }
  auto code = runnable_ ? LoadedCode::load(object) : nullptr;
  return std::make_shared<CpuKernel>(kernel, target_, check_bounds,
                                     static_cast<int64_t>(object.size()), std::move(code));
}

std::shared_ptr<const target::CompiledKernel> CpuEmitter::compile(
    const ir::Kernel& kernel, const target::EmitOptions& options) {
  std::string key =
      base::cat("cpu ", target::core_build_id(), " ", target_.arch,
                options.check_bounds ? " checked\n" : "\n", ir::canonical_text(kernel));
  {
    std::lock_guard lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) {
      recent_.splice(recent_.begin(), recent_, it->second);
      return it->second->kernel;
    }
  }
  auto made = build(kernel, key, options.check_bounds);
  std::lock_guard lock(mutex_);
  if (auto it = index_.find(key); it != index_.end()) return it->second->kernel;
  recent_.push_front({std::move(key), made});
  index_.emplace(recent_.front().key, recent_.begin());
  if (recent_.size() > kRecentKernels) {
    index_.erase(recent_.back().key);
    recent_.pop_back();
  }
  return made;
}

}  // namespace heddle::cpu
