#include "backend_cuda/simulated_code.h"

#include "base/check.h"

#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

namespace heddle::test {

namespace {

// The machine part of the prelude, on a CPU.
constexpr const char* kHostMachine = R"cpp(
#include <math.h>
#include <string.h>
#define HD_FN static inline
#define HD_KERNEL(threads, blocks) extern "C" void
#define HD_SHARED static thread_local
#define HD_DYNAMIC_SHARED(name) unsigned char* name = hd_api->shared()
#define HD_UNROLL
#define HD_UNROLL4
#define HD_UNROLL8
  struct uint4 {
    unsigned x, y, z, w;
  };
  struct uint2 {
    unsigned x, y;
  };
  struct sim_dim {
    unsigned x, y, z;
  };
  struct sim_api {
    sim_dim (*thread)();
    sim_dim (*block)();
    sim_dim (*grid)();
    void (*sync)();
    void (*grid_sync)();
    unsigned (*shuffle)(int kind, unsigned v, int k);
    unsigned char* (*shared)();
  };
  extern "C" {
  const sim_api* hd_api;
  }
#define threadIdx (hd_api->thread())
#define blockIdx (hd_api->block())
#define gridDim (hd_api->grid())
  template <class T, class S>
  static inline T sim_bits(S v) {
    T r;
    memcpy(&r, &v, sizeof r);
    return r;
  }
  HD_FN float hd_bits_f32(unsigned v) { return sim_bits<float>(v); }
  HD_FN unsigned hd_f32_bits(float v) { return sim_bits<unsigned>(v); }
  HD_FN double hd_bits_f64(unsigned long long v) { return sim_bits<double>(v); }
  HD_FN unsigned long long hd_f64_bits(double v) { return sim_bits<unsigned long long>(v); }
  HD_FN float hd_half_float(unsigned short v) {
    _Float16 h = sim_bits<_Float16>(v);
    return (float)h;
  }
  HD_FN unsigned short hd_float_half(float v) { return sim_bits<unsigned short>((_Float16)v); }
  HD_FN unsigned short hd_float_bf16(float v) {
    unsigned b = hd_f32_bits(v);
    if (v != v) return 0x7fff;
    return (unsigned short)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
  HD_FN float hd_round_zero(double v) {
    float f = (float)v;
    if (fabs((double)f) > fabs(v)) f = nextafterf(f, 0.f);
    return f;
  }
  HD_FN float sim_pick(float a, float b, bool larger, bool number) {
    if (a != a) return number ? b : a;
    if (b != b) return number ? a : b;
    if (a == b) return ((hd_f32_bits(a) >> 31 != 0) == larger) ? b : a;
    return ((a < b) == larger) ? b : a;
  }
  HD_FN float hd_min(float a, float b) { return sim_pick(a, b, false, false); }
  HD_FN float hd_max(float a, float b) { return sim_pick(a, b, true, false); }
  HD_FN float hd_min_num(float a, float b) { return sim_pick(a, b, false, true); }
  HD_FN float hd_max_num(float a, float b) { return sim_pick(a, b, true, true); }
  HD_FN float hd_fma(float a, float b, float c) { return fmaf(a, b, c); }
  HD_FN double hd_fma(double a, double b, double c) { return fma(a, b, c); }
  HD_FN float hd_rcp_approx(float v) { return 1.f / v; }
  HD_FN unsigned hd_shfl_xor(unsigned v, int m) { return hd_api->shuffle(0, v, m); }
  HD_FN unsigned hd_shfl_up(unsigned v, int d) { return hd_api->shuffle(1, v, d); }
  HD_FN unsigned hd_shfl(unsigned v, int lane) { return hd_api->shuffle(2, v, lane); }
  HD_FN unsigned hd_ballot(bool v) { return hd_api->shuffle(3, v, 0); }
  HD_FN unsigned hd_popc(unsigned v) { return (unsigned)__builtin_popcount(v); }
  HD_FN int hd_lowest(unsigned v) { return __builtin_ffs((int)v) - 1; }
  HD_FN void hd_sync_warp() { hd_api->shuffle(2, 0, 0); }
  HD_FN void hd_sync() { hd_api->sync(); }
  HD_FN uint4 hd_ldg16(const void* p) { return *(const uint4*)p; }
  HD_FN uint2 hd_ldg8(const void* p) { return *(const uint2*)p; }
  template <class T>
  HD_FN T hd_ldg(const T* p) {
    return *p;
  }
  template <class T>
  HD_FN void hd_stcs(T* p, T v) {
    *p = v;
  }
  HD_FN void hd_publish(unsigned long long* p, unsigned long long v) {
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
  }
  HD_FN unsigned long long hd_observe(const unsigned long long* p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
  }
  HD_FN unsigned hd_atomic_add(unsigned* p, unsigned v) {
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
  }
  HD_FN unsigned hd_atomic_cas(unsigned* p, unsigned a, unsigned b) {
    __atomic_compare_exchange_n(p, &a, b, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return a;
  }
  HD_FN void hd_grid_sync(unsigned*) { hd_api->grid_sync(); }
)cpp";

struct Dim {
  unsigned x = 0, y = 0, z = 0;
};
struct Api {
  Dim (*thread)();
  Dim (*block)();
  Dim (*grid)();
  void (*sync)();
  void (*grid_sync)();
  unsigned (*shuffle)(int, unsigned, int);
  unsigned char* (*shared)();
};

struct Meeting {  // a barrier of fibers of one block
  unsigned arrived = 0, generation = 0;
};
struct Warp : Meeting {
  unsigned slots[2][32] = {};
};

class Block;
thread_local Block* current_block = nullptr;

// One block: a fiber a thread, switched at barriers.
class Block {
 public:
  Block(unsigned grid, unsigned index, unsigned threads, int64_t shared,
        std::barrier<>* grid_barrier)
      : grid_(grid),
        index_(index),
        fibers_(threads),
        warps_((threads + 31) / 32),
        grid_barrier_(grid_barrier),
        shared_(static_cast<size_t>(shared) + 16) {}

  void run(const std::function<void()>& body) {
    current_block = this;
    body_ = &body;
    constexpr size_t kStack = 64 << 10;
    std::vector<char> stacks(fibers_.size() * kStack);
    for (size_t k = 0; k < fibers_.size(); ++k) {
      Fiber& f = fibers_[k];
      f = Fiber{};
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = stacks.data() + k * kStack;
      f.context.uc_stack.ss_size = kStack;
      f.context.uc_link = &main_;
      makecontext(&f.context, &Block::enter, 0);
    }
    size_t done = 0;
    while (done < fibers_.size()) {
      done = 0;
      for (current_ = 0; current_ < fibers_.size(); ++current_) {
        if (!fibers_[current_].done) swapcontext(&main_, &fibers_[current_].context);
        done += fibers_[current_].done ? 1 : 0;
      }
    }
  }

  Dim thread() const { return {static_cast<unsigned>(current_), 0, 0}; }
  Dim block() const { return {index_, 0, 0}; }
  Dim grid() const { return {grid_, 1, 1}; }
  void set_index(unsigned index) { index_ = index; }

  void meet(Meeting& m, size_t count, const std::function<void()>& last = {}) {
    unsigned mine = m.generation;
    if (++m.arrived == count) {
      if (last) last();
      m.arrived = 0;
      ++m.generation;
      return;
    }
    while (m.generation == mine) swapcontext(&fibers_[current_].context, &main_);
  }
  void sync() { meet(all_, fibers_.size()); }
  void grid_sync() {
    meet(all_, fibers_.size(), [&] {
      if (grid_barrier_ != nullptr) grid_barrier_->arrive_and_wait();
    });
  }
  unsigned shuffle(int kind, unsigned v, int k) {
    size_t lane = current_ % 32, warp = current_ / 32;
    Warp& w = warps_[warp];
    unsigned slot = w.generation & 1;
    w.slots[slot][lane] = v;
    meet(w, std::min<size_t>(32, fibers_.size() - warp * 32));
    if (kind == 3) {  // a vote
      unsigned bits = 0;
      for (unsigned b = 0; b < 32; ++b) bits |= (w.slots[slot][b] != 0 ? 1U : 0U) << b;
      return bits;
    }
    auto at = static_cast<size_t>(k);
    size_t from = kind == 0 ? lane ^ at : kind == 1 ? (lane >= at ? lane - at : lane) : at;
    return w.slots[slot][from];
  }
  unsigned char* shared() {
    return shared_.data() + (16 - reinterpret_cast<uintptr_t>(shared_.data()) % 16) % 16;
  }

 private:
  struct Fiber {
    ucontext_t context;
    bool done = false;
  };
  static void enter() {
    Block* b = current_block;
    (*b->body_)();
    b->fibers_[b->current_].done = true;
  }

  unsigned grid_, index_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  Meeting all_;
  std::barrier<>* grid_barrier_;
  std::vector<unsigned char> shared_;
  const std::function<void()>* body_ = nullptr;
  ucontext_t main_;
  size_t current_ = 0;
};

const Api kApi = {[] { return current_block->thread(); },
                  [] { return current_block->block(); },
                  [] { return current_block->grid(); },
                  [] { current_block->sync(); },
                  [] { current_block->grid_sync(); },
                  [](int kind, unsigned v, int k) { return current_block->shuffle(kind, v, k); },
                  [] { return current_block->shared(); }};

// Calls a function with pointer and integer arguments, all 8 bytes.
using Word = uintptr_t;
template <size_t... I>
void call_words(void* f, const std::vector<Word>& a, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(decltype(static_cast<void>(I), Word{})...)>(f)(a[I]...);
}
template <size_t N>
void call_padded(void* f, std::vector<Word> a) {
  a.resize(N);
  call_words(f, a, std::make_index_sequence<N>{});
}

}  // namespace

bool can_simulate() { return std::system("g++ --version >/dev/null 2>&1") == 0; }

SimulatedCode::SimulatedCode(const std::string& source) {
  static std::atomic<int> counter{0};
  std::string stem = base::cat(std::filesystem::temp_directory_path().string(), "/heddle_sim_",
                               getpid(), "_", counter++);
  std::ofstream(stem + ".cpp") << kHostMachine << source;
  std::string command =
      base::cat("g++ -x c++ -std=c++17 -O1 -w -ffp-contract=off -msse2 -fwrapv -shared -fPIC -o ",
                stem, ".so ", stem, ".cpp 2>", stem, ".log");
  int code = std::system(command.c_str());
  std::ifstream log(stem + ".log");
  std::string text((std::istreambuf_iterator<char>(log)), {});
  if (code == 0) library_ = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ != nullptr) std::filesystem::remove(stem + ".cpp");
  std::filesystem::remove(stem + ".so");
  std::filesystem::remove(stem + ".log");
  HD_CHECK(library_ != nullptr, "simulated kernel ", stem, ".cpp does not compile: ", text);
  *static_cast<const Api**>(dlsym(library_, "hd_api")) = &kApi;
}

SimulatedCode::~SimulatedCode() {
  if (library_ != nullptr) dlclose(library_);
}

void SimulatedCode::run(const std::string& entry, unsigned grid, unsigned threads,
                        const std::vector<uintptr_t>& words, int64_t shared_bytes,
                        bool together) const {
  HD_CHECK(words.size() <= 24, "too many arguments for the simulator");
  void* f = dlsym(library_, entry.c_str());
  HD_CHECK(f != nullptr, "no simulated kernel '", entry, "'");
  std::function<void()> body = [&] { call_padded<24>(f, words); };
  if (!together) {
    Block block(grid, 0, threads, shared_bytes, nullptr);
    for (unsigned k = 0; k < grid; ++k) {
      block.set_index(k);
      block.run(body);
    }
    return;
  }
  std::barrier<> barrier(static_cast<std::ptrdiff_t>(grid));
  std::vector<std::jthread> all;
  for (unsigned k = 0; k < grid; ++k) {
    all.emplace_back([&, k] { Block(grid, k, threads, shared_bytes, &barrier).run(body); });
  }
}

}  // namespace heddle::test
