// Lets the nests of a loop's body work on rows of whole arrays: row k is that of the iteration.
#pragma once

#include "ir/kernel.h"

#include <map>
#include <vector>

namespace heddle::loop {

// Row *counter of `whole`, which has `count` rows.
struct RowOf {
  ir::BufferId whole = 0, counter = 0;
  Expr count;
};
// Accesses to the buffers of `rows` go to a row; stores to those of `copies` go to a row as well.
void use_rows(ir::Phase& phase, const std::map<ir::BufferId, RowOf>& rows,
              const std::map<ir::BufferId, RowOf>& copies);

}  // namespace heddle::loop
