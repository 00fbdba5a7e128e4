// A line chart of the residual over iterations, drawn without a plotting library.
#pragma once

#include "image.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace app {

// Logarithmic y axis with one grid line a decade, linear x axis; a dashed line marks the tolerance.
Image plot_convergence(const std::vector<std::pair<int64_t, double>>& curve, double tolerance);

// Pictures side by side with a gap, on white.
Image side_by_side(const std::vector<Image>& pictures, int64_t gap);

}  // namespace app
