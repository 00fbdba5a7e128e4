// heddle-fuzz-text [ITERATIONS [SEED]]: mutated graph texts. Prints the seed and text of the first
// failure.
#include "support/arguments.h"
#include "support/text_mutation.h"

#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace {

const char* volatile current_text = "";

// A hang is a failure too: the text is the finding.
extern "C" void on_alarm(int) {
  const char* text = current_text;
  size_t length = 0;
  while (text[length] != 0) ++length;
  static constexpr char kMessage[] = "a text took longer than 20 seconds:\n";
  if (write(2, kMessage, sizeof kMessage - 1) < 0 || write(2, text, length) < 0) _exit(3);
  _exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t iterations = 1'000'000;
  uint64_t seed =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  if (argc > 3 || (argc > 1 && !heddle::test::parse_number(argv[1], iterations)) ||
      (argc > 2 && !heddle::test::parse_number(argv[2], seed))) {
    std::fprintf(stderr, "usage: heddle-fuzz-text [ITERATIONS [SEED]]\n");
    return 2;
  }
  std::printf("%llu texts from seed %llu\n", static_cast<unsigned long long>(iterations),
              static_cast<unsigned long long>(seed));
  std::signal(SIGALRM, on_alarm);
  std::vector<std::string> texts = heddle::test::sample_texts();
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < iterations; ++i) {
    std::string text = heddle::test::mutate_text(texts, seed + i);
    current_text = text.c_str();
    alarm(20);
    heddle::test::ParseOutcome outcome = heddle::test::try_parse(text);
    current_text = "";
    accepted += outcome.accepted;
    if (!outcome.problem.empty()) {
      std::printf("seed %llu: %s\n%s\n", static_cast<unsigned long long>(seed + i),
                  outcome.problem.c_str(), text.c_str());
      return 1;
    }
  }
  std::printf("all fine; %llu accepted\n", static_cast<unsigned long long>(accepted));
  return 0;
}
