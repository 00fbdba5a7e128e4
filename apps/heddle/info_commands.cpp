// heddle devices, heddle ops [NAME], heddle version.
#include "commands.h"
#include "image.h"

#include <heddle/heddle.h>
#include <heddle/registry.h>
#include <heddle/version.h>

#include <cstdio>
#include <memory>
#include <string>

namespace app {

namespace {

int print_devices() {
  int usable = 0;
  for (const heddle::DeviceReport& r : heddle::devices()) {
    bool good = r.reason.empty();
    usable += good ? 1 : 0;
    std::printf("%-12s %s\n", r.name.c_str(),
                good ? r.description.c_str() : ("unusable: " + r.reason).c_str());
  }
  return usable > 0 ? 0 : 1;
}

int print_ops(const std::string& wanted) {
  if (wanted.empty()) {
    for (const heddle::OperationInfo& op : heddle::operations()) {
      std::printf("%-22s %-12s %s\n", op.name.c_str(), op.kind.c_str(), op.summary.c_str());
    }
    return 0;
  }
  for (const heddle::OperationInfo& op : heddle::operations()) {
    if (op.name != wanted) continue;
    std::printf("%s (%s)\n%s\n", op.name.c_str(), op.kind.c_str(), op.documentation.c_str());
    for (const auto& [name, text] : op.operands)
      std::printf("  operand %-14s %s\n", name.c_str(), text.c_str());
    for (const auto& [name, text] : op.attributes)
      std::printf("  attribute %-12s %s\n", name.c_str(), text.c_str());
    std::printf("  gradient  %s\n", op.gradient.c_str());
    return 0;
  }
  throw CommandError("ops: there is no operation '" + wanted + "'; `heddle ops` lists them");
}

}  // namespace

void add_info(CLI::App& cli, std::function<int()>& run) {
  cli.add_subcommand("devices", "list devices, with the reason where one cannot be used")
      ->callback([&run] { run = print_devices; });
  auto name = std::make_shared<std::string>();
  CLI::App* ops = cli.add_subcommand("ops", "list operations, or describe one");
  ops->add_option("name", *name, "operation");
  ops->callback([name, &run] { run = [name] { return print_ops(*name); }; });
  cli.add_subcommand("version", "print the version")->callback([&run] {
    run = [] {
      std::printf("heddle %s\n", heddle::version());
      return 0;
    };
  });
}

}  // namespace app
