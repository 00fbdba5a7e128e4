#include "backend/cuda/emitter.h"

#include "backend/cuda/compiler.h"
#include "backend/cuda/prelude.h"
#include "base/check.h"
#include "base/env.h"
#include "runtime/disk_cache.h"
#include "target/counters.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace heddle::cuda {

Cubin::~Cubin() {
  if (module_ == nullptr) return;
  // Work in flight may still use the code. Errors at process exit mean that the driver has let go
  // of it already.
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent_(&current);
  driver().cuCtxSetCurrent_(context_);
  driver().cuModuleUnload_(module_);
  driver().cuCtxSetCurrent_(current);
}

CUfunction Cubin::function(const std::string& entry) {
  std::lock_guard lock(mutex_);
  CUcontext current = nullptr;
  HD_CU(cuCtxGetCurrent, &current);
  if (module_ == nullptr) {
    HD_CU(cuModuleLoadData, &module_, bytes_.data());
    context_ = current;
  }
  HD_CHECK(context_ == current, "code is loaded in another context");
  CUfunction f = nullptr;
  HD_CU(cuModuleGetFunction, &f, module_, entry.c_str());
  return f;
}

namespace {

// Part of the keys on disk: options of the compiler that the text does not hold.
constexpr const char* kEmitterVersion = "cuda-1";

constexpr int64_t kNarrow = int64_t{1} << 30;  // no larger extent is computed with in 32 bits

struct CubinTable {
  std::mutex mutex;
  runtime::DiskCache disk{"cubin"};
  std::unordered_map<std::string, std::weak_ptr<Cubin>> entries;  // by architecture and text
};
CubinTable& cubin_table() {
  static auto* table = new CubinTable;  // outlives kernels of static executables
  return *table;
}

std::string image_of(const ModuleText& module, const std::string& key) {
  auto count = [] { target::runtime_counters().compiles.fetch_add(1, std::memory_order_relaxed); };
  if (const Platform* p = platform()) {
    count();
    return p->compile(module);
  }
  CubinTable& table = cubin_table();
  std::string disk_key = base::cat(kEmitterVersion, "\n", compiler().version, "\n", key);
  if (std::optional<std::string> stored = table.disk.find(disk_key)) return std::move(*stored);
  std::string bytes = compile_cubin(module.text, module.name, module.arch);
  count();
  table.disk.put(disk_key, bytes);
  return bytes;
}

}  // namespace

std::shared_ptr<Cubin> find_cubin(const ModuleText& module) {
  CubinTable& table = cubin_table();
  std::string key = module.arch + "\n" + module.text;
  {
    std::lock_guard lock(table.mutex);
    auto it = table.entries.find(key);
    if (it != table.entries.end()) {
      if (std::shared_ptr<Cubin> found = it->second.lock()) return found;
    }
  }
  auto cubin = std::make_shared<Cubin>(image_of(module, key), module.text);
  std::lock_guard lock(table.mutex);
  if (table.entries.size() > 4096)
    std::erase_if(table.entries, [](const auto& e) { return e.second.expired(); });
  auto& slot = table.entries[key];
  if (std::shared_ptr<Cubin> raced = slot.lock()) return raced;
  slot = cubin;
  return cubin;
}

CudaKernel::CudaKernel(const ir::Kernel& kernel, const target::EmitOptions& options,
                       target::DeviceDescription device)
    : kernel_(kernel), options_(options), device_(std::move(device)) {
  for (const ir::Buffer& b : kernel_.buffers) buffers_ += is_local(b) ? 0 : 1;
  constant_ = kernel_.symbols.empty();
  if (constant_) constant_narrow_ = fits_32_bits(kernel_, {}, {});
  // What the first launch will want; with symbols both forms, so that a new size compiles nothing.
  CompiledVariant& first = variant({.wide = constant_ && !constant_narrow_, .vectors = true});
  if (!first.source.constant_vectors) variant({.wide = false, .vectors = false});
  if (options_.check_bounds)
    faults_ = std::make_shared<FaultTable>(FaultTable{kernel_.name, first.source.checked});
}

std::string CudaKernel::code() const {
  std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [v, compiled] : variants_) out += compiled->source.text + "\n";
  return out;
}
int64_t CudaKernel::code_bytes() const {
  std::lock_guard lock(mutex_);
  int64_t n = 0;
  for (const auto& [v, compiled] : variants_)
    n += static_cast<int64_t>(compiled->cubin->bytes().size());
  return n;
}

CompiledVariant& CudaKernel::variant(const Variant& v) const {
  {
    std::lock_guard lock(mutex_);
    auto it = variants_.find(v);
    if (it != variants_.end()) return *it->second;
  }
  return build(v);
}

CompiledVariant& CudaKernel::build(const Variant& v) const {
  auto compiled = std::make_unique<CompiledVariant>();
  compiled->source = write_kernel(kernel_, options_, v, device_);
  std::string text = prelude_machine() + prelude_common(v.wide) + compiled->source.text;
  if (base::env_has("HEDDLE_DUMP", "code"))
    std::fprintf(stderr, "%s\n", compiled->source.text.c_str());
  compiled->cubin = find_cubin({.text = text,
                                .name = kernel_.name,
                                .arch = device_.arch,
                                .kernel = &kernel_,
                                .source = &compiled->source,
                                .check_bounds = options_.check_bounds});
  std::lock_guard lock(mutex_);
  auto [it, fresh] = variants_.emplace(v, std::move(compiled));
  return *it->second;
}

void CudaKernel::load(CompiledVariant& v) const {
  std::call_once(v.loaded, [&] {
    CUfunction f = v.cubin->function(v.source.entry);
    const LaunchShape& shape = v.source.shape;
    if (shape.shared_bytes > (48 << 10))
      HD_CU_AT(kernel_.name, cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               static_cast<int>(shape.shared_bytes));
    if (shape.kind == LaunchKind::cooperative) {
      int blocks = 0;
      HD_CU_AT(kernel_.name, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, f, shape.block,
               static_cast<size_t>(shape.shared_bytes));
      v.resident = std::max(1, blocks) * std::max(1, device_.processors);
    }
    v.function = f;
  });
}

// Decided for all sizes up to the next power of two at once.
bool CudaKernel::fits_narrow(std::span<const int64_t> symbols) const {
  if (constant_) return constant_narrow_;
  auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
  {
    std::lock_guard lock(mutex_);
    if (std::ranges::equal(symbols, narrow_up_to_, within)) return true;
  }
  std::vector<int64_t> low(symbols.size(), 1), high;
  for (int64_t s : symbols)
    high.push_back(static_cast<int64_t>(
        std::bit_ceil(static_cast<uint32_t>(std::clamp<int64_t>(s, 1, kNarrow)))));
  if (!std::ranges::equal(symbols, high, within) || !fits_32_bits(kernel_, low, high))
    return fits_32_bits(kernel_, symbols, symbols);
  std::lock_guard lock(mutex_);
  narrow_up_to_ = std::move(high);
  return true;
}

bool CudaKernel::aligned(const CompiledVariant& v, std::span<void* const> buffers) {
  const LaunchShape& shape = v.source.shape;
  for (size_t k = 0; k < shape.alignment.size(); ++k) {
    if (reinterpret_cast<uintptr_t>(buffers[k]) % static_cast<uintptr_t>(shape.alignment[k]) != 0)
      return false;
  }
  return true;
}

bool CudaKernel::divides(const CompiledVariant& v, std::span<const int64_t> symbols) {
  const LaunchShape& shape = v.source.shape;
  if (shape.divisible.empty()) return true;
  std::vector<int64_t> values(symbols.begin(), symbols.end());
  for (size_t k = 0; k < shape.divisible.size(); ++k) {
    if (shape.divisible[k].eval(values) % shape.divisor[k] != 0) return false;
  }
  return true;
}

Launch CudaKernel::shape(CompiledVariant& v, std::span<const int64_t> symbols) const {
  const LaunchShape& s = v.source.shape;
  std::vector<int64_t> values(symbols.begin(), symbols.end());
  Launch out;
  out.variant = &v;
  out.block = static_cast<unsigned>(s.block);
  out.shared = static_cast<unsigned>(s.shared_bytes);
  int64_t blocks = 0;
  for (size_t k = 0; k < s.units.size(); ++k) {
    int64_t n = s.units[k].eval(values);
    blocks = std::max(blocks, (n + s.units_per_block[k] - 1) / s.units_per_block[k]);
  }
  switch (s.kind) {
    case LaunchKind::exact:
      break;
    case LaunchKind::loops:
      blocks = std::min<int64_t>(blocks, int64_t{device_.processors} * 64);
      break;
    case LaunchKind::block:
      blocks = 1;
      break;
    case LaunchKind::cooperative:
      blocks = std::clamp<int64_t>(blocks, 1, v.resident);
      out.cooperative = true;
      break;
  }
  HD_CHECK(blocks < (int64_t{1} << 31), "kernel ", kernel_.name, " wants ", blocks, " blocks");
  out.grid = static_cast<unsigned>(blocks);
  return out;
}

Launch CudaKernel::prepare(const target::KernelArgs& args) const {
  HD_CHECK(args.buffers.size() == buffers_, kernel_.name, ": number of buffers");
  HD_CHECK(args.symbols.size() == kernel_.symbols.size(), kernel_.name, ": number of symbols");
  {
    std::lock_guard lock(mutex_);
    if (last_.vectors != nullptr && std::ranges::equal(last_.symbols, args.symbols)) {
      bool whole = last_.divides && aligned(*last_.vectors, args.buffers);
      if (const Launch& known = last_.launch[whole ? 0 : 1]; known.variant != nullptr) return known;
    }
  }
  bool wide = !fits_narrow(args.symbols);
  CompiledVariant& vectors = variant({wide, true});
  bool divisible = divides(vectors, args.symbols);
  bool whole = divisible && aligned(vectors, args.buffers);
  CompiledVariant& v = whole ? vectors : variant({wide, false});
  load(v);
  Launch launch = shape(v, args.symbols);
  std::lock_guard lock(mutex_);
  if (last_.vectors != &vectors || !std::ranges::equal(last_.symbols, args.symbols))
    last_ = {{args.symbols.begin(), args.symbols.end()}, &vectors, divisible, {}};
  last_.launch[whole ? 0 : 1] = launch;
  return launch;
}

std::string FaultTable::text(const unsigned* record) const {
  auto wide = [&](size_t k) {
    return static_cast<int64_t>(record[k] | (uint64_t{record[k + 1]} << 32));
  };
  if (record[1] >= accesses.size()) return kernel + ": access outside a buffer";
  const CheckedAccess& a = accesses[record[1]];
  if (a.bind)
    return base::cat(kernel, ": bound index '", a.buffer, "' is outside its range: ", wide(3),
                     " of ", wide(5));
  return base::cat(kernel, ": access outside buffer '", a.buffer, "': coordinate ", wide(3),
                   " of axis ", record[2], ", extent ", wide(5));
}

namespace {

class CudaEmitter : public target::Emitter {
 public:
  explicit CudaEmitter(target::DeviceDescription device) : device_(std::move(device)) {}
  std::shared_ptr<const target::CompiledKernel> compile(
      const ir::Kernel& kernel, const target::EmitOptions& options) override {
    return std::make_shared<CudaKernel>(kernel, options, device_);
  }

 private:
  target::DeviceDescription device_;
};

}  // namespace

std::unique_ptr<target::Emitter> make_emitter(const target::DeviceDescription& device) {
  return std::make_unique<CudaEmitter>(device);
}

}  // namespace heddle::cuda
