// heddle-fuzz-programs: random programs from the registry, on every reader, against the reference.
//   --count N --seed S --seconds S --jobs N --device NAME ... --readers N (drawn for each; 0: all)
//   --limit S (seconds for one program) --failures N (the campaign ends after so many)
//   --coverage (list what was made) --print SEED --shrink SEED --no-shrink
//   --corpus FOLDER (saved programs in place of random ones) --save FOLDER (gets cut programs)
// Each job is a process of its own: a crash or a program that takes longer than 10 s is a failure
// of its seed, and the job goes on with the next. Failing seeds are printed, the first few are cut
// to the smallest program that fails alike. Exit code 1 if one failed.
#include "campaign.h"
#include "shrink.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using heddle::test::CampaignOptions;

bool parse(int argc, char** argv, CampaignOptions& o) {
  for (int k = 1; k < argc; ++k) {
    std::string arg = argv[k];
    if (arg == "--coverage") {
      o.print_coverage = true;
      continue;
    }
    if (arg == "--no-shrink") {
      o.shrink = 0;
      continue;
    }
    if (k + 1 >= argc) return false;
    const char* value = argv[++k];
    char* end = nullptr;
    uint64_t number = std::strtoull(value, &end, 0);
    bool is_number = end != value && *end == '\0';
    if (arg == "--device") {
      o.devices.emplace_back(value);
      continue;
    }
    if (arg == "--corpus" || arg == "--save") {
      (arg == "--corpus" ? o.corpus : o.save) = value;
      continue;
    }
    if (!is_number) return false;
    if (arg == "--count") {
      o.count = number;
    } else if (arg == "--seed") {
      o.seed = number;
    } else if (arg == "--seconds") {
      o.seconds = static_cast<double>(number);
    } else if (arg == "--jobs" && number > 0) {
      o.jobs = number;
    } else if (arg == "--readers") {
      o.readers = number;
    } else if (arg == "--limit" && number > 0) {
      o.limit = static_cast<unsigned>(number);
    } else if (arg == "--failures") {
      o.failures = number;
    } else if (arg == "--print") {
      o.print = number;
    } else if (arg == "--shrink") {
      o.shrink_seed = number;
    } else {
      return false;
    }
  }
  if (o.devices.empty()) o.devices = {"interpreter", "cpu"};
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  CampaignOptions o;
  if (!parse(argc, argv, o)) {
    std::fprintf(
        stderr,
        "usage: heddle-fuzz-programs [--count N] [--seed S] [--seconds S] [--jobs N] "
        "[--device NAME]... [--readers N] [--limit S] [--failures N] [--coverage] [--no-shrink] "
        "[--print SEED] [--shrink SEED] [--corpus FOLDER] [--save FOLDER]\n");
    return 2;
  }
  // Kernels of random programs never come again.
  setenv("HEDDLE_CACHE_DIR", "", 1);
  try {
    if (o.print) return heddle::test::print_program(o);
    if (o.shrink_seed) return heddle::test::shrink_seed(o, *o.shrink_seed);
    return heddle::test::run_campaign(o);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle-fuzz-programs: %s\n", error.what());
    return 2;
  }
}
