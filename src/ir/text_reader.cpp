#include "ir/text_reader.h"

#include "base/check.h"

#include <heddle/error.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

namespace heddle::ir {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void TextReader::skip_blanks() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

size_t TextReader::position() {
  skip_blanks();
  return at_;
}

bool TextReader::at_end() { return position() >= text_.size(); }

char TextReader::peek() { return at_end() ? '\0' : text_[at_]; }

bool TextReader::accept(char c) {
  if (at_end() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void TextReader::expect(char c) {
  if (!accept(c)) fail(base::cat("expected '", c, "'"));
}

bool TextReader::at_identifier() { return is_letter(peek()); }

bool TextReader::accept_word(std::string_view word) {
  skip_blanks();
  if (text_.substr(at_, word.size()) != word) return false;
  if (at_ + word.size() < text_.size() && is_word(text_[at_ + word.size()])) return false;
  at_ += word.size();
  return true;
}

void TextReader::expect_word(std::string_view word) {
  if (!accept_word(word)) fail(base::cat("expected '", word, "'"));
}

std::string_view TextReader::identifier(const char* what) {
  if (!at_identifier()) fail(base::cat("expected ", what));
  size_t first = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(first, at_ - first);
}

char TextReader::escape() {
  if (at_ >= text_.size()) fail("the text ends inside a string");
  char c = text_[at_++];
  if (c == '"' || c == '\\') return c;
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  if (c == 'x' && at_ + 2 <= text_.size()) {
    int high = hex_digit(text_[at_]), low = hex_digit(text_[at_ + 1]);
    at_ += 2;
    if (high >= 0 && low >= 0) return static_cast<char>(high * 16 + low);
  }
  fail_at(at_ - 1, "unknown escape in a string");
}

std::string TextReader::quoted() {
  size_t first = position();
  if (!accept('"')) fail("expected a string in double quotes");
  std::string value;
  while (true) {
    if (at_ >= text_.size()) fail_at(first, "a string has no end");
    char c = text_[at_++];
    if (c == '"') return value;
    value += c == '\\' ? escape() : c;
  }
}

uint64_t TextReader::unsigned_number(const char* what) {
  size_t first = position();
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  uint64_t value = 0;
  if (!parse_number(text_.substr(first, at_ - first), value)) {
    fail_at(first, base::cat("expected ", what));
  }
  return value;
}

std::string_view TextReader::number(const char* what) {
  size_t first = position();
  if (at_ < text_.size() && text_[at_] == '-') ++at_;
  size_t body = at_;
  while (at_ < text_.size()) {
    bool sign = (text_[at_] == '+' || text_[at_] == '-') && at_ > body && text_[at_ - 1] == 'e';
    if (!sign && !is_word(text_[at_])) break;
    // "0..": a range, not a fraction
    if (text_.substr(at_, 2) == "..") break;
    ++at_;
  }
  if (text_.substr(body, at_ - body) == "nan" && at_ < text_.size() && text_[at_] == '(') {
    size_t close = text_.find(')', at_);
    if (close == std::string_view::npos) fail_at(first, base::cat("expected ", what));
    at_ = close + 1;
  }
  if (at_ == body) fail_at(first, base::cat("expected ", what));
  return text_.substr(first, at_ - first);
}

int64_t TextReader::integer(const char* what) {
  size_t first = position();
  int64_t value = 0;
  if (!parse_number(number(what), value)) {
    fail_at(first, base::cat("expected ", what, " of 64 bits"));
  }
  return value;
}

void TextReader::fail_at(size_t position, const std::string& message) const {
  std::string_view before = text_.substr(0, std::min(position, text_.size()));
  auto line = std::count(before.begin(), before.end(), '\n') + 1;
  size_t start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  throw GraphError(base::cat("line ", line, ", column ", before.size() - start + 1, ": ", message));
}

namespace {

template <class T>
bool parse_exactly(std::string_view text, T& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

bool parse_number(std::string_view text, double& value) {
  bool named_bits = text.starts_with("nan(0x") && text.ends_with(")");
  if (named_bits) {
    std::string_view digits = text.substr(6, text.size() - 7);
    uint64_t bits = 0;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
    if (error != std::errc() || end != digits.data() + digits.size()) return false;
    value = std::bit_cast<double>(bits);
    return value != value;
  }
  if (text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  return parse_exactly(text, value);
}
bool parse_number(std::string_view text, float& value) { return parse_exactly(text, value); }
bool parse_number(std::string_view text, int64_t& value) { return parse_exactly(text, value); }
bool parse_number(std::string_view text, uint64_t& value) { return parse_exactly(text, value); }

}  // namespace heddle::ir
