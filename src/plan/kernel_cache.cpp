#include "plan/kernel_cache.h"

#include "base/check.h"
#include "base/env.h"
#include "base/hash.h"
#include "target/counters.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

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

struct Job {
  const ir::Kernel* kernel = nullptr;
  uint64_t key = 0;
  std::shared_ptr<const target::CompiledKernel> compiled;
  std::exception_ptr error;
};

void compile(target::Emitter& emitter, const target::EmitOptions& options, Job& job) {
  auto start = std::chrono::steady_clock::now();
  try {
    job.compiled = emitter.compile(*job.kernel, options);
    std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    base::verbose("cache", base::cat("kernel ", job.kernel->name, ": ", took.count(), " ms"));
  } catch (...) {
    job.error = std::current_exception();
  }
}

size_t compile_threads(const target::EmitOptions& options) {
  if (options.threads == 1) return 1;
  int64_t processors = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<size_t>(base::env_integer("HEDDLE_THREADS", 1, 1024).value_or(processors));
}

void compile_all(target::Emitter& emitter, const target::EmitOptions& options,
                 std::vector<Job>& jobs) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t k = next.fetch_add(1); k < jobs.size(); k = next.fetch_add(1))
      compile(emitter, options, jobs[k]);
  };
  size_t count = jobs.size() > 1 ? std::min(jobs.size(), compile_threads(options)) : 1;
  std::vector<std::jthread> threads;
  for (size_t k = 1; k < count; ++k) {
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads are to be had: those that run do the work
    }
  }
  work();
}

}  // namespace

std::vector<std::shared_ptr<const target::CompiledKernel>> compile_cached(
    target::Emitter& emitter, const std::vector<const ir::Kernel*>& kernels,
    const target::EmitOptions& options) {
  std::vector<std::shared_ptr<const target::CompiledKernel>> out(kernels.size());
  std::vector<Job> jobs;
  std::unordered_multimap<uint64_t, size_t> by_key;  // of jobs
  std::vector<size_t> job_of(kernels.size());
  uint64_t hits = 0;
  for (size_t k = 0; k < kernels.size(); ++k) {
    uint64_t key =
        base::mix(ir::structural_hash(*kernels[k]), static_cast<uint64_t>(options.check_bounds));
    out[k] = Cache::get().find(key, emitter, *kernels[k], options);
    auto [begin, end] = by_key.equal_range(key);
    auto same = std::find_if(begin, end, [&](const auto& entry) {
      return ir::structurally_equal(*jobs[entry.second].kernel, *kernels[k]);
    });
    hits += out[k] != nullptr || same != end ? 1 : 0;
    if (out[k] != nullptr) continue;
    job_of[k] = same != end ? same->second : jobs.size();
    if (same != end) continue;
    by_key.emplace(key, jobs.size());
    jobs.push_back({kernels[k], key, nullptr, nullptr});
  }
  compile_all(emitter, options, jobs);
  target::RuntimeCounters& counters = target::runtime_counters();
  counters.kernel_cache_hits.fetch_add(hits, std::memory_order_relaxed);
  for (Job& job : jobs) {
    if (job.error) std::rethrow_exception(job.error);
    counters.kernel_requests.fetch_add(1, std::memory_order_relaxed);
    if (base::env_has("HEDDLE_DUMP", "code"))
      std::fprintf(stderr, "%s\n", job.compiled->code().c_str());
    Cache::get().add(job.key, {&emitter, options, *job.kernel, job.compiled});
  }
  for (size_t k = 0; k < out.size(); ++k) {
    if (!out[k]) out[k] = jobs[job_of[k]].compiled;
  }
  return out;
}

std::shared_ptr<const target::CompiledKernel> compile_cached(target::Emitter& emitter,
                                                             const ir::Kernel& kernel,
                                                             const target::EmitOptions& options) {
  return compile_cached(emitter, std::vector<const ir::Kernel*>{&kernel}, options)[0];
}

}  // namespace heddle::plan
