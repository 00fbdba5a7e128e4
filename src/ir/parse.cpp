// The parser of the text form (see print.cpp). It builds through the same calls as a program, so
// whatever it accepts is valid.
#include "base/check.h"
#include "ir/attr_parser.h"
#include "ir/graph.h"

#include <heddle/error.h>

#include <unordered_map>

namespace heddle::ir {

using base::cat;

namespace {

struct OpText {
  size_t position = 0;
  std::optional<uint64_t> label;
  std::vector<std::pair<uint64_t, std::string>> results;  // number, name
  const ops::OpDef* def = nullptr;
  std::vector<ValueId> operands;
  Attrs attrs;
  std::vector<RegionId> regions;
  std::vector<OpId> after;
  std::vector<std::string> locations;
  std::vector<Type> types;
};

class Parser {
 public:
  Parser(std::string_view text, const OpTable& table)
      : in_(text), attrs_(in_), table_(table), graph_(std::make_shared<Graph>(table)) {}

  std::shared_ptr<Graph> run() {
    in_.expect_word("graph");
    size_t at = in_.position();
    if (in_.unsigned_number("a version") != 1) in_.fail_at(at, "only version 1 is known");
    in_.expect('{');
    while (in_.accept_word("symbol")) symbol();
    since_ = newest_symbol();
    in_.expect_word("body");
    for (const Argument& a : arguments()) {
      define(a.number, guarded(a.position, [&] { return graph_->add_argument(a.type, a.name); }),
             a.position);
    }
    graph_->region(kTopRegion).results = block();
    in_.expect('}');
    if (!in_.at_end()) in_.fail("expected the end of the text");
    return std::move(graph_);
  }

 private:
  struct Argument {
    size_t position = 0;
    uint64_t number = 0;
    std::string name;
    Type type;
  };

  // The graph's own errors, with the place in the text.
  template <class F>
  auto guarded(size_t position, F f) -> decltype(f()) {
    try {
      return f();
    } catch (const GraphError& e) {
      in_.fail_at(position, e.what());
    }
  }

  void symbol() {
    std::string name(in_.identifier("a symbol"));
    std::string label = in_.quoted();
    SymbolKind kind = SymbolKind::extent;
    if (in_.accept_word("defined"))
      kind = SymbolKind::defined;
    else
      in_.expect_word("extent");
    size_t at = in_.position();
    int64_t lower = in_.integer("a lower bound"), upper = INT64_MAX;
    in_.expect('.');
    in_.expect('.');
    if (in_.peek() >= '0' && in_.peek() <= '9') upper = in_.integer("an upper bound");
    if (lower < 0 || upper < lower) in_.fail_at(at, "the bounds of a symbol are not 0 <= a <= b");
    attrs_.add_symbol(std::move(name), make_symbol(kind, std::move(label), lower, upper));
  }

  std::pair<uint64_t, std::string> definition() {
    in_.expect('%');
    uint64_t number = in_.unsigned_number("the number of a value");
    return {number, in_.peek() == '"' ? in_.quoted() : std::string()};
  }

  std::vector<Argument> arguments() {
    std::vector<Argument> list;
    in_.expect('(');
    if (in_.accept(')')) return list;
    do {
      Argument a;
      a.position = in_.position();
      std::tie(a.number, a.name) = definition();
      in_.expect(':');
      a.type = attrs_.type();
      list.push_back(std::move(a));
    } while (in_.accept(','));
    in_.expect(')');
    return list;
  }

  void define(uint64_t number, ValueId value, size_t position) {
    if (!values_.emplace(number, value).second) {
      in_.fail_at(position, cat("value %", number, " is defined twice"));
    }
  }

  ValueId use() {
    size_t at = in_.position();
    in_.expect('%');
    uint64_t number = in_.unsigned_number("the number of a value");
    auto found = values_.find(number);
    if (found == values_.end()) in_.fail_at(at, cat("value %", number, " is not defined before"));
    if (!graph_->visible(found->second, graph_->insertion_region())) {
      in_.fail_at(at, cat("value %", number, " belongs to another region"));
    }
    return found->second;
  }

  // "{ operations yield values }"
  std::vector<ValueId> block() {
    in_.expect('{');
    while (!in_.accept_word("yield")) op();
    std::vector<ValueId> results;
    if (in_.peek() == '%') {
      do results.push_back(use());
      while (in_.accept(','));
    }
    in_.expect('}');
    return results;
  }

  RegionId region() {
    size_t at = in_.position();
    std::vector<Argument> list = arguments();
    std::vector<Type> types;
    for (const Argument& a : list) types.push_back(a.type);
    RegionId id = guarded(at, [&] { return graph_->open_region(types); });
    for (size_t i = 0; i < list.size(); ++i) {
      ValueId v = graph_->region(id).arguments[i];
      graph_->value(v).name = std::move(list[i].name);
      define(list[i].number, v, list[i].position);
    }
    graph_->close_region(block());
    return id;
  }

  void op() {
    OpText text;
    text.position = in_.position();
    head(text);
    operands_and_attrs(text);
    while (in_.accept_word("region")) text.regions.push_back(region());
    tail(text);
    OpId id = guarded(text.position, [&] {
      return graph_->add_op(*text.def, std::move(text.operands), std::move(text.attrs),
                            std::move(text.regions));
    });
    finish(text, graph_->op(id), id);
  }

  // Label, results, name.
  void head(OpText& text) {
    if (in_.accept('@')) {
      text.label = in_.unsigned_number("a label");
      in_.expect(':');
    }
    if (in_.peek() == '%') {
      do text.results.push_back(definition());
      while (in_.accept(','));
      in_.expect('=');
    }
    size_t at = in_.position();
    std::string_view name = in_.identifier("an operation or 'yield'");
    text.def = table_.find(name);
    if (text.def == nullptr) in_.fail_at(at, cat("operation '", name, "' is not known"));
  }

  void operands_and_attrs(OpText& text) {
    in_.expect('(');
    if (!in_.accept(')')) {
      do text.operands.push_back(use());
      while (in_.accept(','));
      in_.expect(')');
    }
    if (!in_.accept('{') || in_.accept('}')) return;
    do {
      size_t at = in_.position();
      std::string name(in_.identifier("the name of an attribute"));
      if (text.attrs.find(name) != nullptr) in_.fail_at(at, cat("'", name, "' is given twice"));
      in_.expect('=');
      text.attrs.set(std::move(name), attrs_.attr());
    } while (in_.accept(','));
    in_.expect('}');
  }

  // Control dependencies, locations, types.
  void tail(OpText& text) {
    if (in_.accept_word("after")) {
      do text.after.push_back(dependency());
      while (in_.accept(','));
    }
    if (in_.accept_word("loc")) {
      do text.locations.push_back(in_.quoted());
      while (in_.accept(','));
    }
    if (in_.accept(':')) {
      do text.types.push_back(attrs_.type());
      while (in_.accept(','));
    }
  }

  OpId dependency() {
    size_t at = in_.position();
    in_.expect('@');
    uint64_t label = in_.unsigned_number("a label");
    auto found = labels_.find(label);
    if (found == labels_.end() ||
        !graph_->encloses(graph_->op(found->second).parent, graph_->insertion_region())) {
      in_.fail_at(at, cat("no operation @", label, " is before this one"));
    }
    return found->second;
  }

  void finish(OpText& text, Op& op, OpId id) {
    if (text.results.size() != op.results.size()) {
      in_.fail_at(text.position, cat(op.name, ": has ", op.results.size(), " results, the text ",
                                     text.results.size()));
    }
    if (!text.types.empty() && text.types.size() != op.results.size()) {
      in_.fail_at(text.position, cat(op.name, ": has ", op.results.size(), " results, ",
                                     text.types.size(), " types are given"));
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      Value& value = graph_->value(op.results[i]);
      if (!text.types.empty()) state_type(text, op, value, text.types[i]);
      value.name = std::move(text.results[i].second);
      define(text.results[i].first, op.results[i], text.position);
    }
    op.after = std::move(text.after);
    op.locations = std::move(text.locations);
    if (text.label && !labels_.emplace(*text.label, id).second) {
      in_.fail_at(text.position, cat("label @", *text.label, " is given twice"));
    }
  }

  void state_type(const OpText& text, const Op& op, Value& value, const Type& stated) {
    if (!matches_inferred(stated, value.type, since_)) {
      in_.fail_at(text.position, cat(op.name, ": the result is ", to_string(value.type),
                                     ", the text says ", to_string(stated)));
    }
    value.type = stated;
  }

  TextReader in_;
  AttrParser attrs_;
  const OpTable& table_;
  std::shared_ptr<Graph> graph_;
  uint64_t since_ = 0;
  std::unordered_map<uint64_t, ValueId> values_;
  std::unordered_map<uint64_t, OpId> labels_;
};

}  // namespace

std::shared_ptr<Graph> parse(std::string_view text, const OpTable& table) {
  return Parser(text, table).run();
}

}  // namespace heddle::ir
