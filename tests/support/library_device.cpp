#include "support/library_device.h"

#include "base/check.h"
#include "loop/interpret.h"
#include "runtime/host_device.h"

#include <algorithm>

namespace heddle::test {

namespace {

// c[batch, m, n] = a[batch, m, k] b[batch, k, n], either transposed; one matrix may serve a batch.
struct Product {
  DType dtype = DType::f32;
  Shape a, b;
  bool transpose_a = false, transpose_b = false;
  std::vector<SymbolRef> symbols;
};

class ProductCall : public target::HostLibraryCall {
 public:
  explicit ProductCall(Product product) : p_(std::move(product)) {}
  std::string describe() const override { return "plain loops"; }
  // Spoiled by each call, so that a plan which has a value there is found out.
  int64_t workspace_bytes(std::span<const int64_t>) const override { return kWorkspace; }

  void run(std::span<void* const> buffers, std::span<const int64_t> symbols, void* workspace,
           int) const override {
    std::fill_n(static_cast<std::byte*>(workspace), kWorkspace, std::byte{0xff});
    if (p_.dtype == DType::f32) return multiply<float>(buffers, symbols);
    multiply<double>(buffers, symbols);
  }

 private:
  static constexpr int64_t kWorkspace = 64;

  std::vector<int64_t> numbers(const Shape& shape, std::span<const int64_t> symbols) const {
    std::vector<int64_t> out;
    for (const Expr& e : shape) {
      out.push_back(evaluate(e, [&](const Symbol& s) -> std::optional<int64_t> {
        for (size_t i = 0; i < p_.symbols.size(); ++i) {
          if (p_.symbols[i]->id == s.id) return symbols[i];
        }
        return std::nullopt;
      }));
    }
    return out;
  }

  template <class T>
  void multiply(std::span<void* const> buffers, std::span<const int64_t> symbols) const {
    std::vector<int64_t> a = numbers(p_.a, symbols), b = numbers(p_.b, symbols);
    int64_t rows_a = a[a.size() - 2], columns_a = a.back();
    int64_t rows_b = b[b.size() - 2], columns_b = b.back();
    int64_t m = p_.transpose_a ? columns_a : rows_a, k = p_.transpose_a ? rows_a : columns_a;
    int64_t n = p_.transpose_b ? rows_b : columns_b, batch_a = 1, batch_b = 1;
    for (size_t i = 0; i + 2 < a.size(); ++i) batch_a *= a[i];
    for (size_t i = 0; i + 2 < b.size(); ++i) batch_b *= b[i];
    // A batch of none is none, beside one matrix too.
    int64_t batch = batch_a == 1 ? batch_b : batch_a;
    const auto* x = static_cast<const T*>(buffers[0]);
    const auto* y = static_cast<const T*>(buffers[1]);
    auto* z = static_cast<T*>(buffers[2]);
    for (int64_t t = 0; t < batch; ++t) {
      const T* xt = x + (batch_a == 1 ? 0 : t * m * k);
      const T* yt = y + (batch_b == 1 ? 0 : t * k * n);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            sum += static_cast<double>(xt[p_.transpose_a ? l * m + i : i * k + l]) *
                   static_cast<double>(yt[p_.transpose_b ? j * k + l : l * n + j]);
          }
          z[(t * m + i) * n + j] = static_cast<T>(sum);
        }
      }
    }
  }

  Product p_;
};

bool is_one(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end() - 2, [](const Expr& e) { return e.is(1); });
}

target::ClaimResult offer(const ir::Graph& graph, ir::OpId id, int64_t least) {
  const ir::Op& op = graph.op(id);
  const Type &a = graph.value(op.operands[0]).type, &b = graph.value(op.operands[1]).type;
  if (!a.known() || !b.known()) return target::Refusal{"a type is open"};
  if (a.dtype != DType::f32 && a.dtype != DType::f64) return target::Refusal{"not f32 or f64"};
  Product p{a.dtype,
            *a.shape,
            *b.shape,
            op.attrs.get<bool>("transpose_a"),
            op.attrs.get<bool>("transpose_b"),
            {}};
  Shape batch_a(p.a.begin(), p.a.end() - 2), batch_b(p.b.begin(), p.b.end() - 2);
  if (!is_one(p.a) && !is_one(p.b) && batch_a != batch_b)
    return target::Refusal{"batch axes broadcast against each other"};
  for (const Shape& shape : {p.a, p.b}) {
    for (const Expr& e : shape) collect_symbols(e, p.symbols);
  }
  target::ClaimOffer out;
  Expr products = element_count(*graph.value(op.results[0]).type.shape) *
                  p.a[p.a.size() - (p.transpose_a ? 2 : 1)];
  if (auto known = products.constant(); known && *known < least) out.too_small = "small";
  out.symbols = p.symbols;
  out.call = std::make_shared<ProductCall>(std::move(p));
  out.inputs = op.operands;
  out.outputs = op.results;
  return out;
}

}  // namespace

Device library_device(bool recording, int64_t least) {
  runtime::HostDeviceParts parts;
  parts.name = recording ? "recording library" : "library";
  parts.description.kind = "interpreter";
  parts.emitter = loop::make_interpreter_emitter();
  parts.recording = recording;
  parts.claims.push_back({"test.matmul", "matmul", [least](const ir::Graph& graph, ir::OpId op) {
                            return offer(graph, op, least);
                          }});
  return Device(std::make_shared<runtime::HostDevice>(std::move(parts)));
}

}  // namespace heddle::test
