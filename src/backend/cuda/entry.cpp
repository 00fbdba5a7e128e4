// The backend's entry point: which GPUs work here, and why others do not.
#include "backend/cuda/compiler.h"
#include "backend/cuda/device.h"
#include "base/check.h"
#include "generated/build_info.h"
#include "target/target.h"

namespace heddle::cuda {

namespace {

std::vector<std::shared_ptr<target::Device>> devices(std::vector<DeviceReport>& reports) {
  std::vector<std::shared_ptr<target::Device>> out;
  auto refuse = [&](const std::string& name, const std::string& reason) {
    reports.push_back({name, "NVIDIA GPUs", reason});
  };
  std::string reason;
  if (load_driver(&reason) == nullptr) {
    refuse("cuda", reason);
    return out;
  }
  if (CUresult code = driver().cuInit_(0)) {
    refuse("cuda", base::cat("cuInit failed: ", error_text(code)));
    return out;
  }
  int count = 0;
  if (CUresult code = driver().cuDeviceGetCount_(&count)) {
    refuse("cuda", base::cat("cuDeviceGetCount failed: ", error_text(code)));
    return out;
  }
  if (count == 0) refuse("cuda", "the driver sees no GPU");
  for (int k = 0; k < count; ++k) {
    try {
      out.push_back(std::make_shared<CudaDevice>(k));
    } catch (const Error& e) {
      refuse(base::cat("cuda:", k), e.what());
    }
  }
  return out;
}

std::unique_ptr<target::Emitter> described_emitter(const target::DeviceDescription& description) {
  return description.kind == "cuda" && compiler().usable ? make_emitter(description) : nullptr;
}

}  // namespace
}  // namespace heddle::cuda

extern "C" const heddle::target::BackendEntry* heddle_backend_entry() {
  static const heddle::target::BackendEntry entry = {HEDDLE_ABI_HASH, "cuda", heddle::cuda::devices,
                                                     heddle::cuda::described_emitter};
  return &entry;
}
