// Tensors of more than 2^31 elements and of more than 4 GiB, checked at their ends: on the CPU, or
// on the GPU where HEDDLE_TEST_DEVICE names it. (The interpreter is too slow for them.)
#include "helpers.h"

#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <fstream>

namespace hd = heddle;

namespace {

using hd::test::runtime_device;
using Bytes = std::vector<int8_t>;

constexpr int64_t kGi = int64_t{1} << 30;
constexpr int64_t kMany = 2 * kGi + 9;  // elements whose numbers do not fit 32 bits with a sign

hd::Device large_device() {
  hd::Device device = runtime_device();
  return device.name().rfind("cuda", 0) == 0 ? device : hd::Device();
}

int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

// Zero bytes that take no memory until they are written.
class Zeros {
 public:
  explicit Zeros(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ != MAP_FAILED) madvise(data_, bytes_, MADV_HUGEPAGE);  // few page faults
  }
  ~Zeros() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  template <class T>
  T* data() const {
    return data_ == MAP_FAILED ? nullptr : static_cast<T*>(data_);
  }

 private:
  size_t bytes_;
  void* data_;
};

// Bytes 0 but for 3 at the start, 11 at `middle` and 7 at the end.
class Large : public testing::Test {
 protected:
  void SetUp() override {
    if (device_.name() != "cpu" && device_.name().rfind("cuda", 0) != 0)
      GTEST_SKIP() << "the CPU backend is not built, and the interpreter is too slow";
  }
  // False where this machine has too little memory: what a run touches, in bytes.
  bool enough(int64_t bytes) const {
    if (device_.name() != "cpu") bytes *= 2;  // a copy on the host as well
    return available_bytes() > bytes + kGi;
  }
  hd::Array marked(std::vector<int64_t> shape, int64_t middle) {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    zeros_ = std::make_unique<Zeros>(n);
    auto* data = zeros_->data<int8_t>();
    if (data == nullptr) throw std::runtime_error("the system maps no 4 GiB");
    data[0] = 3, data[n - 1] = 7, data[middle] = 11;
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t k = shape.size() - 1; k-- > 0;) strides[k] = strides[k + 1] * shape[k + 1];
    return hd::Array::wrap(hd::i8, std::move(shape), std::move(strides), data, hd::Device())
        .to(device_);
  }
  hd::Executable compile(hd::Graph& graph, const hd::Tensor& x, const hd::Tensor& y) const {
    return graph.compile({.feeds = {x}, .targets = {y}}, device_);
  }
  static Bytes part(const hd::Array& x, int64_t start, int64_t stop) {
    return x.slice(0, start, stop).to_vector<int8_t>();
  }

  hd::Device device_ = large_device();
  std::unique_ptr<Zeros> zeros_;
};

#define NEEDS(bytes) \
  if (!enough(bytes)) GTEST_SKIP() << "too little memory is free"

TEST_F(Large, AboveFourGiBAreReadAtTheirEnds) {
  NEEDS(device_.name() == "cpu" ? kGi : 4 * kGi);
  const int64_t n = 4 * kGi + 5;
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::i8, {n}, "x");
  hd::Tensor ends = hd::concat({hd::slice(x, {.starts = {0}, .stops = {2}}),
                                hd::slice(x, {.starts = {n - 7}, .stops = {n}})},
                               0);
  hd::Executable e = compile(graph, x, ends + 1.0);
  EXPECT_EQ(e.run({marked({n}, 4 * kGi - 1)})[0].to_vector<int8_t>(),
            (Bytes{4, 1, 1, 12, 1, 1, 1, 1, 8}));
}

TEST_F(Large, Above2To31ElementsAreWrittenAtTheirEnds) {
  NEEDS(2 * kMany);
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::i8, {kMany}, "x");
  hd::Array y = compile(graph, x, x + 1.0).run({marked({kMany}, 2 * kGi - 1)})[0];
  EXPECT_EQ(part(y, 0, 2), (Bytes{4, 1}));
  EXPECT_EQ(part(y, 2 * kGi - 2, 2 * kGi + 2), (Bytes{1, 12, 1, 1}));
  EXPECT_EQ(part(y, kMany - 2, kMany), (Bytes{1, 8}));
  for (int64_t k = 4097; k < kMany - 1; k += 100000003) ASSERT_EQ(part(y, k, k + 1), Bytes{1}) << k;
}

TEST_F(Large, SizesOpenUntilTheRun) {
  NEEDS(2 * kMany);
  hd::Graph graph;
  hd::Dim n("n");
  hd::Tensor x = graph.placeholder(hd::i8, {n}, "x");
  hd::Executable e = compile(graph, x, x + 1.0);
  EXPECT_EQ(part(e.run({marked({5}, 2)})[0], 0, 5), (Bytes{4, 1, 12, 1, 8}));
  hd::Array y = e.run({marked({kMany}, 2 * kGi)})[0];
  EXPECT_EQ(part(y, 2 * kGi - 1, 2 * kGi + 2), (Bytes{1, 12, 1}));
  EXPECT_EQ(part(y, kMany - 2, kMany), (Bytes{1, 8}));
}

TEST_F(Large, RowsAndColumnsAreFolded) {
  NEEDS(kMany);
  const int64_t rows = 65537, columns = 32771;  // 2^31 + 229,379 elements
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::i8, {rows, columns}, "x");
  hd::Tensor by_row = hd::reduce_max(x, {.axes = {1}}),
             by_column = hd::reduce_max(x, {.axes = {0}});
  hd::Executable e =
      graph.compile({.feeds = {x}, .targets = {by_row, by_column, hd::reduce_max(x)}}, device_);
  std::vector<hd::Array> out = e.run({marked({rows, columns}, rows * columns - 2)});
  EXPECT_EQ(part(out[0], 0, 2), (Bytes{3, 0}));
  EXPECT_EQ(part(out[0], rows - 2, rows), (Bytes{0, 11}));
  EXPECT_EQ(part(out[1], 0, 2), (Bytes{3, 0}));
  EXPECT_EQ(part(out[1], columns - 3, columns), (Bytes{0, 11, 7}));
  EXPECT_EQ(out[2].to_vector<int8_t>(), Bytes{11});
}

TEST_F(Large, OneRowOfMoreThan2To31ElementsIsSummed) {
  NEEDS(device_.name() == "cpu" ? kGi : 4 * kMany);
  Zeros zeros(4 * kMany);
  auto* data = zeros.data<float>();
  ASSERT_NE(data, nullptr);
  data[0] = 0.5F, data[2 * kGi - 1] = 2, data[kMany - 1] = 4;
  hd::Array host = hd::Array::wrap(hd::f32, {kMany}, {1}, data, hd::Device());
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::f32, {kMany}, "x");
  EXPECT_EQ(compile(graph, x, hd::sum(x)).run({host.to(device_)})[0].to_vector<float>(),
            std::vector<float>{6.5F});
}

TEST_F(Large, TransposedAndScanned) {
  NEEDS(2 * kMany + 9);
  const int64_t half = kGi + 5;
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::i8, {2, half}, "x");
  hd::Array feed = marked({2, half}, half);  // the second row's first element
  {
    hd::Array y = compile(graph, x, hd::transpose(x, {1, 0})).run({feed})[0];
    EXPECT_EQ(part(y, 0, 2), (Bytes{3, 11, 0, 0}));
    EXPECT_EQ(part(y, half - 2, half), (Bytes{0, 0, 0, 7}));
  }
  hd::Tensor line = hd::reshape(x, {2 * half});
  hd::Array y = compile(graph, x, hd::cumulative_sum(line, {.axis = 0})).run({feed})[0];
  EXPECT_EQ(part(y, 0, 2), (Bytes{3, 3}));
  EXPECT_EQ(part(y, half - 1, half + 1), (Bytes{3, 14}));
  EXPECT_EQ(part(y, 2 * half - 2, 2 * half), (Bytes{14, 21}));
}

TEST_F(Large, RowsAreGatheredFromFarAway) {
  NEEDS(device_.name() == "cpu" ? kGi : kMany);
  const int64_t rows = 3 * (kGi / 4) + 1, columns = 3;  // 2.25 Gi elements
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::i8, {rows, columns}, "x");
  hd::Tensor at = graph.placeholder(hd::i64, {3}, "at");
  hd::Executable e =
      graph.compile({.feeds = {x, at}, .targets = {hd::gather(x, at, {.axis = 0})}}, device_);
  hd::Array indices = hd::Array::from<int64_t>({3}, {rows - 1, 0, rows - 2}).to(device_);
  EXPECT_EQ(e.run({marked({rows, columns}, columns * rows - 4), indices})[0].to_vector<int8_t>(),
            (Bytes{0, 0, 7, 3, 0, 0, 0, 0, 11}));
}

TEST_F(Large, CoordinatesAbove2To31) {
  const int64_t n = 4 * kGi + 5;
  hd::Graph graph;
  hd::Tensor x = graph.placeholder(hd::i64, {}, "x");
  hd::Tensor all = hd::broadcast_to(x, {n});
  hd::Tensor y =
      hd::slice(hd::coordinate_like(all, 0, hd::i64) + all, {.starts = {n - 2}, .stops = {n}});
  hd::Array one = hd::Array::from<int64_t>({}, {1}).to(device_);
  EXPECT_EQ(compile(graph, x, y).run({one})[0].to_vector<int64_t>(),
            (std::vector<int64_t>{n - 1, n}));
}

// Sizes from which a GPU's threads make several vectors each, whole and with a rest.
TEST_F(Large, LongBodiesHaveTheBitsOfTheCpu) {
  if (device_.name() == "cpu") GTEST_SKIP() << "needs a second device";
  for (int64_t n : {int64_t{48} << 20, (int64_t{48} << 20) - 4, (int64_t{48} << 20) + 1003}) {
    hd::Graph graph;
    hd::Tensor x = graph.placeholder(hd::f32, {n}, "x");
    hd::Tensor y = hd::tanh(x * 0.5 + 1.0) * hd::exp(hd::tanh(x) - 0.25);
    for (int k = 0; k < 3; ++k) y = hd::sqrt(y * y + 1.0) / (hd::exp(y * -0.5) + 1.0);
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(static_cast<int64_t>(k % 200003) - 100000) * 1e-4F;
    hd::Array feed = hd::Array::from<float>({n}, values);
    auto run = [&](const hd::Device& device) {
      return graph.compile({.feeds = {x}, .targets = {y}}, device)
          .run({feed.to(device)})[0]
          .to_bytes();
    };
    EXPECT_TRUE(run(device_) == run(hd::Device())) << n;
  }
}

}  // namespace
