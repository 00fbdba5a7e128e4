// heddle compose: sets a cut-out of one photo seamlessly into another.
#include "commands.h"
#include "image.h"
#include "mask.h"
#include "plot.h"
#include "solver.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include <unistd.h>

namespace app {

namespace {

struct ComposeOptions {
  std::string source, mask, background, at, output, plot, strip, dump, device;
  std::string init = "source", solver = "multigrid";
  bool mixed = false, json = false;
  std::optional<double> tolerance;
  std::optional<int64_t> max_iterations;
};

struct Placement {
  int64_t dx = 0, dy = 0;  // background pixel = source pixel + (dx, dy)
  int64_t left = 0, top = 0, right = 0,
          bottom = 0;  // solved window of the background, one pixel of rim where there is one
};

std::pair<int64_t, int64_t> parse_at(const std::string& text) {
  size_t comma = text.find(',');
  int64_t v[2] = {0, 0};
  bool good = comma != std::string::npos;
  std::string parts[2] = {text.substr(0, comma), good ? text.substr(comma + 1) : ""};
  for (int k = 0; k < 2 && good; ++k) {
    const char *begin = parts[k].data(), *end = begin + parts[k].size();
    auto [at, error] = std::from_chars(begin, end, v[k]);
    good = error == std::errc() && at == end && begin != end && std::abs(v[k]) <= kMaxPixels;
  }
  if (!good) throw CommandError("--at " + text + ": expected X,Y in pixels of the background");
  return {v[0], v[1]};
}

// The centre of the mask's bounding box goes to `at`.
Placement place(const Mask& mask, const Image& background, const std::string& at) {
  auto [x, y] = parse_at(at);
  Placement p;
  p.dx = x - (mask.left + mask.right) / 2;
  p.dy = y - (mask.top + mask.bottom) / 2;
  p.left = std::max<int64_t>(mask.left + p.dx - 1, 0);
  p.top = std::max<int64_t>(mask.top + p.dy - 1, 0);
  p.right = std::min(mask.right + p.dx + 1, background.width);
  p.bottom = std::min(mask.bottom + p.dy + 1, background.height);
  bool any = false;
  for (int64_t v = p.top; v < p.bottom && !any; ++v) {
    for (int64_t u = p.left; u < p.right && !any; ++u) {
      int64_t sx = u - p.dx, sy = v - p.dy;
      any = sx >= 0 && sy >= 0 && sx < mask.width && sy < mask.height &&
            mask.inside[static_cast<size_t>(sy * mask.width + sx)] != 0;
    }
  }
  if (!any) {
    throw CommandError("--at " + at + ": the mask lies outside the background (" +
                       std::to_string(background.width) + "x" + std::to_string(background.height) +
                       ")");
  }
  return p;
}

Problem make_problem(const Image& source, const Mask& mask, const Image& background,
                     const Placement& p) {
  Problem problem;
  problem.width = p.right - p.left;
  problem.height = p.bottom - p.top;
  auto count = static_cast<size_t>(problem.width * problem.height);
  problem.source.resize(3 * count);
  problem.background.resize(3 * count);
  problem.mask.assign(count, 0);
  bool rim = false;
  for (int64_t y = 0; y < problem.height; ++y) {
    for (int64_t x = 0; x < problem.width; ++x) {
      auto k = static_cast<size_t>(y * problem.width + x);
      int64_t sx = p.left + x - p.dx, sy = p.top + y - p.dy;
      bool inside = sx >= 0 && sy >= 0 && sx < source.width && sy < source.height;
      problem.mask[k] = inside ? mask.inside[static_cast<size_t>(sy * source.width + sx)] : 0;
      rim = rim || problem.mask[k] == 0;
      int64_t cx = std::clamp<int64_t>(sx, 0, source.width - 1),
              cy = std::clamp<int64_t>(sy, 0, source.height - 1);
      for (int c = 0; c < 3; ++c) {
        problem.source[static_cast<size_t>(c) * count + k] = source.colour(cy, cx, c);
        problem.background[static_cast<size_t>(c) * count + k] =
            background.colour(p.top + y, p.left + x, c);
      }
    }
  }
  if (!rim) {
    throw CommandError("the mask covers the whole background (" + std::to_string(background.width) +
                       "x" + std::to_string(background.height) +
                       "): no pixel of it is left to fit to");
  }
  return problem;
}

// `planes` [3, h, w] into a copy of the background, where the mask holds.
Image insert(const Image& background, const Problem& problem, const Placement& p,
             const std::vector<float>& planes, bool keep_gray) {
  Image out;
  out.width = background.width;
  out.height = background.height;
  out.bits = background.bits;
  int colours = keep_gray ? 1 : 3;
  out.channels = colours + (background.has_alpha() ? 1 : 0);
  out.data.resize(static_cast<size_t>(out.width * out.height * out.channels));
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x) {
      for (int c = 0; c < colours; ++c) out.at(y, x, c) = background.colour(y, x, c);
      if (background.has_alpha()) out.at(y, x, out.channels - 1) = background.alpha(y, x);
    }
  }
  auto count = static_cast<size_t>(problem.width * problem.height);
  for (int64_t y = 0; y < problem.height; ++y) {
    for (int64_t x = 0; x < problem.width; ++x) {
      auto k = static_cast<size_t>(y * problem.width + x);
      if (problem.mask[k] == 0) continue;
      for (int c = 0; c < colours; ++c)
        out.at(p.top + y, p.left + x, c) = planes[static_cast<size_t>(c) * count + k];
      if (background.has_alpha()) out.at(p.top + y, p.left + x, out.channels - 1) = 255.0F;
    }
  }
  return out;
}

Image mask_picture(const Image& background, const Problem& problem, const Placement& p) {
  Image gray = background;
  std::fill(gray.data.begin(), gray.data.end(), 0.0F);
  std::vector<float> white(problem.source.size(), 255.0F);
  return insert(gray, problem, p, white, false);
}

SolveOptions solve_options(const ComposeOptions& o) {
  static const std::map<std::string, Solver> kSolvers = {
      {"jacobi", Solver::jacobi}, {"cg", Solver::cg}, {"multigrid", Solver::multigrid}};
  static const std::map<std::string, Start> kStarts = {
      {"source", Start::source}, {"background", Start::background}, {"zero", Start::zero}};
  SolveOptions s;
  s.solver = kSolvers.at(o.solver);
  s.start = kStarts.at(o.init);
  s.mixed = o.mixed;
  s.tolerance = o.tolerance.value_or(0.1);
  s.max_iterations = o.max_iterations.value_or(s.solver == Solver::jacobi ? 100000 : 10000);
  bool terminal = isatty(STDERR_FILENO) != 0 && !o.json;
  if (!o.plot.empty()) s.report_every = s.solver == Solver::jacobi ? 10 : 1;
  if (terminal) {
    if (s.report_every == 0) s.report_every = s.solver == Solver::jacobi ? 100 : 5;
    s.report = [](int64_t iteration, double residual) {
      std::fprintf(stderr, "\riteration %6lld   residual %.4f ", static_cast<long long>(iteration),
                   residual);
    };
  }
  return s;
}

std::vector<uint8_t> text_bytes(const std::string& s) { return {s.begin(), s.end()}; }

void dump(const std::string& folder, const Solution& solution) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw CommandError("--dump " + folder + ": " + error.message(), 1);
  write_file(folder + "/graph.txt", text_bytes(solution.graph_text));
  write_file(folder + "/executable.txt", text_bytes(solution.description));
}

void print_summary(const ComposeOptions& o, const Problem& problem, const Solution& s,
                   const heddle::Device& device) {
  double per_iteration =
      s.iterations > 0 ? s.solve_ms * 1000 / static_cast<double>(s.iterations) : 0;
  if (o.json) {
    nlohmann::json j = {{"output", o.output},
                        {"device", device.name()},
                        {"solver", o.solver},
                        {"init", o.init},
                        {"window", {problem.width, problem.height}},
                        {"unknowns", 3 * std::count(problem.mask.begin(), problem.mask.end(), 1)},
                        {"iterations", s.iterations},
                        {"residual", s.residual},
                        {"converged", s.converged},
                        {"compile_ms", s.compile_ms},
                        {"solve_ms", s.solve_ms},
                        {"us_per_iteration", per_iteration}};
    std::printf("%s\n", j.dump(2).c_str());
    return;
  }
  std::printf(
      "%s: %lld iterations of %s on %s, residual %.4f of 255, window %lldx%lld, compile %.0f ms, "
      "solve %.1f ms\n",
      o.output.c_str(), static_cast<long long>(s.iterations), o.solver.c_str(),
      device.name().c_str(), s.residual, static_cast<long long>(problem.width),
      static_cast<long long>(problem.height), s.compile_ms, s.solve_ms);
}

int compose(const ComposeOptions& o) {
  if (o.tolerance && !(*o.tolerance > 0 && std::isfinite(*o.tolerance))) {
    throw CommandError("--tolerance: expected a positive number of intensity levels");
  }
  if (o.max_iterations && *o.max_iterations < 0)
    throw CommandError("--max-iterations: expected at least 0");
  Image source = read_image(o.source), background = read_image(o.background);
  Mask mask = make_mask(o.mask, source);
  Placement placement = place(mask, background, o.at);
  Problem problem = make_problem(source, mask, background, placement);
  heddle::Device device = o.device.empty() ? heddle::default_device() : heddle::device(o.device);
  SolveOptions options = solve_options(o);
  Solution solution = solve(problem, options, device);
  if (options.report) std::fprintf(stderr, "\r%60s\r", "");
  // Who asks for a number of iterations and for no tolerance gets them.
  bool enough =
      solution.converged || (o.max_iterations && !o.tolerance && std::isfinite(solution.residual));
  if (!enough) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "compose: not converged: residual %.4g after %lld iterations, tolerance %.4g",
                  solution.residual, static_cast<long long>(solution.iterations),
                  options.tolerance);
    throw CommandError(text, 3);
  }
  bool gray = background.colours() == 1 && source.colours() == 1;
  Image result = insert(background, problem, placement, solution.picture, gray);
  if (!o.dump.empty()) dump(o.dump, solution);
  if (!o.plot.empty()) write_image(o.plot, plot_convergence(solution.curve, options.tolerance));
  if (!o.strip.empty()) {
    Image before = insert(background, problem, placement, problem.source, false);
    write_image(o.strip,
                side_by_side({before, mask_picture(background, problem, placement), result}, 8));
  }
  write_image(o.output, result);
  print_summary(o, problem, solution, device);
  return 0;
}

}  // namespace

void add_compose(CLI::App& cli, std::function<int()>& run) {
  auto o = std::make_shared<ComposeOptions>();
  CLI::App* c = cli.add_subcommand("compose", "set a cut-out of one photo seamlessly into another");
  c->add_option("--source", o->source, "picture that holds the object (PNG or JPEG)")->required();
  c->add_option("--mask", o->mask,
                "the object: a picture of the source's size, rect:X,Y,W,H, ellipse:CX,CY,RX,RY or "
                "polygon:X,Y,X,Y,...")
      ->required();
  c->add_option("--background", o->background, "picture to set it into")->required();
  c->add_option("--at", o->at,
                "X,Y in the background where the centre of the mask's bounding box goes")
      ->required();
  c->add_option("-o,--output", o->output, "picture to write: .png or .jpg")->required();
  c->add_option("--init", o->init, "what the solver starts from")
      ->check(CLI::IsMember({"source", "background", "zero"}))
      ->capture_default_str();
  c->add_option("--solver", o->solver, "method of the linear solve")
      ->check(CLI::IsMember({"jacobi", "cg", "multigrid"}))
      ->capture_default_str();
  c->add_flag("--mixed", o->mixed, "keep the background's gradients where they are stronger");
  c->add_option("--tolerance", o->tolerance,
                "stop when one Jacobi sweep would change no pixel by more (intensity levels of "
                "255; default 0.1)");
  c->add_option("--max-iterations", o->max_iterations,
                "stop there; without --tolerance this is no failure");
  c->add_option("--device", o->device,
                "cpu, cuda, cuda:1, ...; default: HEDDLE_DEVICE, else a GPU, else the CPU");
  c->add_option("--plot", o->plot, "picture of the residual over the iterations");
  c->add_option("--strip", o->strip, "picture of: pasted, mask, composed");
  c->add_option("--dump", o->dump, "folder for the graph's text and the executable's description");
  c->add_flag("--json", o->json, "print the figures as JSON");
  c->callback([o, &run] { run = [o] { return compose(*o); }; });
}

}  // namespace app
