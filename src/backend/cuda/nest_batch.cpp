// Bodies of many operations on few loads: a thread's only load would wait while nothing else of it
// can run, and all threads that a multiprocessor holds do not keep enough bytes under way. So a
// thread makes several vectors of a nest, loads all of them first, and then makes one after the
// other.
#include "backend/cuda/nest_emitter.h"

#include <algorithm>

namespace heddle::cuda {

using ir::kNoNode;
using ir::NodeId;
using ir::ScalarOp;

namespace {

constexpr int kLeastWork = 5;  // operations a byte that is moved: with fewer, memory alone decides
constexpr int kMostLive = 8;   // values of a lane at a time: all threads share the registers
constexpr int kMostVectors = 4;     // a thread, of all loads
constexpr int64_t kLeastTurns = 4;  // times that the device is filled with such threads

bool is_work(ScalarOp op) {
  return op != ScalarOp::constant && op != ScalarOp::load && op != ScalarOp::bitcast &&
         op != ScalarOp::neg && op != ScalarOp::abs;
}

// Most varying values that are needed at one time, as the nodes stand.
int most_live(const ir::Body& body, const PhasePlan& phase) {
  std::vector<size_t> last(body.nodes.size(), 0);
  for (NodeId n = 0; n < body.nodes.size(); ++n) {
    for (NodeId o : {body.nodes[n].a, body.nodes[n].b, body.nodes[n].c}) {
      if (o != kNoNode) last[o] = n;
    }
  }
  for (const ir::Store& s : body.stores) last[s.value] = body.nodes.size();
  int most = 0, live = 0;
  std::vector<std::vector<NodeId>> ends(body.nodes.size() + 1);
  for (NodeId n = 0; n < body.nodes.size(); ++n) {
    if (!phase.varying[n]) continue;
    ++live;
    ends[std::max<size_t>(last[n], n)].push_back(n);
    most = std::max(most, live);
    live -= static_cast<int>(ends[n].size());
  }
  return most;
}

bool plain_node(const ir::Node& n, const PhasePlan& phase) {
  if (bit_width(n.type) > 32) return n.op == ScalarOp::constant;
  switch (n.op) {
    case ScalarOp::load:
      return n.a == kNoNode && (phase.forms[n.payload] == AccessForm::vector ||
                                phase.forms[n.payload] == AccessForm::uniform);
    case ScalarOp::bind:
    case ScalarOp::index:
    case ScalarOp::row:
    case ScalarOp::scan:
    case ScalarOp::call:
      return false;
    default:
      return true;
  }
}

}  // namespace

int batch_vectors(const ir::Kernel& kernel, const NestPlan& nest, int64_t threads) {
  if (nest.mapping != Mapping::thread || nest.replicated || nest.lanes == 1 ||
      nest.outer.size() != 1 || nest.phases.size() != 1)
    return 1;
  const PhasePlan& phase = nest.phases[0];
  const ir::Body& body = phase.source->body;
  if (!phase.inner.empty() || !phase.source->reductions.empty()) return 1;
  int work = 0, bytes = 0;
  for (NodeId n = 0; n < body.nodes.size(); ++n) {
    const ir::Node& x = body.nodes[n];
    if (!plain_node(x, phase)) return 1;
    if (!phase.varying[n]) continue;
    if (is_work(x.op)) ++work;
    if (x.op == ScalarOp::load)
      bytes += memory_bytes(kernel.buffers[body.accesses[x.payload].buffer].dtype) * nest.lanes;
  }
  int moved = bytes;
  for (const ir::Store& s : body.stores) {
    if (phase.forms[s.access] != AccessForm::vector) return 1;
    moved += memory_bytes(kernel.buffers[body.accesses[s.access].buffer].dtype) * nest.lanes;
  }
  if (work * nest.lanes < kLeastWork * moved || most_live(body, phase) > kMostLive || bytes == 0)
    return 1;
  int vectors = kMostVectors * 16 / bytes;
  vectors = vectors >= 4 ? 4 : vectors >= 2 ? 2 : 1;
  int64_t least = nest.points().lower() / nest.lanes;
  return least >= kLeastTurns * vectors * threads ? vectors : 1;
}

void NestEmitter::thread_vectors() {
  const PhasePlan& phase = nest_.phases[0];
  const ir::Body& source = phase.source->body;
  int64_t step = int64_t{k_.block} * nest_.vectors;
  Expr points = nest_.points();
  bool whole = points.is_constant() && *points.constant() % (step * nest_.lanes) == 0;
  std::string n = base::cat("hd_udiv(", k_.names.text(points), ", ", nest_.lanes, ")");
  k_.out.line("const idx first = (idx)blockIdx.x * ", step, " + (idx)threadIdx.x;");
  RowCaches caches;
  caches.names.resize(1);
  caches.first.resize(1);
  for (const ir::Node& x : source.nodes) {
    if (x.op != ScalarOp::load || phase.forms[x.payload] != AccessForm::vector) continue;
    std::string name = base::cat("early", x.payload);
    int bytes = memory_bytes(k_.kernel.buffers[source.accesses[x.payload].buffer].dtype);
    k_.out.line("hd_pack<", bytes * nest_.lanes, "> ", name, "[", nest_.vectors, "];");
    caches.names[0][x.payload] = name;
    caches.first[0][x.payload] = true;
  }
  for (bool loads : {true, false}) {
    k_.out.open("HD_UNROLL for (int t = 0; t < ", nest_.vectors, "; ++t)");
    k_.out.line("const idx at = first + t * ", k_.block, ";");
    k_.out.line("const idx p = ", whole ? "at" : base::cat("hd_imin(at, ", n, " - 1)"), ";");
    decode_outer("p", true);
    PointText at;
    at.flat = "0";
    at.trip = "t";
    at.lane_name = "o0";
    if (!whole) at.store_guard = base::cat("at < ", n);
    BodyEmitter body(k_, nest_, phase, at, &caches, 0, locals_);
    if (loads) {
      body.load_caches();
    } else {
      body.whole();
    }
    k_.out.close();
    for (auto& [access, first] : caches.first[0]) first = false;
  }
}

}  // namespace heddle::cuda
