// Which pixels of the source are set into the background.
#pragma once

#include "image.h"

#include <cstdint>
#include <string>
#include <vector>

namespace app {

struct Mask {
  int64_t width = 0, height = 0;  // of the source
  std::vector<uint8_t> inside;    // row-major, 1: part of the cut-out
  // Bounding box of the ones: [left, right) x [top, bottom).
  int64_t left = 0, top = 0, right = 0, bottom = 0;
};

// `text`: a picture of the source's size (light is inside; where it has alpha, opaque and light),
// or in the source's pixels
//   rect:X,Y,WIDTH,HEIGHT   ellipse:CX,CY,RX,RY   polygon:X,Y,X,Y,X,Y,...  (even-odd rule)
// Transparent pixels of the source are outside. CommandError: unreadable, of another size, or
// empty.
Mask make_mask(const std::string& text, const Image& source);

}  // namespace app
