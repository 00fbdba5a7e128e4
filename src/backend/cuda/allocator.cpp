#include "backend/cuda/allocator.h"

#include "base/check.h"
#include "target/out_of_memory.h"

#include <algorithm>
#include <map>
#include <set>

namespace heddle::cuda {

namespace {

constexpr int64_t kRound = 512;               // bytes: block sizes and alignment
constexpr int64_t kSmall = int64_t{1} << 20;  // up to this, blocks share segments
constexpr int64_t kSmallSegment = int64_t{2} << 20;
constexpr int64_t kLargeSegment = int64_t{20} << 20;  // for requests below half of it
constexpr int64_t kSegmentRound = int64_t{2} << 20;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

class DriverMemory : public MemorySource {
 public:
  explicit DriverMemory(CUcontext context) : context_(context) {}
  CUdeviceptr take(int64_t bytes) override {
    enter();
    CUdeviceptr p = 0;
    count_driver_call();
    CUresult code = driver().cuMemAlloc_(&p, static_cast<size_t>(bytes));
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return 0;
    if (code != CUDA_SUCCESS) driver_failed(code, "cuMemAlloc", "allocate");
    return p;
  }
  void give(CUdeviceptr pointer) override {
    enter();
    count_driver_call();
    driver().cuMemFree_(pointer);
  }
  int64_t free_bytes() override {
    enter();
    size_t free = 0, total = 0;
    driver().cuMemGetInfo_(&free, &total);
    return static_cast<int64_t>(free);
  }
  CUevent mark(void* stream) override {
    enter();
    CUevent e = nullptr;
    if (spare_.empty()) {
      HD_CU(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
    } else {
      e = spare_.back();
      spare_.pop_back();
    }
    count_driver_call();
    if (driver().cuEventRecord_(e, static_cast<CUstream>(stream)) != CUDA_SUCCESS) {
      spare_.push_back(e);
      return nullptr;
    }
    return e;
  }
  bool done(CUevent event) override {
    return driver().cuEventQuery_(event) != CUDA_ERROR_NOT_READY;
  }
  void wait(CUevent event) override {
    enter();
    count_driver_call();
    driver().cuEventSynchronize_(event);  // a failure of the work is reported to its own stream
  }
  void drop(CUevent event) override { spare_.push_back(event); }

 private:
  void enter() const {
    CUcontext current = nullptr;
    driver().cuCtxGetCurrent_(&current);
    if (current != context_) driver().cuCtxSetCurrent_(context_);
  }
  CUcontext context_;
  std::vector<CUevent> spare_;
};

}  // namespace

std::unique_ptr<MemorySource> driver_memory(CUcontext context) {
  return std::make_unique<DriverMemory>(context);
}

Allocator::Allocator(std::string device, std::unique_ptr<MemorySource> source)
    : device_(std::move(device)), source_(std::move(source)) {}

// Memory of a device lives as long as the process; the driver takes it back.
Allocator::~Allocator() = default;

void* Allocator::allocate(int64_t bytes, void* stream) {
  std::lock_guard lock(mutex_);
  HD_CHECK(bytes >= 0);
  if (bytes > (int64_t{1} << 60)) fail(bytes);
  int64_t need = round_up(std::max<int64_t>(bytes, 1), kRound);
  if (stats_.limit > 0 && stats_.live + need > stats_.limit) fail(bytes);
  Block* b = take_free(need, stream);
  if (b == nullptr) b = new_segment(need);
  if (b == nullptr) {
    trim_locked();
    b = new_segment(need);
  }
  if (b == nullptr) fail(bytes);
  remove_free(b);
  split(b, need);
  b->free = false;
  b->stream = nullptr;
  stats_.live += b->bytes;
  stats_.peak = std::max(stats_.peak, stats_.live);
  return reinterpret_cast<void*>(b->address);
}

void Allocator::release(void* pointer, void* stream) noexcept {
  if (pointer == nullptr) return;
  std::lock_guard lock(mutex_);
  auto it = blocks_.find(reinterpret_cast<CUdeviceptr>(pointer));
  if (it == blocks_.end() || it->second->free) return;
  Block* b = it->second.get();
  stats_.live -= b->bytes;
  b->free = true;
  b->stream = stream;
  if (stream != nullptr) {
    try {
      b->event = source_->mark(stream);
    } catch (const Error&) {
      b->event = nullptr;  // the context is lost: nothing runs any more
    }
  }
  put_free(merge(b));
}

void Allocator::forget(void* stream) {
  std::lock_guard lock(mutex_);
  auto it = free_.find(stream);
  if (it == free_.end()) return;
  FreeList list = std::move(it->second);
  free_.erase(it);
  for (Block* b : list) {
    settle(b);
    free_[nullptr].insert(b);
  }
}

MemoryStats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}
void Allocator::set_limit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  stats_.limit = bytes;
  if (bytes > 0 && stats_.reserved > bytes) trim_locked();
}
void Allocator::trim() {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void Allocator::settle(Block* b) {
  if (b->event != nullptr) {
    source_->wait(b->event);
    source_->drop(b->event);
    b->event = nullptr;
  }
  b->stream = nullptr;
}

// The smallest free block that is large enough, unless that would waste most of a large one.
Allocator::Block* Allocator::fitting(FreeList& list, int64_t bytes) const {
  Block key;
  key.bytes = bytes;
  auto it = list.lower_bound(&key);
  if (it == list.end()) return nullptr;
  bool small = bytes <= kSmall, in_small = (*it)->bytes <= kSmallSegment;
  if (small && !in_small && stats_.limit == 0) return nullptr;  // keep large blocks whole
  return *it;
}

Allocator::Block* Allocator::take_free(int64_t bytes, void* stream) {
  auto own = free_.find(stream);
  if (own != free_.end()) {
    if (Block* b = fitting(own->second, bytes)) {
      if (b->event != nullptr) source_->drop(b->event);  // in order with the same stream
      b->event = nullptr;
      return b;
    }
  }
  auto idle = free_.find(nullptr);
  if (stream != nullptr && idle != free_.end()) {
    if (Block* b = fitting(idle->second, bytes)) return b;
  }
  for (auto& [other, list] : free_) {
    if (other == stream || other == nullptr) continue;
    Block* b = fitting(list, bytes);
    if (b == nullptr || (b->event != nullptr && !source_->done(b->event))) continue;
    remove_free(b);
    settle(b);
    put_free(b);
    return b;
  }
  return nullptr;
}

Allocator::Block* Allocator::new_segment(int64_t bytes) {
  int64_t size = bytes <= kSmall             ? kSmallSegment
                 : bytes < kLargeSegment / 2 ? kLargeSegment
                                             : round_up(bytes, kSegmentRound);
  if (stats_.limit > 0) {
    if (stats_.reserved + size > stats_.limit) size = round_up(bytes, kRound);
    if (stats_.reserved + size > stats_.limit) return nullptr;
  }
  CUdeviceptr address = source_->take(size);
  if (address == 0 && size > round_up(bytes, kSegmentRound)) {
    size = round_up(bytes, kSegmentRound);
    address = source_->take(size);
  }
  if (address == 0) return nullptr;
  auto block = std::make_unique<Block>();
  block->address = address;
  block->bytes = size;
  block->free = true;
  Block* b = block.get();
  blocks_[address] = std::move(block);
  stats_.reserved += size;
  put_free(b);
  return b;
}

void Allocator::split(Block* b, int64_t bytes) {
  if (b->bytes - bytes < kRound) return;
  auto rest = std::make_unique<Block>();
  rest->address = b->address + static_cast<CUdeviceptr>(bytes);
  rest->bytes = b->bytes - bytes;
  rest->free = true;
  rest->stream = b->stream;  // the same work may still use it
  if (rest->stream != nullptr) rest->event = source_->mark(rest->stream);
  rest->before = b;
  rest->after = b->after;
  if (b->after != nullptr) b->after->before = rest.get();
  b->after = rest.get();
  b->bytes = bytes;
  Block* r = rest.get();
  blocks_[r->address] = std::move(rest);
  put_free(r);
}

Allocator::Block* Allocator::merge(Block* b) {
  auto absorb = [&](Block* left, Block* right) {
    if (left->event != nullptr && right->event != nullptr) {
      // Of one stream: the one that was marked last covers both; that is b's.
      Block* older = left == b ? right : left;
      source_->drop(older->event);
      older->event = nullptr;
    }
    if (left->event == nullptr) left->event = right->event;
    left->bytes += right->bytes;
    left->after = right->after;
    if (right->after != nullptr) right->after->before = left;
    blocks_.erase(right->address);
  };
  if (b->before != nullptr && b->before->free && b->before->stream == b->stream) {
    Block* left = b->before;
    remove_free(left);
    absorb(left, b);
    b = left;
  }
  if (b->after != nullptr && b->after->free && b->after->stream == b->stream) {
    remove_free(b->after);
    absorb(b, b->after);
  }
  return b;
}

void Allocator::put_free(Block* b) { free_[b->stream].insert(b); }
void Allocator::remove_free(Block* b) {
  auto it = free_.find(b->stream);
  if (it != free_.end()) it->second.erase(b);
}

// Gives segments that are wholly free back. Free neighbours of different streams are joined first.
void Allocator::trim_locked() {
  // By address: a block that another absorbs exists no longer when its turn comes.
  std::map<CUdeviceptr, Block*> all;
  for (auto& [stream, list] : free_) {
    for (Block* b : list) all[b->address] = b;
  }
  free_.clear();
  for (auto& [address, b] : all) settle(b);
  std::set<CUdeviceptr> gone;
  for (auto& [address, b] : all) {
    if (gone.count(address) != 0) continue;
    while (b->after != nullptr && b->after->free) {
      Block* right = b->after;
      gone.insert(right->address);
      b->bytes += right->bytes;
      b->after = right->after;
      if (right->after != nullptr) right->after->before = b;
      blocks_.erase(right->address);
    }
    if (b->before == nullptr && b->after == nullptr) {
      source_->give(b->address);
      stats_.reserved -= b->bytes;
      blocks_.erase(b->address);
    } else {
      put_free(b);
    }
  }
}

void Allocator::fail(int64_t bytes) {
  target::fail_out_of_memory(device_, bytes, stats_, source_->free_bytes());
}

}  // namespace heddle::cuda
