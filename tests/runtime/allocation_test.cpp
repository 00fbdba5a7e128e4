// A warm run allocates nothing. The whole test binary counts its calls of operator new for that.
#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

namespace hd = heddle;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
thread_local int64_t allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* p = alignment <= alignof(std::max_align_t)
                ? std::malloc(bytes > 0 ? bytes : 1)
                : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace {

// Calls of operator new on this thread during the third run.
int64_t count(const hd::Executable& e, const std::vector<hd::Array>& inputs,
              const std::vector<hd::Array>& outputs) {
  for (int i = 0; i < 2; ++i) e.run_into(inputs, outputs);
  int64_t before = allocations;
  e.run_into(inputs, outputs);
  return allocations - before;
}

hd::Array values(const std::vector<int64_t>& shape) {
  hd::Array a = hd::Array::zeros(hd::f32, shape);
  for (int64_t k = 0; k < a.size(); ++k)
    static_cast<float*>(a.data())[k] = 0.25F * static_cast<float>(k % 5);
  return a;
}

class WarmRun : public testing::Test {
 protected:
  void SetUp() override {
    if (hd::Device().name() != "cpu") GTEST_SKIP() << "there is no CPU backend";
    int64_t before = allocations;
    ::operator delete(::operator new(4));  // a new-expression may be left out by the compiler
    ASSERT_GT(allocations, before);
  }
  hd::Device device_;
};

TEST_F(WarmRun, OfAnElementwiseKernel) {
  hd::Graph g;
  hd::Tensor a = g.placeholder(hd::f32, {4}, "a"), b = g.placeholder(hd::f32, {4}, "b");
  hd::Executable e = g.compile({.feeds = {a, b}, .targets = {a + b}}, device_);
  EXPECT_EQ(count(e, {values({4}), values({4})}, {values({4})}), 0);
}

TEST_F(WarmRun, OfASymbolicNetOnSeveralThreads) {
  hd::Graph g;
  hd::Dim n("n");
  hd::Tensor x = g.placeholder(hd::f32, {n, 256}, "x"), w = g.placeholder(hd::f32, {256, 256}, "w");
  hd::Tensor y = hd::softmax(hd::matmul(hd::relu(hd::matmul(x, w)), w));
  hd::Executable e = g.compile({.feeds = {x, w}, .targets = {y}}, device_);
  for (int64_t rows : {3, 64})
    EXPECT_EQ(count(e, {values({rows, 256}), values({256, 256})}, {values({rows, 256})}), 0)
        << rows;
}

TEST_F(WarmRun, OfALoopAndAScan) {
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {1000}, "x");
  hd::Tensors r = hd::while_loop(
      {g.constant(int64_t{0}, hd::i32), x}, [](const hd::Tensors& v) { return v[0] < 5.0; },
      [](const hd::Tensors& v) { return hd::Tensors{v[0] + 1.0, hd::cumulative_sum(v[1]) * 0.5}; });
  hd::Executable e = g.compile({.feeds = {x}, .targets = {r[1]}}, device_);
  EXPECT_EQ(count(e, {values({1000})}, {values({1000})}), 0);
}

// Four a result: the list, its shape and strides, and what shares the memory.
TEST_F(WarmRun, WithAFreshResult) {
  hd::Graph g;
  hd::Tensor a = g.placeholder(hd::f32, {4}, "a");
  hd::Executable e = g.compile({.feeds = {a}, .targets = {a * 2.0}}, device_);
  std::vector<hd::Array> inputs{values({4})};
  for (int i = 0; i < 3; ++i) e.run(inputs);
  int64_t before = allocations;
  std::vector<hd::Array> out = e.run(inputs);
  EXPECT_LE(allocations - before, 4);
  EXPECT_EQ(out[0].to_vector<float>(), (std::vector<float>{0, 0.5F, 1, 1.5F}));
}

}  // namespace

#endif
