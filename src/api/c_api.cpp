#include <heddle/heddle_c.h>

#include "base/check.h"
#include "generated/build_info.h"
#include "ops/opdef.h"
#include "runtime/dlpack_abi.h"

#include <heddle/heddle.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

using namespace heddle;

struct hd_graph {
  Graph graph;
};
struct hd_executable {
  Executable executable;
};

namespace {

thread_local std::string last_error;

int fail(int status, const char* what) {
  last_error = what;
  return status;
}

template <class F>
int guarded(F f) {
  try {
    f();
    return HD_OK;
  } catch (const GraphError& e) {
    return fail(HD_GRAPH_ERROR, e.what());
  } catch (const UnsupportedError& e) {
    return fail(HD_UNSUPPORTED_ERROR, e.what());
  } catch (const DeviceError& e) {
    return fail(HD_DEVICE_ERROR, e.what());
  } catch (const std::bad_alloc&) {
    return fail(HD_DEVICE_ERROR, "out of memory");
  } catch (const std::exception& e) {
    return fail(HD_INTERNAL_ERROR, e.what());
  }
}

template <class T>
T* given(T* pointer, const char* what) {
  if (pointer == nullptr) throw GraphError(base::cat(what, " is null"));
  return pointer;
}

Tensor tensor_of(const hd_graph* g, hd_tensor id, const char* what) {
  if (id >= g->graph.impl()->value_count())
    throw GraphError(base::cat(what, ": there is no tensor ", id, " in this graph"));
  return {g->graph.impl(), id};
}

DType dtype_of(const char* text) {
  std::optional<DType> dtype = parse_dtype(given(text, "dtype"));
  if (!dtype) throw GraphError(base::cat("there is no dtype \"", text, "\""));
  return *dtype;
}

// Borrowed: the caller keeps the tensor, so its deleter is not called.
Array borrow(DLManagedTensor* tensor) {
  auto copy = std::make_unique<DLManagedTensor>(*given(tensor, "a tensor"));
  copy->deleter = [](DLManagedTensor* self) { delete self; };
  Array array = Array::from_dlpack(copy.get());
  [[maybe_unused]] DLManagedTensor* owned_by_array = copy.release();
  return array;
}

// The attribute in the form that the operation declares.
ir::Attr attribute(const hd_attribute& a, const ops::AttrSpec& spec, std::string_view op) {
  int type = spec.fallback ? static_cast<int>(spec.fallback->index()) : spec.type;
  auto integers = [&] {
    return std::vector<int64_t>(given(a.integers, a.name), a.integers + a.count);
  };
  auto one = [&](auto* items) {
    if (items == nullptr || a.count != 1) {
      throw GraphError(
          base::cat(op, ": attribute ", a.name, " expects one ", ir::attr_type_name(type)));
    }
    return *items;
  };
  if (type == ir::attr_type<bool>) return one(a.integers) != 0;
  if (type == ir::attr_type<int64_t>) return one(a.integers);
  if (type == ir::attr_type<double>) return one(a.numbers);
  if (type == ir::attr_type<std::string>) return std::string(given(a.text, a.name));
  if (type == ir::attr_type<DType>) return dtype_of(a.text);
  if (type == ir::attr_type<std::vector<int64_t>>) return integers();
  if (type == ir::attr_type<std::vector<double>>)
    return std::vector<double>(given(a.numbers, a.name), a.numbers + a.count);
  if (type == ir::attr_type<Expr>) return Expr(one(a.integers));
  if (type == ir::attr_type<std::vector<Expr>>) {
    std::vector<int64_t> v = integers();
    return std::vector<Expr>(v.begin(), v.end());
  }
  throw GraphError(
      base::cat(op, ": attribute ", a.name, " cannot be given through the C interface"));
}

ir::Attrs attributes(const ops::OpDef& def, const hd_attribute* items, size_t count) {
  ir::Attrs attrs;
  for (size_t i = 0; i < count; ++i) {
    std::string_view name = given(items[i].name, "an attribute's name");
    auto spec = std::find_if(def.attrs.begin(), def.attrs.end(),
                             [&](const ops::AttrSpec& s) { return s.name == name; });
    if (spec == def.attrs.end())
      throw GraphError(base::cat(def.name, ": there is no attribute \"", name, "\""));
    attrs.set(std::string(name), attribute(items[i], *spec, def.name));
  }
  return attrs;
}

}  // namespace

extern "C" {

const char* hd_version(void) { return HEDDLE_VERSION_STRING; }
const char* hd_last_error(void) { return last_error.c_str(); }

int hd_graph_create(hd_graph** graph) {
  return guarded([&] {
    given(graph, "graph");  // first: what is made is the caller's only once it is written there
    *graph = new hd_graph;
  });
}

int hd_graph_from_text(const char* text, hd_graph** graph) {
  return guarded([&] {
    given(graph, "graph");
    *graph = new hd_graph{Graph::from_text(given(text, "text"))};
  });
}

int hd_graph_to_text(const hd_graph* graph, char* text, size_t capacity, size_t* needed) {
  return guarded([&] {
    std::string all = given(graph, "graph")->graph.to_text();
    if (needed != nullptr) *needed = all.size() + 1;
    if (capacity == 0) return;
    size_t n = std::min(capacity - 1, all.size());
    std::memcpy(given(text, "text"), all.data(), n);
    text[n] = 0;
  });
}

void hd_graph_destroy(hd_graph* graph) { delete graph; }

int hd_graph_placeholder(hd_graph* graph, const char* dtype, int rank, const int64_t* shape,
                         const char* name, hd_tensor* tensor) {
  return guarded([&] {
    if (rank < 0 || rank > kMaxRank)
      throw GraphError(base::cat("placeholder: rank ", rank, " is not in 0..", kMaxRank));
    Shape extents;
    for (int k = 0; k < rank; ++k)
      extents.push_back(given(shape, "shape")[k] < 0 ? Expr(Dim()) : Expr(shape[k]));
    *given(tensor, "tensor") =
        given(graph, "graph")
            ->graph.placeholder(dtype_of(dtype), extents, name != nullptr ? name : "")
            .id();
  });
}

int hd_graph_constant(hd_graph* graph, DLManagedTensor* data, hd_tensor* tensor) {
  return guarded(
      [&] { *given(tensor, "tensor") = given(graph, "graph")->graph.constant(borrow(data)).id(); });
}

int hd_graph_placeholders(const hd_graph* graph, hd_tensor* tensors, size_t capacity,
                          size_t* count) {
  return guarded([&] {
    std::vector<Tensor> all = given(graph, "graph")->graph.placeholders();
    *given(count, "count") = all.size();
    for (size_t i = 0; i < std::min(capacity, all.size()); ++i)
      given(tensors, "tensors")[i] = all[i].id();
  });
}

int hd_graph_find(const hd_graph* graph, const char* name, hd_tensor* tensor) {
  return guarded([&] {
    *given(tensor, "tensor") = given(graph, "graph")->graph.find(given(name, "name")).id();
  });
}

int hd_graph_op(hd_graph* graph, const char* op, const hd_tensor* operands, size_t operand_count,
                const hd_attribute* items, size_t attribute_count, hd_tensor* results,
                size_t result_count) {
  return guarded([&] {
    given(graph, "graph");
    const ops::OpDef* def = ops::find_op(given(op, "op"));
    if (def == nullptr) throw GraphError(base::cat("there is no operation \"", op, "\""));
    Tensors in;
    for (size_t i = 0; i < operand_count; ++i)
      in.push_back(tensor_of(graph, given(operands, "operands")[i], op));
    Tensors out =
        ops::apply_all(op, in, attributes(*def, items, attribute_count), {}, graph->graph.impl());
    if (out.size() != result_count) {
      throw GraphError(
          base::cat(op, ": gives ", out.size(), " results, the caller expects ", result_count));
    }
    for (size_t i = 0; i < out.size(); ++i) given(results, "results")[i] = out[i].id();
  });
}

int hd_graph_compile(hd_graph* graph, const hd_tensor* feeds, size_t feed_count,
                     const hd_tensor* targets, size_t target_count, const char* device_name,
                     hd_executable** executable) {
  return guarded([&] {
    given(graph, "graph");
    CompileSpec spec;
    for (size_t i = 0; i < feed_count; ++i)
      spec.feeds.emplace_back(tensor_of(graph, given(feeds, "feeds")[i], "compile"));
    for (size_t i = 0; i < target_count; ++i)
      spec.targets.push_back(tensor_of(graph, given(targets, "targets")[i], "compile"));
    Device device = device_name != nullptr ? heddle::device(device_name) : default_device();
    given(executable, "executable");
    *executable = new hd_executable{graph->graph.compile(spec, device)};
  });
}

void hd_executable_destroy(hd_executable* executable) { delete executable; }

int hd_executable_run(const hd_executable* executable, DLManagedTensor* const* inputs,
                      size_t input_count, DLManagedTensor** outputs, size_t output_count) {
  return guarded([&] {
    std::vector<Array> in;
    for (size_t i = 0; i < input_count; ++i) in.push_back(borrow(given(inputs, "inputs")[i]));
    std::vector<Array> out = given(executable, "executable")->executable.run(in);
    if (out.size() != output_count) {
      throw GraphError(
          base::cat("run: gives ", out.size(), " outputs, the caller expects ", output_count));
    }
    for (size_t i = 0; i < out.size(); ++i) given(outputs, "outputs")[i] = out[i].to_dlpack();
  });
}

}  // extern "C"
