#include "kernels/attention/attention_wide_lists.h"

#include <algorithm>

#include "kernels/attention/attention_cut.h"

namespace inlay {
namespace {

// Calls `row` with the keys of every row tile of every KV head, in the order in
// which they are dealt; not of sequences that become tiles.
template <typename Row>
void ForEachRow(const AttentionPlanShape& shape, const AttentionMask* mask,
                absl::Span<const AttentionSequence> sequences, const Row& row) {
  for (const AttentionSequence& sequence : sequences) {
    if (!BecomesItems(shape, mask, sequence)) continue;
    const int64_t rows = int64_t{sequence.q_len} * shape.group;
    for (int64_t i = 0; i < rows; i += shape.item_rows) {
      const KeyRange keys =
          KeysOf(shape, mask, sequence, RowTileItem(shape, sequence, i));
      for (int head = 0; head < shape.num_kv_heads; ++head) row(keys);
    }
  }
}

}  // namespace

int64_t WideLists::Take(int64_t begin, int64_t end, bool cut) {
  const int64_t overhead = kItemOverhead + (cut ? kWideCutOverhead : 0);
  const int64_t room = share_ - spent_ - overhead;
  if (end - begin <= room || cta_ + 1 == ctas_) {
    spent_ += end - begin + overhead;
    return end - begin;
  }
  const int64_t most = room - (cut ? 0 : kWideCutOverhead);
  const int64_t at =
      std::min(begin + most, end - kLeastWidePiece) / kKeyTile * kKeyTile;
  return at - begin < kLeastWidePiece ? 0 : at - begin;
}

int64_t WideShare(const AttentionPlanShape& shape, const AttentionMask* mask,
                  absl::Span<const AttentionSequence> sequences) {
  int64_t total = 0;
  ForEachRow(shape, mask, sequences, [&](const KeyRange& keys) {
    total += keys.end - keys.begin + kItemOverhead;
  });
  const auto fits = [&](int64_t share) {
    WideLists lists(share, shape.grid);
    ForEachRow(shape, mask, sequences, [&](const KeyRange& keys) {
      for (int64_t at = keys.begin;;) {
        const int64_t count = lists.Take(at, keys.end, at > keys.begin);
        at += count;
        if (at == keys.end) return;
        lists.NextCta();
      }
    });
    return lists.fits();
  };
  // With the larger share every CTA can be filled, whatever is cut.
  constexpr int64_t kPiece = kItemOverhead + kWideCutOverhead + kLeastWidePiece;
  int64_t low = CeilDiv(total, shape.grid);
  int64_t high = low + 2 * kPiece;
  while (high - low > kKeyTile) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace inlay
