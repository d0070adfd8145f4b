// The merging of BPE (Sennrich et al. 2016): from a piece's first symbols to
// its tokens. Knows only ids and the merge table.
#ifndef INLAY_CORE_TEXT_BPE_MERGE_H_
#define INLAY_CORE_TEXT_BPE_MERGE_H_

#include <cstdint>
#include <vector>

#include "core/text/bpe_merges.h"
#include "core/text/rank_queue.h"

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
  // The same with `queue`, an empty one.
  template <typename Queue>
  void MergeBy(const MergeTable& table, Queue* queue);

  std::vector<int32_t> symbols_;
  std::vector<MergeTable::Merge> merges_;  // of the pair that starts here
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  HeapQueue heap_;
  RankQueue ranks_;
};

}  // namespace inlay

#endif  // INLAY_CORE_TEXT_BPE_MERGE_H_
