// Indented text, and index expressions as C.
#pragma once

#include <heddle/expr.h>

#include "base/check.h"

#include <string>
#include <unordered_map>

namespace heddle::cuda {

class Writer {
 public:
  template <class... Parts>
  void line(const Parts&... parts) {
    text_.append(static_cast<size_t>(depth_) * 2, ' ');
    text_ += base::cat(parts...);
    text_ += '\n';
  }
  template <class... Parts>
  void open(const Parts&... parts) {
    line(parts..., parts_brace(sizeof...(parts)));
    ++depth_;
  }
  void close(const char* end = "}") {
    --depth_;
    line(end);
  }
  std::string take() { return std::move(text_); }

 private:
  static const char* parts_brace(size_t n) { return n == 0 ? "{" : " {"; }
  std::string text_;
  int depth_ = 0;
};

// Names of symbols in the generated text.
class SymbolNames {
 public:
  void set(const SymbolRef& s, std::string name) { names_[s->id] = std::move(name); }
  const std::string& of(const SymbolRef& s) const {
    auto it = names_.find(s->id);
    HD_CHECK(it != names_.end(), "kernel uses the unbound symbol ", s->name);
    return it->second;
  }
  std::string text(const Expr& e) const;  // of type idx

 private:
  std::unordered_map<uint64_t, std::string> names_;
};

}  // namespace heddle::cuda
