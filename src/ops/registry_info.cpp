// heddle::operations(): the registry as text for tools and documentation.
#include "ops/opdef.h"

#include <heddle/registry.h>
#include <heddle/version.h>

#include <sstream>

namespace heddle {

namespace {

std::string kind_name(ops::Kind kind) {
  static constexpr const char* kNames[] = {"elementwise", "reduction",  "scan",
                                           "view",        "index",      "composite",
                                           "library",     "structural", "source"};
  return kNames[static_cast<size_t>(kind)];
}

std::string dtype_names(uint32_t dtypes) {
  if ((dtypes & ops::kAnyStored) == ops::kAnyStored) return "any dtype, storage types too";
  if (dtypes == ops::kAny) return "any dtype with arithmetic";
  std::string s;
  auto add = [&](uint32_t bit, const char* text) {
    if ((dtypes & bit) != 0) s += (s.empty() ? "" : ", ") + std::string(text);
  };
  add(ops::kRealFloat, "f64 f32 f16 bf16");
  add(ops::kComplex, "complex");
  add(ops::kInteger, "integers");
  add(ops::kBool, "bool");
  add(ops::kStorage, "storage types");
  return s;
}

struct AttrText {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const {
    std::ostringstream out;
    out << v;
    return out.str();
  }
  std::string operator()(const std::string& v) const { return "\"" + v + "\""; }
  std::string operator()(DType v) const { return std::string(name(v)); }
  std::string operator()(const Expr& v) const { return v.to_string(); }
  std::string operator()(const std::vector<Expr>& v) const { return to_string(v); }
  std::string operator()(const Type& v) const { return to_string(v); }
  std::string operator()(const ir::LiteralRef&) const { return "data"; }
  template <class T>
  std::string operator()(const std::vector<T>& v) const {
    std::string s = "[";
    for (size_t k = 0; k < v.size(); ++k) s += (k > 0 ? ", " : "") + (*this)(v[k]);
    return s + "]";
  }
};

std::string gradient_text(const ops::OpDef& def) {
  if (def.no_gradient) return "zero";
  if (def.control) return "through its regions";
  if (def.gradient) return "rule";
  return def.decompose ? "of its decomposition" : "none";
}

}  // namespace

std::vector<OperationInfo> operations() {
  ops::link_all_ops();
  std::vector<OperationInfo> list;
  for (const ops::OpDef* def : ops::all_ops()) {
    OperationInfo info;
    info.name = def->name;
    info.kind = kind_name(def->kind);
    info.documentation = def->doc;
    info.summary = def->doc.substr(0, def->doc.find_first_of("\n"));
    for (const ops::OperandSpec& o : def->operands) {
      info.operands.emplace_back(o.name, dtype_names(o.dtypes) + (o.optional ? ", optional" : "") +
                                             (o.variadic ? ", any number" : ""));
    }
    for (const ops::AttrSpec& a : def->attrs) {
      info.attributes.emplace_back(
          a.name,
          a.doc + (a.fallback ? " (default " + std::visit(AttrText{}, *a.fallback) + ")" : ""));
    }
    info.gradient = gradient_text(*def);
    list.push_back(std::move(info));
  }
  return list;
}

const char* version() { return "0.1.0"; }

}  // namespace heddle
