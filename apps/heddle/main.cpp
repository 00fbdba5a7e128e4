// heddle: the command-line tool. Exit codes: 0 done, 1 the device or a library failed, 2 wrong use
// or input, 3 the solver did not converge.
#include "commands.h"
#include "image.h"

#include <heddle/error.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

namespace {

int parse_and_run(int argc, char** argv) {
  CLI::App cli{"heddle: compute graphs on CPUs and NVIDIA GPUs"};
  cli.require_subcommand(1);
  std::function<int()> run;
  app::add_compose(cli, run);
  app::add_info(cli, run);
  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    int code = cli.exit(error);
    bool unknown = argc > 1 && argv[1][0] != '-';
    for (const CLI::App* command : cli.get_subcommands({}))
      unknown = unknown && !command->check_name(argv[1]);
    if (unknown) std::fprintf(stderr, "heddle: there is no command '%s'\n", argv[1]);
    return code == 0 ? 0 : 2;
  }
  try {
    return run();
  } catch (const app::CommandError& error) {
    std::fprintf(stderr, "heddle: %s\n", error.what());
    return error.exit_code;
  } catch (const heddle::GraphError& error) {
    std::fprintf(stderr, "heddle: %s\n", error.what());
    return 2;
  } catch (const heddle::UnsupportedError& error) {
    std::fprintf(stderr, "heddle: %s\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "heddle: out of memory\n");
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle: %s\n", error.what());
    return 1;
  }
}

// Output that did not arrive (a full disk, a closed descriptor) is a failure even where all else
// went well.
int checked_output(int code) {
  errno = 0;
  std::cout.flush();
  bool arrived = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (arrived || code != 0) return code;
  std::fprintf(stderr, "heddle: the standard output cannot be written: %s\n",
               errno != 0 ? std::strerror(errno) : "an earlier part was lost");
  return 1;
}

}  // namespace

int main(int argc, char** argv) { return checked_output(parse_and_run(argc, argv)); }
