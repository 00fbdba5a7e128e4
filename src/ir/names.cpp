#include "ir/body.h"

namespace heddle::ir {

std::string_view name(ScalarOp op) {
  static constexpr std::string_view kNames[] = {
      "constant", "index",       "load",    "bind",    "row",     "scan",    "neg",
      "abs",      "sqrt",        "inverse", "floor",   "ceil",    "trunc",   "rint",
      "bit_not",  "logical_not", "is_nan",  "add",     "sub",     "mul",     "div",
      "rem",      "min",         "max",     "min_num", "max_num", "bit_and", "bit_or",
      "bit_xor",  "shl",         "shr",     "eq",      "ne",      "lt",      "le",
      "gt",       "ge",          "fma",     "select",  "cast",    "bitcast", "call"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view name(ReduceOp op) {
  static constexpr std::string_view kNames[] = {"sum",     "product", "max",  "min",
                                                "max_num", "min_num", "any",  "all",
                                                "argmax",  "argmin",  "value"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view name(LibraryFunction f) {
  static constexpr std::string_view kNames[] = {"exp", "log", "tanh", "erf", "pow", "sin", "cos"};
  return kNames[static_cast<size_t>(f)];
}

}  // namespace heddle::ir
