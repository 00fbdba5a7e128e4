#include "programs.h"

#include "base/hash.h"
#include "ops/opdef.h"

#include <bit>
#include <functional>

namespace heddle::test {
namespace {

constexpr int64_t kOperationChunk = 100'000, kChainChunk = 1'000;
constexpr int kChains = 200, kSteps = 12, kChainInputs = 3;

bool compared(DType d) { return is_real_float(d) || is_integer(d) || d == bool_; }

// Does the operation take f32 operands and give a real result?
bool takes_f32(const ops::OpDef& def, const ops::Sample& sample) {
  Graph graph;
  Tensors xs;
  for (size_t k = 0; k < sample.shapes.size(); ++k) xs.push_back(graph.placeholder(f32, {4}));
  try {
    Tensors results = ops::apply_all(def.name, xs, sample.attrs, {}, graph.impl());
    return results.size() == 1 && compared(results[0].dtype());
  } catch (const GraphError&) {
    return false;
  }
}

// A stream of small integers.
class Choice {
 public:
  explicit Choice(uint64_t seed) : state_(seed) {}
  size_t below(size_t n) { return static_cast<size_t>((state_ = base::mix(state_, n)) >> 11) % n; }

 private:
  uint64_t state_;
};

Tensor unary(size_t which, const Tensor& x) {
  switch (which) {
    case 0:
      return negate(x);
    case 1:
      return abs(x);
    case 2:
      return square(x);
    case 3:
      return sqrt(abs(x));
    case 4:
      return rsqrt(x);
    case 5:
      return exp(x);
    case 6:
      return log(x);
    case 7:
      return tanh(x);
    case 8:
      return sigmoid(x);
    case 9:
      return erf(x);
    default:
      return relu(x);
  }
}
constexpr size_t kUnary = 11;

Tensor binary(size_t which, const Tensor& a, const Tensor& b) {
  switch (which) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a / b;
    case 4:
      return minimum(a, b);
    case 5:
      return maximum(a, b);
    case 6:
      return power(a, b);
    case 7:
      return floor_modulo(a, b);
    case 8:
      return select(less(a, b), a, b);
    default:
      return a * b + b;
  }
}
constexpr size_t kBinary = 10;

Tensor chain(uint64_t seed, const Tensors& xs) {
  Choice choice(seed);
  Tensors values = xs;
  auto recent = [&] { return values[values.size() - 1 - choice.below(3)]; };
  for (int k = 0; k < kSteps; ++k) {
    Tensor a = recent();
    bool two = choice.below(2) == 0;
    values.push_back(two ? binary(choice.below(kBinary), a, recent())
                         : unary(choice.below(kUnary), a));
  }
  return values.back();
}

}  // namespace

std::vector<Program> elementwise_programs() {
  ops::link_all_ops();
  std::vector<Program> list;
  for (const ops::OpDef* def : ops::all_ops()) {
    if (def->kind != ops::Kind::elementwise) continue;
    for (size_t s = 0; s < def->samples.size(); ++s) {
      const ops::Sample& sample = def->samples[s];
      if ((s > 0 && sample.attrs.items().empty()) || sample.shapes.empty() ||
          !takes_f32(*def, sample))
        continue;
      Program p;
      p.name = s == 0 ? def->name : def->name + "#" + std::to_string(s);
      p.inputs = static_cast<int>(sample.shapes.size());
      p.chunk = kOperationChunk;
      p.build = [name = def->name, attrs = sample.attrs](const Tensors& xs) {
        return ops::apply(name, xs, attrs);
      };
      list.push_back(std::move(p));
    }
  }
  return list;
}

std::vector<Program> chain_programs() {
  std::vector<Program> list;
  for (int k = 0; k < kChains; ++k) {
    list.push_back({"chain" + std::to_string(k), kChainInputs, kChainChunk,
                    [k](const Tensors& xs) { return chain(static_cast<uint64_t>(k), xs); }});
  }
  return list;
}

float bit_input(int stream, uint64_t k) {
  static constexpr float kSpecial[] = {
      0.0F,        1.0F,    2.0F,     0.5F,    0x1p-126F,       0x1p-149F,
      0x1p-24F,    0x1p23F, 0x1p24F,  0x1p31F, 0x1p32F,         88.72284F,
      103.97208F,  9.0109F, 16.6355F, 3.925F,  0x1.fffffep127F, 3.14159265F,
      0.69314718F, 10.0F};
  uint64_t r = base::mix(base::mix(0x6269747321ULL, static_cast<uint64_t>(stream)), k);
  auto low = static_cast<uint32_t>(r);
  switch (r >> 62) {
    case 0:
    case 1:
      return std::bit_cast<float>(low);
    case 2: {
      float special = kSpecial[(low >> 8) % std::size(kSpecial)];
      uint32_t bits = std::bit_cast<uint32_t>(special) + (low & 7U) - 4U;
      return std::bit_cast<float>(bits ^ ((low & 8U) << 28));
    }
    default:
      return static_cast<float>(static_cast<int32_t>(low)) * 0x1p-28F;
  }
}

}  // namespace heddle::test
