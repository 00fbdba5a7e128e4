// heddle-bench [--device NAME] [--json] [--seconds S] [--list] [ROW...]: medians and spreads of the
// rows. heddle-bench --serve: reads lines `prep ROW`, `time SECONDS`, `floor`, `drop`, answers a
// JSON line each, so that a driver can interleave it with other programs (bench/compare.py).
#include "floor.h"
#include "rows.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;

double us_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::micro>(b - a).count();
}

// Microseconds of one run (or iteration). On a GPU: a batch of runs queued back to back, waited for
// once.
double sample(Row& row, const Device& device) {
  if (row.once) return row.once();
  static size_t turn = 0;
  if (device.name().rfind("cuda", 0) != 0) {
    Row::Set& set = row.sets[turn++ % row.sets.size()];
    auto t = Clock::now();
    row.executable.run_into(set.inputs, set.outputs);
    return us_between(t, Clock::now()) / static_cast<double>(row.divisor);
  }
  int runs = row.divisor > 1 ? 1 : 20;
  Queue queue(device);
  CommandBuffer buffer(queue);
  for (int k = 0; k < runs; ++k) {
    Row::Set& set = row.sets[turn++ % row.sets.size()];
    row.executable.encode(buffer, set.inputs, set.outputs);
  }
  auto t = Clock::now();
  buffer.commit();
  buffer.wait();
  return us_between(t, Clock::now()) / static_cast<double>(runs * row.divisor);
}

std::vector<double> samples(Row& row, const Device& device, double seconds) {
  std::vector<double> us;
  auto end = Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (us.size() < 5 || (Clock::now() < end && us.size() < 2000))
    us.push_back(sample(row, device));
  return us;
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
}

const RowMaker* find(const std::string& name) {
  for (const RowMaker& r : rows()) {
    if (r.name == name) return &r;
  }
  return nullptr;
}

nlohmann::json measure(const RowMaker& maker, const Device& device, double seconds, Floor& floor) {
  nlohmann::json j = {{"row", maker.name}, {"device", device.name()}};
  try {
    Row row = maker.make(device);
    bool cold = maker.name.rfind("cold", 0) == 0;
    std::vector<double> us;
    if (cold) {
      us = {sample(row, device)};
    } else {
      for (int k = 0; k < 3; ++k) sample(row, device);
      us = samples(row, device, seconds);
    }
    j["us"] = quantile(us, 0.5);
    j["low"] = quantile(us, 0.1);
    j["high"] = quantile(us, 0.9);
    if (row.read + row.written > 0) {
      double median = quantile(us, 0.5);
      j["GB/s"] = static_cast<double>(row.read + row.written) / median / 1e3;
      j["share"] = floor_us(floor.measure(), row.read, row.written) / median;
    }
    if (row.executable.impl() != nullptr) j["kernels"] = row.executable.kernel_count();
  } catch (const std::exception& error) {
    j["error"] = error.what();
  }
  return j;
}

void print_row(const nlohmann::json& j) {
  if (j.contains("error")) {
    std::printf("%-16s %s\n", j["row"].get<std::string>().c_str(),
                j["error"].get<std::string>().c_str());
    return;
  }
  std::printf("%-16s %12.3f us  (%.3f .. %.3f)", j["row"].get<std::string>().c_str(),
              j["us"].get<double>(), j["low"].get<double>(), j["high"].get<double>());
  if (j.contains("GB/s"))
    std::printf("  %7.1f GB/s, %3.0f %% of the floor", j["GB/s"].get<double>(),
                100 * j["share"].get<double>());
  if (j.contains("kernels"))
    std::printf("  %d kernel%s", j["kernels"].get<int>(), j["kernels"].get<int>() == 1 ? "" : "s");
  std::printf("\n");
  std::fflush(stdout);
}

int serve(const Device& device) {
  Row row;
  Floor floor(device);
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json reply = nlohmann::json::object();
    try {
      if (line.rfind("prep ", 0) == 0) {
        const RowMaker* maker = find(line.substr(5));
        if (maker == nullptr) throw GraphError("no such row: " + line.substr(5));
        row = maker->make(device);
        for (int k = 0; k < 3; ++k) sample(row, device);
        reply["read"] = row.read;
        reply["written"] = row.written;
        if (row.executable.impl() != nullptr) reply["kernels"] = row.executable.kernel_count();
      } else if (line.rfind("time ", 0) == 0) {
        reply["us"] = samples(row, device, std::stod(line.substr(5)));
      } else if (line == "floor") {
        Bandwidth b = floor.measure();
        reply["copy"] = b.copy;
        reply["read"] = b.read;
      } else if (line == "drop") {
        row = {};
      } else {
        break;
      }
    } catch (const std::exception& error) {
      reply["error"] = error.what();
    }
    std::cout << reply.dump() << std::endl;
  }
  return 0;
}

int run(int argc, char** argv) {
  std::string name;
  std::vector<std::string> wanted;
  double seconds = 1;
  bool json = false, serving = false;
  for (int k = 1; k < argc; ++k) {
    std::string arg = argv[k];
    if (arg == "--json") {
      json = true;
    } else if (arg == "--serve") {
      serving = true;
    } else if (arg == "--list") {
      for (const RowMaker& r : rows()) std::printf("%-16s %s\n", r.name.c_str(), r.what.c_str());
      return 0;
    } else if (arg == "--device" && k + 1 < argc) {
      name = argv[++k];
    } else if (arg == "--seconds" && k + 1 < argc) {
      seconds = std::stod(argv[++k]);
    } else if (arg.rfind("--", 0) == 0 || find(arg) == nullptr) {
      std::fprintf(stderr, "heddle-bench: no such option or row: %s (--list shows the rows)\n",
                   arg.c_str());
      return 2;
    } else {
      wanted.push_back(arg);
    }
  }
  Device device = name.empty() ? default_device() : heddle::device(name);
  if (serving) return serve(device);
  nlohmann::json all = nlohmann::json::array();
  Floor floor(device);
  for (const RowMaker& maker : rows()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), maker.name) == wanted.end())
      continue;
    nlohmann::json j = measure(maker, device, seconds, floor);
    if (!json) print_row(j);
    all.push_back(j);
  }
  if (json) std::printf("%s\n", all.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  try {
    return heddle::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle-bench: %s\n", error.what());
    return 1;
  }
}
