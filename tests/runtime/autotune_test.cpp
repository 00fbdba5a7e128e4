// CompileOptions::autotune: the fastest way is chosen, remembered, and gives the right results.
#include <heddle/heddle.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

namespace hd = heddle;

namespace {

// HEDDLE_CACHE_DIR is an empty folder while it lives.
class CacheFolder {
 public:
  CacheFolder() : name_((std::filesystem::temp_directory_path() / "heddle-tune-XXXXXX").string()) {
    if (mkdtemp(name_.data()) == nullptr) name_.clear();
    if (const char* before = std::getenv("HEDDLE_CACHE_DIR")) before_ = before, had_ = true;
    setenv("HEDDLE_CACHE_DIR", name_.c_str(), 1);
  }
  ~CacheFolder() {
    if (had_) {
      setenv("HEDDLE_CACHE_DIR", before_.c_str(), 1);
    } else {
      unsetenv("HEDDLE_CACHE_DIR");
    }
    if (!name_.empty()) std::filesystem::remove_all(name_);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

 private:
  std::string name_, before_;
  bool had_ = false;
};

hd::Executable product(const hd::Device& device, bool autotune) {
  hd::Graph g;
  hd::Tensor a = g.placeholder(hd::f32, {64, 64}, "a"), b = g.placeholder(hd::f32, {64, 64}, "b");
  hd::CompileOptions options;
  options.autotune = autotune;
  return g.compile({.feeds = {a, b}, .targets = {hd::matmul(a, b) * 2.0}}, device, options);
}

TEST(Autotune, TimesOnceAndRemembers) {
  CacheFolder folder;
  std::set<std::string> tried;  // without a CPU backend the default is the interpreter again
  for (const hd::Device& device : {hd::device("interpreter"), hd::Device()}) {
    if (!tried.insert(std::string(device.name())).second) continue;
    hd::Executable plain = product(device, false), tuned = product(device, true);
    EXPECT_EQ(plain.describe().find("tuned"), std::string::npos);
    EXPECT_NE(tuned.describe().find("(timed: "), std::string::npos) << tuned.describe();
    EXPECT_NE(product(device, true).describe().find("(remembered)"), std::string::npos);
    std::vector<float> eye(64 * 64), ones(64 * 64, 1);
    for (size_t k = 0; k < 64; ++k) eye[k * 65] = 3;
    std::vector<hd::Array> feeds{hd::Array::from<float>({64, 64}, eye).to(device),
                                 hd::Array::from<float>({64, 64}, ones).to(device)};
    EXPECT_EQ(tuned.run(feeds)[0].to_vector<float>(), std::vector<float>(64 * 64, 6));
  }
}

TEST(Autotune, SaysWhereNothingCanBeTimed) {
  CacheFolder folder;
  hd::Device device;
  hd::CompileOptions options;
  options.autotune = true;
  hd::Graph g;
  hd::Tensor x = g.placeholder(hd::f32, {hd::Dim("n")}, "x");
  EXPECT_NE(g.compile({.feeds = {x}, .targets = {x + 1.0}}, device, options)
                .describe()
                .find("not tuned: its sizes are open"),
            std::string::npos);
  hd::Tensor s = g.placeholder(hd::f32, {}, "s");
  hd::Tensor loop = hd::while_loop(
      {s}, [](const hd::Tensors& v) { return v[0] < 1.0; },
      [](const hd::Tensors& v) { return hd::Tensors{v[0] * 2.0}; })[0];
  EXPECT_NE(
      g.compile({.feeds = {s}, .targets = {loop}}, device, options).describe().find("control flow"),
      std::string::npos);
  hd::Tensor v = g.variable(hd::Array::zeros(hd::f32, {2}), "v");
  hd::Operation set = hd::assign(v, hd::read_variable(v) + 1.0);
  g.compile({.feeds = {}, .targets = {}, .operations = {set}}, device, options);
  EXPECT_EQ(g.run({}, {hd::read_variable(v)}, {}, device)[0].to_vector<float>(),
            (std::vector<float>{0, 0}))
      << "tuning must not run what changes state";
}

}  // namespace
