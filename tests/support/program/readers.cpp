#include "support/program/readers.h"

#include "base/hash.h"
#include "support/layouts.h"
#include "support/numeric.h"

#include <algorithm>
#include <sstream>

namespace heddle::test {

using ops::HostTensor;

namespace {

// What is drawn for a reader beside its options.
struct Variety {
  bool strided = false, into = false, alone = false;
};

Variety variety_of(uint64_t seed, size_t reader) {
  uint64_t h = base::mix(seed, reader + 1);
  return {h % 4 == 0, (h >> 8) % 4 == 0, (h >> 16) % 4 == 0};
}

std::vector<Array> inputs_of(const Feeds& values, bool strided) {
  std::vector<Array> out;
  for (size_t k = 0; k < values.size(); ++k) {
    size_t twin = 0;
    while (twin < k && !(values[twin].dtype == values[k].dtype &&
                         values[twin].shape == values[k].shape && values[twin].f == values[k].f &&
                         values[twin].i == values[k].i && values[twin].c == values[k].c))
      ++twin;
    if (twin < k) {
      out.push_back(out[twin]);
      continue;
    }
    Layout layout = !strided ? Layout::packed : k % 2 == 0 ? Layout::stepped : Layout::transposed;
    out.push_back(lay_out(values[k], layout));
  }
  return out;
}

CompileSpec spec_of(const RandomProgram& p, const Tensors& targets) {
  CompileSpec spec;
  for (const Tensor& t : p.feeds) spec.feeds.emplace_back(t);
  spec.targets = targets;
  spec.operations = p.effects;
  return spec;
}

// Where a difference is no larger than what roundings of sixteen times the usual size do, the
// program says nothing.
bool within_larger_roundings(const RandomProgram& p, const Feeds& values,
                             const std::vector<Array>& results, int runs) {
  Evaluations e = evaluate_program(p.graph, p.feeds, values, p.targets, p.effects, 24, runs, 64);
  return compare(expected_values(e), results).empty();
}

struct Runner {
  const RandomProgram& p;
  const Reader& reader;
  Variety variety;

  CheckResult run(const std::vector<std::vector<Expected>>& expected);
  std::vector<Array> once(const Executable& e, const Feeds& values,
                          const std::vector<HostTensor>& like) const;
};

std::vector<Array> Runner::once(const Executable& e, const Feeds& values,
                                const std::vector<HostTensor>& like) const {
  std::vector<Array> inputs = inputs_of(values, variety.strided);
  if (!variety.into) return e.run(inputs);
  std::vector<Array> outputs;
  for (const HostTensor& t : like)
    outputs.push_back(lay_out(HostTensor(t.dtype, t.shape), Layout::stepped));
  e.run_into(inputs, outputs);
  return outputs;
}

// expected[set][run]
CheckResult Runner::run(const std::vector<std::vector<Expected>>& expected) {
  Graph graph = p.graph;
  Device device = heddle::device(reader.device);
  Executable e = graph.compile(spec_of(p, p.targets), device, reader.options);
  if (reader.compile_only) return {};
  for (size_t set = 0; set < expected.size(); ++set) {
    size_t runs = p.has_variables ? expected[set].size() : static_cast<size_t>(reader.runs);
    for (size_t k = 0; k < runs; ++k) {
      const Expected& want = expected[set][std::min(k, expected[set].size() - 1)];
      std::vector<Array> got = once(e, p.values[set], want.exact);
      std::string d = compare(want, got);
      if (d.empty()) continue;
      int before = p.has_variables ? static_cast<int>(k) + 1 : 1;
      bool unstable = within_larger_roundings(p, p.values[set], got, before);
      return {d + (set == 0 ? "" : ", second sizes") + (k == 0 ? "" : ", run " + std::to_string(k)),
              reader.name, unstable};
    }
  }
  if (!variety.alone || p.has_variables || p.targets.size() < 2) return {};
  for (size_t t = 0; t < p.targets.size(); ++t) {
    Executable alone = graph.compile(spec_of(p, {p.targets[t]}), device, reader.options);
    const Expected& all = expected[0][0];
    Expected want{{all.exact[t]}, {all.allowed[t]}};
    std::vector<Array> got = once(alone, p.values[0], want.exact);
    std::string d = compare(want, got);
    if (!d.empty()) return {"alone, of " + std::to_string(t) + ": " + d, reader.name, false};
  }
  return {};
}

}  // namespace

std::vector<Reader> readers_of(const std::vector<std::string>& devices) {
  std::vector<Reader> out;
  for (const std::string& d : devices) {
    bool cuda = d.starts_with("cuda");
    auto add = [&](const std::string& form, auto set) {
      Reader r{d + " " + form, d, {}, cuda ? 3 : 1};
      set(r.options);
      out.push_back(r);
    };
    add("fused", [](CompileOptions&) {});
    add("unfused", [](CompileOptions& o) { o.fusion = false; });
    if (d == "interpreter") {
      add("checked", [](CompileOptions& o) { o.check_bounds = true; });
      add("host loops", [](CompileOptions& o) { o.loops = LoopRecording::host; });
      continue;
    }
    add("one thread", [](CompileOptions& o) { o.threads = 1; });
    add("own kernels", [](CompileOptions& o) { o.claims = false; });
    add("host loops", [](CompileOptions& o) { o.loops = LoopRecording::host; });
    add("single kernels", [](CompileOptions& o) { o.loops = LoopRecording::single_kernel; });
    add("bounds", [](CompileOptions& o) { o.check_bounds = true; });
    if (!cuda) continue;
    add("device graphs", [](CompileOptions& o) { o.loops = LoopRecording::device_graph; });
    add("device graphs, unfused", [](CompileOptions& o) {
      o.loops = LoopRecording::device_graph;
      o.fusion = false;
    });
  }
  return out;
}

CheckResult check_program(const RandomProgram& program, const std::function<RandomProgram()>& fresh,
                          const std::vector<Reader>& readers, uint64_t variety,
                          const std::function<void(const std::string&)>& starting) {
  std::vector<std::vector<Expected>> expected;
  size_t sets = program.has_variables ? 1 : program.values.size();
  if (starting) starting("reference");
  for (size_t set = 0; set < sets; ++set) {
    expected.emplace_back();
    for (int runs = 1; runs <= (program.has_variables ? 2 : 1); ++runs) {
      expected.back().push_back(
          expected_values(evaluate_program(program.graph, program.feeds, program.values[set],
                                           program.targets, program.effects, 8, runs)));
    }
  }
  bool unstable = false;
  for (size_t k = 0; k < readers.size(); ++k) {
    if (starting) starting(readers[k].name);
    RandomProgram own = program.has_variables ? fresh() : RandomProgram{};
    const RandomProgram& p = program.has_variables ? own : program;
    CheckResult r;
    try {
      r = Runner{p, readers[k], variety_of(variety, k)}.run(expected);
    } catch (const std::exception& error) {
      // A part that no iteration and no branch reaches may ask for sizes that these are not.
      bool sizes = std::string(error.what()).find("in this run") != std::string::npos;
      r = {std::string("exception: ") + error.what(), readers[k].name, sizes};
    }
    unstable |= r.unstable;
    if (!r.failure.empty() && !r.unstable) return r;
  }
  return {"", "", unstable};
}

namespace {

std::string text_of(const RandomProgram& p) {
  return Graph(needed_part(p.graph, p.feeds, p.targets, p.effects)).to_text();
}

std::string numbers(const HostTensor& t) {
  std::ostringstream out;
  out.precision(17);
  const char* between = "";
  auto add = [&](const auto& v) {
    out << between << v;
    between = ", ";
  };
  for (double v : t.f) add(v);
  for (int64_t v : t.i) add(v);
  for (const auto& v : t.c) {
    add(v.real());
    add(v.imag());
  }
  return out.str();
}

std::string extents(const HostTensor& t) {
  std::string s;
  for (int64_t n : t.shape) s += (s.empty() ? "" : ", ") + std::to_string(n);
  return s;
}

}  // namespace

std::string program_text(const RandomProgram& p) {
  std::string s = text_of(p);
  for (size_t set = 0; set < p.values.size(); ++set) {
    for (size_t k = 0; k < p.values[set].size(); ++k) {
      const HostTensor& t = p.values[set][k];
      s += "// feed " + std::to_string(k) + (set == 0 ? "" : ", second sizes") + ": " +
           std::string(name(t.dtype)) + "[" + extents(t) + "] = " + numbers(t) + "\n";
    }
  }
  return s;
}

std::string program_code(const RandomProgram& p) {
  std::string s = "  Graph g = Graph::from_text(R\"(\n" + text_of(p) + ")\");\n";
  s += "  std::vector<ops::HostTensor> feeds{\n";
  for (const HostTensor& t : p.values[0]) {
    const char* maker = !t.i.empty() ? "integers" : !t.c.empty() ? "complexes" : "floats";
    s += "      " + std::string(maker) + "({" + extents(t) + "}, {" + numbers(t) +
         "}, DType::" + std::string(name(t.dtype)) + "),\n";
  }
  return s + "  };\n";
}

}  // namespace heddle::test
