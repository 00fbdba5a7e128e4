// The cache of files under everything that goes wrong with disks and processes: always a miss,
// never a wrong answer.
#include "runtime/disk_cache.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace fs = std::filesystem;
using heddle::runtime::DiskCache;

namespace {

constexpr int64_t kLimit = int64_t{64} << 20;

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "heddle-cache-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) found.push_back(entry.path());
    }
    return found;
  }
  int64_t bytes() const {
    int64_t total = 0;
    for (const fs::path& file : files()) total += static_cast<int64_t>(fs::file_size(file));
    return total;
  }

  fs::path folder_;
};

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// What a key's content must be: long enough to need several writes now and then.
std::string content_of(int k) {
  return std::string(static_cast<size_t>(100 + k % 7 * 9000), static_cast<char>('a' + k % 26));
}

// f in a child process; its exit code, or minus the signal.
template <class F>
int in_child(F f) {
  pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(DiskCacheTest, KeepsContents) {
  DiskCache cache(folder_, kLimit);
  EXPECT_FALSE(cache.find("key"));
  cache.put("key", "content");
  cache.put("", "of the empty key");
  cache.put("empty", "");
  EXPECT_EQ(cache.find("key"), "content");
  EXPECT_EQ(cache.find(""), "of the empty key");
  EXPECT_EQ(cache.find("empty"), "");
  EXPECT_EQ(DiskCache(folder_, kLimit).find("key"), "content");
  cache.put("key", "newer");
  EXPECT_EQ(cache.find("key"), "newer");
}

// A folder below a file, and one where the kernel makes none: closed to root as well.
TEST_F(DiskCacheTest, AFolderThatCannotBeWrittenIsAMiss) {
  write(folder_ / "file", "text");
  for (const std::string& place :
       {(folder_ / "file" / "cache").string(), std::string("/proc/1/x")}) {
    DiskCache cache(place, kLimit);
    cache.put("key", "content");
    EXPECT_FALSE(cache.find("key"));
  }
  DiskCache none("", kLimit);
  EXPECT_FALSE(none.enabled());
  none.put("key", "content");
  EXPECT_FALSE(none.find("key"));
}

TEST_F(DiskCacheTest, AFullDiskIsAMiss) {
  int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit small{2000, 2000};  // bytes a file
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 2;
    DiskCache cache(folder_, kLimit);
    cache.put("large", std::string(100000, 'x'));
    if (cache.find("large")) return 3;
    cache.put("small", "fits");
    return cache.find("small") == "fits" ? 0 : 4;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(files().size(), 1U) << "a file that was not finished is left";
}

TEST_F(DiskCacheTest, EveryDamagedByteAndEveryCutIsAMiss) {
  DiskCache cache(folder_, kLimit);
  cache.put("key", "some content");
  ASSERT_EQ(files().size(), 1U);
  fs::path file = files()[0];
  const std::string good = read(file);
  for (size_t k = 0; k < good.size(); ++k) {
    std::string bad = good;
    bad[k] = static_cast<char>(bad[k] ^ 0x10);
    write(file, bad);
    EXPECT_FALSE(cache.find("key")) << "byte " << k;
    write(file, good.substr(0, k));
    EXPECT_FALSE(cache.find("key")) << "cut to " << k;
  }
  write(file, good + "x");
  EXPECT_FALSE(cache.find("key"));
  cache.put("key", "some content");  // is written anew
  EXPECT_EQ(cache.find("key"), "some content");
}

// The first bytes name the format and its version.
TEST_F(DiskCacheTest, AnotherVersionIsAMiss) {
  DiskCache cache(folder_, kLimit);
  cache.put("key", "content");
  std::string text = read(files()[0]);
  ASSERT_EQ(text.substr(0, 8), "heddle01");
  text[7] = '2';
  write(files()[0], text);
  EXPECT_FALSE(cache.find("key"));
}

// Two keys in one place: the whole key is compared.
TEST_F(DiskCacheTest, AFileOfAnotherKeyIsAMiss) {
  DiskCache cache(folder_, kLimit);
  cache.put("one", "content of one");
  fs::path one = files()[0];
  std::string text = read(one);
  cache.put("two", "content of two");
  for (const fs::path& file : files()) {
    if (file != one) write(file, text);
  }
  EXPECT_FALSE(cache.find("two"));
  EXPECT_EQ(cache.find("one"), "content of one");
}

TEST_F(DiskCacheTest, AKilledWriterLeavesNothingWrong) {
  for (int round = 0; round < 5; ++round) {
    pid_t writer = fork();
    if (writer == 0) {
      DiskCache cache(folder_, kLimit);
      for (int k = 0;; ++k) cache.put(std::to_string(k % 50), content_of(k % 50));
    }
    usleep(20000);
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    DiskCache cache(folder_, kLimit);
    for (int k = 0; k < 50; ++k) {
      if (auto found = cache.find(std::to_string(k))) EXPECT_EQ(*found, content_of(k));
    }
  }
  // What is left of a writer goes once it is an hour old.
  write(folder_ / "left.tmp", "half");
  fs::last_write_time(folder_ / "left.tmp",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  DiskCache(folder_, 1000).put("key", std::string(100, 'x'));  // large enough to measure the folder
  EXPECT_FALSE(fs::exists(folder_ / "left.tmp"));
}

TEST_F(DiskCacheTest, SeveralProcessesShareAFolder) {
  // The first is so small that each process also removes what the other reads; the second keeps
  // all.
  auto work = [&](int seed) {
    int hits = 0;
    for (int64_t limit : {int64_t{400000}, kLimit}) {
      DiskCache cache(folder_ / std::to_string(limit), limit);
      hits = 0;
      for (int i = 0; i < 200; ++i) {
        int k = (i * 7 + seed * 13) % 40;
        if (auto found = cache.find(std::to_string(k))) {
          if (*found != content_of(k)) return 3;
          ++hits;
        } else {
          cache.put(std::to_string(k), content_of(k));
        }
      }
    }
    return hits >= 100 ? 0 : 4;
  };
  pid_t other = fork();
  if (other == 0) _exit(work(1));
  EXPECT_EQ(work(2), 0);
  int status = 0;
  waitpid(other, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DiskCacheTest, StaysBelowItsLimit) {
  constexpr int64_t kSmall = 200000;
  DiskCache cache(folder_, kSmall);
  for (int k = 0; k < 100; ++k) cache.put(std::to_string(k), std::string(10000, 'x'));
  EXPECT_LE(bytes(), kSmall + kSmall / 16 + 11000);  // measured each sixteenth
  EXPECT_TRUE(cache.find("99"));
  EXPECT_FALSE(cache.find("0"));
  cache.put("too large", std::string(static_cast<size_t>(kSmall) + 1, 'x'));
  EXPECT_FALSE(cache.find("too large"));
}

// Writers that live for one file each, as short processes do: measured by chance, each sixteenth on
// average. That a whole limit is written in between has a probability of 3e-8.
TEST_F(DiskCacheTest, ShortWritersStayBelowTheLimit) {
  constexpr int64_t kSmall = 200000;
  for (int k = 0; k < 1000; ++k)
    DiskCache(folder_, kSmall).put(std::to_string(k), std::string(2000, 'x'));
  EXPECT_LE(bytes(), 2 * kSmall);
}

}  // namespace
