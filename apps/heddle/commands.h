// The subcommands of `heddle`.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace app {

// Each adds its subcommand; `run` is set to what the parsed command does and gives the exit code.
void add_compose(CLI::App& cli, std::function<int()>& run);
void add_info(CLI::App& cli, std::function<int()>& run);  // devices, ops, version

}  // namespace app
