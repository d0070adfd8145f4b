// AttentionPattern: sparse attention by position. A few numbers say which
// blocks of keys a block of queries sees, whatever the tokens are; from them
// come the bitmaps that attention_mask.h compiles, so that every row of
// attention skips what is not seen. Pure host code: no device, no state.
// Sources: Longformer (arXiv:2004.05150: window, dilation, global tokens), ETC
// (arXiv:2004.08483), BigBird (arXiv:2007.14062: window, global, random),
// Sparse Transformers (arXiv:1904.10509: strides), Star Attention
// (arXiv:2411.17116: an anchor block and the own segment, then all:
// "segment=4096,global=4096,context=65536"), attention sinks
// (arXiv:2309.17453).
#ifndef INLAY_KERNELS_ATTENTION_ATTENTION_PATTERN_H_
#define INLAY_KERNELS_ATTENTION_ATTENTION_PATTERN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/attention/attention_mask.h"
#include "kernels/attention/attention_plan.h"

namespace inlay {

// Lengths are positions and multiples of `block`; 0: not there. With n the
// block of the query and m that of the key, the query sees the key where at
// least one of these holds, and the causal order as well:
//   window    |n - m| < window / block
//   global    n or m is one of the first global / block blocks
//   segment   both lie in the same segment of so many positions
//   dilated   |n - m| is a multiple of dilation / block, and at most
//             dilated / dilation of them
//   stride    m is the last block of a stride of so many positions
//   random    m is one of random / block blocks drawn by `seed` and n: of those
//             before n where order is causal, otherwise of all
//   context   n is not one of the first context / block blocks: what follows
//             the context sees all of it
// A query always sees its own block, up to itself where order is causal.
struct AttentionPattern {
  int32_t block = 64;  // a power of two from 16 to 1024
  int32_t window = 0;
  int32_t global = 0;
  int32_t segment = 0;
  int32_t dilated = 0;
  int32_t dilation = 0;
  int32_t stride = 0;
  int32_t random = 0;
  int32_t context = 0;  // with another of these: alone it leaves nothing out
  uint32_t seed = 0;

  // Something is left out.
  bool any() const {
    return (window | global | segment | dilated | stride | random) != 0;
  }
};

// "window=1024,global=64,random=192": the members above by their names, in any
// order, each once. INVALID_ARGUMENT names what is wrong.
absl::StatusOr<AttentionPattern> ParseAttentionPattern(absl::string_view text);
// The same pattern in one spelling, "" for none.
std::string FormatAttentionPattern(const AttentionPattern& pattern);

// The rows of bits that one step of one sequence needs: those of its queries.
class AttentionPatternRows {
 public:
  // `causal` as AttentionDesc says it. `pattern` has been parsed or checked as
  // parsing does. Rows of queries that stand at the same positions are the same
  // in every step, and cost O(rows * kv_len / block / 32 + blocks seen).
  AttentionPatternRows(const AttentionPattern& pattern, bool causal,
                       const AttentionSequence& sequence);

  // Points into this.
  AttentionMaskSpec Spec() const;

 private:
  AttentionPattern pattern_;
  int32_t first_row_ = 0;
  int32_t row_words_ = 0;
  std::vector<uint32_t> words_;
};

// Adds to `limits` what masks by `pattern` need beside the rest. `longest`: the
// most keys of one sequence; not looked at where limits->graph.
void AddPatternLimits(const AttentionPattern& pattern,
                      const AttentionPlanShape& shape, int64_t longest,
                      AttentionPlanLimits* limits);

}  // namespace inlay

#endif  // INLAY_KERNELS_ATTENTION_ATTENTION_PATTERN_H_
