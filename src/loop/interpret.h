// Runs kernels on host memory, one scalar at a time: the second, lower check of every emitter, and
// the code path of machines without a compiler.
#pragma once

#include "ir/kernel.h"
#include "target/target.h"

#include <memory>

namespace heddle::loop {

struct InterpretOptions {
  bool check_bounds = false;  // InternalError names buffer, coordinates and extents
  // InternalError where an element that one nest or outer point touched is written, or was written
  // and is touched, by another one with no grid barrier between: what would be a race in parallel.
  bool check_races = false;
};
void interpret(const ir::Kernel& kernel, const target::KernelArgs& args,
               const InterpretOptions& options = {});

// An emitter whose compiled kernels interpret (EmitOptions::check_bounds turns both checks on);
// used by the "interpreter" device. Its CompiledKernel is run by run_interpreted (host devices'
// recorders call it through HostKernel, see runtime/host_device.h).
std::unique_ptr<target::Emitter> make_interpreter_emitter();

}  // namespace heddle::loop
