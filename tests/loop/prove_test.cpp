// Proofs about kernels: right ones leave nothing open, wrong ones are found wrong.
#include "loop/prove.h"
#include "loop/interpret.h"
#include "loop/run_scheduled.h"
#include "support/evaluate.h"
#include "support/numeric.h"

#include <gtest/gtest.h>

namespace heddle::test {
namespace {

using Change = std::function<void(ir::Kernel&)>;

// The kernels of f's targets.
std::vector<ir::Kernel> kernels_of(const std::vector<std::vector<int64_t>>& shapes,
                                   const BuildTargets& f, bool open = false,
                                   ScheduledOptions options = {}) {
  Graph graph;
  Tensors xs;
  std::vector<ops::HostTensor> values;
  std::mt19937_64 rng(5);
  std::map<int64_t, Expr> extents;
  for (const std::vector<int64_t>& numbers : shapes) {
    Shape shape;
    for (int64_t n : numbers) {
      Expr& e = extents.try_emplace(n, n).first->second;
      if (open && e.is_constant()) e = Dim("n" + std::to_string(n));
      shape.push_back(e);
    }
    xs.push_back(graph.placeholder(f32, shape));
    values.push_back(random_tensor(f32, numbers, rng));
  }
  std::shared_ptr<ir::Graph> g = prepare(graph, xs, f(xs));
  std::vector<ir::Kernel> kernels;
  options.fuse_loops = true;
  options.execute = [&](const ir::Kernel& k, const target::KernelArgs& args) {
    kernels.push_back(k);
    loop::interpret(k, args);
  };
  run_scheduled(*g, values, options);
  return kernels;
}

void expect_proven(const std::vector<ir::Kernel>& kernels) {
  EXPECT_FALSE(kernels.empty());
  for (const ir::Kernel& k : kernels) {
    loop::Proof proof = loop::prove(k);
    for (const auto& list : {proof.broken, proof.open}) {
      for (const std::string& what : list) ADD_FAILURE() << what << "\n" << ir::print(k);
    }
  }
}

void expect_proven(const std::vector<std::vector<int64_t>>& shapes, const BuildTargets& f) {
  target::DeviceDescription device;
  device.shared_memory = 1 << 16;
  for (bool open : {false, true}) {
    expect_proven(kernels_of(shapes, f, open));
    expect_proven(kernels_of(shapes, f, open, {.fusion = false}));
    expect_proven(kernels_of(shapes, f, open, {.block = 4}));
    expect_proven(kernels_of(shapes, f, open, {.device = &device}));
  }
}

void each_nest(std::vector<ir::Stmt>& list, const std::function<void(ir::Nest&)>& f) {
  for (ir::Stmt& s : list) {
    if (s.nest) {
      ir::Nest n = *s.nest;
      f(n);
      s.nest = std::make_shared<const ir::Nest>(std::move(n));
    }
    each_nest(s.first, f);
    each_nest(s.second, f);
  }
}

// The rules that a kernel breaks once it has been changed.
std::set<std::string> broken(ir::Kernel k, const Change& change) {
  change(k);
  std::set<std::string> rules;
  for (std::string what : loop::prove(k).broken) rules.insert(what.substr(0, what.find(':')));
  if (std::string what = ir::verify(k); !what.empty()) rules.insert(what.substr(0, what.find(':')));
  return rules;
}
using Rules = std::set<std::string>;

// ---- right kernels

TEST(Prove, FoldsOverRows) {
  expect_proven({{6, 40}}, [](const Tensors& x) {
    return Tensors{softmax(x[0]), layer_norm(x[0], Tensor{}, Tensor{}), sum(x[0]),
                   argmax(x[0], {.axis = 0}), variance(x[0], {.axes = {0}})};
  });
}

TEST(Prove, RunningSums) {
  for (bool reverse : {false, true}) {
    for (bool exclusive : {false, true}) {
      CumulativeOptions o{.axis = 1, .exclusive = exclusive, .reverse = reverse};
      expect_proven({{2, 50}}, [&](const Tensors& x) {
        Tensor y = cumulative_sum(x[0], o);
        return Tensors{y, cumulative_sum(y, o) + 1.0, argmin(y), y / sum(y)};
      });
    }
  }
}

TEST(Prove, ViewsAndWindows) {
  expect_proven({{6, 9}, {6, 9}}, [](const Tensors& x) {
    Tensor flat = reshape(x[0], {x[0].shape()[0] * x[0].shape()[1]});
    return Tensors{
        transpose(exp(x[0]), {1, 0}),
        concat({x[0], x[1] * 2.0}, 1),
        pad(x[0], {.before = {1, 2}, .after = {2, 1}, .mode = PaddingMode::zero}),
        pad(x[0], {.before = {1, 2}, .after = {2, 1}, .mode = PaddingMode::clamp_to_edge}),
        slice(x[0], {.starts = {0, -1},
                     .stops = {x[0].shape()[0], -x[0].shape()[1] - Expr(1)},
                     .strides = {2, -1}}),
        flat + 1.0};
  });
}

TEST(Prove, IndicesFromMemory) {
  expect_proven({{5, 7}, {7}, {3, 7}, {3}}, [](const Tensors& x) {
    return Tensors{gather(x[0] + 1.0, cast(x[1] * 2.0, i32)),
                   scatter_add(x[0], cast(x[3], i64), x[2])};
  });
}

TEST(Prove, LongRowsInBlocks) {
  auto f = [](const Tensors& x) {
    return Tensors{x[0] / sum(x[0] * x[0]), argmax(x[0]), cumulative_sum(x[0], {.reverse = true})};
  };
  for (bool open : {false, true}) {
    expect_proven(kernels_of({{40001}}, f, open));
    expect_proven(
        kernels_of({{1, 40001}}, [](const Tensors& x) { return Tensors{softmax(x[0])}; }, open));
  }
}

TEST(Prove, Control) {
  expect_proven({{6, 9}, {4, 6, 9}}, [](const Tensors& x) {
    auto step = [](const Tensor&, const Tensors& v) {
      return Tensors{softmax(v[0]), v[1] + sum(v[0])};
    };
    Tensors once = for_loop(Expr(5), {x[0], sum(x[0])}, step);
    ScanResult all = scan({x[0]}, {x[1]}, [](const Tensors& s, const Tensors& v) -> ScanResult {
      Tensor y = s[0] * 0.5 + v[0];
      return {{y}, {y / sum(y)}};
    });
    Tensors chosen = cond(
        sum(x[0]) > 0.0, [&] { return Tensors{softmax(x[0])}; }, [&] { return Tensors{x[0]}; });
    return Tensors{once[0], once[1], all.carried[0], all.stacked[0], chosen[0]};
  });
}

// ---- wrong kernels

TEST(Prove, FindsTheOtherDirection) {
  for (bool reverse : {false, true}) {
    ir::Kernel k = kernels_of({{2, 9}}, [&](const Tensors& x) {
      return Tensors{cumulative_sum(x[0], {.reverse = reverse})};
    })[0];
    EXPECT_EQ(broken(k, [](ir::Kernel&) {}), Rules{});
    // The loop goes the other way: the element of each point is that of the mirrored one.
    EXPECT_EQ(broken(k,
                     [](ir::Kernel& c) {
                       each_nest(c.body, [](ir::Nest& n) {
                         for (ir::ScanSpec& s : n.phases[0].body.scans)
                           s.position = Expr(8) - *s.position;
                       });
                     }),
              Rules{"order"});
    EXPECT_EQ(broken(k,
                     [](ir::Kernel& c) {
                       each_nest(c.body, [](ir::Nest& n) {
                         for (ir::ScanSpec& s : n.phases[0].body.scans) s.position.reset();
                       });
                     }),
              Rules{"order"});
  }
  ir::Kernel k =
      kernels_of({{9, 4}}, [](const Tensors& x) { return Tensors{argmax(x[0], {.axis = 0})}; })[0];
  EXPECT_EQ(broken(k,
                   [](ir::Kernel& c) {
                     each_nest(c.body, [](ir::Nest& n) {
                       for (ir::Reduction& r : n.phases[0].reductions)
                         if (r.position) r.position = Expr(8) - *r.position;
                     });
                   }),
            Rules{"order"});
}

TEST(Prove, FindsALostBarrier) {
  ir::Kernel k =
      kernels_of({{40000}}, [](const Tensors& x) { return Tensors{x[0] / sum(x[0])}; })[0];
  EXPECT_EQ(broken(k,
                   [](ir::Kernel& c) {
                     std::erase_if(
                         c.body, [](const ir::Stmt& s) { return s.kind == ir::StmtKind::barrier; });
                   }),
            Rules{"barrier"});
  EXPECT_EQ(broken(k, [](ir::Kernel& c) { c.body.erase(c.body.begin()); }), Rules{"dominance"});
  EXPECT_EQ(broken(k, [](ir::Kernel& c) { c.body.pop_back(); }), Rules{"output"});
}

TEST(Prove, FindsALostMask) {
  ir::Kernel k = kernels_of({{5, 6}}, [](const Tensors& x) {
    return Tensors{pad(x[0], {.before = {1, 0}, .after = {0, 2}})};
  })[0];
  EXPECT_EQ(broken(k,
                   [](ir::Kernel& c) {
                     each_nest(c.body, [](ir::Nest& n) {
                       for (ir::Node& x : n.phases[0].body.nodes)
                         if (x.op == ir::ScalarOp::load) x.a = x.b = ir::kNoNode;
                     });
                   }),
            Rules{"bounds"});
}

TEST(Prove, FindsAnIndexOffByOne) {
  for (const BuildTargets& f :
       {BuildTargets([](const Tensors& x) { return Tensors{softmax(x[0])}; }),
        BuildTargets([](const Tensors& x) { return Tensors{exp(x[0])}; })}) {
    for (int by : {-1, 1}) {
      ir::Kernel k = kernels_of({{5, 6}}, f)[0];
      EXPECT_EQ(broken(k,
                       [&](ir::Kernel& c) {
                         each_nest(c.body, [&](ir::Nest& n) {
                           ir::Body& b = n.phases[0].body;
                           for (const ir::Node& x : b.nodes) {
                             if (x.op != ir::ScalarOp::load) continue;
                             Expr& at = b.accesses[x.payload].coords[1];
                             at = at + Expr(by);
                           }
                         });
                       }),
                Rules{"bounds"});
    }
  }
}

TEST(Prove, FindsPointsThatWriteTheSameElement) {
  ir::Kernel k = kernels_of({{5, 6}}, [](const Tensors& x) { return Tensors{exp(x[0])}; })[0];
  for (size_t axis : {0, 1}) {
    EXPECT_EQ(broken(k,
                     [&](ir::Kernel& c) {
                       each_nest(c.body, [&](ir::Nest& n) {
                         ir::Body& b = n.phases[0].body;
                         ir::Access a = b.accesses[b.stores[0].access];
                         a.coords[axis] = 0;
                         b.stores[0].access = static_cast<uint32_t>(b.accesses.size());
                         b.accesses.push_back(a);
                       });
                     }),
              Rules{"race"});
  }
}

TEST(Prove, FindsReadsOfWhatOtherPointsWrite) {
  // A step of a relaxation, with the new state in place of the old one.
  ir::Kernel k = kernels_of({{8, 8}}, [](const Tensors& x) {
    SliceOptions left{.starts = {0, 0}, .stops = {8, 7}}, right{.starts = {0, 1}, .stops = {8, 8}};
    return Tensors{slice(x[0], left) + slice(x[0], right)};
  })[0];
  EXPECT_TRUE(broken(k, [](ir::Kernel& c) {
                ir::BufferId in = c.buffers[0].role == ir::BufferRole::input ? 0 : 1, out = 1 - in;
                each_nest(c.body, [&](ir::Nest& n) {
                  for (ir::Access& a : n.phases[0].body.accesses)
                    if (a.buffer == out) a.buffer = in;
                });
                c.buffers[in].role = ir::BufferRole::output;
              }).contains("race"));
}

TEST(Prove, FindsStateThatIsReadBeforeItIsWritten) {
  ir::Kernel k = kernels_of({{6}}, [](const Tensors& x) {
    return for_loop(Expr(5), {x[0]}, [](const Tensor&, const Tensors& v) {
      return Tensors{v[0] / sum(v[0] * v[0])};
    });
  })[0];
  // Without the copy of the initial value.
  EXPECT_EQ(broken(k, [](ir::Kernel& c) { c.body.erase(c.body.begin()); }), Rules{"dominance"});
  // Without the barriers of the loop's body.
  EXPECT_TRUE(broken(k, [](ir::Kernel& c) {
                for (ir::Stmt& s : c.body)
                  std::erase_if(s.first,
                                [](const ir::Stmt& i) { return i.kind == ir::StmtKind::barrier; });
              }).contains("barrier"));
}

}  // namespace
}  // namespace heddle::test
