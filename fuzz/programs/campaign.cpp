#include "campaign.h"

#include "base/hash.h"
#include "ops/opdef.h"
#include "shrink.h"
#include "support/program/corpus.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::test {

namespace {

constexpr size_t kMaxJobs = 256, kMaxReaders = 64;

// What a job shares with the process that watches it.
struct Shared {
  uint64_t seed = 0;     // that it is at
  char reader[64] = {};  // that it is at
  uint64_t graphs = 0, operations = 0, symbolic = 0, loops = 0, branches = 0, variables = 0,
           first = 0, second = 0, unstable = 0, failures = 0;
  uint64_t reader_runs[kMaxReaders] = {};
  uint64_t pairs[kMaxReaders][kMaxReaders] = {};  // programs that both readers got
};

struct Campaign {
  const CampaignOptions& o;
  std::vector<Reader> readers;
  Shared* shared;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::filesystem::path folder;
  std::vector<std::filesystem::path> corpus;  // in place of seeds, where not empty

  uint64_t count() const { return corpus.empty() ? o.count : corpus.size(); }
  std::string name(uint64_t seed) const {
    return corpus.empty() ? "seed " + std::to_string(seed) : corpus[seed - o.seed].string();
  }
  bool late() const {
    std::chrono::duration<double> past = std::chrono::steady_clock::now() - start;
    uint64_t failures = 0;
    for (uint64_t j = 0; j < o.jobs; ++j) failures += shared[j].failures;
    return past.count() > o.seconds || failures >= o.failures;
  }
};

void note_reader(Shared& s, const std::string& name) {
  std::strncpy(s.reader, name.c_str(), sizeof s.reader - 1);
}

// Makes the program of a seed, or of the corpus.
std::function<RandomProgram()> maker(const Campaign& c, uint64_t seed) {
  return [&c, seed] {
    if (!c.corpus.empty()) return read_program(c.corpus[seed - c.o.seed]);
    Tape tape(seed);
    return random_program(tape);
  };
}

void count_pairs(const Campaign& c, Shared& s, const std::vector<Reader>& chosen) {
  std::vector<size_t> at;
  for (size_t k = 0; k < std::min(c.readers.size(), kMaxReaders); ++k) {
    for (const Reader& r : chosen) {
      if (r.name == c.readers[k].name) at.push_back(k);
    }
  }
  for (size_t a = 0; a < at.size(); ++a) {
    for (size_t b = a + 1; b < at.size(); ++b) ++s.pairs[at[a]][at[b]];
  }
}

void run_seed(const Campaign& c, Shared& s, uint64_t seed,
              std::map<std::string, uint64_t>& coverage) {
  s.seed = seed;
  note_reader(s, "generator");
  alarm(c.o.limit);
  std::string failure, reader;
  try {
    std::function<RandomProgram()> make = maker(c, seed);
    RandomProgram p = make();
    ++s.graphs;
    s.operations += static_cast<uint64_t>(p.operations);
    s.symbolic += p.symbolic, s.loops += p.has_loops, s.branches += p.has_branches;
    s.variables += p.has_variables, s.first += p.gradients >= 1, s.second += p.gradients >= 2;
    for (const std::string& item : p.coverage) ++coverage[item];
    std::vector<Reader> chosen = chosen_readers(c.o, seed);
    count_pairs(c, s, chosen);
    CheckResult r = check_program(p, make, chosen, seed, [&](const std::string& name) {
      note_reader(s, name);
      for (size_t k = 0; k < c.readers.size() && k < kMaxReaders; ++k)
        s.reader_runs[k] += c.readers[k].name == name ? 1 : 0;
    });
    s.unstable += r.unstable ? 1 : 0;
    failure = r.failure;
    reader = r.reader;
  } catch (const std::exception& error) {
    failure = std::string("exception: ") + error.what();
    reader = s.reader;
  }
  alarm(0);
  if (failure.empty()) return;
  ++s.failures;
  std::printf("%s: %s: %s\n", c.name(seed).c_str(), reader.c_str(), failure.c_str());
  std::fflush(stdout);
  std::ofstream(c.folder / "failed", std::ios::app) << seed << "\n";
}

// One job: every o.jobs-th seed from `from` on.
[[noreturn]] void run_job(const Campaign& c, uint64_t job, uint64_t from) {
  std::map<std::string, uint64_t> coverage;
  auto save = [&] {
    std::ofstream out(c.folder / ("coverage-" + std::to_string(job) + "-" + std::to_string(from)));
    for (const auto& [item, count] : coverage) out << count << " " << item << "\n";
  };
  for (uint64_t k = from; k < c.count() && !c.late(); k += c.o.jobs) {
    run_seed(c, c.shared[job], c.o.seed + k, coverage);
    if (k % 512 < c.o.jobs) save();
  }
  save();
  _exit(0);
}

std::string death(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return "hangs";
  return std::string("crashes: ") + strsignal(WTERMSIG(status));
}

// Starts the jobs, and each again after a crash, behind the seed that did it.
void run_jobs(Campaign& c) {
  std::map<pid_t, std::pair<uint64_t, uint64_t>> jobs;  // job, where it began
  auto begin = [&](uint64_t job, uint64_t from) {
    std::fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) run_job(c, job, from);
    jobs[pid] = {job, from};
  };
  for (uint64_t j = 0; j < c.o.jobs; ++j) begin(j, j);
  while (!jobs.empty()) {
    int status = 0;
    pid_t pid = wait(&status);
    auto at = jobs.find(pid);
    if (at == jobs.end()) continue;
    uint64_t job = at->second.first;
    jobs.erase(at);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    Shared& s = c.shared[job];
    ++s.failures;
    std::printf("%s: %s: %s\n", c.name(s.seed).c_str(), s.reader, death(status).c_str());
    std::ofstream(c.folder / "failed", std::ios::app) << s.seed << "\n";
    if (!c.late()) begin(job, s.seed - c.o.seed + c.o.jobs);
  }
}

std::map<std::string, uint64_t> merged_coverage(const Campaign& c) {
  std::map<std::string, uint64_t> all;
  for (const auto& entry : std::filesystem::directory_iterator(c.folder)) {
    if (!entry.path().filename().string().starts_with("coverage-")) continue;
    std::ifstream in(entry.path());
    uint64_t count = 0;
    std::string item;
    while (in >> count && std::getline(in >> std::ws, item)) all[item] += count;
  }
  return all;
}

// How often the two readers met that met least.
void print_rarest_pair(const Campaign& c, const Shared& sum) {
  size_t count = std::min(c.readers.size(), kMaxReaders);
  uint64_t least = std::numeric_limits<uint64_t>::max();
  std::string names;
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      if (sum.pairs[a][b] >= least) continue;
      least = sum.pairs[a][b];
      names = c.readers[a].name + ", " + c.readers[b].name;
    }
  }
  if (names.empty()) return;
  std::printf("  each two readers had %llu programs in common or more (least: %s)\n",
              static_cast<unsigned long long>(least), names.c_str());
}

// Operations of the registry that no program had.
void print_absent(const std::map<std::string, uint64_t>& coverage) {
  std::set<std::string> present;
  for (const auto& [item, count] : coverage) {
    std::istringstream words(item);
    for (std::string word; words >> word;) present.insert(word);
  }
  ops::link_all_ops();
  std::string absent;
  for (const ops::OpDef* def : ops::all_ops()) {
    if (!present.contains(def->name)) absent += " " + def->name;
  }
  if (!absent.empty()) std::printf("operations that did not come:%s\n", absent.c_str());
}

int report(const Campaign& c) {
  Shared sum;
  for (uint64_t j = 0; j < c.o.jobs; ++j) {
    const Shared& s = c.shared[j];
    sum.graphs += s.graphs, sum.operations += s.operations, sum.symbolic += s.symbolic;
    sum.loops += s.loops, sum.branches += s.branches, sum.variables += s.variables;
    sum.first += s.first, sum.second += s.second, sum.unstable += s.unstable;
    sum.failures += s.failures;
    for (size_t k = 0; k < kMaxReaders; ++k) {
      sum.reader_runs[k] += s.reader_runs[k];
      for (size_t n = 0; n < kMaxReaders; ++n) sum.pairs[k][n] += s.pairs[k][n];
    }
  }
  auto share = [&](uint64_t n) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(std::max<uint64_t>(sum.graphs, 1));
  };
  std::map<std::string, uint64_t> coverage = merged_coverage(c);
  std::printf(
      "seeds from %llu: %llu programs, %.1f operations on average; %.0f%% symbolic, %.0f%% with "
      "loops, %.0f%% with branches, %.0f%% with variables, %.0f%% with gradients, %.0f%% with "
      "second gradients; %.1f%% told nothing; %zu kinds of neighbours, attributes and places\n",
      static_cast<unsigned long long>(c.o.seed), static_cast<unsigned long long>(sum.graphs),
      static_cast<double>(sum.operations) / static_cast<double>(std::max<uint64_t>(sum.graphs, 1)),
      share(sum.symbolic), share(sum.loops), share(sum.branches), share(sum.variables),
      share(sum.first), share(sum.second), share(sum.unstable), coverage.size());
  for (size_t k = 0; k < c.readers.size() && k < kMaxReaders; ++k)
    std::printf("  %-32s %llu\n", c.readers[k].name.c_str(),
                static_cast<unsigned long long>(sum.reader_runs[k]));
  print_rarest_pair(c, sum);
  if (c.o.print_coverage) {
    for (const auto& [item, count] : coverage)
      std::printf("%8llu %s\n", static_cast<unsigned long long>(count), item.c_str());
    if (c.corpus.empty()) print_absent(coverage);
  }
  std::set<uint64_t> failed;
  std::ifstream in(c.folder / "failed");
  for (uint64_t seed = 0; in >> seed;) failed.insert(seed);
  int shrunk = 0;
  for (uint64_t seed : failed) {
    if (!c.corpus.empty() || shrunk++ >= c.o.shrink) break;  // the corpus is small already
    shrink_seed(c.o, seed);
  }
  std::printf("%llu passed, %llu failed\n",
              static_cast<unsigned long long>(sum.graphs - std::min(sum.graphs, sum.failures)),
              static_cast<unsigned long long>(sum.failures));
  return sum.failures == 0 ? 0 : 1;
}

}  // namespace

std::vector<Reader> chosen_readers(const CampaignOptions& o, uint64_t seed) {
  std::vector<Reader> all = readers_of(o.devices);
  if (o.readers == 0 || o.readers >= all.size()) return all;
  uint64_t h = base::mix(0x6865646cU, seed);
  for (size_t k = 0; k < o.readers; ++k) {
    h = base::mix(h, k + 1);
    std::swap(all[k], all[k + h % (all.size() - k)]);
  }
  all.resize(o.readers);
  return all;
}

int run_campaign(const CampaignOptions& o) {
  if (o.jobs > kMaxJobs) {
    std::fprintf(stderr, "at most %zu jobs\n", kMaxJobs);
    return 2;
  }
  void* memory = mmap(nullptr, sizeof(Shared) * kMaxJobs, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("heddle-fuzz-programs");
    return 2;
  }
  Campaign c{o, readers_of(o.devices), static_cast<Shared*>(memory)};
  if (!o.corpus.empty()) c.corpus = corpus_files(o.corpus);
  c.folder =
      std::filesystem::temp_directory_path() / ("heddle-programs-" + std::to_string(getpid()));
  std::filesystem::create_directories(c.folder);
  run_jobs(c);
  int code = report(c);
  std::filesystem::remove_all(c.folder);
  return code;
}

int print_program(const CampaignOptions& o) {
  Tape tape(*o.print);
  RandomProgram p = random_program(tape);
  std::printf("%s", program_text(p).c_str());
  return 0;
}

}  // namespace heddle::test
