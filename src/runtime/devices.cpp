#include "runtime/devices.h"

#include "base/check.h"
#include "base/env.h"
#include "loop/interpret.h"
#include "runtime/host_device.h"
#include "runtime/queue.h"

#include <heddle/error.h>

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace heddle {

namespace runtime {

namespace {

// The folder of the library that holds this function.
std::filesystem::path library_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&host_device), &info) == 0 || info.dli_fname == nullptr)
    return ".";
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::canonical(info.dli_fname, ignored);
  return ignored ? std::filesystem::path(info.dli_fname).parent_path() : path.parent_path();
}

// HEDDLE_BACKEND_PATH, where it is set.
std::optional<std::filesystem::path> given_folder() {
  std::optional<std::string> given = base::env("HEDDLE_BACKEND_PATH");
  if (!given || given->empty()) return std::nullopt;
  return std::filesystem::path(*given);
}

// A backend's library, loaded at first need.
struct Backend {
  std::string name;
  std::filesystem::path path;
  bool loaded = false;
  std::vector<std::shared_ptr<target::Device>> devices;
  std::vector<DeviceReport> reports;  // what cannot be used

  void load();

 private:
  void fail(std::string reason) {
    reports.push_back({name, path.filename().string(), std::move(reason)});
  }
};

void Backend::load() {
  if (loaded) return;
  loaded = true;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return fail(
        base::cat("the library cannot be loaded: ", why != nullptr ? why : "unknown reason"));
  }
  auto entry =
      reinterpret_cast<target::BackendEntryFunction>(dlsym(library, target::kBackendEntry));
  if (entry == nullptr) return fail(base::cat("the library has no ", target::kBackendEntry, "()"));
  const target::BackendEntry* backend = entry();
  if (backend == nullptr || backend->core_build == nullptr ||
      std::string_view(backend->core_build) != target::core_build_id()) {
    return fail(base::cat(
        "it was built for another core (",
        backend != nullptr && backend->core_build != nullptr ? backend->core_build : "none",
        ", this one is ", target::core_build_id(), "): rebuild both together"));
  }
  try {
    devices = backend->devices(reports);
  } catch (const GraphError&) {  // a switch with a value that cannot be read
    loaded = false;
    throw;
  } catch (const std::exception& e) {
    devices.clear();
    fail(e.what());
  }
}

class Registry {
 public:
  static Registry& get() {
    // Never destroyed: threads may still use devices while the process ends.
    static auto* registry = new Registry;
    return *registry;
  }

  std::vector<DeviceReport> report() {
    std::lock_guard lock(mutex_);
    std::vector<DeviceReport> all;
    for (Backend& b : backends_) {
      b.load();
      for (const auto& d : b.devices) all.push_back({d->name(), d->summary(), ""});
      all.insert(all.end(), b.reports.begin(), b.reports.end());
    }
    for (const auto& d : builtin_) all.push_back({d->name(), d->summary(), ""});
    return all;
  }

  std::shared_ptr<target::Device> find(std::string_view name) {
    std::lock_guard lock(mutex_);
    for (const auto& d : builtin_) {
      if (d->name() == name) return d;
    }
    std::string_view kind = name.substr(0, name.find(':'));
    for (Backend& b : backends_) {
      if (b.name != kind) continue;
      b.load();
      for (const auto& d : b.devices) {
        if (d->name() == name || kind == name) return d;
      }
    }
    throw UnsupportedError(missing(name));
  }

  // The CPU; the interpreter where its backend is not installed, beside the library as it came. One
  // that is there and cannot be used is an error: nobody wants to run a thousand times slower
  // without a word.
  std::shared_ptr<target::Device> host() {
    bool installed = std::any_of(backends_.begin(), backends_.end(),
                                 [](const Backend& b) { return b.name == "cpu"; });
    if (auto folder = given_folder();
        folder && !installed && base::env("HEDDLE_DEVICE") != "interpreter") {
      throw UnsupportedError(base::cat("HEDDLE_BACKEND_PATH is ", folder->string(),
                                       ", which holds no libheddle_cpu.so"));
    }
    try {
      return find(installed ? "cpu" : "interpreter");
    } catch (const UnsupportedError&) {
      if (base::env("HEDDLE_DEVICE") != "interpreter") throw;
      return find("interpreter");  // asked for
    }
  }

  // The first device of any backend but the CPU's, or null.
  std::shared_ptr<target::Device> first_accelerator() {
    std::lock_guard lock(mutex_);
    for (Backend& b : backends_) {
      if (b.name == "cpu") continue;
      b.load();
      if (!b.devices.empty()) return b.devices.front();
    }
    return nullptr;
  }

 private:
  Registry();
  std::string missing(std::string_view name) {
    std::string text = base::cat("there is no device \"", name, "\" here:");
    for (Backend& b : backends_) {
      b.load();
      for (const auto& d : b.devices) text += base::cat(" ", d->name(), " works;");
      for (const auto& r : b.reports) text += base::cat(" ", r.name, ": ", r.reason, ";");
    }
    for (const auto& d : builtin_) text += base::cat(" ", d->name(), " works;");
    text.pop_back();
    if (auto folder = given_folder())
      text +=
          base::cat(" (backends are looked for in HEDDLE_BACKEND_PATH, ", folder->string(), ")");
    return text;
  }

  std::mutex mutex_;
  std::vector<Backend> backends_;
  std::vector<std::shared_ptr<target::Device>> builtin_;
};

std::shared_ptr<target::Device> make_builtin(const char* name, const char* summary,
                                             bool interpreter) {
  HostDeviceParts parts;
  parts.name = name;
  parts.summary = summary;
  parts.description.kind = name;
  parts.description.arch = "any";
  if (interpreter) {
    parts.emitter = loop::make_interpreter_emitter();
    parts.recording = true;
  }
  return std::make_shared<HostDevice>(std::move(parts));
}

Registry::Registry() {
  builtin_.push_back(
      make_builtin("interpreter", "kernels run one scalar at a time, on the host", true));
  builtin_.push_back(
      make_builtin("judge", "reference evaluator of whole graphs, on the host", false));
  constexpr std::string_view kPrefix = "libheddle_", kSuffix = ".so";
  std::error_code error;
  std::filesystem::path folder = given_folder().value_or(library_folder());
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    std::string name = file.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    Backend& b = backends_.emplace_back();
    b.name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    b.path = file.path();
  }
  std::sort(backends_.begin(), backends_.end(),
            [](const Backend& a, const Backend& b) { return a.name < b.name; });
  if (base::env_has("HEDDLE_VERBOSE", "devices")) {
    for (const Backend& b : backends_)
      base::verbose("devices", base::cat("backend ", b.name, " at ", b.path.string()));
  }
}

}  // namespace

const std::shared_ptr<target::Device>& host_device() {
  static const auto* device = new std::shared_ptr<target::Device>(Registry::get().host());
  return *device;
}

std::shared_ptr<target::Device> find_device(std::string_view name) {
  return Registry::get().find(name);
}

std::unique_ptr<target::Stream> DeviceContext::take_stream() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<target::Stream> stream = std::move(idle_.back());
      idle_.pop_back();
      return stream;
    }
  }
  return device_->create_stream();
}

void DeviceContext::give_stream(std::unique_ptr<target::Stream> stream) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(stream));
}

const std::shared_ptr<Queue::State>& DeviceContext::default_queue() {
  std::lock_guard lock(mutex_);
  if (!queue_ || queue_->lost())  // after a fork the child has its own
    queue_ = Queue::State::make(*this, device_->create_stream());
  queue_made_.store(queue_.get(), std::memory_order_release);
  return queue_;
}

bool DeviceContext::default_queue_idle() const {
  const Queue::State* queue = queue_made_.load(std::memory_order_acquire);
  return queue == nullptr || queue->pending() == 0 || queue->lost();
}

void DeviceContext::wait_default_queue() {
  Queue::State* queue = queue_made_.load(std::memory_order_acquire);
  if (queue != nullptr && queue->pending() > 0 && !queue->lost()) queue->wait_for_jobs();
}

void DeviceContext::trim() {
  Queue::State* queue = queue_made_.load(std::memory_order_acquire);
  if (queue != nullptr && !queue->lost()) queue->finish_given();
  arenas_.clear();
  device_->trim();
}

DeviceContext& context_of(const std::shared_ptr<target::Device>& device) {
  struct Table {
    std::mutex mutex;
    std::map<const target::Device*, std::unique_ptr<DeviceContext>> contexts;
  };
  static auto* table = new Table;
  std::lock_guard lock(table->mutex);
  std::unique_ptr<DeviceContext>& context = table->contexts[device.get()];
  if (!context) context = std::make_unique<DeviceContext>(device);
  return *context;
}

}  // namespace runtime

const std::shared_ptr<target::Device>& Device::impl() const {
  return impl_ ? impl_ : runtime::host_device();
}
std::string Device::name() const { return impl()->name(); }
std::string Device::description() const { return impl()->summary(); }
MemoryStats Device::memory() const { return impl()->memory(); }
void Device::set_memory_limit(int64_t bytes) const { impl()->set_memory_limit(bytes); }
void Device::trim() const { runtime::context_of(impl()).trim(); }
bool operator==(const Device& a, const Device& b) { return a.impl() == b.impl(); }

std::vector<DeviceReport> devices() { return runtime::Registry::get().report(); }

Device device(std::string_view name) { return Device(runtime::find_device(name)); }

Device default_device() {
  std::optional<std::string> chosen = base::env("HEDDLE_DEVICE");
  if (chosen && !chosen->empty()) return device(*chosen);
  std::shared_ptr<target::Device> accelerator = runtime::Registry::get().first_accelerator();
  return accelerator ? Device(accelerator) : Device();
}

}  // namespace heddle
