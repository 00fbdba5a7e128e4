#include "support/program/corpus.h"

#include "ir/graph.h"
#include "ops/opdef.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace heddle::test {

using ops::HostTensor;

namespace {

[[noreturn]] void fail(std::string_view line, const std::string& what) {
  throw GraphError("feed line '" + std::string(line.substr(0, 60)) + "': " + what);
}

// What stands between commas, without blanks at its ends.
std::vector<std::string> items(std::string_view list) {
  std::vector<std::string> out;
  std::istringstream in{std::string(list)};
  for (std::string item; std::getline(in, item, ',');) {
    size_t from = item.find_first_not_of(" "), to = item.find_last_not_of(" \r");
    if (from != std::string::npos) out.push_back(item.substr(from, to - from + 1));
  }
  return out;
}

// strtod's spelling: "nan" and "inf" are numbers.
double real_number(std::string_view line, const std::string& item) {
  char* end = nullptr;
  double v = std::strtod(item.c_str(), &end);
  if (end == item.c_str() || *end != '\0') fail(line, "'" + item + "' is not a number");
  return v;
}

int64_t whole_number(std::string_view line, const std::string& item) {
  int64_t v = 0;
  const char* end = item.data() + item.size();
  auto [at, error] = std::from_chars(item.data(), end, v);
  if (error != std::errc() || at != end) fail(line, "'" + item + "' is not a whole number");
  return v;
}

void fill(HostTensor& t, std::string_view line, const std::vector<std::string>& numbers) {
  size_t per_element = t.c.empty() ? 1 : 2;
  auto count = static_cast<size_t>(t.size());
  if (numbers.size() != count * per_element)
    fail(line, "expected " + std::to_string(count * per_element) + " numbers, given " +
                   std::to_string(numbers.size()));
  for (size_t k = 0; k < t.f.size(); ++k) t.f[k] = real_number(line, numbers[k]);
  for (size_t k = 0; k < t.i.size(); ++k) t.i[k] = whole_number(line, numbers[k]);
  for (size_t k = 0; k < t.c.size(); ++k)
    t.c[k] = {real_number(line, numbers[2 * k]), real_number(line, numbers[2 * k + 1])};
}

struct FeedLine {
  size_t feed = 0, set = 0;
  HostTensor value;
};

constexpr int64_t kMaxExtent = 1 << 12, kMaxElements = 1 << 20;

// "<number>[, second sizes]: <dtype>[<extents>] = <numbers>", behind "// feed ".
FeedLine feed_line(std::string_view line) {
  size_t colon = line.find(": "), open = line.find('['), shut = line.find("] =");
  if (colon == std::string_view::npos || open == std::string_view::npos ||
      shut == std::string_view::npos || colon > open || open > shut)
    fail(line, "expected '<number>: <dtype>[<extents>] = <numbers>'");
  std::vector<std::string> head = items(line.substr(0, colon));
  bool second = head.size() == 2 && head[1] == "second sizes";
  if (head.empty() || head.size() != (second ? 2U : 1U)) fail(line, "expected the feed's number");
  std::string_view type = line.substr(colon + 2, open - colon - 2);
  std::optional<DType> dtype = parse_dtype(type);
  if (!dtype) fail(line, "'" + std::string(type) + "' is not a dtype");
  std::vector<int64_t> shape;
  for (const std::string& n : items(line.substr(open + 1, shut - open - 1))) {
    shape.push_back(whole_number(line, n));
    if (shape.back() < 0 || shape.back() > kMaxExtent)
      fail(line, "an extent is not in 0 to " + std::to_string(kMaxExtent));
  }
  int64_t elements = 1;
  for (int64_t n : shape) elements = std::min(elements * n, kMaxElements + 1);
  if (elements > kMaxElements) fail(line, "too many elements");
  int64_t feed = whole_number(line, head[0]);
  if (feed < 0) fail(line, "the feed's number is negative");
  FeedLine out{static_cast<size_t>(feed), second ? 1U : 0U, HostTensor(*dtype, shape)};
  fill(out.value, line, items(line.substr(shut + 3)));
  return out;
}

// What the graph has, as the generator says it of its own programs.
void describe(RandomProgram& p) {
  const ir::Graph& g = *p.graph.impl();
  const ir::Region& top = g.region(ir::kTopRegion);
  for (ir::ValueId v : top.arguments) p.feeds.emplace_back(p.graph.impl(), v);
  for (ir::ValueId v : top.results) p.targets.emplace_back(p.graph.impl(), v);
  for (ir::OpId o : top.ops) {
    ir::Effect effect = g.effect_of(o);
    if (effect == ir::Effect::write) p.effects.emplace_back(p.graph.impl(), o);
    p.has_variables |= effect != ir::Effect::none;
    ops::Form form = ops::control_info(g, o).form;
    p.has_loops |= form == ops::Form::for_loop || form == ops::Form::while_loop;
    p.has_branches |= form == ops::Form::cond;
  }
  p.operations = static_cast<int>(g.op_count());
  for (const Tensor& t : p.feeds) {
    for (const Expr& e : t.shape()) p.symbolic |= !e.is_constant();
  }
}

void check_feeds(const RandomProgram& p) {
  for (const Feeds& set : p.values) {
    for (size_t k = 0; k < p.feeds.size(); ++k) {
      bool given = k < set.size() && set[k].dtype != DType::unknown;
      std::string feed = "feed " + std::to_string(k);
      if (!given) throw GraphError(feed + " of the program has no line");
      const Type& type = p.feeds[k].type();
      if (set[k].dtype != type.dtype || set[k].shape.size() != type.shape->size())
        throw GraphError(feed + " of the program has another dtype or rank than its argument");
    }
    if (set.size() > p.feeds.size()) throw GraphError("the program has lines of feeds too many");
  }
}

}  // namespace

RandomProgram program_from_text(std::string_view text) {
  ops::link_all_ops();
  RandomProgram p;
  std::string graph;
  p.values.resize(1);
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("//")) {
      graph += line + "\n";
      continue;
    }
    if (!line.starts_with("// feed ")) continue;
    FeedLine f = feed_line(std::string_view(line).substr(8));
    p.values.resize(std::max(p.values.size(), f.set + 1));
    Feeds& set = p.values[f.set];
    if (f.feed > 1000) fail(line, "the feed's number is too large");
    set.resize(std::max(set.size(), f.feed + 1));
    set[f.feed] = std::move(f.value);
  }
  p.graph = Graph::from_text(graph);
  describe(p);
  check_feeds(p);
  return p;
}

std::vector<std::filesystem::path> corpus_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  if (files.empty()) throw GraphError("corpus '" + folder.string() + "' holds no .txt files");
  std::sort(files.begin(), files.end());
  return files;
}

RandomProgram read_program(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw GraphError("program '" + file.string() + "' cannot be read");
  std::string text(std::istreambuf_iterator<char>(in), {});
  return program_from_text(text);
}

}  // namespace heddle::test
