// Every threshold of the scheduler, with its unit. Correctness never depends on them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::loop::limits {

// Costs are counted in simple scalar operations: see node_cost().
inline constexpr int64_t kLoadCost = 2;
inline constexpr int64_t kDivideCost = 8;  // div, rem, sqrt
inline constexpr int64_t kCallCost = 24;   // library functions

// A value with several users is computed again in each where it costs at most this, else it becomes
// a node of its own.
inline constexpr int64_t kDuplicateCost = 10;
// A producer that one consumer reads at several places (a stencil's taps) is computed at each of
// them up to this total.
inline constexpr int64_t kTapCost = 256;
// So are the producers of an operation's operands where it has at least so many.
inline constexpr int64_t kManyOperands = 6;
// A producer that is read again along an axis it does not have (a bias, a matrix product's
// operand): up to this.
inline constexpr int64_t kBroadcastCost = 12;
inline constexpr int64_t kContractedCost =
    2;  // ... by a reduction, where nothing can be moved out of the loop
inline constexpr int64_t kSmallAxis = 4;  // an axis up to this extent does not count as "again"
// Scalars are moved out of loops by the emitters, so they may cost more.
inline constexpr int64_t kScalarCost = 128;
// Longer bodies are cut.
inline constexpr int64_t kBodyCost = 1200;
inline constexpr int64_t kBodyDepth = 200;  // operations inlined into each other

// A value made in one phase and read at the same point of a later one is computed again up to this
// cost, else kept in a row_local buffer of at most kRowElements elements.
inline constexpr int64_t kRecomputeCost = 8;
inline constexpr int64_t kRowElements = 16 * 1024;

inline constexpr size_t kGroupReads = 48;    // buffers of one kernel
inline constexpr size_t kGroupMembers = 64;  // nodes of one kernel
inline constexpr int64_t kGroupCost = 6000;  // scalar operations of all its nodes

// Constants of at most this many equal elements are written into the bodies.
inline constexpr int64_t kSplatElements = 65536;

// A reduction is split into blocks where fewer independent rows than this are there ...
inline constexpr int64_t kHostRows = 64;
inline constexpr int64_t kDeviceRows = 264;
// ... and a row has at least this many elements,
inline constexpr int64_t kHostSplit = 32 * 1024;
inline constexpr int64_t kDeviceSplit = 8 * 1024;
// into blocks of this many elements,
inline constexpr int64_t kHostBlock = 16 * 1024;
inline constexpr int64_t kDeviceBlock = 4 * 1024;
inline constexpr int64_t kDeviceColumnBlock =
    512;  // of rows that a thread folds alone, column by column
// but at most this many blocks.
inline constexpr int64_t kMaxBlocks = 1024;
// A device scans rows of at least so many elements, at most so many of them and elements in all, in
// one pass: blocks of the grid hand their totals on.
inline constexpr int64_t kOnePassRow = 64 * 1024;
inline constexpr int64_t kOnePassRows = 64;
inline constexpr int64_t kOnePassElements = 16 * 1024 * 1024;
// Neighbouring columns that one worker folds together in a reduction over slower axes.
inline constexpr int64_t kColumnTile = 64;

// Reductions over slower axes on hosts go through memory line by line in blocks of at least
// kColumnRows rows, where columns have at least kColumnLength elements and all of them together
// kColumnElements: else each step down a column would be a miss of the address cache.
inline constexpr int64_t kColumnRows = 32;
inline constexpr int64_t kColumnLength = 256;
inline constexpr int64_t kColumnElements = 128 * 1024;

// A control operation becomes one kernel up to this many nests.
inline constexpr size_t kLoopNests = 24;

}  // namespace heddle::loop::limits
