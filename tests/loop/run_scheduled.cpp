#include "loop/run_scheduled.h"

#include "base/check.h"
#include "ir/kernel.h"
#include "loop/interpret.h"
#include "ops/judge.h"
#include "ops/opdef.h"
#include "passes/passes.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

namespace heddle::test {

using ir::ValueId;
using ops::HostTensor;

namespace {

using Bytes = std::shared_ptr<std::vector<std::byte>>;

class Runner {
 public:
  Runner(const ir::Graph& graph, const ScheduledOptions& options, ScheduledRun& out)
      : graph_(graph), options_(options), out_(out) {}

  void bind_symbols(const std::vector<HostTensor>& feeds) {
    const ir::Region& top = graph_.region(ir::kTopRegion);
    for (size_t k = 0; k < feeds.size(); ++k) {
      const Shape& shape = *graph_.value(top.arguments[k]).type.shape;
      for (size_t j = 0; j < shape.size(); ++j) {
        if (shape[j].kind() == ExprKind::symbol)
          symbols_[shape[j].symbol()->id] = feeds[k].shape[j];
      }
    }
  }
  int64_t number(const Expr& e) const {
    return evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
      auto it = symbols_.find(s.id);
      return it == symbols_.end() ? std::nullopt : std::optional<int64_t>(it->second);
    });
  }
  std::vector<int64_t> shape(ValueId v) const {
    std::vector<int64_t> s;
    for (const Expr& e : *graph_.value(v).type.shape) s.push_back(number(e));
    return s;
  }
  size_t bytes(ValueId v) const {
    int64_t n = 1;
    for (int64_t e : shape(v)) n *= e;
    return static_cast<size_t>(byte_size(graph_.value(v).type.dtype, n));
  }
  void set(ValueId v, Bytes b) { memory_[v] = std::move(b); }
  Bytes get(ValueId v) {
    auto it = memory_.find(v);
    if (it != memory_.end()) return it->second;
    const ir::Value& value = graph_.value(v);
    if (value.op != ir::kNone && ops::role_of(graph_.op(value.op)) == ops::Role::constant) {
      auto b =
          std::make_shared<std::vector<std::byte>>(ops::literal_of(graph_.op(value.op))->bytes);
      memory_[v] = b;
      return b;
    }
    base::check_failed(__FILE__, __LINE__, "value in memory", "%" + std::to_string(v));
  }
  std::vector<Bytes> run_region(ir::RegionId region, const std::vector<Bytes>& arguments);

 private:
  void run_kernel(const loop::BoundKernel& k);
  void run_control(ir::OpId op);
  void run_while(ir::OpId op, const ops::ControlInfo& info);
  void run_for(ir::OpId op, const ops::ControlInfo& info);
  const loop::RegionSchedule& schedule(ir::RegionId region);

  const ir::Graph& graph_;
  const ScheduledOptions& options_;
  ScheduledRun& out_;
  std::map<uint64_t, int64_t> symbols_;
  std::map<ValueId, Bytes> memory_;
  std::map<ir::RegionId, loop::RegionSchedule> schedules_;
};

const loop::RegionSchedule& Runner::schedule(ir::RegionId region) {
  auto it = schedules_.find(region);
  if (it != schedules_.end()) return it->second;
  loop::ScheduleOptions options{
      .fusion = options_.fusion, .device = options_.device, .block = options_.block};
  loop::RegionSchedule s = loop::schedule_region(graph_, region, {}, options);
  for (const loop::Item& item : s.items) {
    const auto* k = std::get_if<loop::BoundKernel>(&item);
    if (k == nullptr) continue;
    if (region == ir::kTopRegion) ++out_.kernels;
    out_.text += ir::print(k->kernel);
    for (const std::string& note : k->notes) out_.text += "  note: " + note + "\n";
  }
  return schedules_.emplace(region, std::move(s)).first->second;
}

void Runner::run_kernel(const loop::BoundKernel& k) {
  std::vector<Bytes> keep;
  std::vector<void*> buffers;
  size_t binding = 0;
  std::vector<int64_t> symbols;
  for (const SymbolRef& s : k.kernel.symbols) symbols.push_back(symbols_.at(s->id));
  for (const ir::Buffer& b : k.kernel.buffers) {
    if (b.role == ir::BufferRole::scalar_local || b.role == ir::BufferRole::row_local) continue;
    ValueId v = k.bindings.at(binding++);
    if (v == ir::kNone) {
      int64_t n = bit_width(b.dtype) / 8;
      for (const Expr& e : b.extents) n *= number(e);
      // What scratch holds before it is written must not matter.
      keep.push_back(
          std::make_shared<std::vector<std::byte>>(static_cast<size_t>(n), std::byte{0xA5}));
    } else {
      if (b.role == ir::BufferRole::output && !memory_.contains(v)) {
        set(v, std::make_shared<std::vector<std::byte>>(bytes(v), std::byte{0xA5}));
      }
      keep.push_back(get(v));
    }
    buffers.push_back(keep.back()->data());
  }
  if (options_.execute) {
    options_.execute(k.kernel, {buffers, symbols});
  } else {
    loop::interpret(k.kernel, {buffers, symbols}, {.check_bounds = true, .check_races = true});
  }
}

std::vector<Bytes> Runner::run_region(ir::RegionId id, const std::vector<Bytes>& arguments) {
  const ir::Region& region = graph_.region(id);
  const loop::RegionSchedule& s = schedule(id);
  for (size_t k = 0; k < arguments.size(); ++k) set(region.arguments[k], arguments[k]);
  // Values of an earlier iteration must not be seen.
  for (ir::OpId op : region.ops) {
    for (ValueId v : graph_.op(op).results) memory_.erase(v);
  }
  auto aliases = [&] {
    for (const auto& [from, to] : s.aliases) {
      bool there = memory_.contains(to) ||
                   (graph_.value(to).op != ir::kNone &&
                    ops::role_of(graph_.op(graph_.value(to).op)) == ops::Role::constant);
      if (there) set(from, get(to));
    }
  };
  aliases();
  for (const loop::Item& item : s.items) {
    if (const auto* k = std::get_if<loop::BoundKernel>(&item)) {
      run_kernel(*k);
    } else {
      run_control(std::get<ir::OpId>(item));
    }
    aliases();
  }
  std::vector<Bytes> results;
  for (ValueId v : region.results) results.push_back(get(v));
  return results;
}

template <class T>
T scalar(const Bytes& b) {
  T v;
  std::memcpy(&v, b->data(), sizeof v);
  return v;
}
Bytes i64_scalar(int64_t v) {
  auto b = std::make_shared<std::vector<std::byte>>(sizeof v);
  std::memcpy(b->data(), &v, sizeof v);
  return b;
}

void Runner::run_while(ir::OpId id, const ops::ControlInfo& info) {
  const ir::Op& op = graph_.op(id);
  std::vector<Bytes> carried;
  for (ValueId v : info.initial) carried.push_back(get(v));
  std::vector<Bytes> stacked;
  for (size_t k = op.results.size() - info.stacked; k < op.results.size(); ++k) {
    stacked.push_back(std::make_shared<std::vector<std::byte>>(bytes(op.results[k])));
  }
  for (int64_t n = 0;; ++n) {
    std::vector<Bytes> u = run_region(info.first, carried);
    Bytes p = u[0];
    u.erase(u.begin());
    if ((*p)[0] == std::byte{0} || (info.max_iterations && n == *info.max_iterations)) {
      carried = u;
      break;
    }
    std::vector<Bytes> next = run_region(info.second, u);
    for (size_t k = 0; k < info.stacked; ++k) {
      const Bytes& row = next[next.size() - info.stacked + k];
      std::memcpy(stacked[k]->data() + static_cast<size_t>(n) * row->size(), row->data(),
                  row->size());
    }
    next.resize(next.size() - info.stacked);
    carried = next;
  }
  carried.insert(carried.end(), stacked.begin(), stacked.end());
  for (size_t k = 0; k < op.results.size(); ++k) set(op.results[k], carried[k]);
}

void Runner::run_for(ir::OpId id, const ops::ControlInfo& info) {
  const ir::Op& op = graph_.op(id);
  std::vector<Bytes> carried;
  for (ValueId v : info.initial) carried.push_back(get(v));
  std::vector<Bytes> stacked;
  for (size_t k = op.results.size() - info.stacked; k < op.results.size(); ++k) {
    stacked.push_back(std::make_shared<std::vector<std::byte>>(bytes(op.results[k])));
  }
  int64_t count = info.count ? number(*info.count) : scalar<int64_t>(get(info.count_value));
  for (int64_t n = 0; n < count; ++n) {
    std::vector<Bytes> arguments{i64_scalar(n)};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    for (ValueId v : info.slices) {
      Bytes whole = get(v);
      size_t row = whole->size() / static_cast<size_t>(shape(v)[0]);
      auto at = whole->begin() + static_cast<int64_t>(row) * n;
      arguments.push_back(
          std::make_shared<std::vector<std::byte>>(at, at + static_cast<int64_t>(row)));
    }
    std::vector<Bytes> next = run_region(info.first, arguments);
    for (size_t k = 0; k < info.stacked; ++k) {
      const Bytes& row = next[next.size() - info.stacked + k];
      std::memcpy(stacked[k]->data() + static_cast<size_t>(n) * row->size(), row->data(),
                  row->size());
    }
    next.resize(next.size() - info.stacked);
    carried = next;
  }
  carried.insert(carried.end(), stacked.begin(), stacked.end());
  for (size_t k = 0; k < op.results.size(); ++k) set(op.results[k], carried[k]);
}

void Runner::run_control(ir::OpId id) {
  const ir::Op& op = graph_.op(id);
  if (options_.fuse_loops) {
    loop::ScheduleOptions options{
        .fusion = options_.fusion, .device = options_.device, .block = options_.block};
    auto fused = loop::fuse_control(graph_, id, {}, options);
    if (const auto* k = std::get_if<loop::BoundKernel>(&fused)) {
      ++out_.loop_kernels;
      out_.text += ir::print(k->kernel);
      run_kernel(*k);
      return;
    }
    out_.text += "  note: " + std::get<target::Refusal>(fused).reason + "\n";
  }
  ops::ControlInfo info = ops::control_info(graph_, id);
  std::vector<Bytes> results;
  switch (info.form) {
    case ops::Form::cond:
      results =
          run_region((*get(info.predicate))[0] != std::byte{0} ? info.first : info.second, {});
      break;
    case ops::Form::call: {
      std::vector<Bytes> arguments;
      for (ValueId v : info.initial) arguments.push_back(get(v));
      results = run_region(info.first, arguments);
      break;
    }
    case ops::Form::while_loop:
      run_while(id, info);
      return;
    case ops::Form::for_loop:
      run_for(id, info);
      return;
    default:
      base::check_failed(__FILE__, __LINE__, "control", std::string(op.name));
  }
  for (size_t k = 0; k < op.results.size(); ++k) set(op.results[k], results[k]);
}

}  // namespace

ScheduledRun run_scheduled(const ir::Graph& graph, const std::vector<HostTensor>& feeds,
                           const ScheduledOptions& options) {
  ScheduledRun out;
  Runner runner(graph, options, out);
  runner.bind_symbols(feeds);
  std::vector<Bytes> arguments;
  for (const HostTensor& t : feeds)
    arguments.push_back(std::make_shared<std::vector<std::byte>>(ops::to_bytes(t)));
  std::vector<Bytes> results = runner.run_region(ir::kTopRegion, arguments);
  const ir::Region& top = graph.region(ir::kTopRegion);
  for (size_t k = 0; k < results.size(); ++k) {
    ValueId v = top.results[k];
    out.results.push_back(ops::from_bytes(graph.value(v).type.dtype, runner.shape(v), *results[k]));
  }
  return out;
}

std::shared_ptr<ir::Graph> prepare(const Graph& graph, const Tensors& feeds,
                                   const Tensors& targets) {
  std::vector<std::pair<ValueId, std::optional<Type>>> fed;
  for (const Tensor& t : feeds) fed.emplace_back(t.id(), std::nullopt);
  std::vector<ValueId> wanted;
  for (const Tensor& t : targets) wanted.push_back(t.id());
  ir::Extracted e = ir::extract(*graph.impl(), fed, wanted, {});
  return passes::optimize(*e.graph, [](const ir::Graph&, ir::OpId) { return false; });
}

namespace {

// Sums of as many terms as the largest feed has elements, of the results' magnitude.
void expect_close(const std::vector<HostTensor>& results, const std::vector<HostTensor>& expected,
                  const std::vector<HostTensor>& feeds, const std::string& where) {
  int64_t length = 1;
  double scale = 1;
  for (const HostTensor& v : feeds) length = std::max(length, ops::element_count(v.shape));
  for (const HostTensor& t : expected) {
    for (double v : t.f) scale = std::isfinite(v) ? std::max(scale, std::abs(v)) : scale;
  }
  for (size_t k = 0; k < expected.size(); ++k) {
    EXPECT_EQ(difference(results[k], expected[k], tolerance(expected[k].dtype, length, scale)), "")
        << "target " << k << ", " << where;
  }
}

void check_schedules_of(const ir::Graph& g, const std::vector<HostTensor>& values,
                        const std::vector<HostTensor>& expected, const char* sizes) {
  target::DeviceDescription device;
  device.shared_memory = 1 << 16;
  const ScheduledOptions modes[] = {
      {.fuse_loops = true},
      {.fusion = false},
      {.fuse_loops = true, .block = 4},
      {.fuse_loops = true, .device = &device},
  };
  for (const ScheduledOptions& mode : modes) {
    ScheduledRun r = run_scheduled(g, values, mode);
    expect_close(r.results, expected, values,
                 base::cat(sizes, ", mode ", &mode - modes, "\n", ir::print(g), r.text));
  }
}

}  // namespace

std::vector<HostTensor> check_schedules(const std::vector<HostTensor>& values,
                                        const BuildTargets& f, bool on_device) {
  std::vector<HostTensor> expected;
  for (bool open : {false, true}) {
    Graph graph;
    Tensors xs;
    std::map<int64_t, Expr> extents;
    for (const HostTensor& v : values) {
      Shape shape;
      for (int64_t n : v.shape) {
        Expr& e = extents.try_emplace(n, n).first->second;
        if (open && e.is_constant()) e = Dim("n" + std::to_string(n), std::min<int64_t>(n, 1));
        shape.push_back(e);
      }
      xs.push_back(graph.placeholder(v.dtype, shape));
    }
    Tensors targets = f(xs);
    std::shared_ptr<ir::Graph> g = prepare(graph, xs, targets);
    if (!open) expected = ops::judge(*g, values);
    check_schedules_of(*g, values, expected, open ? "open sizes" : "known sizes");
    if (!on_device) continue;
    CompileSpec spec{.feeds = {}, .targets = targets, .operations = {}};
    std::vector<Array> arrays;
    for (size_t k = 0; k < xs.size(); ++k) {
      spec.feeds.emplace_back(xs[k]);
      arrays.push_back(to_array(values[k]));
    }
    std::vector<HostTensor> results;
    for (const Array& r : graph.compile(spec, test_device()).run(arrays))
      results.push_back(to_host(r));
    expect_close(results, expected, values,
                 base::cat("on ", test_device().name(), "\n", ir::print(*g)));
  }
  return expected;
}

}  // namespace heddle::test
