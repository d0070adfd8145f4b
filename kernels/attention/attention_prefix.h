// Which sequences of a step share keys: groups whose block tables begin with
// the same blocks, and how the rows of a group lie in units. Internal to
// attention_plan.cc. Pure. Source: Hydragen (arXiv:2402.05099), cascade
// inference (FlashInfer, arXiv:2501.01005).
//
// A sequence is in one group at most, and a group has one length: prefixes of
// prefixes are shared at one of their lengths.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PREFIX_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PREFIX_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention_cut.h"

namespace inlay {

// True where sequences may share at all.
bool SharesPrefixes(const AttentionPlanShape& shape, int64_t sequences);

// What costs more where keys are shared, in keys: an item for shared keys loads
// its queries late and leaves results of all its rows; each member's own item
// leaves one too, and waits until that is known. Measured: CUDA.md.
inline constexpr int64_t kPrefixOverhead = 224;
inline constexpr int64_t kRestOverhead = kItemOverhead + 192;

struct PrefixGroup {
  int32_t first = 0;  // sequence; the others by PrefixNode::next
  int32_t sequences = 0;
  int64_t keys = 0;  // shared, a multiple of kKeyTile
};

// Of a sequence. All of these are in the plan's scratch.
struct PrefixNode {
  int32_t next = -1;   // of the group, or of those that begin alike; -1: none
  int32_t last = -1;   // of those that begin alike, where this is their first
  int32_t common = 0;  // keys, with the one that others are compared to
  int32_t blocks_begin = 0;
  bool grouped = false;
};

// A row tile of a sequence, in its place.
struct PrefixPiece {
  int32_t sequence = 0;
  int32_t unit = 0;         // among those of one item
  AttentionItem item = {};  // for the keys that are not shared: `rest`
  KeyRange rest;
};
// A unit has a row at least of each.
inline constexpr int kMostUnits = 8;
inline constexpr int kMostPieces = kMostUnits * kAttentionItemRows;

size_t PrefixScratchBytes(int64_t sequences);

class PrefixFinder {
 public:
  // `scratch`: PrefixScratchBytes(sequences.size()), 64-byte aligned. Both must
  // stay.
  PrefixFinder(const AttentionPlanShape& shape,
               absl::Span<const AttentionSequence> sequences,
               std::byte* scratch);

  // Finds the groups that pay. At most a few microseconds where nothing is
  // shared.
  void Find();
  // Its sequences read all of their keys themselves.
  void Dissolve(PrefixGroup& group);

  // Those without sequences are none.
  absl::Span<PrefixGroup> groups() { return {groups_, num_groups_}; }
  PrefixNode& node(int64_t sequence) { return nodes_[sequence]; }

 private:
  // Links those together that begin with the same block; whether any are.
  bool LinkByFirstBlock();
  // Groups out of the sequences linked from `first`.
  void Split(int32_t first);
  // How many keys `sequence` could share with `leader`.
  int64_t CommonKeys(int32_t leader, int32_t sequence) const;
  int64_t MostShared(int32_t sequence) const;
  // Of the sequences linked from `leader`, the length whose sharing saves most
  // for each that takes part; 0 where none pays.
  int64_t BestLength(int32_t leader);

  const AttentionPlanShape& shape_;
  absl::Span<const AttentionSequence> sequences_;
  PrefixNode* nodes_;
  PrefixGroup* groups_;
  int32_t* lengths_;  // as many as sequences
  int32_t* table_;    // a power of two, more than twice the sequences; -1: free
  size_t table_size_;
  size_t num_groups_ = 0;
};

// Deals a group's row tiles out to units, as many as one item takes at a time.
class PrefixPacker {
 public:
  PrefixPacker(const AttentionPlanShape& shape,
               absl::Span<const AttentionSequence> sequences,
               PrefixFinder& finder, const PrefixGroup& group)
      : shape_(shape),
        sequences_(sequences),
        finder_(finder),
        shared_keys_(group.keys),
        sequence_(group.first) {}

  // The next item's pieces; none are left where there are none.
  absl::Span<PrefixPiece> Next();
  // Of those.
  int num_units() const { return num_units_; }

 private:
  const AttentionPlanShape& shape_;
  absl::Span<const AttentionSequence> sequences_;
  PrefixFinder& finder_;
  int64_t shared_keys_;
  int32_t sequence_;
  int32_t row_ = 0;
  int num_units_ = 0;
  PrefixPiece pieces_[kMostPieces];
};

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PREFIX_H_
