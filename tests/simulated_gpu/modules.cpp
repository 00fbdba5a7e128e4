// Modules and launches. The image of a module names its kernel, which the interpreter runs.
#include "backend/cuda/platform.h"
#include "backend/cuda/prelude.h"
#include "base/check.h"
#include "loop/interpret.h"
#include "simulated_gpu/device.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace heddle::simulated {

namespace {

constexpr unsigned kUnknownAccess = ~0U;  // of a fault record: no entry of the kernel's table

// What the interpreter needs of a kernel, and what its launches are checked against.
struct KernelFacts {
  std::vector<DType> dtypes;  // of the buffers
  std::vector<std::vector<loop::ExprProgram>> extents;
  cuda::LaunchShape shape;
  bool check_bounds = false;
};

std::unordered_map<uint64_t, uint32_t> slots_of(const ir::Kernel& kernel) {
  std::unordered_map<uint64_t, uint32_t> slots;
  for (const SymbolRef& s : kernel.symbols)
    slots.emplace(s->id, static_cast<uint32_t>(slots.size()));
  return slots;
}

KernelFacts facts_of(const cuda::ModuleText& m) {
  KernelFacts facts;
  facts.shape = m.source->shape;
  facts.check_bounds = m.check_bounds;
  std::unordered_map<uint64_t, uint32_t> slots = slots_of(*m.kernel);
  for (const ir::Buffer& b : m.kernel->buffers) {
    if (cuda::is_local(b)) continue;
    facts.dtypes.push_back(b.dtype);
    facts.extents.emplace_back();
    for (const Expr& e : b.extents) facts.extents.back().emplace_back(e, slots);
  }
  return facts;
}

void check_arguments(const std::string& name, const KernelFacts& facts,
                     const std::vector<void*>& buffers, const std::vector<int64_t>& symbols) {
  auto refuse = [&](auto... text) { throw std::runtime_error(base::cat(name, ": ", text...)); };
  for (size_t k = 0; k < buffers.size(); ++k) {
    int64_t bytes = cuda::memory_bytes(facts.dtypes[k]);
    for (const loop::ExprProgram& e : facts.extents[k]) bytes *= e.eval(symbols);
    if (bytes > 0)
      check_memory(buffers[k], static_cast<size_t>(bytes), base::cat(name, ", buffer ", k).c_str());
  }
  const cuda::LaunchShape& s = facts.shape;
  for (size_t k = 0; k < s.alignment.size(); ++k) {
    if (reinterpret_cast<uintptr_t>(buffers[k]) % static_cast<uintptr_t>(s.alignment[k]) != 0)
      refuse("buffer ", k, " at a misaligned address, ", s.alignment[k], " bytes expected");
  }
  for (size_t k = 0; k < s.divisible.size(); ++k) {
    if (s.divisible[k].eval(symbols) % s.divisor[k] != 0)
      refuse("a size is not divisible by ", s.divisor[k]);
  }
}

// The functions of a text that was written by hand: their names and numbers of parameters stand in
// it.
void read_entries(const std::string& text, Function& module) {
  module.code = std::make_shared<test::SimulatedCode>(text);
  for (size_t at = text.find("HD_KERNEL("); at != std::string::npos;
       at = text.find("HD_KERNEL(", at + 1)) {
    size_t name = text.find(')', at) + 2, open = text.find('(', name), close = text.find(')', open);
    auto f = std::make_shared<Function>();
    f->name = text.substr(name, open - name);
    f->code = module.code;
    f->words =
        1 + static_cast<size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(open),
                                           text.begin() + static_cast<std::ptrdiff_t>(close), ','));
    module.entries.emplace(f->name, std::move(f));
  }
}

std::shared_ptr<Function> function_of(const cuda::ModuleText& m) {
  static auto* emitter = loop::make_interpreter_emitter().release();
  auto f = std::make_shared<Function>();
  f->name = m.name;
  if (m.kernel == nullptr) {
    if (std::string machine = cuda::prelude_machine(); m.text.starts_with(machine))
      read_entries(m.text.substr(machine.size()), *f);
    return f;
  }
  auto facts = std::make_shared<const KernelFacts>(facts_of(m));
  f->kernel = std::dynamic_pointer_cast<const target::HostKernel>(
      emitter->compile(*m.kernel, {.check_bounds = m.check_bounds}));
  f->buffers = facts->dtypes.size();
  f->symbols = m.kernel->symbols.size();
  f->block = static_cast<unsigned>(facts->shape.block);
  f->shared = static_cast<unsigned>(facts->shape.shared_bytes);
  f->cooperative = facts->shape.kind == cuda::LaunchKind::cooperative;
  f->run = [facts, kernel = f->kernel, name = f->name](const std::vector<void*>& buffers,
                                                       const std::vector<int64_t>& symbols,
                                                       unsigned* fault_record) {
    check_arguments(name, *facts, buffers, symbols);
    try {
      kernel->run({buffers, symbols}, 1);
    } catch (const std::exception&) {
      if (!facts->check_bounds) throw;
      fault_record[0] = 1;
      fault_record[1] = kUnknownAccess;
    }
  };
  return f;
}

// Functions by the image of their module.
struct Modules {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Function>> by_image;
  uint64_t count = 0;
};
Modules& modules() {
  static auto* m = new Modules;
  return *m;
}

std::string compile(const cuda::ModuleText& module) {
  std::shared_ptr<Function> f = function_of(module);
  Modules& m = modules();
  std::lock_guard lock(m.mutex);
  std::string image = base::cat("simulated module ", m.count++);
  m.by_image.emplace(image, std::move(f));
  return image;
}

// A loaded module. Functions stay as long as the process: work in flight may use them.
struct Module {
  std::shared_ptr<Function> function;
};

void require(bool holds, const Launch& l, const char* what) {
  if (!holds) throw std::runtime_error(l.function->name + ": launched with " + what);
}

CUresult launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, CUstream stream,
                void** parameters, bool cooperative) {
  if (CUresult code = state()) return code;
  Launch l;
  l.function = reinterpret_cast<const Function*>(f);
  l.grid = grid;
  l.block = block;
  l.shared = shared;
  l.cooperative = cooperative;
  l.read_parameters(parameters);
  stream_of(stream).give([l = std::move(l)] { perform([&] { l.run(); }); });
  return CUDA_SUCCESS;
}

}  // namespace

void Launch::read_parameters(void** parameters) {
  buffers.clear();
  symbols.clear();
  words.clear();
  if (function->code != nullptr) {
    for (size_t k = 0; k < function->words; ++k)
      words.push_back(*static_cast<uintptr_t*>(*parameters++));
    return;
  }
  if (function->kernel == nullptr) {
    buffers.push_back(*static_cast<void**>(parameters[0]));
    condition = *static_cast<unsigned**>(parameters[1]);
    return;
  }
  for (size_t k = 0; k < function->buffers; ++k)
    buffers.push_back(*static_cast<void**>(*parameters++));
  for (size_t k = 0; k < function->symbols; ++k)
    symbols.push_back(*static_cast<int64_t*>(*parameters++));
  fault_record = *static_cast<unsigned**>(parameters[1]);  // after the barrier's word
}

void Launch::run() const {
  if (function->code != nullptr) {
    function->code->run(function->name, grid, block, words, shared);
    return;
  }
  if (function->kernel == nullptr) {
    check_memory(buffers[0], 1, "condition");
    *condition = *static_cast<const unsigned char*>(buffers[0]) != 0 ? 1 : 0;
    return;
  }
  require(grid > 0, *this, "an empty grid");
  require(block == function->block, *this, "another block size than it was written for");
  require(shared == function->shared, *this, "another size of shared memory");
  require(cooperative || !function->cooperative, *this, "barriers of the grid, not cooperatively");
  function->run(buffers, symbols, fault_record);
}

const cuda::Platform kPlatform = {"simulated", compile};

}  // namespace heddle::simulated

using namespace heddle::simulated;

extern "C" {

const heddle::cuda::Platform* heddle_cuda_platform() { return &kPlatform; }

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  Modules& m = modules();
  std::lock_guard lock(m.mutex);
  auto it = m.by_image.find(static_cast<const char*>(image));
  if (it == m.by_image.end()) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(new Module{it->second});
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  synchronize_all();
  auto* m = reinterpret_cast<Module*>(module);
  std::lock_guard lock(modules().mutex);
  std::erase_if(modules().by_image, [&](const auto& e) { return e.second == m->function; });
  delete m;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  Function* f = reinterpret_cast<Module*>(module)->function.get();
  if (f->code != nullptr) {
    auto entry = f->entries.find(name);
    if (entry == f->entries.end()) return CUDA_ERROR_NOT_FOUND;
    f = entry->second.get();
  }
  *function = reinterpret_cast<CUfunction>(f);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 4;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned grid, unsigned, unsigned, unsigned block, unsigned,
                        unsigned, unsigned shared, CUstream stream, void** parameters, void**) {
  return launch(f, grid, block, shared, stream, parameters, false);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned grid, unsigned, unsigned, unsigned block,
                                   unsigned, unsigned, unsigned shared, CUstream stream,
                                   void** parameters) {
  return launch(f, grid, block, shared, stream, parameters, true);
}

}  // extern "C"
