// What the emitters of bodies, nests and statements share while one kernel is written.
#pragma once

#include "backend/cuda/nest_plan.h"
#include "backend/cuda/writer.h"
#include "ir/kernel.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace heddle::cuda {

// Where a kernel with bounds checks can fault: text for the message, by access id.
struct CheckedAccess {
  std::string buffer;
  bool bind = false;
};

struct KernelContext {
  explicit KernelContext(const ir::Kernel& k) : kernel(k) {}

  const ir::Kernel& kernel;
  Writer out;
  SymbolNames names;
  int block = 256;     // threads
  bool exact = false;  // one nest, the grid fits it: no loop around it
  bool single_thread = false;
  bool check_bounds = false;
  unsigned off = 0;                  // Form
  std::set<ir::BufferId> read_only;  // may be read through the read-only path
  std::vector<CheckedAccess> checked;
  int64_t shared_bytes = 0;  // dynamic shared memory: row_local buffers of the nest that wants most

  std::string buffer(ir::BufferId b) const { return base::cat("b", b); }
};

// Text of a type: of a value in registers.
const char* c_type(DType d);
// A constant of that type by its bit pattern.
std::string c_constant(DType d, uint64_t bits);

// Register arrays that keep what a phase loaded for later phases of the row: [phase] access ->
// name.
struct RowCaches {
  std::vector<std::map<uint32_t, std::string>> names;
  std::vector<std::map<uint32_t, bool>> first;  // the phase that fills it
};

// How row_local buffers are kept: prefix text, so that element text is prefix + "[...]".
enum class LocalPlace : uint8_t { registers, memory };

// Where the points of a phase are, in the generated text.
struct PointText {
  std::string flat;  // flat inner position of lane 0 (an idx), for arg folds and row_local memory
  std::string trip;  // index of the register arrays of row_locals and caches
  std::string lane_name;    // variable of the lane axis; its lane 0 is lane_name + "b"
  std::string store_guard;  // condition of global stores, or empty
  std::string local_guard;  // condition of stores to row_locals, or empty
  std::map<uint32_t, std::string> staged;  // text of loads that are in shared memory already
};

// Writes one phase's body at one place: uniform part and vector loads, lanes, stores.
class BodyEmitter {
 public:
  BodyEmitter(KernelContext& k, const NestPlan& nest, const PhasePlan& phase, const PointText& at,
              const RowCaches* caches, size_t phase_index,
              const std::map<ir::BufferId, LocalPlace>& locals);

  int segments() const { return segments_; }
  // Before prefix(): quotients by what all lanes share go without branches. What lanes() then wrote
  // holds unless the generated `slow` is true; redo_slow() writes it again, plainly.
  bool use_quick();
  void redo_slow();
  void prefix();
  void load_caches();  // only the vector loads whose cache this phase fills
  // Values of segment `s`, lane by lane. Scan nodes of level s + 1 are the caller's to write
  // between the segments.
  void lanes(int s);
  void stores();
  void whole();  // from prefix() to stores(), where nothing is folded or scanned
  std::vector<ir::NodeId> scans(int level) const;
  std::string array(ir::NodeId n) const { return base::cat("a", n); }
  std::string ref(ir::NodeId n) const;  // inside a lane loop, or of a uniform node
  bool varying(ir::NodeId n) const { return phase_.varying[n]; }
  void open_lanes();
  void close_lanes();
  void declare_arrays();

 private:
  const ir::Body& body() const { return phase_.source->body; }
  const ir::Node& node(ir::NodeId n) const { return body().nodes[n]; }
  bool packed(ir::NodeId n) const;  // a load that is written as a pack before the lanes
  std::string value_text(ir::NodeId n);
  std::string load_text(ir::NodeId n);
  std::string row_text(const ir::Node& n) const;
  std::string local_text(ir::BufferId b) const;
  std::string inside_text(uint32_t access);
  std::string pointer(uint32_t access) const;
  void emit_pack(ir::NodeId n);
  void emit_node(ir::NodeId n);
  void emit_store(const ir::Store& s);
  void emit_vector_store(const ir::Store& s);
  void emit_load_pack(size_t pack);
  void emit_store_pack(const std::vector<uint32_t>& pack);
  const char* store_function() const { return nest_.streams ? "hd_store_stream<" : "hd_store<"; }
  void find_levels();
  void find_early();
  ir::NodeId stored_value(const ir::Store& s) const;
  void name_lane(const char* suffix);

  KernelContext& k_;
  const NestPlan& nest_;
  const PhasePlan& phase_;
  PointText at_;
  const RowCaches* caches_;
  size_t phase_index_;
  const std::map<ir::BufferId, LocalPlace>& locals_;
  int segments_ = 1;
  int current_ = 0;  // segment that is being written
  std::vector<int> level_;
  std::vector<bool> early_;     // loads, and what they need: written first, to wait together
  std::vector<bool> array_;     // kept in an array over the lanes
  std::set<ir::NodeId> quick_;  // quotients without branches
  // Load nodes -> (pack, element of it); packs whose load is written.
  std::map<ir::NodeId, std::pair<size_t, size_t>> in_pack_;
  std::set<size_t> written_packs_;
};

// Writes a nest, at the current place of the text.
void emit_nest(KernelContext& k, const NestPlan& nest);

}  // namespace heddle::cuda
