// The CUDA emitter: kernels to cubins, in memory and on disk; and what a launch needs to know.
#pragma once

#include "backend/cuda/driver.h"
#include "backend/cuda/kernel_source.h"
#include "backend/cuda/platform.h"
#include "target/target.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace heddle::cuda {

// Machine code of one text; loaded once a context.
class Cubin {
 public:
  Cubin(std::string bytes, std::string text) : bytes_(std::move(bytes)), text_(std::move(text)) {}
  ~Cubin();
  Cubin(const Cubin&) = delete;
  Cubin& operator=(const Cubin&) = delete;
  const std::string& bytes() const { return bytes_; }
  const std::string& text() const { return text_; }
  CUfunction function(const std::string& entry);  // in the current context

 private:
  std::string bytes_, text_;
  std::mutex mutex_;
  CUmodule module_ = nullptr;
  CUcontext context_ = nullptr;
};

// From memory, else from the disk cache, else compiled. Equal texts share one.
std::shared_ptr<Cubin> find_cubin(const ModuleText& module);

// One text of a kernel, ready to run.
struct CompiledVariant {
  KernelSource source;
  std::shared_ptr<Cubin> cubin;
  CUfunction function = nullptr;  // once loaded
  int resident = 0;               // blocks that fit the device at once; cooperative kernels only
  std::once_flag loaded;
};

struct Launch {
  const CompiledVariant* variant = nullptr;
  unsigned grid = 0;  // 0: nothing to do
  unsigned block = 0, shared = 0;
  bool cooperative = false;
};

// Of a kernel with bounds checks: what a fault record means.
struct FaultTable {
  std::string kernel;
  std::vector<CheckedAccess> accesses;
  // Buffer, axis, coordinate and extent of a record that the kernel wrote.
  std::string text(const unsigned* record) const;
};

class CudaKernel : public target::CompiledKernel {
 public:
  CudaKernel(const ir::Kernel& kernel, const target::EmitOptions& options,
             target::DeviceDescription device);
  std::string code() const override;
  int64_t code_bytes() const override;

  const std::string& name() const { return kernel_.name; }
  size_t buffer_count() const { return buffers_; }
  bool checked() const { return options_.check_bounds; }
  std::shared_ptr<const FaultTable> faults() const { return faults_; }
  // Picks (compiles, loads) the variant for these arguments. The device's context is current.
  Launch prepare(const target::KernelArgs& args) const;

 private:
  CompiledVariant& variant(const Variant& v) const;
  CompiledVariant& build(const Variant& v) const;
  void load(CompiledVariant& v) const;
  bool fits_narrow(std::span<const int64_t> symbols) const;
  // What the text with whole vectors needs of addresses, of sizes.
  static bool aligned(const CompiledVariant& v, std::span<void* const> buffers);
  static bool divides(const CompiledVariant& v, std::span<const int64_t> symbols);
  Launch shape(CompiledVariant& v, std::span<const int64_t> symbols) const;

  ir::Kernel kernel_;
  target::EmitOptions options_;
  target::DeviceDescription device_;
  size_t buffers_ = 0;
  bool constant_ = false;         // no symbols
  bool constant_narrow_ = false;  // then: 32 bits suffice
  mutable std::mutex mutex_;
  mutable std::map<Variant, std::unique_ptr<CompiledVariant>> variants_;
  std::shared_ptr<FaultTable> faults_;
  // Of the last sizes: with whole vectors, without; no variant: not asked yet.
  struct Last {
    std::vector<int64_t> symbols;
    const CompiledVariant* vectors = nullptr;
    bool divides = false;
    Launch launch[2];
  };
  mutable Last last_;
  mutable std::vector<int64_t> narrow_up_to_;  // symbols from 1 to these fit; empty: not known
};

std::unique_ptr<target::Emitter> make_emitter(const target::DeviceDescription& device);

}  // namespace heddle::cuda
