// Inside of random_program(): the pool of values, the steps that add to it.
#pragma once

#include "ops/opdef.h"
#include "support/program/program.h"
#include "support/program/truth.h"

#include <map>
#include <optional>

namespace heddle::test {

class ProgramGenerator {
 public:
  ProgramGenerator(Tape& tape, RandomProgram& out);
  void run();

 private:
  using Domain = ops::AttrDomain;
  struct Made {  // one operation that was added
    const ops::OpDef* def = nullptr;
    Tensors results;
  };

  // ---- sizes and values
  Expr any_extent();
  std::optional<int64_t> size(const Expr& e, size_t which = 0) const;
  Tensor feed(DType dtype, const Shape& shape, double low, double high);
  ops::HostTensor random_values(DType dtype, const std::vector<int64_t>& shape, double low,
                                double high);
  Tensor constant(DType dtype, const Shape& shape, double low, double high);
  Tensor source(DType dtype, const Shape& shape, double low, double high) {
    return depth_ > 0 ? constant(dtype, shape, low, high) : feed(dtype, shape, low, high);
  }
  DType any_dtype(uint32_t classes);
  Tensor any_item(uint32_t classes = ops::kAny, int least_rank = 0);
  Tensor float_item() { return any_item(ops::kRealFloat); }

  // ---- operands (operands.cpp)
  Tensor fit(const Shape& shape, DType dtype, double low, double high);
  Tensor fit_item(Tensor t, const Shape& shape, DType dtype);
  Tensor with_rank(Tensor t, size_t rank);
  Tensor with_extent(const Tensor& t, size_t axis, const Expr& extent);
  Tensor decorated(const Tensor& t);
  Tensor tame(const Tensor& t);

  // ---- operations (operations.cpp)
  void step();
  bool try_operation(const ops::OpDef& def);
  std::vector<Shape> operand_shapes(const ops::Sample& sample, const Shape& first);
  std::optional<ir::Attr> draw(const ops::AttrSpec& spec, const std::vector<Shape>& shapes);
  std::vector<Expr> per_axis(const Domain& domain, const std::vector<Shape>& shapes);
  Shape reshaped(const Shape& shape);
  void note(const ops::OpDef& def, const ir::Op& op);

  // ---- regions (regions.cpp)
  void region();
  void add_cond();
  void add_for();
  void add_scan();
  void add_while();
  void add_call();
  void add_custom_gradient();
  Tensor body_value(const Type& type);
  Tensors carried_values(size_t count);
  void inner_steps(const Tensors& arguments);
  template <class F>
  auto inside(const std::string& kind, const Tensors& arguments, F build);

  // ---- variables and gradients (regions.cpp)
  void variable_step();
  void gradient_step();

  bool accept(Tensor t);
  bool accept_all(const Tensors& ts);
  bool stable(const Tensor& t);
  void finish();

  Tape& tape_;
  RandomProgram& out_;
  Graph graph_;
  Tensors pool_;
  std::vector<Expr> extents_;
  std::map<uint64_t, std::vector<int64_t>> symbol_sizes_;
  std::vector<std::vector<std::vector<int64_t>>> feed_shapes_;
  std::vector<std::pair<double, double>> feed_ranges_;
  int depth_ = 0;  // of regions
  std::string region_ = "top";
  bool few_digits_ = false;  // values are small multiples of 1/8
  const std::vector<const ops::OpDef*>& operations_;
};

}  // namespace heddle::test
