// Many random programs in several processes.
#pragma once

#include "support/program/readers.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace heddle::test {

struct CampaignOptions {
  uint64_t count = 200, seed = 1, jobs = 1;
  uint64_t readers = 4;  // drawn for each program; 0: all
  unsigned limit = 10;   // seconds for one program
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<std::string> devices;
  bool print_coverage = false;
  uint64_t failures = std::numeric_limits<uint64_t>::max();  // the campaign ends after so many
  int shrink = 3;  // failing seeds that are cut to small programs
  std::optional<uint64_t> print, shrink_seed;
  std::string corpus;  // folder of saved programs that run in place of random ones
  std::string save;    // folder that gets what failing seeds were cut to
};

int run_campaign(const CampaignOptions& options);
int print_program(const CampaignOptions& options);

// The readers that the program of a seed gets.
std::vector<Reader> chosen_readers(const CampaignOptions& options, uint64_t seed);

}  // namespace heddle::test
