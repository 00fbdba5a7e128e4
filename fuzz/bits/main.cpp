// heddle-fuzz-bits [--count N] [--device NAME[/ARCH]]... [--golden FILE] [--write]: are the bits of
// f32 elementwise results the same everywhere? Each operation over N inputs (100,000 or ten or a
// hundred times as many), chains of them over N / 100, on the interpreter, the CPU with each
// instruction set and the first GPU: hashes compared with each other and with those of FILE, which
// other machines wrote.
//
// Each device runs in a process of its own, since a process has one instruction set.
#include "base/hash.h"
#include "programs.h"
#include "support/arguments.h"

#include <heddle/heddle.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace heddle::test {
namespace {

constexpr int kUnusable = 3;                  // exit code of a child
constexpr uint64_t kChunks[] = {1, 10, 100};  // after which a hash is taken

using Hashes = std::map<std::string, std::vector<std::string>>;  // one a length, by program

struct Options {
  uint64_t chunks = 1;
  std::vector<std::string> devices;
  std::string golden = "fuzz/bits/golden.txt", child;
  bool write = false;
};

// Signs and payloads of NaNs are not defined.
template <class T>
void unify_nans(std::vector<std::byte>& bytes, T exponent, T nan) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T v;
    std::memcpy(&v, bytes.data() + at, sizeof v);
    auto magnitude = static_cast<T>(v & static_cast<T>(~(T{1} << (8 * sizeof(T) - 1))));
    if (magnitude > exponent) std::memcpy(bytes.data() + at, &nan, sizeof v);
  }
}

void unify_nans(DType d, std::vector<std::byte>& bytes) {
  if (d == f64) unify_nans<uint64_t>(bytes, 0x7ff0000000000000U, 0x7ff8000000000000U);
  if (d == f32) unify_nans<uint32_t>(bytes, 0x7f800000U, 0x7fc00000U);
  if (d == f16) unify_nans<uint16_t>(bytes, 0x7c00, 0x7e00);
  if (d == bf16) unify_nans<uint16_t>(bytes, 0x7f80, 0x7fc0);
}

void run_program(const Program& program, const Device& device, uint64_t chunks) {
  Graph graph;
  CompileSpec spec;
  Tensors xs;
  for (int k = 0; k < program.inputs; ++k) {
    xs.push_back(graph.placeholder(f32, {program.chunk}, "x" + std::to_string(k)));
    spec.feeds.emplace_back(xs.back());
  }
  spec.targets = {program.build(xs)};
  Executable executable = graph.compile(spec, device);
  std::printf("%s", program.name.c_str());
  uint64_t hash = 0;
  std::vector<float> values(static_cast<size_t>(program.chunk));
  for (uint64_t c = 0; c < chunks; ++c) {
    std::vector<Array> inputs;
    for (int k = 0; k < program.inputs; ++k) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = bit_input(k, c * values.size() + i);
      inputs.push_back(Array::from<float>({program.chunk}, values));
    }
    Array result = executable.run(inputs)[0];
    std::vector<std::byte> bytes = result.to_bytes();
    unify_nans(result.dtype(), bytes);
    hash = base::hash_bytes(bytes.data(), bytes.size(), hash);
    if (std::find(std::begin(kChunks), std::end(kChunks), c + 1) != std::end(kChunks))
      std::printf(" %016llx", static_cast<unsigned long long>(hash));
  }
  std::printf("\n");
  std::fflush(stdout);
}

int run_child(const Options& o) {
  setenv("HEDDLE_CACHE_DIR", "", 1);
  Device device;
  try {
    device = heddle::device(o.child);
  } catch (const UnsupportedError& error) {
    std::printf("%s\n", error.what());
    return kUnusable;
  }
  for (const auto& list : {elementwise_programs(), chain_programs()}) {
    for (const Program& program : list) run_program(program, device, o.chunks);
  }
  return 0;
}

// ---- the comparison

Hashes parse(std::istream& in) {
  Hashes hashes;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name, hash;
    words >> name;
    while (words >> hash) hashes[name].push_back(hash);
  }
  return hashes;
}

struct Child {
  std::string label;
  std::FILE* pipe = nullptr;
};

// "cpu/x86-64-v3": the device, and its instruction set.
Child start(const std::string& label, const Options& o) {
  size_t slash = label.find('/');
  std::string command;
  if (slash != std::string::npos) command = "HEDDLE_CPU_ARCH=" + label.substr(slash + 1) + " ";
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return {label, nullptr};
  command += "'" + std::string(self) + "' --child " + label.substr(0, slash) + " --count " +
             std::to_string(o.chunks * 100'000) + " 2>&1";
  return {label, popen(command.c_str(), "r")};
}

// False where it failed; `hashes` stays empty where the device cannot be used here.
bool finish(const Child& child, Hashes& hashes) {
  if (child.pipe == nullptr) return false;
  std::string text;
  char block[4096];
  for (size_t n; (n = fread(block, 1, sizeof block, child.pipe)) > 0;) text.append(block, n);
  int status = pclose(child.pipe);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kUnusable) {
    std::printf("%s: not used: %s", child.label.c_str(), text.c_str());
    return true;
  }
  if (code != 0) {
    std::printf("%s: ended with %d: %s\n", child.label.c_str(), code,
                text.substr(text.size() - std::min<size_t>(text.size(), 2000)).c_str());
    return false;
  }
  std::istringstream in(text);
  hashes = parse(in);
  std::printf("%s: %zu programs\n", child.label.c_str(), hashes.size());
  return true;
}

// How many programs differ.
int compare(const std::string& label, const Hashes& hashes, const std::string& other,
            const Hashes& expected) {
  int wrong = 0, unknown = 0;
  for (const auto& [name, values] : hashes) {
    auto it = expected.find(name);
    if (it == expected.end()) {
      ++unknown;
      continue;
    }
    size_t n = std::min(values.size(), it->second.size());
    if (std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n),
                   it->second.begin()))
      continue;
    ++wrong;
    std::printf("%s: %s differs from %s\n", name.c_str(), label.c_str(), other.c_str());
  }
  if (unknown > 0)
    std::printf("%s: %d programs are not in %s\n", label.c_str(), unknown, other.c_str());
  return wrong;
}

void write(const std::string& path, const Hashes& hashes) {
  std::ofstream out(path);
  out << "# XXH3 of the results, NaNs alike, after 1, 10 and 100 chunks of inputs (100,000 an\n"
         "# operation, 1,000 a chain): see main.cpp. ./dev fuzz --name bits --count 10000000 "
         "--write\n";
  for (const auto& [name, values] : hashes) {
    out << name;
    for (const std::string& v : values) out << " " << v;
    out << "\n";
  }
}

int run_parent(const Options& o) {
  std::vector<std::string> labels = o.devices;
  if (labels.empty()) labels = {"interpreter", "cpu/x86-64-v3", "cpu/x86-64-v4", "cuda"};
  std::vector<Child> children;
  for (const std::string& label : labels) children.push_back(start(label, o));
  int wrong = 0, devices = 0;
  std::pair<std::string, Hashes> first;
  for (const Child& child : children) {
    Hashes hashes;
    if (!finish(child, hashes)) ++wrong;
    if (hashes.empty()) continue;
    ++devices;
    if (first.second.empty()) {
      first = {child.label, hashes};
    } else {
      wrong += compare(child.label, hashes, first.first, first.second);
    }
  }
  if (std::ifstream in(o.golden); in && !o.write) {
    wrong += compare(first.first, first.second, o.golden, parse(in));
  } else if (!o.write) {
    std::printf("%s is not there: nothing to compare with from other machines\n", o.golden.c_str());
  }
  if (o.write && wrong == 0) write(o.golden, first.second);
  std::printf("%llu inputs an operation, %d devices\n",
              static_cast<unsigned long long>(o.chunks * 100'000), devices);
  int programs = static_cast<int>(first.second.size());
  std::printf("%d passed, %d failed\n", std::max(programs - wrong, 0), wrong);
  return wrong == 0 && devices > 0 ? 0 : 1;
}

bool parse_arguments(int argc, char** argv, Options& o) {
  for (int k = 1; k < argc; ++k) {
    std::string arg = argv[k];
    if (arg == "--write") {
      o.write = true;
      continue;
    }
    if (++k >= argc) return false;
    std::string value = argv[k];
    if (arg == "--count") {
      uint64_t count = 0;
      if (!parse_number(value, count)) return false;
      o.chunks = std::max<uint64_t>(1, count / 100'000);
    } else if (arg == "--device") {
      o.devices.push_back(value);
    } else if (arg == "--golden") {
      o.golden = value;
    } else if (arg == "--child") {
      o.child = value;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  heddle::test::Options o;
  if (!heddle::test::parse_arguments(argc, argv, o)) {
    std::fprintf(stderr,
                 "usage: heddle-fuzz-bits [--count N] [--device NAME[/ARCH]]... [--golden FILE] "
                 "[--write]\n");
    return 2;
  }
  return o.child.empty() ? heddle::test::run_parent(o) : heddle::test::run_child(o);
}
