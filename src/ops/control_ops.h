// What the layers above know of operations with regions, and of constants and variables, without
// their names.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace heddle::ops {

// Sources and state. placeholder: attribute "type". constant: literal_of. variable: literal_of is
// its first value; its result is the state when the run starts. read: operand 0 is the variable,
// the result its state now. assign: operand 0 is the variable, operand 1 the new state; no result.
// A variable's attribute "id" (i64) tells it from the graph's other variables; extraction and
// passes keep it: it is the key of the state.
enum class Role : uint8_t { none, constant, placeholder, variable, read, assign };

enum class Form : uint8_t { none, cond, while_loop, for_loop, call };

// cond        results = *predicate ? first() : second()
// while_loop  v = initial; for (k = 0;; ++k) { (p, u...) = first(v...); if (!p || k ==
// max_iterations) break;
//             (v..., rows...) = second(u...); row k of each stacked result = its row }   results =
//             u..., stacked...
// for_loop    v = initial; for (k = 0; k < count; ++k) { (v..., rows...) = first(k, v..., slice k
// of each of slices...);
//             row k of each stacked result = its row }   results = v..., stacked...
// call        results = first(initial...)
// k is a scalar i64. A slice is xs[k, ...]. Stacked results have extent `count` along axis 0; those
// of while_loop have max_iterations, and the rows that were not reached are zero. A count below 0
// is 0. Carried values keep their types.
struct ControlInfo {
  Form form = Form::none;
  ir::RegionId first = ir::kNone;         // then, before, body, callee
  ir::RegionId second = ir::kNone;        // else, after
  ir::ValueId predicate = ir::kNone;      // cond: a boolean scalar
  std::vector<ir::ValueId> initial;       // carried values; call: the arguments
  std::vector<ir::ValueId> slices;        // for_loop
  std::optional<Expr> count;              // for_loop: exactly one of count,
  ir::ValueId count_value = ir::kNone;    // and a scalar i64 value
  std::optional<int64_t> max_iterations;  // while_loop
  size_t stacked =
      0;  // trailing results that are stacked; with 0 slices and 0 stacked a plain loop
};
// form none for any other operation.
ControlInfo control_info(const ir::Graph& graph, ir::OpId op);

Role role_of(const ir::Op& op);
// The data of a constant, or the first value of a variable.
const ir::LiteralRef& literal_of(const ir::Op& op);
// The variable op that a read or assign is about.
ir::OpId variable_of(const ir::Graph& graph, ir::OpId op);

}  // namespace heddle::ops
