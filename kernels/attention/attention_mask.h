// AttentionMask: what the queries of a step see beyond causal order and
// windows, compiled once a step from descriptions that are plain data: prefixes
// (prefix-LM), documents packed into one sequence, windows that reach both ways
// (encoders), and bitmaps over blocks of queries x blocks of keys. Every row of
// attention takes the compiled form; a CUDA plan makes lists of blocks of keys
// of it: unseen (not visited), seen by all rows of a tile (no mask arithmetic),
// or by some. Pure host code: no device, no state. Source: FlexAttention
// (arXiv:2412.05496), FlashMask (arXiv:2410.01359).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_MASK_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_MASK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/attention/attention.h"

namespace inlay {

// Of one sequence; positions are the sequence's. The query at p sees the key at
// k where all of this holds:
//   order      what AttentionDesc's causal and window say, or p < prefix and
//              k < prefix
//   documents  no document begins in (min(p, k), max(p, k)]
//   reach      |p - k| < reach
//   blocks     bit k / key_block of row p / query_block is set
// A description without any of them is AttentionDesc's alone.
struct AttentionMaskSpec {
  int32_t prefix = 0;
  absl::Span<const int32_t> documents;  // where they begin, ascending
  int32_t reach = 0;                    // 0: none
  // Rows of row_words words, bit 0 the lowest of the first word. Empty: none.
  absl::Span<const uint32_t> blocks;
  int32_t first_row = 0;  // which `blocks` begin with; no query is before it
  int32_t row_words = 0;
  int32_t query_block = 0;  // positions a row
  int32_t key_block = 0;    // positions a bit; a power of two
};

// What one query sees: keys [begin, end), of which, where there are bits, those
// whose bit is set: key k's is bit k >> key_shift, counted from word `bits`.
// The first and the last key are seen; of none, begin and end are 0. 16 bytes.
struct AttentionRowKeys {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t bits = -1;  // index into AttentionMask::bits; < 0: all are seen
  int32_t key_shift = 0;
};
static_assert(sizeof(AttentionRowKeys) == 16);

// For the causal order and window that it was compiled for. Keys between the
// first and the last that a step's queries of a sequence see must have been
// written, those too that bits hide from all of them; others need not exist.
struct AttentionMask {
  std::vector<AttentionRowKeys> rows;  // by row of q
  std::vector<uint32_t> bits;          // one word more than rows use

  bool Sees(const AttentionRowKeys& row, int64_t key) const {
    return key >= row.begin && key < row.end && BitOf(row, key);
  }
  // Of a key in [row.begin, row.end).
  bool BitOf(const AttentionRowKeys& row, int64_t key) const {
    if (row.bits < 0) return true;
    const int64_t bit = key >> row.key_shift;
    return (bits[static_cast<size_t>(row.bits + bit / 32)] >> bit % 32 & 1) !=
           0;
  }
};

// `specs` are of `sequences`, one each. INVALID_ARGUMENT where positions do not
// ascend, reach is negative, a bitmap is too small for kv_len or key_block is
// no power of two, and where a query lies in a prefix whose keys are not all
// there: prefixes are not cut into chunks.
absl::StatusOr<AttentionMask> CompileAttentionMask(
    const AttentionDesc& desc, absl::Span<const AttentionSequence> sequences,
    absl::Span<const AttentionMaskSpec> specs);

// What query `index` of `sequence` sees, with params.mask or without. Where
// keys are selected, they are counted in the query's selection.
inline AttentionRowKeys KeysOfQuery(const AttentionDesc& desc,
                                    const AttentionParams& params,
                                    const AttentionSequence& sequence,
                                    int64_t index) {
  if (params.mask != nullptr) {
    return params.mask->rows[static_cast<size_t>(sequence.q_begin + index)];
  }
  const auto position =
      static_cast<int32_t>(sequence.kv_len - sequence.q_len + index);
  AttentionRowKeys keys;
  keys.end = desc.causal ? position + 1 : sequence.kv_len;
  if (desc.selects > 0) keys.end = desc.mix.Count(desc.selects, position);
  if (desc.window > 0 && keys.end > desc.window) {
    keys.begin = keys.end - desc.window;
  }
  return keys;
}

// Whether any query of rows [first, first + count) of `mask` sees a key of
// [begin, end).
bool SeesAny(const AttentionMask& mask, int64_t first, int64_t count,
             int64_t begin, int64_t end);

// Blocks of keys in a row: `last`, the one before it, ... 8 bytes.
struct AttentionKeyRun {
  int32_t last;   // block n is keys [n * block_keys, (n + 1) * block_keys)
  int32_t count;  // > 0: every row sees every key; < 0: -count, some rows do
};
static_assert(sizeof(AttentionKeyRun) == 8);

// Runs that rows seeing keys of [0, kv_len) may need.
int64_t MaxAttentionKeyRuns(const AttentionMask& mask, int64_t first,
                            int64_t count, int64_t kv_len, int64_t block_keys);

// The blocks of `block_keys` keys that rows [first, first + count) need, from
// the last to the first, to `runs`; returns how many runs and adds up their
// blocks in `blocks`.
int64_t ListAttentionKeyRuns(const AttentionMask& mask, int64_t first,
                             int64_t count, int64_t block_keys,
                             AttentionKeyRun* runs, int32_t& blocks);

// ALiBi's slope of each head into slopes[num_heads], num_heads >= 1: powers of
// 2^(-8 / n); where n is no power of two, those of the power of two below, then
// every other one of the next. Source: arXiv:2108.12409.
void FillAlibiSlopes(int num_heads, float* slopes);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_MASK_H_
