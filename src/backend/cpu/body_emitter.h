// Emits one copy of a body for several points at once: `instances` vectors of `lanes` points along
// the vector axis.
#pragma once

#include "backend/cpu/emit_context.h"
#include "backend/cpu/form.h"

#include <unordered_map>
#include <vector>

namespace heddle::cpu {

// Values of a node, one an instance; a scalar where all lanes agree.
using Values = std::vector<llvm::Value*>;

// What is fetched into the cache when a contiguous load is done.
struct Prefetch {
  int64_t bytes = 0;    // after what is loaded; 0: nothing
  bool nearest = true;  // into the first cache, else the second
};

struct BodySite {
  const ir::Body* body = nullptr;
  const BodyForm* form = nullptr;
  int lanes = 1;
  SymbolRef v;                   // vector axis; each instance's Env binds it to its first lane
  llvm::Value* first = nullptr;  // position of the first instance along v
  std::vector<SymbolRef> order;  // loop variables, outermost first
  std::vector<Env*> instances;
  int64_t step = 0;  // between instances along v
  // A tile: the instances are consecutive along this axis (as many as lanes) and share their
  // position along v.
  SymbolRef tile;
  bool next_tile = false;  // fetch what the square after it reads
  int private_lanes = 1;   // lanes of a point group in row_local buffers (outer vector axis)
  std::vector<Prefetch> prefetch;  // of Body::accesses; empty: none
  std::vector<bool> stream;        // of Body::stores: past the cache (addresses are aligned)
  std::function<llvm::Value*(const ir::RowRef&, size_t instance)> row;
  // Running combination of a scan at this point.
  std::function<llvm::Value*(ir::NodeId node, llvm::Value* value, size_t instance)> scan;
};

class BodyEmitter {
 public:
  BodyEmitter(EmitContext& e, BodySite site);
  void run();  // nodes, then stores
  const Values& values(ir::NodeId id) const { return values_[id]; }

 private:
  enum class Pattern : uint8_t { uniform, contiguous, strided, scattered };
  struct Address {
    Pattern pattern = Pattern::uniform;
    int64_t stride = 0;              // elements, of `strided`
    llvm::Value* pointer = nullptr;  // to the first lane's element, or the uniform one
    llvm::Value* offsets = nullptr;  // of `scattered`: a vector
    llvm::Type* element = nullptr;
    ir::BufferId buffer = 0;
  };
  Address address(uint32_t access, size_t k);
  llvm::Value* at(const Address& a, int64_t elements);  // so many after the first lane's
  llvm::Value* lane_pointer(const Address& a, int lane);
  bool vectored_symbols(const Expr& e, const Env& env) const;
  void check(uint32_t access, size_t k, llvm::Value* mask, llvm::Value*& ok);

  llvm::Value* node(ir::NodeId id, size_t k);
  // A number that all lanes divide by, and its reciprocal, in every lane.
  struct Divisor {
    llvm::Value *number, *inverse;
  };
  bool shares_divisor(ir::NodeId id) const;
  llvm::Value* quick_quotient(const Divisor& b, llvm::Value* a, llvm::Value*& far);
  bool divide(ir::NodeId id);
  llvm::Value* load(const ir::Node& n, size_t k);
  bool prefetches(uint32_t access, size_t k);
  void fetch(llvm::Value* pointer, const Prefetch& p);
  void point_at(Address& a, const Expr& offset, size_t k);
  llvm::Value* load_plain(const Address& a);
  llvm::Value* load_masked(const Address& a, llvm::Value* mask, llvm::Value* other);
  llvm::Value* load_strided(const Address& a);
  llvm::Value* load_runs(uint32_t access, size_t k);
  bool tiled(uint32_t access) const;
  void load_tile(uint32_t access);
  llvm::Value* load_lanes(const Address& a, llvm::Value* mask);
  llvm::Value* bind(const ir::Node& n, size_t k);
  llvm::Value* select(const ir::Node& n, size_t k);
  llvm::Value* logic(const ir::Node& n, llvm::Value* a, llvm::Value* b);

  void store(size_t index);
  void store_one(size_t index, size_t k);
  bool store_pair(size_t index);
  void store_lanes(const Address& a, llvm::Value* value, llvm::Value* mask, const ir::Store& s);
  void store_lane(const Address& a, llvm::Value* pointer, llvm::Value* value, const ir::Store& s);
  bool hardware_mask(llvm::Type* element) const;

  EmitContext& e_;
  BodySite site_;
  std::vector<Values> values_;
  std::unordered_map<uint32_t, Values> tiles_;  // by access: elements in memory form
};

}  // namespace heddle::cpu
