// Files by content, shared by several processes at once: compiled kernels and the like.
//
// A file holds the whole key, which is compared, and a checksum. It is written beside its place and
// renamed, so a reader sees all of it or nothing. Whatever goes wrong (full or read-only disk,
// damaged file, a killed writer) is a miss.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::runtime {

class DiskCache {
 public:
  // Files in HEDDLE_CACHE_DIR/<kind>, by default in the user's cache folder; no cache where the
  // variable is empty.
  explicit DiskCache(std::string kind);
  // In a folder of the caller's choice, bounded by `limit` bytes; an empty folder: no cache.
  DiskCache(std::string folder, int64_t limit);

  std::optional<std::string> find(std::string_view key);
  void put(std::string_view key, std::string_view content) noexcept;
  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }

 private:
  std::string path(std::string_view key) const;
  void trim();

  std::string folder_;
  int64_t limit_;
  std::mutex mutex_;
  int64_t written_ = 0;  // since the folder was last measured
};

}  // namespace heddle::runtime
