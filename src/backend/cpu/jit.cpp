#include "backend/cpu/jit.h"

#include "base/check.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

namespace heddle::cpu {

namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // The emitter writes addresses as base + scaled index itself; strength reduction would take
    // half the compile time.
    const char* options[] = {"heddle", "-disable-lsr"};
    llvm::cl::ParseCommandLineOptions(2, options, "", &llvm::nulls());
  });
}

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

std::unique_ptr<llvm::TargetMachine> make_machine(const CpuTarget& target) {
  initialise_llvm();
  std::string error;
  const llvm::Target* t = llvm::TargetRegistry::lookupTarget(kTriple, error);
  HD_CHECK(t != nullptr, error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(
      t->createTargetMachine(kTriple, target.arch, "", options, llvm::Reloc::PIC_,
                             llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  HD_CHECK(machine != nullptr, "no LLVM target machine for ", target.arch);
  return machine;
}

// The emitter has already chosen loops, vectors and unrolling; what is left is to put values into
// registers, to share subexpressions and to move invariant code out of loops.
void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  llvm::LoopPassManager loop_passes;
  loop_passes.addPass(llvm::LICMPass(llvm::LICMOptions()));
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loop_passes), true));
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::ADCEPass());
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) passes.run(f, functions);
  }
}

std::string emit_file(llvm::Module& module, llvm::TargetMachine& machine,
                      llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager codegen;
  HD_CHECK(!machine.addPassesToEmitFile(codegen, stream, nullptr, type), "no code generation");
  codegen.run(module);
  return std::string(bytes.data(), bytes.size());
}

void prepare(llvm::Module& module, llvm::TargetMachine& machine) {
  module.setTargetTriple(kTriple);
  module.setDataLayout(machine.createDataLayout());
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  HD_CHECK(!llvm::verifyModule(module, &stream), "emitted code is malformed: ", stream.str());
  optimise(module, machine);
}

// A new machine makes its tables for the first function: about 0.45 ms of the 1.9 that the smallest
// function takes, so machines are used again. As many are kept as were ever needed at a time.
class Machine {
 public:
  explicit Machine(const CpuTarget& target) : arch_(target.arch) {
    {
      std::lock_guard lock(pool().mutex);
      std::vector<Owned>& idle = pool().idle[arch_];
      if (!idle.empty()) {
        machine_ = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (!machine_) machine_ = make_machine(target);
  }
  ~Machine() {
    std::lock_guard lock(pool().mutex);
    pool().idle[arch_].push_back(std::move(machine_));
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  llvm::TargetMachine& operator*() { return *machine_; }

 private:
  using Owned = std::unique_ptr<llvm::TargetMachine>;
  struct Pool {
    std::mutex mutex;
    std::map<std::string, std::vector<Owned>> idle;  // by arch
  };
  static Pool& pool() {
    static auto* pool = new Pool;  // never destroyed: compilations may outlive main
    return *pool;
  }
  std::string arch_;
  Owned machine_;
};

std::string generate(llvm::Module& module, const CpuTarget& target, llvm::CodeGenFileType type) {
  Machine machine(target);
  prepare(module, *machine);
  return emit_file(module, *machine, type);
}

}  // namespace

std::string generate_object(llvm::Module& module, const CpuTarget& target) {
  return generate(module, target, llvm::CodeGenFileType::ObjectFile);
}

std::string disassemble(llvm::Module& module, const CpuTarget& target) {
  return generate(module, target, llvm::CodeGenFileType::AssemblyFile);
}

// ---------------------------------------------------------------------------------------- linking

namespace {

namespace orc = llvm::orc;

template <class T>
T expect(llvm::Expected<T> value, const char* what) {
  if (!value)
    throw InternalError(base::cat("cpu: ", what, ": ", llvm::toString(value.takeError())));
  if constexpr (std::is_reference_v<T>) {
    return *value;
  } else {
    return std::move(*value);
  }
}
void expect(llvm::Error error, const char* what) {
  if (error) throw InternalError(base::cat("cpu: ", what, ": ", llvm::toString(std::move(error))));
}

template <class F>
orc::ExecutorSymbolDef symbol(F* function) {
  return {orc::ExecutorAddr::fromPtr(function),
          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
}

// The only functions that generated code may call.
orc::SymbolMap library_symbols(orc::LLJIT& jit) {
  using F1 = double (*)(double);
  using F2 = double (*)(double, double);
  using F3 = double (*)(double, double, double);
  using S1 = float (*)(float);
  using S2 = float (*)(float, float);
  using S3 = float (*)(float, float, float);
  orc::SymbolMap map;
  auto add = [&](const char* name, auto* f) { map[jit.mangleAndIntern(name)] = symbol(f); };
  add("exp", static_cast<F1>(std::exp));
  add("log", static_cast<F1>(std::log));
  add("tanh", static_cast<F1>(std::tanh));
  add("erf", static_cast<F1>(std::erf));
  add("sin", static_cast<F1>(std::sin));
  add("cos", static_cast<F1>(std::cos));
  add("pow", static_cast<F2>(std::pow));
  add("fmod", static_cast<F2>(std::fmod));
  add("fmodf", static_cast<S2>(std::fmod));
  // What LLVM makes of a comparison and a choice between two halves, of which one is no NaN.
  add("fmin", static_cast<F2>(std::fmin));
  add("fminf", static_cast<S2>(std::fmin));
  add("fmax", static_cast<F2>(std::fmax));
  add("fmaxf", static_cast<S2>(std::fmax));
  add("fma", static_cast<F3>(std::fma));
  add("fmaf", static_cast<S3>(std::fma));
  add("floor", static_cast<F1>(std::floor));
  add("floorf", static_cast<S1>(std::floor));
  add("ceil", static_cast<F1>(std::ceil));
  add("ceilf", static_cast<S1>(std::ceil));
  add("trunc", static_cast<F1>(std::trunc));
  add("truncf", static_cast<S1>(std::trunc));
  add("nearbyint", static_cast<F1>(std::nearbyint));
  add("nearbyintf", static_cast<S1>(std::nearbyint));
  add("memcpy", &std::memcpy);
  add("memmove", &std::memmove);
  add("memset", &std::memset);
  return map;
}

// One linker a process. Never destroyed: kernels may outlive static destruction.
orc::LLJIT& linker() {
  static orc::LLJIT* const jit = [] {
    initialise_llvm();
    orc::JITTargetMachineBuilder builder{llvm::Triple(kTriple)};
    auto made = expect(
        orc::LLJITBuilder()
            .setJITTargetMachineBuilder(std::move(builder))
            .setLinkProcessSymbolsByDefault(false)
            .setPlatformSetUp(orc::setUpInactivePlatform)
            .setObjectLinkingLayerCreator([](orc::ExecutionSession& session, const llvm::Triple&) {
              return std::make_unique<orc::ObjectLinkingLayer>(session);
            })
            .create(),
        "setting up the linker");
    auto& library = expect(made->createJITDylib("library"), "setting up the linker");
    expect(library.define(orc::absoluteSymbols(library_symbols(*made))), "setting up the linker");
    return made.release();
  }();
  return *jit;
}

}  // namespace

struct LoadedCode::Impl {
  orc::JITDylib* library = nullptr;
};

std::shared_ptr<const LoadedCode> LoadedCode::load(const std::string& object) {
  static std::atomic<uint64_t> counter{0};
  orc::LLJIT& jit = linker();
  std::shared_ptr<LoadedCode> code(new LoadedCode);
  code->impl_ = std::make_unique<Impl>();
  auto& library = expect(jit.createJITDylib(base::cat("kernel", counter++)), "linking a kernel");
  code->impl_->library = &library;
  library.addToLinkOrder(*jit.getJITDylibByName("library"));
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object), "kernel");
  expect(jit.addObjectFile(library, std::move(buffer)), "linking a kernel");
  auto address = expect(jit.lookup(library, kKernelSymbol), "linking a kernel");
  code->function_ = address.toPtr<KernelFunction>();
  return code;
}

LoadedCode::~LoadedCode() {
  if (!impl_ || impl_->library == nullptr) return;
  llvm::consumeError(linker().getExecutionSession().removeJITDylib(*impl_->library));
}

}  // namespace heddle::cpu
