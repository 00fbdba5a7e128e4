#include "plan/kernel_cache.h"

#include "base/env.h"
#include "base/hash.h"
#include "target/counters.h"

#include <cstdio>
#include <map>
#include <mutex>

namespace heddle::plan {

namespace {

struct Entry {
  const target::Emitter* emitter;
  target::EmitOptions options;
  ir::Kernel kernel;
  std::weak_ptr<const target::CompiledKernel> compiled;
};

class Cache {
 public:
  static Cache& get() {
    static auto* cache = new Cache;  // never destroyed: compilations may outlive main
    return *cache;
  }

  std::shared_ptr<const target::CompiledKernel> find(uint64_t key, const target::Emitter& emitter,
                                                     const ir::Kernel& kernel,
                                                     const target::EmitOptions& options) {
    std::lock_guard lock(mutex_);
    auto [begin, end] = entries_.equal_range(key);
    for (auto it = begin; it != end;) {
      std::shared_ptr<const target::CompiledKernel> compiled = it->second.compiled.lock();
      if (!compiled) {
        it = entries_.erase(it);
        continue;
      }
      const Entry& e = it->second;
      if (e.emitter == &emitter && e.options.check_bounds == options.check_bounds &&
          e.options.threads == options.threads && ir::structurally_equal(e.kernel, kernel)) {
        return compiled;
      }
      ++it;
    }
    return nullptr;
  }

  void add(uint64_t key, Entry entry) {
    std::lock_guard lock(mutex_);
    if (entries_.size() > 2 * live_ + 64) sweep();
    entries_.emplace(key, std::move(entry));
  }

 private:
  void sweep() {
    std::erase_if(entries_, [](const auto& e) { return e.second.compiled.expired(); });
    live_ = entries_.size();
  }
  std::mutex mutex_;
  std::multimap<uint64_t, Entry> entries_;
  size_t live_ = 0;
};

}  // namespace

std::shared_ptr<const target::CompiledKernel> compile_cached(target::Emitter& emitter,
                                                             const ir::Kernel& kernel,
                                                             const target::EmitOptions& options) {
  uint64_t key =
      base::mix(ir::structural_hash(kernel), static_cast<uint64_t>(options.check_bounds));
  if (auto found = Cache::get().find(key, emitter, kernel, options)) {
    target::runtime_counters().kernel_cache_hits.fetch_add(1, std::memory_order_relaxed);
    return found;
  }
  std::shared_ptr<const target::CompiledKernel> compiled = emitter.compile(kernel, options);
  target::runtime_counters().kernel_requests.fetch_add(1, std::memory_order_relaxed);
  if (base::env_has("HEDDLE_DUMP", "code")) std::fprintf(stderr, "%s\n", compiled->code().c_str());
  Cache::get().add(key, {&emitter, options, kernel, compiled});
  return compiled;
}

}  // namespace heddle::plan
