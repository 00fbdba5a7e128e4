// A cursor over text with the tokens that the text forms share. Every error is a GraphError with
// line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::ir {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  // All of these skip blanks and comments first.
  bool at_end();
  char peek();  // 0 at the end
  bool accept(char c);
  void expect(char c);
  bool accept_word(std::string_view word);  // a whole identifier
  void expect_word(std::string_view word);
  bool at_identifier();
  std::string_view identifier(
      const char* what);  // letters, digits, '_' and '.'; a letter or '_' first
  std::string quoted();
  uint64_t unsigned_number(const char* what);
  // A number as it stands: digits, sign, point, exponent, inf, nan(0x...).
  std::string_view number(const char* what);
  int64_t integer(const char* what);

  size_t position();  // of the next token
  size_t size() const { return text_.size(); }
  [[noreturn]] void fail(const std::string& message) { fail_at(position(), message); }
  [[noreturn]] void fail_at(size_t position, const std::string& message) const;

 private:
  void skip_blanks();
  char escape();
  std::string_view text_;
  size_t at_ = 0;
};

// Exact values of number tokens; false where the text is no number of that kind, or out of range.
bool parse_number(std::string_view text, double& value);
bool parse_number(std::string_view text, float& value);
bool parse_number(std::string_view text, int64_t& value);
bool parse_number(std::string_view text, uint64_t& value);

}  // namespace heddle::ir
