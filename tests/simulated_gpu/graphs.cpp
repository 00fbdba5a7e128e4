// Graphs: chains of nodes, conditional nodes with bodies. Instantiating copies a graph with the
// parameters of its nodes; later only the copy is patched.
#include "simulated_gpu/device.h"

#include <cstring>
#include <stdexcept>
#include <unordered_map>

namespace heddle::simulated {

namespace {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};
struct Fill {
  void* to = nullptr;
  unsigned char byte = 0;
  size_t bytes = 0;
};

}  // namespace

struct Node {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Launch launch;
  Copy copy;
  Fill fill;
  Work captured;
  // Of a conditional node.
  bool loops = false;
  unsigned* condition = nullptr;
  std::vector<std::unique_ptr<Graph>> bodies;
  std::vector<CUgraph> body_handles;
};

// The value of a conditional handle; the handle is its address.
struct Condition {
  unsigned value = 0, initial = 0;
  bool resets = false;  // to `initial` at each launch
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::shared_ptr<Condition>> conditions;
};

namespace {

struct Instance {
  Graph graph;
  std::unordered_map<const Node*, Node*> copies;  // by the node that was instantiated
};

Graph* graph_of(CUgraph g) { return reinterpret_cast<Graph*>(g); }
Node* node_of(CUgraphNode n) { return reinterpret_cast<Node*>(n); }

void read_launch(Launch& l, const CUDA_KERNEL_NODE_PARAMS& p) {
  l.function = reinterpret_cast<const Function*>(p.func);
  l.grid = p.gridDimX;
  l.block = p.blockDimX;
  l.shared = p.sharedMemBytes;
  l.read_parameters(p.kernelParams);
}
Copy read_copy(const CUDA_MEMCPY3D& p) {
  return {reinterpret_cast<void*>(p.dstDevice), reinterpret_cast<const void*>(p.srcDevice),
          p.WidthInBytes};
}
Fill read_fill(const CUDA_MEMSET_NODE_PARAMS& p) {
  return {reinterpret_cast<void*>(p.dst), static_cast<unsigned char>(p.value),
          p.width * p.elementSize};
}

void copy_graph(const Graph& from, Graph& to, std::unordered_map<const Node*, Node*>& copies) {
  to.conditions = from.conditions;
  for (const auto& n : from.nodes) {
    auto own = std::make_unique<Node>();
    own->type = n->type;
    own->launch = n->launch;
    own->copy = n->copy;
    own->fill = n->fill;
    own->captured = n->captured;
    own->loops = n->loops;
    own->condition = n->condition;
    for (const auto& body : n->bodies) {
      own->bodies.push_back(std::make_unique<Graph>());
      copy_graph(*body, *own->bodies.back(), copies);
    }
    copies.emplace(n.get(), own.get());
    to.nodes.push_back(std::move(own));
  }
}

void run(const Graph& graph);

void run_condition(const Node& n) {
  if (n.loops) {
    while (*n.condition != 0 && state() == CUDA_SUCCESS) run(*n.bodies[0]);
    return;
  }
  size_t chosen = *n.condition != 0 ? 0 : 1;
  if (chosen < n.bodies.size()) run(*n.bodies[chosen]);
}

void run(const Graph& graph) {
  for (const auto& n : graph.nodes) {
    switch (n->type) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        n->launch.run();
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        check_memory(n->copy.to, n->copy.bytes, "copy to");
        check_memory(n->copy.from, n->copy.bytes, "copy from");
        std::memmove(n->copy.to, n->copy.from, n->copy.bytes);
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        check_memory(n->fill.to, n->fill.bytes, "fill");
        std::memset(n->fill.to, n->fill.byte, n->fill.bytes);
        break;
      case CU_GRAPH_NODE_TYPE_HOST:
        n->captured();
        break;
      case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        run_condition(*n);
        break;
      default:
        throw std::runtime_error("a node of an unknown type");
    }
  }
}

// Nodes that are not ordered could run at the same time: what is recorded here is one chain.
bool follows(const Graph& graph, const CUgraphNode* dependencies, size_t count) {
  if (graph.nodes.empty()) return count == 0;
  return count == 1 && node_of(*dependencies) == graph.nodes.back().get();
}

Node* add(Graph& graph) {
  graph.nodes.push_back(std::make_unique<Node>());
  return graph.nodes.back().get();
}

CUresult patched(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
                 const std::function<void(Node&)>& patch) {
  if (CUresult code = state()) return code;
  auto* i = reinterpret_cast<Instance*>(exec);
  auto it = i->copies.find(node_of(node));
  if (it == i->copies.end() || it->second->type != type) return CUDA_ERROR_INVALID_VALUE;
  synchronize_all();  // launches that were given before keep their parameters
  patch(*it->second);
  return CUDA_SUCCESS;
}

}  // namespace

void add_captured(Graph& graph, CUgraphNode* tail, Work work) {
  if (!graph.nodes.empty() && node_of(*tail) != graph.nodes.back().get())
    return fault("captured work does not follow the node before it");
  Node* n = add(graph);
  n->type = CU_GRAPH_NODE_TYPE_HOST;
  n->captured = std::move(work);
  *tail = reinterpret_cast<CUgraphNode>(n);
}

}  // namespace heddle::simulated

using namespace heddle::simulated;

extern "C" {

CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  *graph = reinterpret_cast<CUgraph>(new Graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  delete graph_of(graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext,
                                        unsigned initial, unsigned flags) {
  auto c = std::make_shared<Condition>();
  c->value = c->initial = initial;
  c->resets = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  *handle = reinterpret_cast<CUgraphConditionalHandle>(&c->value);
  graph_of(graph)->conditions.push_back(std::move(c));
  return CUDA_SUCCESS;
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                        const CUgraphEdgeData*, size_t count, CUgraphNodeParams* params) {
  if (CUresult code = state()) return code;
  Graph& g = *graph_of(graph);
  if (!follows(g, dependencies, count)) return CUDA_ERROR_INVALID_VALUE;
  Node* n = add(g);
  n->type = params->type;
  *node = reinterpret_cast<CUgraphNode>(n);
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      CUDA_KERNEL_NODE_PARAMS p = {};
      p.func = params->kernel.func;
      p.gridDimX = params->kernel.gridDimX;
      p.blockDimX = params->kernel.blockDimX;
      p.sharedMemBytes = params->kernel.sharedMemBytes;
      p.kernelParams = params->kernel.kernelParams;
      read_launch(n->launch, p);
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      n->copy = read_copy(params->memcpy.copyParams);
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      n->fill = {reinterpret_cast<void*>(params->memset.dst),
                 static_cast<unsigned char>(params->memset.value),
                 params->memset.width * params->memset.elementSize};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      n->loops = params->conditional.type == CU_GRAPH_COND_TYPE_WHILE;
      n->condition = reinterpret_cast<unsigned*>(params->conditional.handle);
      for (unsigned k = 0; k < params->conditional.size; ++k) {
        n->bodies.push_back(std::make_unique<Graph>());
        n->body_handles.push_back(reinterpret_cast<CUgraph>(n->bodies.back().get()));
      }
      params->conditional.phGraph_out = n->body_handles.data();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
    node_of(node)->launch.cooperative = value->cooperative != 0;
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  auto* i = new Instance;
  copy_graph(*graph_of(graph), i->graph, i->copies);
  *exec = reinterpret_cast<CUgraphExec>(i);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  synchronize_all();
  delete reinterpret_cast<Instance*>(exec);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (CUresult code = state()) return code;
  const Graph* g = &reinterpret_cast<Instance*>(exec)->graph;
  stream_of(stream).give([g] {
    perform([g] {
      for (const auto& c : g->conditions) {
        if (c->resets) c->value = c->initial;
      }
      run(*g);
    });
  });
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* params) {
  return patched(exec, node, CU_GRAPH_NODE_TYPE_KERNEL,
                 [&](Node& n) { read_launch(n.launch, *params); });
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* params, CUcontext) {
  return patched(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY,
                 [&](Node& n) { n.copy = read_copy(*params); });
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return patched(exec, node, CU_GRAPH_NODE_TYPE_MEMSET,
                 [&](Node& n) { n.fill = read_fill(*params); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData*,
                                     size_t count, CUstreamCaptureMode) {
  stream_of(stream).capture(graph_of(graph), count > 0 ? dependencies[0] : nullptr);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                CUgraph* graph, const CUgraphNode** nodes,
                                const CUgraphEdgeData** edges, size_t* count) {
  Stream& s = stream_of(stream);
  *status =
      s.captured() != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (id != nullptr) *id = 1;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(s.captured());
  if (nodes != nullptr) *nodes = s.tail();
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = *s.tail() != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  Stream& s = stream_of(stream);
  *graph = reinterpret_cast<CUgraph>(s.captured());
  s.capture(nullptr, nullptr);
  return state();
}

}  // extern "C"
