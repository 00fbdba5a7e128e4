// Cuts the program of a failing seed to a small one that fails alike.
#pragma once

#include "campaign.h"

namespace heddle::test {

// Prints the program as graph text and as C++; exit code 0 where the seed fails at all.
int shrink_seed(const CampaignOptions& options, uint64_t seed);

}  // namespace heddle::test
