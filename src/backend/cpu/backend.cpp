// Entry of the CPU backend.
#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/cpu_target.h"
#include "backend/cpu/onednn_matmul.h"
#include "base/check.h"
#include "generated/build_info.h"
#include "runtime/host_device.h"

namespace heddle::cpu {

namespace {

target::DeviceDescription describe_host() {
  target::DeviceDescription d;
  d.kind = "cpu";
  d.arch = host_arch();
  d.features["name"] = host_name();
  d.processors = host_threads();
  d.vector_bytes = target_for(d.arch).vector_bytes;
  return d;
}

std::vector<std::shared_ptr<target::Device>> devices(std::vector<DeviceReport>& reports) {
  try {
    runtime::HostDeviceParts parts;
    parts.name = "cpu";
    parts.description = describe_host();
    parts.summary = base::cat(host_name(), ", ", parts.description.arch, ", ",
                              parts.description.processors, " threads");
    parts.emitter = std::make_unique<CpuEmitter>(target_for(parts.description.arch), true);
    parts.claims = matmul_claims();
    return {std::make_shared<runtime::HostDevice>(std::move(parts))};
  } catch (const GraphError&) {  // a switch with a value that cannot be read
    throw;
  } catch (const Error& error) {
    reports.push_back({"cpu", host_name(), error.what()});
    return {};
  }
}

std::unique_ptr<target::Emitter> emitter(const target::DeviceDescription& description) {
  if (description.kind != "cpu") return nullptr;
  return std::make_unique<CpuEmitter>(target_for(description.arch),
                                      description.arch == host_arch());
}

constexpr target::BackendEntry kEntry{HEDDLE_ABI_HASH, "cpu", &devices, &emitter};

}  // namespace

}  // namespace heddle::cpu

extern "C" const heddle::target::BackendEntry* heddle_backend_entry() {
  return &heddle::cpu::kEntry;
}
