// The command-line tool as its users call it: exit codes, sentences, and pictures.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

// ---- pictures

void append32(Bytes& out, uint32_t v) {
  for (int shift : {24, 16, 8, 0}) out.push_back(static_cast<uint8_t>(v >> shift));
}

uint32_t crc32(const Bytes& bytes, size_t from) {
  uint32_t crc = ~0U;
  for (size_t k = from; k < bytes.size(); ++k) {
    crc ^= bytes[k];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

void append_chunk(Bytes& out, const char* name, const Bytes& data) {
  append32(out, static_cast<uint32_t>(data.size()));
  size_t from = out.size();
  out.insert(out.end(), name, name + 4);
  out.insert(out.end(), data.begin(), data.end());
  append32(out, crc32(out, from));
}

struct Kind {
  int depth = 8, colour_type = 2, channels = 3;  // of the PNG
};

// A PNG without compression; sample(x, y, channel) in the kind's depth.
Bytes png(uint32_t width, uint32_t height, const std::function<int(int, int, int)>& sample,
          Kind kind = {}) {
  Bytes raw;
  for (uint32_t y = 0; y < height; ++y) {
    raw.push_back(0);
    for (uint32_t x = 0; x < width; ++x)
      for (int c = 0; c < kind.channels; ++c) {
        int v = sample(static_cast<int>(x), static_cast<int>(y), c);
        if (kind.depth == 16) raw.push_back(static_cast<uint8_t>(v >> 8));
        raw.push_back(static_cast<uint8_t>(v));
      }
  }
  Bytes packed{0x78, 0x01, 0x01};  // one stored block
  for (size_t n : {raw.size(), ~raw.size()})
    for (int shift : {0, 8}) packed.push_back(static_cast<uint8_t>(n >> shift));
  packed.insert(packed.end(), raw.begin(), raw.end());
  uint32_t a = 1, b = 0;
  for (uint8_t v : raw) a = (a + v) % 65521, b = (b + a) % 65521;
  append32(packed, b << 16 | a);
  Bytes out{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, header;
  append32(header, width);
  append32(header, height);
  for (int v : {kind.depth, kind.colour_type, 0, 0, 0}) header.push_back(static_cast<uint8_t>(v));
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", packed);
  append_chunk(out, "IEND", {});
  return out;
}

Bytes plain(uint32_t width, uint32_t height, int value) {
  return png(width, height, [=](int, int, int) { return value; });
}

// 8 x 8 pixels without cyan, with half magenta and full yellow, as Adobe's programs write them.
Bytes cmyk_jpeg() {
  const std::string hex =
      "ffd8ffee000e41646f626500640000000000ffdb004300030202030202030303030403030405080505040405"
      "0a070706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ff"
      "c000140800080008044311004d11005911004b1100ffc4001f00000105010101010101000000000000000001"
      "02030405060708090a0bffc400b5100002010303020403050504040000017d01020300041105122131410613"
      "516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a3435363738393a"
      "434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92939495"
      "969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3"
      "e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda000e0443004d0059004b00003f00fd53a657e5557ea9d7ffd9";
  Bytes out;
  for (size_t k = 0; k < hex.size(); k += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(hex.substr(k, 2), nullptr, 16)));
  return out;
}

// ---- the tool

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr
};

class Compose : public testing::Test {
 protected:
  void SetUp() override {
    const char* tool = std::getenv("HEDDLE_CLI");
    if (tool == nullptr || !fs::exists(tool)) GTEST_SKIP() << "HEDDLE_CLI names no tool";
    tool_ = tool;
    folder_ = fs::temp_directory_path() / ("heddle-compose-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    save("source.png",
         png(20, 16, [](int x, int y, int c) { return (x * 7 + y * 3 + 37 * c) % 256; }));
    save("background.png",
         png(40, 30, [](int x, int y, int c) { return (x + 2 * y + 50 * c) % 256; }));
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  void save(const std::string& name, const Bytes& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  Outcome heddle(const std::string& arguments, const std::string& output = "2>&1") const {
    std::string command = "cd '" + folder_.string() + "' && timeout 120 '" + tool_ + "' " +
                          arguments + " " + output + " < /dev/null";
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return outcome;
    std::array<char, 4096> buffer{};
    while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
      outcome.text.append(buffer.data(), n);
    int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
  }
  // On the interpreter: nothing here is about speed, and it has nothing to compile.
  Outcome compose(const std::string& source, const std::string& more,
                  const std::string& background = "background.png --at 5,5") const {
    fs::remove(folder_ / "out.png");
    std::string device = more.find("--device") == std::string::npos ? " --device interpreter" : "";
    return heddle("compose --source " + source + " --background " + background + " -o out.png " +
                  more + device);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool written() const { return fs::exists(folder_ / "out.png"); }
  void expect_refused(const Outcome& o, int code, const std::string& part) const {
    EXPECT_EQ(o.code, code) << o.text;
    EXPECT_NE(o.text.find(part), std::string::npos) << o.text;
    EXPECT_FALSE(written());
  }

  std::string tool_;
  fs::path folder_;
};

// D01: what has no gradients takes the background's colour, wherever the mask lies.
TEST_F(Compose, D01ConstantSourceOnAConstantBackground) {
  save("light.png", plain(5, 5, 200));
  save("dark.png", plain(5, 5, 10));
  ASSERT_EQ(heddle("compose --source dark.png --background dark.png --at 2,2 --mask rect:1,1,3,3 "
                   "--device interpreter -o dark.out.png")
                .code,
            0);
  for (const char* solver : {"jacobi", "cg", "multigrid"})
    for (const char* place : {"dark.png --at 2,2", "dark.png --at 1,1"}) {  // inside, at the border
      Outcome o =
          compose("light.png",
                  std::string("--mask rect:1,1,3,3 --tolerance 0.001 --solver ") + solver, place);
      ASSERT_EQ(o.code, 0) << o.text;
      EXPECT_EQ(read("out.png"), read("dark.out.png")) << solver << " " << place;
    }
}

TEST_F(Compose, ReadsEveryKindOfPicture) {
  auto ramp = [](int x, int y, int c) { return (x * 7 + y * 3 + 37 * c) % 256; };
  save("gray.png", png(20, 16, ramp, {.depth = 8, .colour_type = 0, .channels = 1}));
  save("gray_alpha.png", png(20, 16, ramp, {.depth = 8, .colour_type = 4, .channels = 2}));
  save("alpha.png", png(20, 16, ramp, {.depth = 8, .colour_type = 6, .channels = 4}));
  save("deep.png", png(20, 16, [&](int x, int y, int c) { return 257 * ramp(x, y, c); },
                       {.depth = 16, .colour_type = 2, .channels = 3}));
  for (const char* name : {"source", "gray", "gray_alpha", "alpha", "deep"}) {
    Outcome o = compose(std::string(name) + ".png", "--mask rect:0,0,20,16 --max-iterations 2");
    EXPECT_EQ(o.code, 0) << name << ": " << o.text;
    EXPECT_TRUE(written()) << name;
  }
  save("dot.png", plain(1, 1, 90));
  EXPECT_EQ(compose("dot.png", "--mask rect:0,0,1,1").code, 0);
}

TEST_F(Compose, ReadsInksAsColours) {
  save("inks.jpg", cmyk_jpeg());
  save("same.png", png(8, 8, [](int, int, int c) { return c == 0 ? 255 : c == 1 ? 127 : 0; }));
  // A picture composed into itself stays as it is.
  for (const char* name : {"inks.jpg", "same.png"}) {
    Outcome o = compose(name, "--mask rect:2,2,4,4", std::string(name) + " --at 4,4");
    ASSERT_EQ(o.code, 0) << o.text;
    fs::rename(folder_ / "out.png", folder_ / (std::string(name) + ".out.png"));
  }
  EXPECT_EQ(read("inks.jpg.out.png"), read("same.png.out.png"));
}

TEST_F(Compose, DamagedFilesAreNamed) {
  Bytes whole = png(20, 16, [](int x, int, int) { return x; });
  Bytes half(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2));
  save("half.png", half);
  save("nothing.png", {});
  save("words.png", {'w', 'o', 'r', 'd', 's'});
  fs::create_directory(folder_ / "folder.png");
  ASSERT_EQ(heddle("compose --source source.png --background background.png --at 20,15 --mask "
                   "rect:0,0,20,16 --device interpreter -o whole.jpg")
                .code,
            0);
  fs::copy_file(folder_ / "whole.jpg", folder_ / "half.jpg");
  fs::resize_file(folder_ / "half.jpg", fs::file_size(folder_ / "whole.jpg") * 8 / 10);
  std::string mask = "--mask rect:0,0,5,5";
  expect_refused(compose("half.png", mask), 2, "half.png: is not a readable PNG");
  expect_refused(compose("half.jpg", mask), 2,
                 "half.jpg: is not a readable JPEG: its data is damaged or ends early");
  expect_refused(compose("nothing.png", mask), 2, "nothing.png: is neither a PNG nor a JPEG");
  expect_refused(compose("words.png", mask), 2, "words.png: is neither a PNG nor a JPEG");
  expect_refused(compose("folder.png", mask), 2, "folder.png: is a folder, not a picture");
  expect_refused(compose("none.png", mask), 2, "none.png: cannot be opened");
}

TEST_F(Compose, MasksAndPlacesThatDoNotFit) {
  save("small.png", plain(9, 9, 255));
  save("black.png", plain(20, 16, 0));
  auto refused = [&](const std::string& mask, const std::string& part) {
    expect_refused(compose("source.png", "--mask " + mask), 2, part);
  };
  refused("small.png", "small.png: the mask is 9x9, the source 20x16");
  refused("black.png", "no opaque pixel of the source (20x16) is inside");
  refused("rect:100,100,5,5", "no opaque pixel of the source (20x16) is inside");
  refused("rect:5,5,-3,-3", "with a positive size");
  refused("rect:nan,0,5,5", "'nan' is not a number");
  refused("polygon:1,1,5,5", "with at least three corners");
  std::string whole = "--mask rect:0,0,20,16";
  auto misplaced = [&](const std::string& at, const std::string& part) {
    expect_refused(compose("source.png", whole, "background.png --at=" + at), 2, part);
  };
  misplaced("100,100", "the mask lies outside the background (40x30)");
  misplaced("-9223372036854775808,0", "the mask lies outside the background");
  misplaced("9223372036854775807,0", "expected X,Y in pixels of the background");
  misplaced("3", "expected X,Y in pixels of the background");
  EXPECT_EQ(compose("source.png", whole, "background.png --at=-5,-5").code, 0);
}

TEST_F(Compose, LimitsOfTheSolver) {
  std::string whole = "--mask rect:0,0,20,16 ";
  for (const char* tolerance : {"0", "-1", "nan", "inf"})
    expect_refused(compose("source.png", whole + "--tolerance=" + tolerance), 2,
                   "--tolerance: expected a positive number");
  expect_refused(compose("source.png", whole + "--max-iterations=-1"), 2, "expected at least 0");
  for (const char* solver : {"jacobi", "cg", "multigrid"}) {
    std::string with = whole + "--solver " + solver;
    EXPECT_EQ(compose("source.png", with + " --max-iterations 0").code, 0) << solver;
    expect_refused(compose("source.png", with + " --max-iterations 3 --tolerance 1e-300"), 3,
                   "not converged");
  }
  expect_refused(compose("source.png", whole + "--device abacus"), 2,
                 "there is no device \"abacus\"");
}

TEST_F(Compose, OutputsAppearWholeOrNotAtAll) {
  std::string start =
      "compose --source source.png --mask rect:0,0,5,5 --background background.png --at 9,9 "
      "--device interpreter ";
  EXPECT_EQ(heddle(start + "-o none/out.png").code, 1);
  EXPECT_EQ(heddle(start + "-o out.bmp").code, 2);
  EXPECT_EQ(heddle(start + "-o out.png --plot none/plot.png").code, 1);
  EXPECT_FALSE(written());
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder_))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2U);  // the two inputs: no temporary file is left
}

TEST_F(Compose, UnknownCommandsAreNamed) {
  Outcome o = heddle("frobnicate");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.text.find("frobnicate"), std::string::npos) << o.text;
  EXPECT_EQ(heddle("version").code, 0);
  EXPECT_EQ(heddle("ops nothing").code, 2);
}

// A processor that cannot be used is an error, not a run on the interpreter.
TEST_F(Compose, SwitchesThatAreNotUnderstood) {
  for (const char* name : {"HEDDLE_THREADS", "HEDDLE_CACHE_LIMIT", "HEDDLE_CPU_ARCH"}) {
    setenv(name, "many", 1);
    Outcome o = compose("source.png", "--mask ellipse:5,5,3,3 --device cpu");
    expect_refused(o, 2, "many");
    EXPECT_NE(o.text.find(name), std::string::npos) << o.text;
    unsetenv(name);
  }
}

// Fuller than a disk can be: every write fails, at once or when the buffer is flushed.
TEST_F(Compose, OutputThatCannotBeWrittenIsAFailure) {
  for (const char* arguments : {"ops", "ops add", "devices", "version", "--help", "ops --help"}) {
    Outcome o = heddle(arguments, "2>&1 >/dev/full");
    EXPECT_EQ(o.code, 1) << arguments << ": " << o.text;
    EXPECT_NE(o.text.find("standard output cannot be written"), std::string::npos) << o.text;
    EXPECT_EQ(heddle(arguments).code, 0) << arguments;
  }
}

}  // namespace
