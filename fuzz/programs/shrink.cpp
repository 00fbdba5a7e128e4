#include "shrink.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

namespace heddle::test {

namespace {

constexpr double kBudget = 90;  // seconds for one program

// What a child process says of a list of choices: the failure, and how many it used of them.
struct Said {
  std::string reader, kind, text;
  bool fails() const { return !kind.empty(); }
};

// The part of a message that stays when the program gets smaller.
std::string kind_of(const std::string& failure) {
  if (failure.starts_with("exception: ")) return failure.substr(0, 40);
  return "difference";
}

class Shrinker {
 public:
  Shrinker(const CampaignOptions& o, uint64_t seed)
      : readers_(chosen_readers(o, seed)), seed_(seed), limit_(o.limit), save_(o.save) {
    Tape tape(seed);
    random_program(tape);
    best_ = tape.choices();
  }

  int run() {
    Said first = attempt(best_);
    if (!first.fails()) {
      std::printf("seed %llu does not fail\n", static_cast<unsigned long long>(seed_));
      return 1;
    }
    kind_ = first.kind;
    std::erase_if(readers_, [&](const Reader& r) { return r.name != first.reader; });
    last_ = attempt(best_);
    if (!last_.fails()) last_ = first;  // another reader is needed: nothing is cut
    bool smaller = last_.fails();
    while (smaller && !late()) {
      smaller = false;
      for (size_t block = std::max<size_t>(best_.size() / 2, 1); block > 0; block /= 2)
        smaller |= remove_blocks(block);
      smaller |= lower_choices();
    }
    print();
    return 0;
  }

 private:
  bool late() const {
    std::chrono::duration<double> past = std::chrono::steady_clock::now() - start_;
    return past.count() > kBudget;
  }

  bool keep(std::vector<uint32_t> choices) {
    if (late()) return false;
    Said s = attempt(choices);
    if (!s.fails() || s.kind != kind_) return false;
    best_ = std::move(choices);
    last_ = s;
    return true;
  }

  bool remove_blocks(size_t block) {
    bool any = false;
    for (size_t at = 0; at < best_.size() && !late();) {
      std::vector<uint32_t> shorter = best_;
      auto from = shorter.begin() + static_cast<std::ptrdiff_t>(at);
      shorter.erase(from, from + static_cast<std::ptrdiff_t>(std::min(block, best_.size() - at)));
      if (keep(std::move(shorter))) {
        any = true;
      } else {
        at += block;
      }
    }
    return any;
  }

  bool lower_choices() {
    bool any = false;
    for (size_t k = 0; k < best_.size() && !late(); ++k) {
      if (best_[k] == 0) continue;
      for (uint32_t lower : {uint32_t{0}, best_[k] / 2, best_[k] - 1}) {
        std::vector<uint32_t> changed = best_;
        if (lower >= changed[k]) continue;
        changed[k] = lower;
        if (keep(std::move(changed))) {
          any = true;
          break;
        }
      }
    }
    return any;
  }

  // In a process of its own: it may crash or hang.
  Said attempt(const std::vector<uint32_t>& choices) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    std::fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      // What a crash has to say was said once.
      if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
      child(choices, ends[1]);
    }
    close(ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    size_t last = text.rfind('\1');
    std::string reader = last == std::string::npos ? "" : text.substr(last + 1);
    if (WIFSIGNALED(status))
      return {reader, WTERMSIG(status) == SIGALRM ? "hangs" : "crashes", reader};
    size_t end = reader.find('\2');
    if (end == std::string::npos) return {};
    std::string failure = reader.substr(end + 1);
    return {reader.substr(0, end), kind_of(failure), failure};
  }

  // Writes "\1reader" before each reader, and "\2failure" at the end.
  [[noreturn]] void child(const std::vector<uint32_t>& choices, int out) {
    auto say = [&](const std::string& s) {
      [[maybe_unused]] ssize_t n = write(out, s.data(), s.size());
    };
    alarm(limit_);
    try {
      auto make = [&] {
        Tape tape(choices);
        return random_program(tape);
      };
      RandomProgram p = make();
      CheckResult r = check_program(p, make, readers_, seed_,
                                    [&](const std::string& name) { say("\1" + name); });
      if (!r.failure.empty()) say("\1" + r.reader + "\2" + r.failure);
    } catch (const std::exception& error) {
      say(std::string("\1generator\2exception: ") + error.what());
    }
    _exit(0);
  }

  void print() {
    Tape tape(best_);
    RandomProgram p = random_program(tape);
    std::printf("---- seed %llu, cut to %d operations; %s: %s\n%s-- as C++\n%s----\n",
                static_cast<unsigned long long>(seed_), p.operations, last_.reader.c_str(),
                last_.text.c_str(), program_text(p).c_str(), program_code(p).c_str());
    std::fflush(stdout);
    if (save_.empty()) return;
    std::string file = save_ + "/seed-" + std::to_string(seed_) + ".txt";
    std::ofstream out(file);
    out << "// " << last_.reader << ": " << last_.text << "\n" << program_text(p);
    if (!out.flush()) std::fprintf(stderr, "%s cannot be written\n", file.c_str());
  }

  std::vector<Reader> readers_;
  uint64_t seed_;
  unsigned limit_;
  std::string save_;
  std::vector<uint32_t> best_;
  std::string kind_;
  Said last_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

int shrink_seed(const CampaignOptions& options, uint64_t seed) {
  return Shrinker(options, seed).run();
}

}  // namespace heddle::test
