// Seamless composition as a graph: inside the mask the result has the source's gradients, on its
// rim the background's values (Perez, Gangnet, Blake 2003: Poisson image editing). The linear solve
// is one while loop that the engine runs.
#pragma once

#include <heddle/heddle.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace app {

enum class Solver : uint8_t { jacobi, cg, multigrid };
enum class Start : uint8_t { source, background, zero };

// A window of the background, planar [3, height, width], intensities 0..255.
struct Problem {
  int64_t height = 0, width = 0;
  std::vector<float> source, background;
  std::vector<uint8_t> mask;  // [height, width], 1: unknown
};

struct SolveOptions {
  Solver solver = Solver::multigrid;
  Start start = Start::source;
  bool mixed = false;      // the stronger of the two gradients, pair by pair
  double tolerance = 0.1;  // on the residual
  int64_t max_iterations = 0;
  int64_t report_every =
      0;  // 0: one run until the end; else the loop is left and resumed to report
  std::function<void(int64_t iteration, double residual)> report;
};

struct Solution {
  std::vector<float> picture;  // [3, height, width]
  int64_t iterations = 0;
  // The largest change, over pixels and colours, that one Jacobi sweep makes: max |b - A f| / 4, in
  // intensity levels.
  double residual = 0;
  bool converged = false;
  double compile_ms = 0, solve_ms = 0;
  std::vector<std::pair<int64_t, double>> curve;
  std::string description;  // describe() of the loop's executable
  std::string graph_text;
};

Solution solve(const Problem& problem, const SolveOptions& options, const heddle::Device& device);

}  // namespace app
