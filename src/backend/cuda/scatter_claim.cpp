// scatter_add of many updates by the kernels of scatter_source.h.
#include "backend/cuda/scatter_claim.h"

#include "backend/cuda/compiler.h"
#include "backend/cuda/prelude.h"
#include "backend/cuda/scatter_source.h"
#include "backend/cuda/stream.h"
#include "base/check.h"
#include "loop/program.h"
#include "ops/opdef.h"
#include "target/counters.h"

#include <array>
#include <map>

namespace heddle::cuda {

namespace {

std::shared_ptr<Cubin> scatter_cubin(ScatterTypes types, bool wide, const std::string& arch) {
  types.wide = wide;
  const std::string text = prelude_machine() + prelude_common(wide) + scatter_source(types);
  const std::string name = "scatter_add";
  return find_cubin({.text = text, .name = name, .arch = arch});
}

class ScatterCall : public CudaLibraryCall {
 public:
  struct Spec {
    ScatterTypes types;
    DType index = DType::i64;
    bool zeros = false;                           // no data: the buffers are indices, updates, out
    loop::ExprProgram outer, rows, inner, count;  // over the call's symbols
  };
  ScatterCall(Spec spec, const std::string& arch)
      : spec_(std::move(spec)), cubins_{scatter_cubin(spec_.types, false, arch), nullptr} {}

  std::string describe() const override {
    return base::cat("ordered scatter_add ", name(spec_.types.value), " by ", name(spec_.index));
  }
  int64_t workspace_bytes(std::span<const int64_t> symbols) const override {
    ScatterSizes s = sizes(symbols);
    return scatter_workspace(s, scatter_is_wide(s));
  }
  void run(CudaDevice& device, CUstream stream, std::span<void* const> buffers,
           std::span<const int64_t> symbols, void* workspace) const override {
    HD_CHECK(buffers.size() == (spec_.zeros ? 3 : 4), describe(), ": number of buffers");
    ScatterSizes s = sizes(symbols);
    ScatterTypes types = spec_.types;
    types.wide = scatter_is_wide(s);
    size_t at = 0;
    ScatterBuffers b;
    if (!spec_.zeros) b.data = buffers[at++];
    b.indices = buffers[at++];
    b.index = spec_.index;
    b.updates = buffers[at++];
    b.out = buffers[at];
    b.workspace = workspace;
    for (const ScatterLaunch& l : scatter_launches(types, s, b)) {
      std::vector<void*> arguments;
      for (const uint64_t& w : l.words) arguments.push_back(const_cast<uint64_t*>(&w));
      target::runtime_counters().launches.fetch_add(1, std::memory_order_relaxed);
      HD_CU_AT(describe(), cuLaunchKernel, function(device, types.wide, l.entry), l.grid, 1, 1,
               l.block, 1, 1, 0, stream, arguments.data(), nullptr);
    }
  }

 private:
  ScatterSizes sizes(std::span<const int64_t> symbols) const {
    std::vector<int64_t> v(symbols.begin(), symbols.end());
    return {spec_.outer.eval(v), spec_.rows.eval(v), spec_.inner.eval(v), spec_.count.eval(v)};
  }

  // The code is made when the graph is compiled, but for keys of 64 bits.
  CUfunction function(CudaDevice& device, bool wide, const char* entry) const {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Cubin>& cubin = cubins_[wide ? 1 : 0];
    if (!cubin) cubin = scatter_cubin(spec_.types, wide, device.description().arch);
    CUfunction& f = functions_[{device.name(), wide, entry}];
    if (f == nullptr) f = cubin->function(entry);
    return f;
  }

  Spec spec_;
  mutable std::mutex mutex_;
  mutable std::array<std::shared_ptr<Cubin>, 2> cubins_;
  mutable std::map<std::tuple<std::string, bool, std::string_view>, CUfunction> functions_;
};

// Rows and updates together that the kernel of one loop nest, where a thread goes through all of
// them, is as fast with.
constexpr int64_t kShortAxis = 1024;

// Is the value zeros that nothing else reads? Then the operation that makes it.
std::optional<ir::OpId> own_zeros(const ir::Graph& graph, ir::OpId reader, ir::ValueId value) {
  ir::OpId id = graph.value(value).op;
  if (id == ir::kNone || graph.op(id).parent != graph.op(reader).parent) return std::nullopt;
  const ir::Op& op = graph.op(id);
  if (op.operands.size() != 1 || op.results.size() != 1 ||
      static_cast<const ops::OpDef*>(op.def)->kind != ops::Kind::view)
    return std::nullopt;
  ir::LiteralRef literal = ops::constant_value(graph, op.operands[0]);
  if (literal == nullptr || std::any_of(literal->bytes.begin(), literal->bytes.end(),
                                        [](std::byte b) { return b != std::byte{0}; }))
    return std::nullopt;
  int uses = 0;
  for (ir::OpId k = 0; k < graph.op_count(); ++k)
    uses += static_cast<int>(std::ranges::count(graph.op(k).operands, value));
  for (ir::RegionId r = 0; r < graph.region_count(); ++r)
    uses += static_cast<int>(std::ranges::count(graph.region(r).results, value));
  return uses == 1 ? std::optional(id) : std::nullopt;
}

Expr product(const Shape& shape, size_t first, size_t last) {
  return element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(first),
                             shape.begin() + static_cast<std::ptrdiff_t>(last)));
}

target::ClaimResult offer_scatter(const ir::Graph& graph, ir::OpId id, const std::string& arch) {
  using target::Refusal;
  const ir::Op& op = graph.op(id);
  ops::ScatterRule rule = static_cast<const ops::OpDef*>(op.def)->scatter(graph, op);
  const Type& out = graph.value(op.results[0]).type;
  const Type& indices = graph.value(op.operands[static_cast<size_t>(rule.indices)]).type;
  const Shape& shape = *out.shape;
  auto axis = static_cast<size_t>(rule.axis);
  const Expr &rows = shape[axis], &count = (*indices.shape)[0];
  if (auto n = (rows + count).constant(); n && *n < kShortAxis)
    return Refusal{base::cat("only ", *n, " rows and updates: one kernel is as fast")};
  Expr outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size());
  if (is_complex(out.dtype)) inner = inner * 2;
  target::ClaimOffer offer;
  std::unordered_map<uint64_t, uint32_t> slots;
  std::vector<SymbolRef> symbols;
  for (const Expr& e : {outer, rows, inner, count}) collect_symbols(e, symbols);
  for (const SymbolRef& s : symbols) {
    if (slots.emplace(s->id, static_cast<uint32_t>(offer.symbols.size())).second)
      offer.symbols.push_back(s);
  }
  ScatterCall::Spec spec;
  spec.types.value = real_part(out.dtype);
  spec.index = indices.dtype;
  spec.outer = loop::ExprProgram(outer, slots);
  spec.rows = loop::ExprProgram(rows, slots);
  spec.inner = loop::ExprProgram(inner, slots);
  spec.count = loop::ExprProgram(count, slots);
  ir::ValueId data = op.operands[static_cast<size_t>(rule.data)];
  if (std::optional<ir::OpId> zeros = own_zeros(graph, id, data)) {
    spec.zeros = true;
    offer.absorbed.push_back(*zeros);
  } else {
    offer.inputs.push_back(data);
  }
  offer.inputs.push_back(op.operands[static_cast<size_t>(rule.indices)]);
  offer.inputs.push_back(op.operands[static_cast<size_t>(rule.updates)]);
  offer.outputs = {op.results[0]};
  constexpr double kBytesPerMicrosecond = 4e6;  // H200
  double elements = static_cast<double>((outer * (rows * 2 + count) * inner).constant_or(1 << 20));
  offer.cost = 12 + elements * bit_width(spec.types.value) / 8 / kBytesPerMicrosecond;
  offer.call = std::make_shared<ScatterCall>(std::move(spec), arch);
  return offer;
}

}  // namespace

target::Claim scatter_claim(const std::string& arch) {
  return {"CUDA.scatter_add", "scatter_add",
          [arch](const ir::Graph& graph, ir::OpId op) { return offer_scatter(graph, op, arch); }};
}

}  // namespace heddle::cuda
