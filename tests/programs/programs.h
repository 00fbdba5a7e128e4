// Ten programs as their users would write them, on the public face alone: training, recurrent and
// attention networks, physics, clustering, pictures, solvers. Each has results, a scalar loss, and
// the inputs that the loss is differentiated by.
#pragma once

#include <heddle/heddle.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::test {

// An extent of a program: the number that it has in the test, and what the graph says of it.
struct Extent {
  Expr expr;
  int64_t size = 1;
};

struct ProgramFeed {
  Tensor tensor;
  std::vector<int64_t> shape;
  double low = -1, high = 1;  // of the values; integers are rounded
};

// Builds one program: hands out extents (numbers, or symbols where the program is open) and feeds.
class ProgramBuilder {
 public:
  ProgramBuilder(DType type, bool open) : dtype(type), open_(open) {}
  Extent extent(const std::string& name, int64_t size) const {
    return {open_ ? Expr(Dim(name, 1)) : Expr(size), size};
  }
  Tensor feed(const std::string& name, const std::vector<Extent>& extents, double low = -1,
              double high = 1) {
    return feed_of(dtype, name, extents, low, high);
  }
  Tensor integers(const std::string& name, const std::vector<Extent>& extents, int64_t low,
                  int64_t high) {
    return feed_of(i64, name, extents, static_cast<double>(low), static_cast<double>(high));
  }

  const DType dtype;
  Graph graph;
  std::vector<ProgramFeed> feeds;

 private:
  Tensor feed_of(DType type, const std::string& name, const std::vector<Extent>& extents,
                 double low, double high) {
    Shape shape;
    std::vector<int64_t> sizes;
    for (const Extent& e : extents) {
      shape.push_back(e.expr);
      sizes.push_back(e.size);
    }
    feeds.push_back({graph.placeholder(type, shape, name), sizes, low, high});
    return feeds.back().tensor;
  }
  bool open_;
};

struct ProgramResult {
  Tensors results;
  Tensor loss;  // a scalar
  Tensors parameters;
};

struct Program {
  std::string name;
  ProgramResult (*write)(ProgramBuilder& b);
};
const std::vector<Program>& programs();

}  // namespace heddle::test
