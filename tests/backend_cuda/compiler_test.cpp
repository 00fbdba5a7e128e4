// NVRTC as it is found: by the loader, or by path.
#include "backend/cuda/compiler.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include <sys/wait.h>

namespace heddle::test {
namespace {

// A machine whose loader knows of no CUDA toolkit (NVRTC from NVIDIA's wheel, say): the loader runs
// this binary without its cache, so that NVRTC and its builtins are to be had by path alone.
TEST(CudaCompiler, NvrtcFoundByPathFindsItsBuiltins) {
  const char* loader = "/lib64/ld-linux-x86-64.so.2";
  if (!std::filesystem::exists(loader)) GTEST_SKIP() << "another loader";
  if (!cuda::compiler().usable) GTEST_SKIP() << cuda::compiler().reason;
  std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string command = std::string("env -u LD_LIBRARY_PATH -u GTEST_TOTAL_SHARDS ") +
                        "-u GTEST_SHARD_INDEX -u GTEST_OUTPUT HEDDLE_CACHE_DIR= " + loader +
                        " --inhibit-cache '" + self +
                        "' --gtest_filter=CudaEmitter.CompilesWithoutGpu 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> part{};
  while (size_t n = fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), n);
  int status = pclose(pipe);
  if (output.find("[  SKIPPED ]") != std::string::npos) GTEST_SKIP() << output;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << output;
  EXPECT_NE(output.find("[  PASSED  ] 1 test."), std::string::npos) << output;
}

}  // namespace
}  // namespace heddle::test
