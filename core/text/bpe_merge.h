// The merging of BPE (Sennrich et al. 2016): from a piece's first symbols to
// its tokens. Knows only ids and the merge table.
#ifndef INLAY_CORE_TEXT_BPE_MERGE_H_
#define INLAY_CORE_TEXT_BPE_MERGE_H_

#include <cstdint>
#include <vector>

#include "core/text/bpe_merges.h"

namespace inlay {

// Working memory, kept between pieces so that none is allocated for each. Used
// by one thread at a time.
class BpeMerger {
 public:
  // The symbols to merge; the caller fills it before Merge.
  std::vector<int32_t>& symbols() { return symbols_; }

  // Merges symbols() until no pair merges: the lowest rank first, among equals
  // the leftmost. O(n log n).
  void Merge(const MergeTable& table);

 private:
  void MergeShort(const MergeTable& table);
  void MergeLong(const MergeTable& table);
  // Looks the pair at `pos` up anew and queues it if it merges.
  void Queue(const MergeTable& table, uint32_t pos);

  std::vector<int32_t> symbols_;
  std::vector<MergeTable::Merge> merges_;  // of the pair that starts here
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  std::vector<uint64_t> heap_;  // rank << 32 | position
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BPE_MERGE_H_
