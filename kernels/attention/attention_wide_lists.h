// How rows x keys of wide items are dealt out to CTAs: in order, a row whole
// where that is no slower than to cut it. Internal to attention_cut.cc.
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_WIDE_LISTS_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_WIDE_LISTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/attention/attention_plan.h"

namespace inlay {

// Costs are in keys. What a cut costs each of the two pieces: a partial result
// is 131 KB for 64 rows of 512, written and read again.
inline constexpr int64_t kWideCutOverhead = 160;
// A piece of a row that is cut has so many keys at least.
inline constexpr int64_t kLeastWidePiece = 256;

// The CTAs' lists, filled one after another up to `share`; the last takes all
// that is left.
class WideLists {
 public:
  WideLists(int64_t share, int ctas) : share_(share), ctas_(ctas) {}

  // How many of the keys [begin, end) of a row the current CTA takes, and
  // counts them; `cut`: other CTAs have keys of the row before `begin`. 0: it
  // has no room for a piece. All but the last piece end at a multiple of
  // kKeyTile.
  int64_t Take(int64_t begin, int64_t end, bool cut);
  void NextCta() {
    ++cta_;
    spent_ = 0;
  }
  // Whether no CTA has more than its share.
  bool fits() const { return spent_ <= share_ || cta_ + 1 < ctas_; }

 private:
  int64_t share_;
  int ctas_;
  int cta_ = 0;
  int64_t spent_ = 0;
};

// The least share with which all rows fit into the lists, to a tile or so.
int64_t WideShare(const AttentionPlanShape& shape, const AttentionMask* mask,
                  absl::Span<const AttentionSequence> sequences);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_WIDE_LISTS_H_
