// The ways in which a program can be run. Each must give the reference evaluator's values.
#pragma once

#include "support/program/program.h"
#include "support/program/truth.h"

#include <heddle/heddle.h>

#include <functional>
#include <string>
#include <vector>

namespace heddle::test {

struct Reader {
  std::string name;
  std::string device;
  CompileOptions options;
  int runs = 1;  // of one executable; a later run may be a recording of the first
  bool compile_only = false;
};

// Every reader of these devices ("interpreter", "cpu", "cuda", ...).
std::vector<Reader> readers_of(const std::vector<std::string>& devices);

struct CheckResult {
  std::string failure;    // empty: all readers agree
  std::string reader;     // that failed
  bool unstable = false;  // the differences are within what larger roundings do: nothing is said
};
// `fresh` makes the program again, for graphs with variables, whose state each reader changes.
// `variety` chooses how feeds and results are laid out, and whether targets are also fetched alone.
// `starting`: told the name of each reader before it runs.
CheckResult check_program(const RandomProgram& program, const std::function<RandomProgram()>& fresh,
                          const std::vector<Reader>& readers, uint64_t variety,
                          const std::function<void(const std::string&)>& starting = {});

// The program as text, with its feeds' values.
std::string program_text(const RandomProgram& program);
// As lines of C++ that a test can hold.
std::string program_code(const RandomProgram& program);

}  // namespace heddle::test
