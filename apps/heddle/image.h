// Pictures in memory, and PNG and JPEG files.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace app {

// A user's mistake or a file that cannot be used: one sentence for stderr, and the exit code.
class CommandError : public std::runtime_error {
 public:
  explicit CommandError(const std::string& message, int code = 2)
      : std::runtime_error(message), exit_code(code) {}
  int exit_code;
};

// Interleaved rows, intensities 0..255 whatever the file's depth.
struct Image {
  int64_t width = 0, height = 0;
  int channels = 3;  // 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha
  int bits = 8;      // of the file: 8 or 16
  std::vector<float> data;

  bool has_alpha() const { return channels == 2 || channels == 4; }
  int colours() const { return channels >= 3 ? 3 : 1; }
  float at(int64_t y, int64_t x, int c) const {
    return data[static_cast<size_t>((y * width + x) * channels + c)];
  }
  float& at(int64_t y, int64_t x, int c) {
    return data[static_cast<size_t>((y * width + x) * channels + c)];
  }
  float colour(int64_t y, int64_t x, int c) const { return at(y, x, channels >= 3 ? c : 0); }
  float alpha(int64_t y, int64_t x) const { return has_alpha() ? at(y, x, channels - 1) : 255.0F; }
};

inline constexpr int64_t kMaxPixels = int64_t{1} << 28;

// By content, not by name. CommandError names the file and what is wrong with it.
Image read_image(const std::string& path);
// PNG, or JPEG for *.jpg and *.jpeg (without alpha, 8 bits). Appears whole under its name or not at
// all.
void write_image(const std::string& path, const Image& image);
// Writes through a temporary file in the same folder, then renames.
void write_file(const std::string& path, const std::vector<uint8_t>& bytes);

}  // namespace app
