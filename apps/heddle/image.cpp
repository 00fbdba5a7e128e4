#include "image.h"

#include <png.h>

#include <jpeglib.h>

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <unistd.h>

namespace app {

namespace {

std::vector<uint8_t> read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw CommandError(path + ": is a folder, not a picture");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CommandError(path + ": cannot be opened: " + std::strerror(errno));
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(in)),
                             std::istreambuf_iterator<char>());
  return bytes;
}

void check_size(const std::string& path, uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) throw CommandError(path + ": has no pixels");
  if (width > static_cast<uint64_t>(kMaxPixels) ||
      height > static_cast<uint64_t>(kMaxPixels) / width) {
    throw CommandError(path + ": is larger than 2^28 pixels");
  }
}

// ---- PNG

struct PngReader {
  const std::vector<uint8_t>* bytes;
  size_t at = 0;
};

void png_read(png_structp png, png_bytep out, png_size_t count) {
  auto* r = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > r->bytes->size() - r->at) png_error(png, "the file ends early");
  std::memcpy(out, r->bytes->data() + r->at, count);
  r->at += count;
}

struct PngFailure {
  std::string text;
};

void png_fail(png_structp png, png_const_charp message) {
  static_cast<PngFailure*>(png_get_error_ptr(png))->text = message;
  longjmp(png_jmpbuf(png), 1);  // NOLINT
}
void png_quiet(png_structp, png_const_charp) {}

Image from_samples(int64_t width, int64_t height, int channels, int bits,
                   const std::vector<uint8_t>& raw) {
  Image image;
  image.width = width;
  image.height = height;
  image.channels = channels;
  image.bits = bits;
  image.data.resize(static_cast<size_t>(width * height * channels));
  for (size_t k = 0; k < image.data.size(); ++k) {
    image.data[k] = bits == 16 ? static_cast<float>(raw[2 * k] * 256 + raw[2 * k + 1]) / 257.0F
                               : static_cast<float>(raw[k]);
  }
  return image;
}

// Everything that longjmp may cross lives in the caller.
bool decode_png(png_structp png, png_infop info, const std::string& path, std::vector<uint8_t>& raw,
                std::vector<png_bytep>& rows, int64_t& width, int64_t& height, int& channels,
                int& bits, std::string& too_large) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;  // NOLINT
  png_read_info(png, info);
  width = png_get_image_width(png, info);
  height = png_get_image_height(png, info);
  if (width * height > kMaxPixels) {
    too_large = path + ": is larger than 2^28 pixels";
    return false;
  }
  png_set_palette_to_rgb(png);
  if (png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (png_get_valid(png, info, PNG_INFO_tRNS) != 0) png_set_tRNS_to_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  channels = png_get_channels(png, info);
  bits = png_get_bit_depth(png, info);
  size_t stride = png_get_rowbytes(png, info);
  raw.resize(stride * static_cast<size_t>(height));
  rows.resize(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = raw.data() + y * stride;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return true;
}

Image read_png(const std::string& path, const std::vector<uint8_t>& bytes) {
  PngReader reader{&bytes};
  PngFailure failure;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure, png_fail, png_quiet);
  png_infop info = png_create_info_struct(png);
  png_set_read_fn(png, &reader, png_read);
  std::vector<uint8_t> raw;
  std::vector<png_bytep> rows;
  int64_t width = 0, height = 0;
  int channels = 0, bits = 0;
  std::string too_large;
  bool good = decode_png(png, info, path, raw, rows, width, height, channels, bits, too_large);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!too_large.empty()) throw CommandError(too_large);
  if (!good) throw CommandError(path + ": is not a readable PNG: " + failure.text);
  return from_samples(width, height, channels, bits, raw);
}

void png_write(png_structp png, png_bytep data, png_size_t count) {
  auto* out = static_cast<std::vector<uint8_t>*>(png_get_io_ptr(png));
  out->insert(out->end(), data, data + count);
}
void png_flush(png_structp) {}

std::vector<uint8_t> to_samples(const Image& image) {
  std::vector<uint8_t> raw;
  raw.reserve(image.data.size() * static_cast<size_t>(image.bits / 8));
  for (float v : image.data) {
    float clamped = std::isnan(v) ? 0.0F : std::clamp(v, 0.0F, 255.0F);
    if (image.bits == 16) {
      auto s = static_cast<uint32_t>(std::lround(clamped * 257.0F));
      raw.push_back(static_cast<uint8_t>(s >> 8));
      raw.push_back(static_cast<uint8_t>(s & 255));
    } else {
      raw.push_back(static_cast<uint8_t>(std::lround(clamped)));
    }
  }
  return raw;
}

bool encode_png(png_structp png, png_infop info, const Image& image, std::vector<png_bytep>& rows,
                std::vector<uint8_t>& out) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;  // NOLINT
  static constexpr int kTypes[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                   PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA};
  png_set_write_fn(png, &out, png_write, png_flush);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), image.bits, kTypes[image.channels],
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  return true;
}

std::vector<uint8_t> png_bytes(const Image& image) {
  std::vector<uint8_t> raw = to_samples(image), out;
  size_t stride = raw.size() / static_cast<size_t>(image.height);
  std::vector<png_bytep> rows(static_cast<size_t>(image.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = raw.data() + y * stride;
  PngFailure failure;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &failure, png_fail, png_quiet);
  png_infop info = png_create_info_struct(png);
  bool good = encode_png(png, info, image, rows, out);
  png_destroy_write_struct(&png, &info);
  if (!good) throw CommandError("the PNG cannot be encoded: " + failure.text, 1);
  return out;
}

// ---- JPEG

struct JpegError {
  jpeg_error_mgr base;  // first, so that a pointer to it is a pointer to this
  jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

void jpeg_fail(j_common_ptr info) {
  auto* e = reinterpret_cast<JpegError*>(info->err);
  info->err->format_message(info, e->text);
  longjmp(e->jump, 1);  // NOLINT
}
// Says nothing; a negative level is a warning, which the caller asks for.
void jpeg_quiet(j_common_ptr info, int level) {
  if (level < 0) ++info->err->num_warnings;
}

// A row of CMYK as RGB. Adobe's programs store the inks inverted: 255 is no ink.
void to_rgb(const std::vector<uint8_t>& row, bool inverted, float* to) {
  for (size_t k = 0; k < row.size(); k += 4) {
    auto light = [&](size_t ink) {
      return static_cast<float>(inverted ? row[k + ink] : 255 - row[k + ink]);
    };
    for (size_t c = 0; c < 3; ++c) *to++ = light(c) * light(3) / 255.0F;
  }
}

bool decode_jpeg(jpeg_decompress_struct& info, JpegError& error, const std::vector<uint8_t>& bytes,
                 Image& image, std::vector<uint8_t>& row, bool& too_large) {
  if (setjmp(error.jump) != 0) return false;  // NOLINT
  jpeg_mem_src(&info, bytes.data(), bytes.size());
  jpeg_read_header(&info, TRUE);
  if (int64_t{info.image_width} * info.image_height > kMaxPixels) {
    too_large = true;
    return false;
  }
  bool inks = info.num_components == 4;
  info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  image.width = info.output_width;
  image.height = info.output_height;
  image.channels = inks ? 3 : info.output_components;
  auto line = static_cast<size_t>(image.width * image.channels);
  image.data.resize(static_cast<size_t>(image.height) * line);
  row.resize(static_cast<size_t>(image.width * info.output_components));
  while (info.output_scanline < info.output_height) {
    float* to = image.data.data() + static_cast<size_t>(info.output_scanline) * line;
    JSAMPROW pointer = row.data();
    jpeg_read_scanlines(&info, &pointer, 1);
    if (inks) {
      to_rgb(row, info.saw_Adobe_marker != 0, to);
    } else {
      std::copy(row.begin(), row.end(), to);
    }
  }
  jpeg_finish_decompress(&info);
  return true;
}

Image read_jpeg(const std::string& path, const std::vector<uint8_t>& bytes) {
  jpeg_decompress_struct info{};
  JpegError error{};
  info.err = jpeg_std_error(&error.base);
  error.base.error_exit = jpeg_fail;
  error.base.emit_message = jpeg_quiet;
  jpeg_create_decompress(&info);
  Image image;
  std::vector<uint8_t> row;
  bool too_large = false;
  bool good = decode_jpeg(info, error, bytes, image, row, too_large);
  bool cut = error.base.num_warnings > 0;
  jpeg_destroy_decompress(&info);
  if (too_large) throw CommandError(path + ": is larger than 2^28 pixels");
  if (!good) throw CommandError(path + ": is not a readable JPEG: " + error.text);
  if (cut) throw CommandError(path + ": is not a readable JPEG: its data is damaged or ends early");
  return image;
}

bool encode_jpeg(jpeg_compress_struct& info, JpegError& error, const Image& image,
                 std::vector<uint8_t>& samples, unsigned char** out, unsigned long* size) {
  if (setjmp(error.jump) != 0) return false;  // NOLINT
  jpeg_mem_dest(&info, out, size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW pointer = samples.data() + static_cast<size_t>(info.next_scanline) *
                                            static_cast<size_t>(image.width * image.channels);
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

Image without_alpha(const Image& image) {
  Image out = image;
  out.bits = 8;
  out.channels = image.colours();
  out.data.resize(static_cast<size_t>(image.width * image.height * out.channels));
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      for (int c = 0; c < out.channels; ++c) out.at(y, x, c) = image.at(y, x, c);
    }
  }
  return out;
}

std::vector<uint8_t> jpeg_bytes(const Image& picture) {
  if (picture.width > 65500 || picture.height > 65500)
    throw CommandError("a JPEG holds at most 65500 pixels a side");
  Image image = without_alpha(picture);
  std::vector<uint8_t> samples = to_samples(image);
  jpeg_compress_struct info{};
  JpegError error{};
  info.err = jpeg_std_error(&error.base);
  error.base.error_exit = jpeg_fail;
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  bool good = encode_jpeg(info, error, image, samples, &out, &size);
  jpeg_destroy_compress(&info);
  std::vector<uint8_t> bytes(out, out + (good ? size : 0));
  std::free(out);
  if (!good) throw CommandError(std::string("the JPEG cannot be encoded: ") + error.text, 1);
  return bytes;
}

}  // namespace

Image read_image(const std::string& path) {
  std::vector<uint8_t> bytes = read_file(path);
  Image image;
  if (bytes.size() >= 8 && png_sig_cmp(bytes.data(), 0, 8) == 0) {
    image = read_png(path, bytes);
  } else if (bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff) {
    image = read_jpeg(path, bytes);
  } else {
    throw CommandError(path + ": is neither a PNG nor a JPEG");
  }
  check_size(path, static_cast<uint64_t>(image.width), static_cast<uint64_t>(image.height));
  return image;
}

void write_file(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::string temporary = path + ".part" + std::to_string(getpid());
  auto fail = [&](const char* what) {
    std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    throw CommandError(path + ": " + what + ": " + reason, 1);
  };
  std::FILE* f = std::fopen(temporary.c_str(), "wb");
  if (f == nullptr) fail("cannot be created");
  bool good = std::fwrite(bytes.data(), 1, bytes.size(), f) == bytes.size();
  good = std::fclose(f) == 0 && good;
  if (!good) fail("cannot be written");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot be put in place");
}

void write_image(const std::string& path, const Image& image) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  bool jpeg = extension == ".jpg" || extension == ".jpeg";
  if (!jpeg && extension != ".png")
    throw CommandError(path + ": the output's name must end in .png, .jpg or .jpeg");
  write_file(path, jpeg ? jpeg_bytes(image) : png_bytes(image));
}

}  // namespace app
