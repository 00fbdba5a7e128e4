#include "runtime/disk_cache.h"

#include "base/check.h"
#include "base/env.h"
#include "base/hash.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

namespace heddle::runtime {

namespace fs = std::filesystem;

namespace {

constexpr char kMagic[8] = {'h', 'e', 'd', 'd', 'l', 'e', '0', '1'};
constexpr int64_t kDefaultLimit = int64_t{1} << 30;  // bytes
constexpr uintmax_t kLargestFile = uintmax_t{1} << 30;

struct Header {
  char magic[8];
  uint64_t key_bytes, content_bytes;
  uint64_t checksum;  // of key and content
};

uint64_t checksum(std::string_view key, std::string_view content) {
  return base::hash_string(content, base::hash_string(key, content.size()));
}

std::string default_folder(const std::string& kind) {
  if (auto dir = base::env("HEDDLE_CACHE_DIR")) return dir->empty() ? "" : *dir + "/" + kind;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return std::string(xdg) + "/heddle/" + kind;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/heddle/" + kind;
  return "";
}

int64_t default_limit() {
  return base::env_integer("HEDDLE_CACHE_LIMIT", 0, INT64_MAX).value_or(kDefaultLimit);
}

bool drawn(double probability) {
  static thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_real_distribution<>()(random) < probability;
}

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

DiskCache::DiskCache(std::string kind) : DiskCache(default_folder(kind), default_limit()) {}
DiskCache::DiskCache(std::string folder, int64_t limit)
    : folder_(std::move(folder)), limit_(limit) {}

std::string DiskCache::path(std::string_view key) const {
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%016llx",
                static_cast<unsigned long long>(base::hash_string(key, 1)),
                static_cast<unsigned long long>(base::hash_string(key, 2)));
  return folder_ + "/" + std::string(name, 2) + "/" + (name + 2);
}

std::optional<std::string> DiskCache::find(std::string_view key) {
  if (!enabled()) return std::nullopt;
  std::string name = path(key);
  File file(std::fopen(name.c_str(), "rb"));
  struct stat status{};
  if (!file || fstat(fileno(file.get()), &status) != 0) return std::nullopt;
  auto size = static_cast<uintmax_t>(status.st_size);
  if (size < sizeof(Header) || size > kLargestFile) return std::nullopt;
  std::string all(size, '\0');
  if (std::fread(all.data(), 1, size, file.get()) != size) return std::nullopt;
  Header h{};
  std::memcpy(&h, all.data(), sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.key_bytes > size ||
      h.content_bytes > size || sizeof h + h.key_bytes + h.content_bytes != size) {
    return std::nullopt;
  }
  std::string_view view(all);
  std::string_view stored_key = view.substr(sizeof h, h.key_bytes);
  std::string_view content = view.substr(sizeof h + h.key_bytes);
  if (stored_key != key || checksum(stored_key, content) != h.checksum) return std::nullopt;
  // The age of a file is that of its last use.
  std::error_code ignored;
  fs::last_write_time(name, fs::file_time_type::clock::now(), ignored);
  return std::string(content);
}

void DiskCache::put(std::string_view key, std::string_view content) noexcept {
  if (!enabled() || static_cast<int64_t>(key.size() + content.size()) > limit_) return;
  try {
    static std::atomic<uint64_t> counter{0};
    std::string name = path(key);
    std::error_code error;
    fs::create_directories(fs::path(name).parent_path(), error);
    if (error) return;
    std::string beside = base::cat(name, ".", getpid(), ".", counter++, ".tmp");
    File file(std::fopen(beside.c_str(), "wb"));
    if (!file) return;
    Header h{};
    std::memcpy(h.magic, kMagic, sizeof kMagic);
    h.key_bytes = key.size(), h.content_bytes = content.size();
    h.checksum = checksum(key, content);
    bool good = std::fwrite(&h, sizeof h, 1, file.get()) == 1 &&
                std::fwrite(key.data(), 1, key.size(), file.get()) == key.size() &&
                std::fwrite(content.data(), 1, content.size(), file.get()) == content.size() &&
                std::fflush(file.get()) == 0;
    file.reset();
    if (!good || std::rename(beside.c_str(), name.c_str()) != 0) {
      std::remove(beside.c_str());
      return;
    }
    std::lock_guard lock(mutex_);
    auto size = static_cast<int64_t>(sizeof h + key.size() + content.size());
    written_ += size;
    if (written_ > limit_ / 16 ||
        drawn(16 * static_cast<double>(size) / static_cast<double>(limit_)))
      trim();
  } catch (const std::exception& error) {
    base::verbose("cache", base::cat("not written: ", error.what()));
  }
}

// Removes the files that were unused longest until the folder is below nine tenths of its limit.
// Reading a folder of 100,000 files takes a second, so it is done once for a sixteenth of the limit
// that this process has written, and by chance as often for what many short processes write.
void DiskCache::trim() {
  struct Entry {
    fs::file_time_type time;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  auto now = fs::file_time_type::clock::now();
  for (fs::recursive_directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code skip;
    if (!it->is_regular_file(skip) || skip) continue;
    auto bytes = static_cast<int64_t>(it->file_size(skip));
    auto time = it->last_write_time(skip);
    if (skip) continue;  // another process removed it
    // What a killed writer left behind.
    if (it->path().extension() == ".tmp" && now - time > std::chrono::hours(1)) {
      fs::remove(it->path(), skip);
      continue;
    }
    entries.push_back({time, bytes, it->path()});
    total += bytes;
  }
  written_ = 0;
  if (total <= limit_) return;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.time < b.time; });
  for (const Entry& e : entries) {
    if (total <= limit_ / 10 * 9) break;
    std::error_code skip;
    if (fs::remove(e.path, skip)) total -= e.bytes;
  }
}

}  // namespace heddle::runtime
