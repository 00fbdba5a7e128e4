// Parses what stands in attributes: extents, types, data. Shared by the parser of graphs.
#pragma once

#include "ir/attr.h"
#include "ir/text_reader.h"

#include <map>
#include <string>

namespace heddle::ir {

class AttrParser {
 public:
  explicit AttrParser(TextReader& in) : in_(in) {}
  void add_symbol(std::string name, SymbolRef symbol);  // error: declared twice
  Attr attr();
  Type type();

 private:
  Attr number_attr();
  Attr word_attr();
  DType dtype();
  Type type_of(DType dtype);
  Expr expr();  // a whole expression, of bounded size
  Expr sum(int depth);
  Expr product(int depth);
  Expr atom(int depth);
  Expr combine(char op, const Expr& a, const Expr& b, size_t position);
  LiteralRef literal();
  std::vector<std::byte> elements(DType dtype, int64_t count);
  std::vector<std::byte> hex_bytes();
  template <class T, class F>
  std::vector<T> list(F item);

  TextReader& in_;
  std::map<std::string, SymbolRef, std::less<>> symbols_;
  int expr_tokens_ = 0;
};

}  // namespace heddle::ir
