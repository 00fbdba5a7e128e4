#include "runtime/constant_store.h"

namespace heddle::runtime {

std::shared_ptr<const DeviceBuffer> ConstantStore::get(const ir::LiteralRef& literal,
                                                       target::Stream& stream) {
  std::lock_guard lock(mutex_);
  auto [begin, end] = entries_.equal_range(literal->content_hash);
  for (auto it = begin; it != end;) {
    std::shared_ptr<const DeviceBuffer> buffer = it->second.buffer.lock();
    if (!buffer) {
      it = entries_.erase(it);
      continue;
    }
    if (*it->second.literal == *literal) return buffer;
    ++it;
  }
  auto bytes = static_cast<int64_t>(literal->bytes.size());
  auto buffer = std::make_shared<DeviceBuffer>(device_, bytes, &stream);
  if (bytes > 0) stream.copy_from_host(buffer->data(), literal->bytes.data(), bytes);
  stream.synchronize();
  entries_.emplace(literal->content_hash, Entry{literal, buffer});
  return buffer;
}

int64_t ConstantStore::live_bytes() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [hash, entry] : entries_) {
    if (auto buffer = entry.buffer.lock()) bytes += buffer->bytes();
  }
  return bytes;
}

}  // namespace heddle::runtime
