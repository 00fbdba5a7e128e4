// One operation of the registry with operands and attributes that fit it.
#include "support/program/generator.h"

#include <algorithm>

namespace heddle::test {

using ops::AttrSpec;
using ops::OpDef;
using ops::Sample;

namespace {

const ops::OperandSpec& operand_spec(const OpDef& def, size_t k) {
  return def.operands[std::min(k, def.operands.size() - 1)];
}

Shape shape_of_numbers(const std::vector<int64_t>& numbers) {
  return Shape(numbers.begin(), numbers.end());
}

template <class T>
std::optional<ir::Attr> as_list(const std::vector<Expr>& numbers) {
  std::vector<T> out;
  for (const Expr& e : numbers) {
    if constexpr (std::is_same_v<T, Expr>) {
      out.push_back(e);
    } else {
      out.push_back(static_cast<T>(*e.constant()));
    }
  }
  return ir::Attr(out);
}

int type_of(const AttrSpec& spec) {
  return spec.fallback ? static_cast<int>(spec.fallback->index()) : spec.type;
}

}  // namespace

void ProgramGenerator::step() {
  for (int tries = 0; tries < 8; ++tries) {
    const OpDef& def = *tape_.pick(operations_);
    try {
      if (try_operation(def)) return;
    } catch (const GraphError&) {  // this draw is not valid
    } catch (const UnsupportedError&) {
    }
  }
}

// The shapes of a sample with its extents renamed: to those of `first` where the ranks agree.
std::vector<Shape> ProgramGenerator::operand_shapes(const Sample& sample, const Shape& first) {
  std::map<int64_t, Expr> names{{1, Expr(1)}};
  bool follow = !sample.shapes.empty() && sample.shapes[0].size() == first.size();
  if (follow) {
    for (size_t k = 0; k < first.size(); ++k) names.insert_or_assign(sample.shapes[0][k], first[k]);
  }
  std::vector<Shape> out;
  for (size_t s = 0; s < sample.shapes.size(); ++s) {
    if (s == 0 && !first.empty()) {
      out.push_back(first);
      continue;
    }
    if (!follow && sample.shapes[s] == sample.shapes[0]) {
      out.push_back(first);
      continue;
    }
    Shape shape;
    for (int64_t n : sample.shapes[s]) {
      auto it = names.find(n);
      if (it == names.end()) it = names.emplace(n, any_extent()).first;
      shape.push_back(it->second);
    }
    out.push_back(shape);
  }
  return out;
}

bool ProgramGenerator::try_operation(const OpDef& def) {
  const Sample& sample = tape_.pick(def.samples);
  bool verbatim = tape_.chance(15);
  Tensors operands;
  std::vector<Shape> shapes;
  DType dtype = f32;
  if (!sample.shapes.empty()) {
    const ops::OperandSpec& spec = operand_spec(def, 0);
    int least = sample.shapes[0].empty() || def.kind == ops::Kind::elementwise ? 0 : 1;
    Tensor first;
    if (verbatim || (spec.dtypes & ops::kAny) == 0) {
      dtype = any_dtype(spec.dtypes);
      for (const auto& s : sample.shapes) shapes.push_back(shape_of_numbers(s));
      first = fit(shapes[0], dtype, sample.low, sample.high);
    } else {
      first = any_item(spec.dtypes, least);
      dtype = first.dtype();
      shapes = operand_shapes(sample, first.shape());
      shapes[0] = first.shape();
    }
    operands.push_back(decorated(first));
  }
  for (size_t k = 1; k < shapes.size(); ++k) {
    uint32_t accepted = operand_spec(def, k).dtypes;
    DType d = ops::in_class(dtype, accepted) && accepted != ops::kInteger ? dtype
              : accepted == ops::kInteger ? (tape_.chance(50) ? i32 : i64)
                                          : any_dtype(accepted);
    // Elementwise operands broadcast.
    if (def.kind == ops::Kind::elementwise && !shapes[k].empty() && tape_.chance(30)) {
      if (tape_.chance(50)) {
        shapes[k][tape_.below(shapes[k].size())] = 1;
      } else {
        shapes[k].erase(shapes[k].begin());
      }
    }
    double low = sample.low, high = sample.high;
    if (accepted == ops::kInteger && low < -2) {  // indices of an axis of operand 0, and beyond
      int64_t n = 4;
      for (const Expr& e : shapes[0]) n = std::max(n, size(e).value_or(4));
      low = static_cast<double>(-n - (tape_.chance(30) ? 1 : 0));
      high = static_cast<double>(n - (tape_.chance(30) ? 0 : 1));
    }
    operands.push_back(fit(shapes[k], d, low, high));
  }
  ir::Attrs attrs;
  for (const AttrSpec& spec : def.attrs) {
    const ir::Attr* given = sample.attrs.find(spec.name);
    bool keep = given != nullptr && (verbatim || tape_.chance(10));
    if (keep) {
      attrs.set(spec.name, *given);
      continue;
    }
    if (spec.fallback && tape_.chance(30)) continue;
    if (std::optional<ir::Attr> value = draw(spec, shapes)) {
      attrs.set(spec.name, *value);
    } else if (given != nullptr) {
      attrs.set(spec.name, *given);
    }
  }
  Tensors results = ops::apply_all(def.name, operands, attrs, {}, graph_.impl());
  if (results.empty()) return false;
  if (!accept_all(results)) return false;
  note(def, graph_.impl()->op(graph_.impl()->value(results[0].id()).op));
  return true;
}

// ---- attributes

Shape ProgramGenerator::reshaped(const Shape& shape) {
  Shape out = shape;
  size_t changes = 1 + tape_.below(3);
  for (size_t c = 0; c < changes; ++c) {
    size_t at = tape_.below(out.size() + 1);
    switch (tape_.below(4)) {
      case 0:  // an axis of extent 1 more
        out.insert(out.begin() + static_cast<std::ptrdiff_t>(at), Expr(1));
        break;
      case 1:  // two axes merged
        if (at + 1 < out.size()) {
          out[at] = out[at] * out[at + 1];
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
        break;
      case 2:  // an axis split
        if (at < out.size()) {
          std::optional<int64_t> n = out[at].constant();
          for (int64_t f : {2, 3, 5, 13}) {
            if (!n || *n % f != 0 || *n == 0) continue;
            out[at] = *n / f;
            out.insert(out.begin() + static_cast<std::ptrdiff_t>(at), Expr(f));
            break;
          }
        }
        break;
      default:  // axes of extent 1 less
        if (at < out.size() && out[at].is(1))
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return out;
}

std::vector<Expr> ProgramGenerator::per_axis(const Domain& domain,
                                             const std::vector<Shape>& shapes) {
  auto operand = static_cast<size_t>(domain.operand);
  size_t rank = operand < shapes.size() ? shapes[operand].size() : 0;
  std::vector<Expr> out;
  if (domain.may_be_empty && tape_.chance(30)) return out;
  for (size_t k = 0; k < rank; ++k)
    out.emplace_back(
        tape_.between(static_cast<int64_t>(domain.low), static_cast<int64_t>(domain.high)));
  return out;
}

std::optional<ir::Attr> ProgramGenerator::draw(const AttrSpec& spec,
                                               const std::vector<Shape>& shapes) {
  const Domain& d = spec.domain;
  int type = type_of(spec);
  size_t rank = shapes.empty() ? 0 : shapes[0].size();
  auto any_axis = [&] {
    auto n = static_cast<int64_t>(rank);
    return n == 0 ? int64_t{0} : tape_.between(-n, n - 1);
  };
  switch (d.kind) {
    case Domain::Kind::choice:
      return ir::Attr(tape_.pick(d.choices));
    case Domain::Kind::dtype:
      return ir::Attr(any_dtype(d.dtypes));
    case Domain::Kind::axis:
      return ir::Attr(any_axis());
    case Domain::Kind::axes: {
      std::vector<int64_t> axes;
      for (size_t k = 0; k < rank; ++k) {
        if (!tape_.chance(50)) continue;
        auto axis = static_cast<int64_t>(k);
        axes.push_back(tape_.chance(30) ? axis - static_cast<int64_t>(rank) : axis);
      }
      if (tape_.chance(30)) std::reverse(axes.begin(), axes.end());
      return ir::Attr(axes);
    }
    case Domain::Kind::permutation: {
      std::vector<int64_t> p;
      for (size_t k = 0; k < rank; ++k)
        p.insert(p.begin() + static_cast<std::ptrdiff_t>(tape_.below(k + 1)),
                 static_cast<int64_t>(k));
      return ir::Attr(p);
    }
    case Domain::Kind::per_axis: {
      std::vector<Expr> numbers = per_axis(d, shapes);
      return type == ir::attr_type<std::vector<int64_t>> ? as_list<int64_t>(numbers)
                                                         : as_list<Expr>(numbers);
    }
    case Domain::Kind::reshaped:
      return ir::Attr(reshaped(shapes.empty() ? Shape{} : shapes[0]));
    case Domain::Kind::broadcast: {
      Shape to = shapes.empty() ? Shape{} : shapes[0];
      for (Expr& e : to) {
        if (e.is(1)) e = any_extent();
      }
      for (size_t k = tape_.below(3); k > 0; --k) to.insert(to.begin(), any_extent());
      return ir::Attr(to);
    }
    case Domain::Kind::extents: {
      Shape to;
      for (size_t k = 1 + tape_.below(3); k > 0; --k) to.push_back(any_extent());
      return ir::Attr(to);
    }
    case Domain::Kind::by_type:
      break;
  }
  if (type == ir::attr_type<bool>) return ir::Attr(tape_.chance(50));
  if (type == ir::attr_type<int64_t>)
    return ir::Attr(tape_.between(static_cast<int64_t>(d.low), static_cast<int64_t>(d.high)));
  if (type == ir::attr_type<double>)
    return ir::Attr(d.low + (d.high - d.low) * tape_.below(9) / 8.0);
  return std::nullopt;
}

// ---- coverage

void ProgramGenerator::note(const OpDef& def, const ir::Op& op) {
  std::vector<std::string>& c = out_.coverage;
  c.push_back(def.name);
  c.push_back(def.name + " in " + region_);
  c.push_back(def.name + " of " +
              std::string(name(graph_.impl()->value(op.results[0]).type.dtype)));
  for (const auto& [key, value] : op.attrs.items()) {
    std::string text;
    if (const auto* b = std::get_if<bool>(&value)) text = *b ? "true" : "false";
    if (const auto* s = std::get_if<std::string>(&value)) text = *s;
    if (const auto* d = std::get_if<DType>(&value)) text = std::string(name(*d));
    if (const auto* n = std::get_if<int64_t>(&value)) text = *n < 0 ? "negative" : "positive";
    if (const auto* l = std::get_if<std::vector<int64_t>>(&value)) {
      bool negative = std::any_of(l->begin(), l->end(), [](int64_t n) { return n < 0; });
      text = l->empty() ? "none" : negative ? "some negative" : std::to_string(l->size());
    }
    if (!text.empty()) c.push_back(def.name + " " + key + "=" + text);
  }
  for (ir::ValueId v : op.operands) {
    ir::OpId made = graph_.impl()->value(v).op;
    if (made != ir::kNone)
      c.push_back(def.name + " after " + std::string(graph_.impl()->op(made).name));
  }
}

}  // namespace heddle::test
