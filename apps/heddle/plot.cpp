#include "plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

namespace app {

namespace {

// 3x5 glyphs, a row of three bits each, top first.
constexpr std::string_view kGlyphs = "0123456789.-eitrasodn  ";
constexpr std::array<std::array<uint8_t, 5>, 23> kRows = {{
    {7, 5, 5, 5, 7}, {2, 6, 2, 2, 7}, {7, 1, 7, 4, 7}, {7, 1, 3, 1, 7}, {5, 5, 7, 1, 1},
    {7, 4, 7, 1, 7}, {7, 4, 7, 5, 7}, {7, 1, 1, 2, 2}, {7, 5, 7, 5, 7}, {7, 5, 7, 1, 7},
    {0, 0, 0, 0, 2}, {0, 0, 7, 0, 0}, {3, 5, 7, 4, 3}, {2, 0, 2, 2, 2}, {2, 7, 2, 2, 3},
    {0, 6, 5, 4, 4}, {0, 3, 5, 5, 3}, {3, 4, 2, 1, 6}, {0, 2, 5, 5, 2}, {1, 1, 3, 5, 3},
    {0, 6, 5, 5, 5}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0},
}};

struct Colour {
  float r, g, b;
};

class Canvas {
 public:
  Canvas(int64_t width, int64_t height) {
    image.width = width;
    image.height = height;
    image.data.assign(static_cast<size_t>(width * height * 3), 255.0F);
  }
  void dot(int64_t x, int64_t y, Colour c) {
    if (x < 0 || y < 0 || x >= image.width || y >= image.height) return;
    image.at(y, x, 0) = c.r;
    image.at(y, x, 1) = c.g;
    image.at(y, x, 2) = c.b;
  }
  void line(double x0, double y0, double x1, double y1, Colour c, int thickness, int dash = 0) {
    auto steps = static_cast<int64_t>(std::max({std::fabs(x1 - x0), std::fabs(y1 - y0), 1.0}));
    for (int64_t k = 0; k <= steps; ++k) {
      if (dash > 0 && k / dash % 2 == 1) continue;
      double t = static_cast<double>(k) / static_cast<double>(steps);
      auto x = std::lround(x0 + t * (x1 - x0)), y = std::lround(y0 + t * (y1 - y0));
      for (int i = 0; i < thickness; ++i) {
        for (int j = 0; j < thickness; ++j) dot(x + i, y + j, c);
      }
    }
  }
  void text(int64_t x, int64_t y, std::string_view s) {
    for (char ch : s) {
      size_t g = kGlyphs.find(ch);
      for (int row = 0; g != std::string_view::npos && row < 5; ++row) {
        for (int col = 0; col < 3; ++col) {
          if ((kRows[g][static_cast<size_t>(row)] >> (2 - col) & 1) == 0) continue;
          for (int k = 0; k < 4; ++k) dot(x + col * 2 + k % 2, y + row * 2 + k / 2, {60, 60, 60});
        }
      }
      x += 8;
    }
  }
  Image image;
};

}  // namespace

Image plot_convergence(const std::vector<std::pair<int64_t, double>>& curve, double tolerance) {
  constexpr int64_t kWidth = 640, kHeight = 400, kLeft = 70, kRight = 20, kTop = 20, kBottom = 50;
  Canvas canvas(kWidth, kHeight);
  double low = std::max(tolerance, 1e-12), high = low;
  int64_t last = 1;
  for (auto [k, r] : curve) {
    if (r > 0 && std::isfinite(r)) {
      low = std::min(low, r);
      high = std::max(high, r);
    }
    last = std::max(last, k);
  }
  double bottom = std::floor(std::log10(low)),
         top = std::max(std::ceil(std::log10(high)), bottom + 1);
  auto px = [&](double k) {
    return kLeft + k / static_cast<double>(last) * (kWidth - kLeft - kRight);
  };
  auto py = [&](double r) {
    double t = (std::log10(std::max(r, 1e-300)) - bottom) / (top - bottom);
    return kTop + (1 - std::clamp(t, 0.0, 1.0)) * (kHeight - kTop - kBottom);
  };
  char label[32];
  for (double d = bottom; d <= top; d += 1) {
    double y = py(std::pow(10, d));
    canvas.line(kLeft, y, kWidth - kRight, y, {225, 225, 225}, 1);
    std::snprintf(label, sizeof label, "1e%d", static_cast<int>(d));
    canvas.text(kLeft - 44, std::lround(y) - 5, label);
  }
  for (int k = 0; k <= 4; ++k) {
    auto iteration = last * k / 4;
    std::string s = std::to_string(iteration);
    canvas.text(
        std::lround(px(static_cast<double>(iteration))) - static_cast<int64_t>(s.size()) * 4,
        kHeight - 38, s);
  }
  canvas.text(kWidth / 2 - 20, kHeight - 18, "iteration");
  canvas.line(kLeft, py(tolerance), kWidth - kRight, py(tolerance), {200, 60, 60}, 1, 6);
  canvas.line(kLeft, kTop, kLeft, kHeight - kBottom, {60, 60, 60}, 1);
  canvas.line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, {60, 60, 60}, 1);
  for (size_t k = 1; k < curve.size(); ++k) {
    canvas.line(px(static_cast<double>(curve[k - 1].first)), py(curve[k - 1].second),
                px(static_cast<double>(curve[k].first)), py(curve[k].second), {30, 90, 200}, 2);
  }
  return canvas.image;
}

Image side_by_side(const std::vector<Image>& pictures, int64_t gap) {
  Image out;
  for (const Image& p : pictures) {
    out.width += p.width + (out.width > 0 ? gap : 0);
    out.height = std::max(out.height, p.height);
  }
  out.data.assign(static_cast<size_t>(out.width * out.height * 3), 255.0F);
  int64_t left = 0;
  for (const Image& p : pictures) {
    for (int64_t y = 0; y < p.height; ++y) {
      for (int64_t x = 0; x < p.width; ++x) {
        for (int c = 0; c < 3; ++c) out.at(y, left + x, c) = p.colour(y, x, c);
      }
    }
    left += p.width + gap;
  }
  return out;
}

}  // namespace app
