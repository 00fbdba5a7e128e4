// Nests as text: blocks that make transposed tiles, and blocks that share one scanned row.
#include "backend/cuda/nest_emitter.h"

namespace heddle::cuda {

// ---- a block makes a tile

// Coordinates of the tile: those outside it, and the tile's first points along its two axes.
void NestEmitter::tile_decode() {
  std::string rest = "q";
  for (size_t k = nest_.outer.size(); k-- > 0;) {
    int step = k == nest_.tile_axis          ? nest_.tile_rows
               : k + 1 == nest_.outer.size() ? nest_.tile_columns
                                             : 1;
    std::string extent = k_.names.text(nest_.outer[k].extent);
    if (step > 1) extent = base::cat("((", extent, " + ", step - 1, ") / ", step, ")");
    std::string digit = k == 0 ? rest : base::cat("hd_umod(", rest, ", ", extent, ")");
    k_.out.line("const idx ", step > 1 ? "first" : "o", k, " = ", digit,
                step > 1 ? base::cat(" * ", step) : "", ";");
    if (k > 0) {
      k_.out.line("const idx q", k, " = hd_udiv(", rest, ", ", extent, ");");
      rest = base::cat("q", k);
    }
  }
}

// The vectors of this thread on the loading side (fast along the tile axis) or on the storing side
// (along the last one).
void NestEmitter::tile_point(bool store_side) {
  size_t last = nest_.outer.size() - 1, other = nest_.tile_axis;
  size_t fast = store_side ? last : other, slow = store_side ? other : last;
  int line = (store_side ? nest_.tile_columns : nest_.tile_rows) / nest_.lanes;
  k_.out.open("HD_UNROLL for (int t = 0; t < ", tile_trips(), "; ++t)");
  k_.out.line("const int x = ((int)threadIdx.x + t * ", kTileThreads, ") % ", line, " * ",
              nest_.lanes, ", y = ((int)threadIdx.x + t * ", kTileThreads, ") / ", line, ";");
  k_.out.line("const idx o", fast, store_side ? "b" : "", " = first", fast, " + x;");
  k_.out.line("const idx o", slow, " = first", slow, " + y;");
  if (store_side && nest_.lanes == 1)
    k_.out.line("const idx o", last, " = o", last, "b; (void)o", last, ";");
  k_.out.open("if (o", fast, store_side ? "b" : "", " < ", k_.names.text(nest_.outer[fast].extent),
              " && o", slow, " < ", k_.names.text(nest_.outer[slow].extent), ")");
}

// All loads first, then the stores to shared memory.
void NestEmitter::tile_loads() {
  const PhasePlan& phase = nest_.phases[0];
  const ir::Body& b = phase.source->body;
  auto bytes = [&](uint32_t a) {
    return memory_bytes(k_.kernel.buffers[b.accesses[a].buffer].dtype) * nest_.lanes;
  };
  for (uint32_t a : nest_.staged)
    k_.out.line("hd_pack<", bytes(a), "> g", a, "[", tile_trips(), "];");
  tile_point(false);
  for (uint32_t a : nest_.staged) {
    ir::BufferId id = b.accesses[a].buffer;
    k_.out.line("g", a, "[t] = ", k_.read_only.count(id) != 0 ? "hd_load_const<" : "hd_load<",
                bytes(a), ">((const ", c_type(memory_type(k_.kernel.buffers[id].dtype)), "*)",
                k_.buffer(id), " + ", k_.names.text(phase.offsets[a]), ");");
  }
  k_.out.close();
  k_.out.close();
  tile_point(false);
  for (uint32_t a : nest_.staged) {
    const char* type = c_type(memory_type(k_.kernel.buffers[b.accesses[a].buffer].dtype));
    k_.out.line("HD_UNROLL for (int l = 0; l < ", nest_.lanes, "; ++l) tile", a,
                "[y][x + l] = hd_lane<", type, ">(g", a, "[t].w, l);");
  }
  k_.out.close();
  k_.out.close();
}

void NestEmitter::tile_nest() {
  const PhasePlan& phase = nest_.phases[0];
  const ir::Body& b = phase.source->body;
  for (uint32_t a : nest_.staged) {
    const char* type = c_type(memory_type(k_.kernel.buffers[b.accesses[a].buffer].dtype));
    k_.out.line("HD_SHARED ", type, " tile", a, "[", nest_.tile_columns, "][", nest_.tile_rows + 1,
                "];");
  }
  if (k_.exact) {
    k_.out.line("const idx q = (idx)blockIdx.x;");
    k_.out.open();
  } else {
    k_.out.open("for (idx q = (idx)blockIdx.x; q < ", k_.names.text(nest_.units()),
                "; q += (idx)gridDim.x)");
  }
  tile_decode();
  name_axes();
  tile_loads();
  k_.out.line("hd_sync();");
  tile_point(true);
  PointText at;
  at.flat = at.trip = "0";
  at.lane_name = base::cat("o", nest_.outer.size() - 1);
  for (uint32_t a : nest_.staged) at.staged[a] = base::cat("tile", a, "[x + l][y]");
  BodyEmitter body(k_, nest_, phase, at, nullptr, 0, locals_);
  body.whole();
  k_.out.close();
  k_.out.close();
  if (!k_.exact) k_.out.line("hd_sync();");
  k_.out.close();
}

// ---- all blocks share a scanned row

// One tile of the row; with `totals` only the fold of the values to scan.
void NestEmitter::chain_tile(bool totals) {
  const PhasePlan& phase = nest_.phases[0];
  k_.out.open("for (idx tile = begin; tile < end; tile += ", nest_.group * nest_.lanes, ")");
  k_.out.line("const bool in = tile + lane * ", nest_.lanes, " < end;");
  k_.out.line("const idx i0b = in ? tile + lane * ", nest_.lanes, " : 0;");
  PointText at;
  at.flat = "i0b";
  at.trip = "0";
  at.lane_name = "i0";
  at.store_guard = "in";
  BodyEmitter body(k_, nest_, phase, at, nullptr, 0, locals_);
  ir::NodeId scan = body.scans(1).at(0);
  const ir::Node& x = phase.source->body.nodes[scan];
  const char* op = fold_name(phase.source->body.scans[x.payload].op);
  body.prefix();
  body.declare_arrays();
  body.open_lanes();
  body.lanes(0);
  if (totals) k_.out.line("if (in) acc = ", op, "::f(acc, ", body.ref(x.a), ");");
  body.close_lanes();
  if (!totals) {
    scan_node(0, body, scan);
    body.open_lanes();
    body.lanes(1);
    body.close_lanes();
    body.stores();
  }
  k_.out.close();
}

ir::NodeId NestEmitter::only_scan() const {
  const ir::Body& b = nest_.phases[0].source->body;
  ir::NodeId scan = 0;
  while (b.nodes[scan].op != ir::ScalarOp::scan) ++scan;
  return scan;
}

// The vectors of this thread: first the values to scan, or, once what stands before them is known,
// the rest of the body.
void NestEmitter::lookback_vectors(bool second) {
  const PhasePlan& phase = nest_.phases[0];
  ir::NodeId scan = only_scan();
  const ir::Node& x = phase.source->body.nodes[scan];
  ir::Reduction r{phase.source->body.scans[x.payload].op, x.a, x.type, std::nullopt};
  const char* op = fold_name(r.op);
  int lanes = nest_.lanes;
  k_.out.open("HD_UNROLL for (int v = 0; v < ", nest_.vectors, "; ++v)");
  k_.out.line("const idx at = begin + (idx)((lane / 32 * ", nest_.vectors,
              " + v) * 32 + lane % 32) * ", lanes, ";");
  k_.out.line("const bool in = at < n; (void)in;");
  k_.out.line("const idx i0b = in ? at : 0;");
  PointText at;
  at.flat = "i0b";
  at.trip = "0";
  at.lane_name = "i0";
  at.store_guard = "in";
  BodyEmitter body(k_, nest_, phase, at, nullptr, 0, locals_);
  body.prefix();
  body.declare_arrays();
  body.open_lanes();
  body.lanes(0);
  if (!second) {
    k_.out.line("const ", c_type(x.type), " value = in ? ", body.ref(x.a), " : ", identity(r), ";");
    k_.out.line("S[v][l] = l == 0 ? value : ", op, "::f(S[v][l == 0 ? 0 : l - 1], value);");
    body.close_lanes();
  } else {
    k_.out.line("a", scan, "[l] = ", op, "::f(", op, "::f(carry, before[v]), S[v][l]);");
    body.close_lanes();
    body.open_lanes();
    body.lanes(1);
    body.close_lanes();
    body.stores();
  }
  k_.out.close();
}

// A block a tile, each warp a run of it. Blocks start in the order of their numbers, so that those
// before are running or done. Each adds the totals of all tiles before it in one fixed order: a sum
// has the same bits each time. The last block counts the launch once every block has read the
// count.
void NestEmitter::lookback_nest() {
  const PhasePlan& phase = nest_.phases[0];
  ir::NodeId scan = only_scan();
  const ir::Node& x = phase.source->body.nodes[scan];
  ir::Reduction r{phase.source->body.scans[x.payload].op, x.a, x.type, std::nullopt};
  const char* type = c_type(x.type);
  const char* op = fold_name(r.op);
  std::string none = identity(r);
  int group = nest_.group, warps = group / 32;
  int words = memory_bytes(x.type) == 8 ? 2 : 1;  // of a published total
  int64_t step = lookback_tile(nest_);
  k_.out.line("HD_SHARED ", type, " totals[", warps, "], sums[", warps, "];");
  k_.out.line("const int lane = (int)threadIdx.x;");
  k_.out.line("u64* launches = (u64*)hd_barrier + 2;");
  k_.out.line("const u32 tag = hd_launch_tag(launches);");
  k_.out.line("const idx n = ", k_.names.text(phase.inner[0].extent), ";");
  k_.out.line("const idx tiles = (n + ", step - 1, ") / ", step, ";");
  k_.out.line("const idx row = (idx)blockIdx.x / tiles, tile = (idx)blockIdx.x % tiles;");
  k_.out.line("const idx begin = tile * ", step, ";");
  k_.out.line("u64* words = (u64*)hd_parts + 4096 + row * tiles * ", words, ";");
  decode_outer("row", false);
  k_.out.line(type, " S[", nest_.vectors, "][", nest_.lanes, "], before[", nest_.vectors, "];");
  lookback_vectors(false);
  k_.out.line(type, " run = ", none, ";");
  k_.out.open("HD_UNROLL for (int v = 0; v < ", nest_.vectors, "; ++v)");
  k_.out.line(type, " all;");
  k_.out.line("before[v] = ", op, "::f(run, hd_group_scan<", op, ", 32>(S[v][", nest_.lanes - 1,
              "], (", type, ")", none, ", (", type, "*)nullptr, &all));");
  k_.out.line("run = ", op, "::f(run, all);");
  k_.out.close();
  k_.out.line("if (lane % 32 == 0) totals[lane / 32] = run;");
  k_.out.line("hd_sync();");
  k_.out.line(type, " all;");
  k_.out.line("const ", type, " ahead = hd_warps_before<", op, ", ", warps, ">(totals, (", type,
              ")", none, ", &all);");
  k_.out.line("if (lane == 0) hd_publish_total(words + tile * ", words, ", tag, all);");
  k_.out.line(type, " carry = ", none, ";");
  k_.out.line("for (idx k = lane; k < tile; k += ", group, ") carry = ", op,
              "::f(carry, hd_wait_total<", type, ">(words + k * ", words, ", tag));");
  k_.out.line("carry = hd_warp_fold<", op, ", 32>(carry);");
  k_.out.line("if (lane % 32 == 0) sums[lane / 32] = carry;");
  k_.out.line("hd_sync();");
  k_.out.line("carry = ", op, "::f(hd_fold_warps<", op, ", ", warps, ">(sums), ahead);");
  lookback_vectors(true);
  k_.out.open("if (blockIdx.x + 1 == gridDim.x)");
  k_.out.line("words = (u64*)hd_parts + 4096;");
  k_.out.line("for (idx k = lane; k < (idx)gridDim.x; k += ", group, ") hd_wait_word(words + k * ",
              words, ", tag);");
  k_.out.line("hd_sync();");
  k_.out.line("if (lane == 0) hd_publish(launches, (u64)tag);");
  k_.out.close();
}

void NestEmitter::chain_nest() {
  if (nest_.lookback) {
    lookback_nest();
    return;
  }
  const PhasePlan& phase = nest_.phases[0];
  const ir::Body& b = phase.source->body;
  ir::NodeId scan = only_scan();
  const ir::Node& x = b.nodes[scan];
  ir::Reduction r{b.scans[x.payload].op, x.a, x.type, std::nullopt};
  const char* type = c_type(x.type);
  const char* op = fold_name(r.op);
  int step = nest_.group * nest_.lanes;
  k_.out.line("HD_SHARED ", type, " w0_", scan, "[", nest_.group / 32, "];");
  k_.out.line("HD_SHARED ", type, " warps[", nest_.group / 32, "];");
  k_.out.line("", type, "* parts = (", type, "*)hd_parts;");
  k_.out.line("const int lane = (int)threadIdx.x;");
  k_.out.line("const idx n = ", k_.names.text(phase.inner[0].extent), ";");
  k_.out.line("const idx part = ((n + ", step - 1, ") / ", step,
              " + (idx)gridDim.x - 1) / (idx)gridDim.x * ", step, ";");
  k_.out.line(
      "const idx begin = hd_imin(n, (idx)blockIdx.x * part), end = hd_imin(n, begin + part);");
  k_.out.open("for (idx row = 0; row < ", k_.names.text(nest_.points()), "; ++row)");
  decode_outer("row", false);
  k_.out.line(type, " acc = ", identity(r), ";");
  chain_tile(true);
  k_.out.line("acc = hd_warp_fold<", op, ", 32>(acc);");
  k_.out.line("if ((lane & 31) == 0) warps[lane / 32] = acc;");
  k_.out.line("hd_sync();");
  k_.out.line("if (lane == 0) parts[blockIdx.x] = hd_fold_warps<", op, ", ", nest_.group / 32,
              ">(warps);");
  k_.out.line("hd_grid_sync(hd_barrier);");
  k_.out.line(type, " carry", scan, " = ", identity(r), ";");
  // The parts before this one, folded in a fixed order by the whole block.
  k_.out.line("acc = ", identity(r), ";");
  k_.out.line("for (int k = lane; k < (int)blockIdx.x; k += ", nest_.group, ") acc = ", op,
              "::f(acc, parts[k]);");
  k_.out.line("acc = hd_warp_fold<", op, ", 32>(acc);");
  k_.out.line("if ((lane & 31) == 0) warps[lane / 32] = acc;");
  k_.out.line("hd_sync();");
  k_.out.line("carry", scan, " = hd_fold_warps<", op, ", ", nest_.group / 32, ">(warps);");
  chain_tile(false);
  k_.out.line("hd_grid_sync(hd_barrier);");
  k_.out.close();
}

}  // namespace heddle::cuda
