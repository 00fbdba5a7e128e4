#include "plan/helper_kernels.h"

#include "base/check.h"

namespace heddle::plan {

namespace {

using ir::BodyBuilder;
using ir::BufferRole;
using ir::NodeId;
using ir::ScalarOp;

DType word(int bytes) {
  switch (bytes) {
    case 1:
      return DType::u8;
    case 2:
      return DType::u16;
    case 4:
      return DType::u32;
    default:
      HD_CHECK(bytes == 8, "words have 1, 2, 4 or 8 bytes");
      return DType::u64;
  }
}

ir::Buffer scalar_buffer(std::string name, DType dtype, BufferRole role) {
  return {std::move(name), dtype, {}, role};
}

// A nest of one phase that only stores.
ir::Stmt nest_stmt(const std::string& name, std::vector<ir::Axis> axes, BodyBuilder& b) {
  auto nest = std::make_shared<ir::Nest>();
  nest->outer = std::move(axes);
  nest->phases.emplace_back().body = b.take();
  nest->locations = {name};
  ir::Stmt stmt;
  stmt.nest = std::move(nest);
  return stmt;
}

// A kernel of one such nest.
ir::Kernel single_nest(std::string name, std::vector<ir::Buffer> buffers,
                       std::vector<ir::Axis> axes, BodyBuilder& b) {
  ir::Kernel kernel;
  kernel.name = std::move(name);
  kernel.buffers = std::move(buffers);
  for (const ir::Buffer& buffer : kernel.buffers) {
    for (const Expr& extent : buffer.extents) collect_symbols(extent, kernel.symbols);
  }
  for (const ir::Axis& axis : axes) collect_symbols(axis.extent, kernel.symbols);
  kernel.body.push_back(nest_stmt(kernel.name, std::move(axes), b));
  return kernel;
}

ir::Kernel compare(std::string name, const Expr* count, bool combine) {
  BodyBuilder b;
  std::vector<ir::Buffer> buffers{scalar_buffer("counter", DType::i64, BufferRole::input)};
  NodeId k = b.load(DType::i64, {0, {}});
  NodeId bound;
  if (count != nullptr) {
    bound = b.index(*count);
  } else {
    buffers.push_back(scalar_buffer("count", DType::i64, BufferRole::input));
    bound = b.load(DType::i64, {1, {}});
  }
  NodeId result = b.binary(ScalarOp::lt, k, bound);
  if (combine) {
    auto id = static_cast<ir::BufferId>(buffers.size());
    buffers.push_back(scalar_buffer("so_far", DType::boolean, BufferRole::input));
    result = b.binary(ScalarOp::bit_and, b.load(DType::boolean, {id, {}}), result);
  }
  auto out = static_cast<ir::BufferId>(buffers.size());
  buffers.push_back(scalar_buffer("predicate", DType::boolean, BufferRole::output));
  b.store({out, {}}, result);
  ir::Kernel kernel = single_nest(std::move(name), std::move(buffers), {}, b);
  if (count != nullptr) collect_symbols(*count, kernel.symbols);
  return kernel;
}

ir::Kernel row_kernel(int word_bytes, const Expr& words, const Expr& count, bool load) {
  BodyBuilder b;
  DType dtype = word(word_bytes);
  SymbolRef i = make_loop_symbol("i", words);
  NodeId k = b.load(DType::i64, {1, {}});
  SymbolRef row = b.bind(k, 0, std::max<int64_t>(count.upper() - 1, 0), &count);
  std::vector<Expr> all{Expr(row), Expr(i)}, one{Expr(i)};
  b.store({2, load ? one : all}, b.load(dtype, {0, load ? all : one}));
  ir::Buffer many{load ? "xs" : "stacked",
                  dtype,
                  {count, words},
                  load ? BufferRole::input : BufferRole::output};
  ir::Buffer single{
      load ? "slice" : "row", dtype, {words}, load ? BufferRole::output : BufferRole::input};
  ir::Buffer counter = scalar_buffer("counter", DType::i64, BufferRole::input);
  std::vector<ir::Buffer> buffers{load ? many : single, counter, load ? single : many};
  return single_nest(load ? "load_row" : "store_row", std::move(buffers),
                     {{i, words, ir::AxisKind::mapped}}, b);
}

}  // namespace

ir::Kernel increment_kernel() {
  BodyBuilder b;
  b.store({1, {}},
          b.binary(ScalarOp::add, b.load(DType::i64, {0, {}}), b.constant_int(DType::i64, 1)));
  return single_nest("increment",
                     {scalar_buffer("from", DType::i64, BufferRole::input),
                      scalar_buffer("to", DType::i64, BufferRole::output)},
                     {}, b);
}

ir::Kernel less_kernel(const Expr& count) { return compare("count_test", &count, false); }
ir::Kernel less_value_kernel() { return compare("count_test", nullptr, false); }
ir::Kernel and_less_kernel(const Expr& count) { return compare("bounded_test", &count, true); }

ir::Kernel load_row_kernel(int word_bytes, const Expr& words, const Expr& count) {
  return row_kernel(word_bytes, words, count, true);
}
ir::Kernel store_row_kernel(int word_bytes, const Expr& words, const Expr& count) {
  return row_kernel(word_bytes, words, count, false);
}

ir::Kernel copy_kernel(const std::vector<Words>& values) {
  ir::Kernel kernel;
  kernel.name = "copies";
  for (const Words& v : values) {
    auto from = static_cast<ir::BufferId>(kernel.buffers.size());
    DType dtype = word(v.bytes);
    kernel.buffers.push_back({base::cat("from", from / 2), dtype, {v.count}, BufferRole::input});
    kernel.buffers.push_back({base::cat("to", from / 2), dtype, {v.count}, BufferRole::output});
    collect_symbols(v.count, kernel.symbols);
    SymbolRef i = make_loop_symbol("i", v.count);
    BodyBuilder b;
    b.store({from + 1, {Expr(i)}}, b.load(dtype, {from, {Expr(i)}}));
    kernel.body.push_back(nest_stmt(kernel.name, {{i, v.count, ir::AxisKind::mapped}}, b));
  }
  return kernel;
}

ir::Kernel strided_kernel(int word_bytes, int rank, bool scatter) {
  constexpr int64_t kFar = int64_t{1} << 40;  // words
  DType dtype = word(word_bytes);
  BodyBuilder b;
  std::vector<SymbolRef> symbols;
  std::vector<ir::Axis> axes;
  std::vector<Expr> extents, coords;
  for (int k = 0; k < rank; ++k) {
    symbols.push_back(make_symbol(SymbolKind::extent, base::cat("n", k), 0, kFar));
    extents.emplace_back(symbols.back());
    SymbolRef var = make_loop_symbol(base::cat("i", k), extents.back());
    axes.push_back({var, extents.back(), ir::AxisKind::mapped});
    coords.emplace_back(var);
  }
  Expr flat;
  for (int k = 0; k < rank; ++k) {
    symbols.push_back(make_symbol(SymbolKind::extent, base::cat("s", k), -kFar, kFar));
    flat = flat + coords[static_cast<size_t>(k)] * Expr(symbols.back());
  }
  symbols.push_back(make_symbol(SymbolKind::extent, "offset", 0, kFar));
  flat = flat + Expr(symbols.back());
  symbols.push_back(make_symbol(SymbolKind::extent, "length", 0, kFar));
  ir::Access strided{scatter ? 1U : 0U, {flat}}, packed{scatter ? 0U : 1U, coords};
  b.store(scatter ? strided : packed, b.load(dtype, scatter ? packed : strided));
  ir::Buffer view{
      "view", dtype, {Expr(symbols.back())}, scatter ? BufferRole::output : BufferRole::input};
  ir::Buffer dense{"packed", dtype, extents, scatter ? BufferRole::input : BufferRole::output};
  std::vector<ir::Buffer> buffers = scatter ? std::vector{dense, view} : std::vector{view, dense};
  ir::Kernel kernel =
      single_nest(scatter ? "unpack" : "pack", std::move(buffers), std::move(axes), b);
  kernel.symbols = std::move(symbols);
  return kernel;
}

}  // namespace heddle::plan
