#include "mask.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <string_view>

namespace app {

namespace {

std::vector<double> numbers(std::string_view text, std::string_view whole) {
  std::vector<double> out;
  while (!text.empty()) {
    size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    double v = 0;
    auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), v);
    if (error != std::errc() || end != item.data() + item.size() || !std::isfinite(v)) {
      throw CommandError("--mask " + std::string(whole) + ": '" + std::string(item) +
                         "' is not a number");
    }
    out.push_back(v);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return out;
}

using Inside = std::function<bool(double x, double y)>;  // pixel centres

Inside polygon(const std::vector<double>& p) {
  return [p](double x, double y) {
    bool in = false;
    size_t n = p.size() / 2;
    for (size_t i = 0, j = n - 1; i < n; j = i++) {
      double xi = p[2 * i], yi = p[2 * i + 1], xj = p[2 * j], yj = p[2 * j + 1];
      if ((yi > y) != (yj > y) && x < (xj - xi) * (y - yi) / (yj - yi) + xi) in = !in;
    }
    return in;
  };
}

Inside shape(const std::string& text) {
  size_t colon = text.find(':');
  std::string kind = text.substr(0, colon);
  std::vector<double> n = numbers(std::string_view(text).substr(colon + 1), text);
  auto want = [&](bool good, const char* form) {
    if (!good) throw CommandError("--mask " + text + ": expected " + form);
  };
  if (kind == "rect") {
    want(n.size() == 4 && n[2] > 0 && n[3] > 0, "rect:X,Y,WIDTH,HEIGHT with a positive size");
    return [n](double x, double y) {
      return x >= n[0] && x < n[0] + n[2] && y >= n[1] && y < n[1] + n[3];
    };
  }
  if (kind == "ellipse") {
    want(n.size() == 4 && n[2] > 0 && n[3] > 0, "ellipse:CX,CY,RX,RY with positive radii");
    return [n](double x, double y) {
      double u = (x - n[0]) / n[2], v = (y - n[1]) / n[3];
      return u * u + v * v <= 1;
    };
  }
  want(n.size() >= 6 && n.size() % 2 == 0, "polygon:X,Y,X,Y,X,Y,... with at least three corners");
  return polygon(n);
}

bool is_shape(const std::string& text) {
  return text.rfind("rect:", 0) == 0 || text.rfind("ellipse:", 0) == 0 ||
         text.rfind("polygon:", 0) == 0;
}

Inside picture(const std::string& path, const Image& source) {
  Image m = read_image(path);
  if (m.width != source.width || m.height != source.height) {
    throw CommandError(path + ": the mask is " + std::to_string(m.width) + "x" +
                       std::to_string(m.height) + ", the source " + std::to_string(source.width) +
                       "x" + std::to_string(source.height));
  }
  return [m = std::move(m)](double px, double py) {
    auto x = static_cast<int64_t>(px), y = static_cast<int64_t>(py);
    float light = 0;
    for (int c = 0; c < m.colours(); ++c) light += m.at(y, x, c) / static_cast<float>(m.colours());
    return light > 127.5F && m.alpha(y, x) > 127.5F;
  };
}

}  // namespace

Mask make_mask(const std::string& text, const Image& source) {
  Inside inside = is_shape(text) ? shape(text) : picture(text, source);
  Mask mask;
  mask.width = source.width;
  mask.height = source.height;
  mask.inside.assign(static_cast<size_t>(source.width * source.height), 0);
  mask.left = source.width;
  mask.top = source.height;
  for (int64_t y = 0; y < source.height; ++y) {
    for (int64_t x = 0; x < source.width; ++x) {
      if (source.alpha(y, x) <= 127.5F) continue;
      if (!inside(static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5)) continue;
      mask.inside[static_cast<size_t>(y * source.width + x)] = 1;
      mask.left = std::min(mask.left, x);
      mask.top = std::min(mask.top, y);
      mask.right = std::max(mask.right, x + 1);
      mask.bottom = std::max(mask.bottom, y + 1);
    }
  }
  if (mask.right == 0) {
    throw CommandError("--mask " + text + ": no opaque pixel of the source (" +
                       std::to_string(source.width) + "x" + std::to_string(source.height) +
                       ") is inside");
  }
  return mask;
}

}  // namespace app
