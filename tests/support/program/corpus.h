// Programs that once failed, cut to a few operations and kept as text: program_text()'s graph, then
// a line for each feed. The folder tests/corpus only grows.
#pragma once

#include "support/program/program.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::test {

// The program of a text such as
//   graph 1 { body(%0: f32[3]) { ... yield %2 } }
//   // feed 0: f32[3] = 1, 2, 4
//   // feed 0, second sizes: ...
// Lines "// ..." of other words are remarks. GraphError where a feed's line does not read, is
// missing, or where its dtype or rank is not the argument's.
RandomProgram program_from_text(std::string_view text);

// The .txt files of a folder, by name. GraphError where it has none.
std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder);
RandomProgram read_program(const std::filesystem::path& file);

}  // namespace heddle::test
