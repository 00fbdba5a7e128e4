#include "ops/support.h"

#include "base/check.h"

#include <heddle/ops.h>

#include <cmath>
#include <utility>

namespace heddle::ops {

using base::cat;

int resolve_axis(const InferContext& c, int64_t axis, int rank, const std::string& argument) {
  if (axis < -rank || axis >= rank)
    c.fail(cat(argument, " ", axis, " is outside a tensor of rank ", rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

int resolved_axis(int64_t axis, int rank) {
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> to_ints(const std::vector<int>& v) { return {v.begin(), v.end()}; }

std::vector<Expr> to_exprs(const std::vector<int64_t>& v) { return {v.begin(), v.end()}; }

std::string list(const std::vector<int64_t>& v) {
  std::string text = "[";
  for (size_t i = 0; i < v.size(); ++i) text += cat(i == 0 ? "" : ",", v[i]);
  return text + "]";
}

bool representable(double value, DType dtype) {
  if (is_floating(dtype) || is_small_float(dtype)) return true;
  if (dtype == DType::boolean) return value == 0 || value == 1;
  int bits = bit_width(dtype);
  bool is_signed = is_signed_integer(dtype) || dtype == DType::i2 || dtype == DType::i4;
  double low = is_signed ? -std::ldexp(1.0, bits - 1) : 0,
         high = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  return value >= low && value < high && value == std::trunc(value);
}

int64_t whole_number(double value) {
  if (representable(value, i64)) return static_cast<int64_t>(value);
  return representable(value, u64) ? static_cast<int64_t>(static_cast<uint64_t>(value)) : 0;
}

void check_fill(const InferContext& c, const std::string& argument, double value) {
  DType dtype = c.dtype(0);
  if (dtype == DType::boolean || representable(value, dtype)) return;
  c.fail(cat(argument, " ", value, " is not a value of ", name(dtype), ", the dtype of x"));
}

void require_shape(const InferContext& c, const Shape& given, const Shape& expected,
                   const std::string& message) {
  if (given.size() != expected.size()) c.fail(message);
  for (size_t k = 0; k < given.size(); ++k) c.require_equal(given[k], expected[k], message);
}

void check_distance(const InferContext& c, const std::string& argument, const Expr& distance) {
  if (distance.upper() >= -kMaxDistance && distance.lower() <= kMaxDistance) return;
  c.fail(cat(argument, " has ", distance.to_string(), ", expected at most 2^48 either way"));
}

bool may_know_elements(const Type& type) {
  if (!type.known() || !is_integer(type.dtype)) return false;
  std::optional<int64_t> n = element_count(*type.shape).constant();
  return n && *n <= kMaxKnownElements;
}

void copy_element(const HostTensor& from, int64_t i, HostTensor& to, int64_t j) {
  auto a = static_cast<size_t>(i);
  auto b = static_cast<size_t>(j);
  if (!from.f.empty()) to.f[b] = from.f[a];
  if (!from.i.empty()) to.i[b] = from.i[a];
  if (!from.c.empty()) to.c[b] = from.c[a];
}

void fill(HostTensor& t, double value) {
  for (double& v : t.f) v = value;
  for (int64_t& v : t.i) v = judge_scalar(value).i;
  for (std::complex<double>& v : t.c) v = value;
}

HostTensor judge_view(
    const HostTensor& x, const Type& type,
    const std::function<std::optional<int64_t>(const std::vector<int64_t>&)>& source) {
  HostTensor out(x.dtype, concrete_shape(type));
  for_each_index(out.shape, [&](const std::vector<int64_t>& coords, int64_t flat) {
    if (std::optional<int64_t> from = source(coords)) copy_element(x, *from, out, flat);
  });
  return out;
}

int64_t flat_index(const std::vector<int64_t>& coords, const std::vector<int64_t>& shape) {
  int64_t flat = 0;
  for (size_t k = 0; k < shape.size(); ++k) flat = flat * shape[k] + coords[k];
  return flat;
}

JudgeScalar judge_scalar(double value) {
  JudgeScalar v;
  v.f = value;
  v.c = value;
  v.i = whole_number(value);
  return v;
}

JudgeScalar load(const HostTensor& t, int64_t i) {
  auto at = static_cast<size_t>(i);
  JudgeScalar v;
  if (!t.f.empty()) v.f = t.f[at];
  if (!t.i.empty()) v.i = t.i[at];
  if (!t.c.empty()) v.c = t.c[at];
  return v;
}

void store(HostTensor& t, int64_t i, const JudgeScalar& v) {
  auto at = static_cast<size_t>(i);
  if (!t.f.empty()) t.f[at] = v.f;
  if (!t.i.empty()) t.i[at] = v.i;
  if (!t.c.empty()) t.c[at] = v.c;
}

JudgeScalar judge_multiply(const JudgeScalar& a, const JudgeScalar& b) {
  auto i = static_cast<int64_t>(static_cast<uint64_t>(a.i) * static_cast<uint64_t>(b.i));
  std::complex<double> c(a.c.real() * b.c.real() - a.c.imag() * b.c.imag(),
                         a.c.real() * b.c.imag() + a.c.imag() * b.c.real());
  return {a.f * b.f, i, c};
}

JudgeScalar judge_add(const JudgeScalar& a, const JudgeScalar& b) {
  auto i = static_cast<int64_t>(static_cast<uint64_t>(a.i) + static_cast<uint64_t>(b.i));
  return {a.f + b.f, i, a.c + b.c};
}

JudgeScalar judge_negate(const JudgeScalar& a) {
  return {-a.f, static_cast<int64_t>(0 - static_cast<uint64_t>(a.i)), -a.c};
}

ir::Val constant_val(ir::BodyBuilder& b, DType dtype, double value) {
  DType t = scalar_type(dtype);
  ir::Val v;
  v.re = is_integer(t) || t == DType::boolean ? b.constant_int(t, whole_number(value))
                                              : b.constant(t, value);
  if (is_complex(dtype)) v.im = b.constant(t, 0.0);
  return v;
}

using ir::ScalarOp;

ir::Val add(ir::BodyBuilder& b, ir::Val x, ir::Val y) {
  ir::Val v{b.binary(ScalarOp::add, x.re, y.re)};
  if (x.complex()) v.im = b.binary(ScalarOp::add, x.im, y.im);
  return v;
}

ir::Val multiply(ir::BodyBuilder& b, ir::Val x, ir::Val y) {
  if (!x.complex()) return {b.binary(ScalarOp::mul, x.re, y.re)};
  auto mul = [&](ir::NodeId p, ir::NodeId q) { return b.binary(ScalarOp::mul, p, q); };
  return {b.binary(ScalarOp::sub, mul(x.re, y.re), mul(x.im, y.im)),
          b.binary(ScalarOp::add, mul(x.re, y.im), mul(x.im, y.re))};
}

ir::Val conjugate(ir::BodyBuilder& b, ir::Val x) {
  if (x.complex()) x.im = b.unary(ScalarOp::neg, x.im);
  return x;
}

ir::Val negate(ir::BodyBuilder& b, ir::Val x) {
  ir::Val v{b.unary(ScalarOp::neg, x.re)};
  if (x.complex()) v.im = b.unary(ScalarOp::neg, x.im);
  return v;
}

ir::Val select(ir::BodyBuilder& b, ir::NodeId predicate, ir::Val x, ir::Val y) {
  if (predicate == ir::kNoNode) return x;
  ir::Val v{b.select(predicate, x.re, y.re)};
  if (x.complex()) v.im = b.select(predicate, x.im, y.im);
  return v;
}

ir::NodeId in_range(ir::BodyBuilder& b, const Expr& e, const Expr& lo, const Expr& hi) {
  ir::NodeId mask = ir::kNoNode;
  if (is_less_equal(lo, e) != Ordering::yes)
    mask = both(b, mask, b.binary(ScalarOp::ge, b.index(e), b.index(lo)));
  if (is_less_equal(e + 1, hi) != Ordering::yes)
    mask = both(b, mask, b.binary(ScalarOp::lt, b.index(e), b.index(hi)));
  return mask;
}

ir::NodeId both(ir::BodyBuilder& b, ir::NodeId x, ir::NodeId y) {
  if (x == ir::kNoNode) return y;
  if (y == ir::kNoNode) return x;
  return b.binary(ScalarOp::bit_and, x, y);
}

Tensor scalar_constant(const std::shared_ptr<ir::Graph>& graph, DType dtype, double value) {
  HostTensor t(dtype, {});
  fill(t, value);
  round_to_dtype(t);
  return graph->tensor(add_constant(*graph, to_literal(t)));
}

Tensor index_constant(const std::shared_ptr<ir::Graph>& graph, const std::vector<int64_t>& values) {
  HostTensor t(i64, {static_cast<int64_t>(values.size())});
  t.i = values;
  return graph->tensor(add_constant(*graph, to_literal(t)));
}

Tensor zeros_of(const std::shared_ptr<ir::Graph>& graph, const Type& type) {
  return broadcast_to(scalar_constant(graph, type.dtype, 0), *type.shape);
}

Tensor zeros_like(const Tensor& x) {
  if (x.type().known()) return zeros_of(x.graph(), x.type());
  return broadcast_like(constant_like(x, 0), x);
}

const Type& known_type(const Tensor& x, const std::string& op, const std::string& argument) {
  if (!x.valid()) throw GraphError(cat(op, ": ", argument, " is an empty Tensor"));
  if (!x.type().known())
    throw GraphError(cat(op, ": ", argument, " has the open type ", to_string(x.type()),
                         ", expected a known one"));
  return x.type();
}

std::shared_ptr<ir::Graph> graph_of(const Tensors& xs, const std::string& op) {
  for (const Tensor& x : xs)
    if (x.valid()) return x.graph();
  throw GraphError(cat(op, ": expected at least one tensor, given none"));
}

ir::RegionId build_region(const std::shared_ptr<ir::Graph>& graph,
                          const std::vector<Type>& argument_types, const std::string& op,
                          const std::string& block,
                          const std::function<Tensors(const Tensors&)>& body) {
  if (!body) throw GraphError(cat(op, ": ", block, " is an empty function"));
  ir::RegionId region = graph->open_region(argument_types);
  try {
    Tensors arguments;
    for (ir::ValueId v : graph->region(region).arguments) arguments.push_back(graph->tensor(v));
    Tensors results = body(arguments);
    std::vector<ir::ValueId> ids;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].valid())
        throw GraphError(cat(op, ": ", block, " gives an empty Tensor as result ", i));
      if (results[i].graph() != graph)
        throw GraphError(cat(op, ": ", block, " gives a tensor of another graph as result ", i));
      if (!graph->visible(results[i].id(), region))
        throw GraphError(cat(op, ": ", block, " gives as result ", i,
                             " a tensor that belongs to another block"));
      ids.push_back(results[i].id());
    }
    if (graph->insertion_region() != region)
      throw InternalError(cat(op, ": ", block, " left another region open"));
    graph->close_region(std::move(ids));
  } catch (...) {
    while (graph->insertion_region() != region) graph->abandon_region();
    graph->abandon_region();
    throw;
  }
  return region;
}

}  // namespace heddle::ops
