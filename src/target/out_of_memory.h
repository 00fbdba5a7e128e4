// The sentence of every allocator whose device has no memory left.
#pragma once

#include "base/check.h"

#include <heddle/device.h>
#include <heddle/error.h>

#include <string>

namespace heddle::target {

// `available`: bytes that the device could still give, or what else it says of them.
template <class T>
[[noreturn]] void fail_out_of_memory(const std::string& device, int64_t requested,
                                     const MemoryStats& stats, const T& available) {
  throw DeviceError(base::cat(device, ": out of memory: requested ", requested, " bytes, live ",
                              stats.live, ", reserved ", stats.reserved, ", limit ",
                              stats.limit > 0 ? std::to_string(stats.limit) : "none",
                              ", free on the device ", available));
}

}  // namespace heddle::target
